"""Resources: their messages, and the methods that send them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from attrs import define
from mcp.types import ReadResourceResult, Resource, ResourceTemplate

from ..._misuse import explained_methods
from ...config import mask_url
from ..connection import Subscribe
from ..record import Subscription, require
from ..requests import (
    RESOURCES,
    TEMPLATES,
    ListAll,
    PlainRequest,
    given_text,
    refused,
)
from ._base import ServerRequests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ...transports import Json
    from ..record import ServerRecord
    from ..session import Session
    from ._pending import PendingRequest


@define(eq=False)
class ReadResource(PlainRequest[ReadResourceResult]):
    """Read a resource."""

    method: ClassVar[str] = "resources/read"
    model: ClassVar[type[ReadResourceResult]] = ReadResourceResult

    uri: str

    @property
    def operation(self) -> str:
        """``resources/read`` and the URI, with credentials masked."""
        return f"resources/read {mask_url(self.uri)!r:.200}"

    def check(self, session: Session, record: ServerRecord) -> None:
        """Check that the server has resources.

        Raises:
            NotSupported: it has no resources capability.
        """
        require("resources", session.capabilities, record.config.name, self.operation)

    def given(self) -> Json:
        """Return the URI."""
        return {"uri": self.uri}


@explained_methods
class ResourceFunctions(ServerRequests):
    """The methods of a `ServerRef` for resources."""

    @property
    def resources(self) -> tuple[Resource, ...]:
        """What the server listed last, with ``ServerConfig.keep_resources``; else empty. Do not change the objects.

        The event `ResourcesChanged` is emitted when this or `resource_templates` has changed.
        """
        return self._record.resources.resources

    @property
    def resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """The templates that the server listed last, like `resources`."""
        return self._record.resources.templates

    async def list_resources(self) -> tuple[Resource, ...]:
        """Request all pages of the server's resources.

        The result is empty for a server without the resources capability. It is not cached; the event
        `ResourcesChanged` says when to list them again. See also `resources`.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListAll(RESOURCES))

    async def list_resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """Request all pages of the server's resource templates; otherwise like `list_resources`.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListAll(TEMPLATES))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Read a resource from the server; results are not cached.

        **Cancellation**: leaves at once.

        Args:
            uri: the resource's URI, as listed or made from a template.

        Returns:
            The SDK's result; each of its ``contents`` is a ``TextResourceContents`` with a ``text``, or a
            ``BlobResourceContents`` with a ``blob`` in Base64.

        Raises:
            InvalidArguments: `uri` is not a string that can be sent.
            NotSupported: the server has no resources capability; or it asks for input that was not offered.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(self._read(uri))

    def send_read_resource(self, uri: str) -> PendingRequest[ReadResourceResult]:
        """Prepare a `read_resource` for a caller outside Trio (the asyncio bridge). Its deadline starts now.

        Raises:
            InvalidArguments: as for `read_resource`.
        """
        return self._prepare(self._read(uri))

    def _read(self, uri: str) -> ReadResource:
        return ReadResource(given_text(self.name, "resources/read", "uri", uri))

    @asynccontextmanager
    async def subscribe(self, *uris: str) -> AsyncIterator[Subscription]:
        """Subscribe to changes of resources while a block runs.

        ::

            async with notes.subscribe(uri) as changes:
                await notes.call_tool("add", {"page": "shopping", "line": "milk"})
                async for change in changes:
                    what = "may have changed" if change.missed else "has changed"
                    print(f"{uri} {what}: {await text_of(notes, uri)}")

        This works with every protocol version, and across restarts: the next connection subscribes again. Changes
        during the gap cannot be known, so each resource is then reported once as ``missed``; read it again. Over HTTP,
        since 2026-07-28, a subscription occupies one connection (``max_connections``) while its block runs, so
        subscribe to several resources at once.

        **Cancellation**: leaves at once while it subscribes.

        Args:
            uris: the URIs of the resources, at least one, as listed or made from a template.

        Yields:
            The changes: an async iterator of `ResourceUpdated`.

        Raises:
            InvalidArguments: a URI cannot be sent, or none was given.
            NotSupported: the server does not support subscriptions, or not to these resources.
            LimitExceeded: subscriptions already occupy all connections that requests can spare.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError, mcp.MCPError: as for
                `call_tool`.
        """
        method = "resources/subscribe"
        given = tuple(dict.fromkeys(given_text(self.name, method, "uri", uri) for uri in uris))
        if not given:
            raise refused(self.name, method, "uris", (), "is empty; give the URI of each resource")
        subscriptions, subscription = self._record.subscriptions, Subscription(given, self._caller.given_up)
        subscriptions.add(subscription)
        try:
            await self._ask(Subscribe(subscription))
            yield subscription
        finally:
            subscriptions.remove(subscription)
