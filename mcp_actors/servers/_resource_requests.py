"""Resources: the messages about them, and the functions that send them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import frozen
from mcp.types import ReadResourceResult, Resource, ResourceTemplate

from ..config import mask_url
from ._asking import Asking
from ._given import given_text, refused
from ._pages import all_pages
from ._request import Request, meta_for
from ._subscribing import Subscribe
from ._subscriptions import Subscription
from ._supported import require

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp import Client

    from ._record import ServerRecord

__all__ = ["ListResourceTemplates", "ListResources", "ReadResource", "ResourceFunctions"]


@frozen
class ListResources(Request[tuple[Resource, ...]]):
    """List all resources, all pages of them."""

    @property
    def operation(self) -> str:
        """``resources/list``."""
        return "resources/list"

    async def send(self, client: Client, record: ServerRecord) -> tuple[Resource, ...]:
        """``resources/list``, as often as there are pages; a server without the resources capability has none."""
        if client.server_capabilities.resources is None:
            return ()
        meta = meta_for(client, record)
        return await all_pages(
            lambda cursor: client.list_resources(cursor=cursor, meta=meta, cache_mode="bypass"),
            lambda page: page.resources,
            record=record,
            what="resources",
        )


@frozen
class ListResourceTemplates(Request[tuple[ResourceTemplate, ...]]):
    """List all templates of resources, all pages of them."""

    @property
    def operation(self) -> str:
        """``resources/templates/list``."""
        return "resources/templates/list"

    async def send(self, client: Client, record: ServerRecord) -> tuple[ResourceTemplate, ...]:
        """``resources/templates/list``, as often as there are pages; without the capability there are none."""
        if client.server_capabilities.resources is None:
            return ()
        meta = meta_for(client, record)
        return await all_pages(
            lambda cursor: client.list_resource_templates(cursor=cursor, meta=meta, cache_mode="bypass"),
            lambda page: page.resource_templates,
            record=record,
            what="resource templates",
        )


@frozen
class ReadResource(Request[ReadResourceResult]):
    """Read a resource."""

    uri: str

    @property
    def operation(self) -> str:
        """``resources/read``, and which; without what may be a credential in it."""
        return f"resources/read {mask_url(self.uri)!r:.200}"

    async def send(self, client: Client, record: ServerRecord) -> ReadResourceResult:
        """``resources/read``.

        Raises:
            NotSupported: the server has no resources.
            mcp.MCPError: as for `Request.send`.
        """
        require("resources", client, record.config.name, self.operation)
        return await client.read_resource(self.uri, meta=meta_for(client, record), cache_mode="bypass")


class ResourceFunctions(Asking):
    """What can be asked of a server about its resources."""

    async def list_resources(self) -> tuple[Resource, ...]:
        """Ask the server for all its resources, all pages of them.

        A server without the resources capability has none, and is not asked. Nothing is kept here: who wants to keep a
        list hears in `ResourcesChanged` that there is another one.

        **Cancellation**: the caller leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListResources())

    async def list_resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """Ask the server for all its templates of resources, all pages of them; otherwise as `list_resources`.

        **Cancellation**: the caller leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListResourceTemplates())

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Read a resource, now: what was read before is not kept.

        **Cancellation**: the caller leaves at once.

        Args:
            uri: which one: as it was listed, or made from a template.

        Returns:
            Its ``contents``, as the SDK has them: each is a ``TextResourceContents`` with a ``text``, or a
            ``BlobResourceContents`` with a ``blob`` in Base64.

        Raises:
            InvalidArguments: `uri` cannot be sent.
            NotSupported: the server has no resources; or it asks for input that it was not offered.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ReadResource(_given_uri(self.name, "resources/read", uri)))

    @asynccontextmanager
    async def subscribe(self, *uris: str) -> AsyncIterator[Subscription]:
        """Hear of changes of resources, for as long as a block lasts.

        ::

            async with notes.subscribe(uri) as changes:
                await notes.call_tool("add", {"page": "shopping", "line": "milk"})
                async for change in changes:
                    what = "may have changed" if change.missed else "has changed"
                    print(f"{uri} {what}: {await text_of(notes, uri)}")

        It is the same for servers of all versions of the protocol, and goes on across restarts of the server: the next
        connection subscribes again. Changes in between were not told by anybody, so then each of the resources is given
        once as ``missed``: read it again. Over HTTP, since 2026-07-28, it takes a connection (``max_connections``) for
        as long as it lasts, so subscribe to several resources at once.

        **Cancellation**: while it subscribes the caller leaves at once.

        Args:
            uris: which resources, at least one; as they were listed, or made from a template.

        Yields:
            The changes: an async iterator of `ResourceUpdated`.

        Raises:
            InvalidArguments: a URI cannot be sent, or there is none.
            NotSupported: the server does not tell of changes, or not of these.
            LimitExceeded: all connections that requests can do without are taken by subscriptions.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError, mcp.MCPError: as for
                `call_tool`.
        """
        method = "resources/subscribe"
        given = tuple(dict.fromkeys(_given_uri(self.name, method, uri) for uri in uris))
        if not given:
            raise refused(self.name, method, "uris", (), "is empty; give the URI of each resource")
        subscriptions, subscription = self._record.subscriptions, Subscription(given, self._caller.given_up)
        subscriptions.add(subscription)
        try:
            await self._ask(Subscribe(subscription))
            yield subscription
        finally:
            subscriptions.remove(subscription)


def _given_uri(server: str, method: str, uri: object) -> str:
    """Return a URI that can be sent; whether there is such a resource is for the server to say.

    Raises:
        InvalidArguments: it is none.
    """
    return given_text(server, method, "uri", uri)
