"""Prompts, completion and resources: messages, and the methods that send them.

The methods check arguments and capabilities before anything is sent, and cache no answer. `subscribe` is the only
method with a lasting effect: a subscription in the record, for the time of its block.

Owns: nothing.
Writes: subscriptions in the server's record; requests to the server.
Calls: catalog, config, servers.connection, servers.record, servers.requests, _caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from attrs import define
from mcp.types import (
    CompleteResult,
    GetPromptResult,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
)

from ..._misuse import explained_methods
from ...catalog._schemas import kind_of
from ...config import ProgressCallback, mask_url
from ..connection import Subscribe
from ..record import Subscription, require
from ..requests import (
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    ListAll,
    PlainRequest,
    given_object,
    given_text,
    given_texts,
    refused,
)
from ._caller import PendingRequest, RequestOptions, ServerRequests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...transports import Json
    from .._session import ConnectionSession
    from ..record import ConnectionRecord


@define(eq=False)
class GetPrompt(PlainRequest[GetPromptResult]):
    """Get a prompt, filled in with arguments."""

    method: ClassVar[str] = "prompts/get"
    model: ClassVar[type[GetPromptResult]] = GetPromptResult

    prompt: str
    arguments: dict[str, str] | None = None

    @property
    def operation(self) -> str:
        return f"prompts/get {self.prompt!r:.80}"

    @property
    def target(self) -> str:
        return self.prompt

    def check(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        require("prompts", session.capabilities, record.config.name, self.operation)

    def given(self) -> Json:
        return {"name": self.prompt} if self.arguments is None else {"name": self.prompt, "arguments": self.arguments}

    def blocks(self, result: dict[str, Any]) -> Iterable[dict[str, Any]]:
        return [message["content"] for message in result["messages"]]


@define(eq=False)
class Complete(PlainRequest[CompleteResult]):
    """Complete an argument of a prompt or of a resource template."""

    method: ClassVar[str] = "completion/complete"
    model: ClassVar[type[CompleteResult]] = CompleteResult

    ref: PromptReference | ResourceTemplateReference
    argument: dict[str, str]
    context_arguments: dict[str, str] | None = None

    @property
    def operation(self) -> str:
        ref = self.ref
        of = ref.name if isinstance(ref, PromptReference) else mask_url(ref.uri)
        return f"completion/complete {self.argument['name']!r:.80} of {of!r:.200}"

    def check(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        """Check for the completions capability. Servers of older versions may complete without declaring it."""
        if session.version >= "2025-03-26":
            require("completions", session.capabilities, record.config.name, self.operation)

    def given(self) -> Json:
        ref = self.ref.model_dump(by_alias=True, mode="json", exclude_none=True)
        known = {} if self.context_arguments is None else {"context": {"arguments": self.context_arguments}}
        return {"ref": ref, "argument": self.argument, **known}

    def _is_plain(self, result: dict[str, Any]) -> bool:
        # The protocol allows 100 values; the SDK's class for all versions allows more.
        return len(result["completion"]["values"]) <= 100 and super()._is_plain(result)


@explained_methods
class PromptFunctions(ServerRequests):
    """The methods of a `ServerRef` for prompts and completions."""

    async def list_prompts(self) -> tuple[Prompt, ...]:
        """Request all pages of the server's prompts.

        Empty for a server without the prompts capability. The result is not cached; list again after the event
        `PromptsChanged`.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListAll(PROMPTS))

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[RequestOptions]
    ) -> GetPromptResult:
        """Get a prompt, filled in with arguments.

        **Cancellation**: leaves at once.

        Args:
            name: the prompt's name as the server lists it.
            arguments: strings by parameter name.
            options: as for `call_tool`, apart from ``idempotent``.

        Returns:
            The SDK's result, with the prompt's ``messages``.

        Raises:
            InvalidArguments: `name` is not a string, or `arguments` does not map strings to strings. The server checks
                which arguments the prompt requires.
            NotSupported: the server has no prompts capability, or asks for input that was not offered.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self.send_get_prompt(name, arguments, **options).finish()

    def send_get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> PendingRequest[GetPromptResult]:
        """Prepare a `get_prompt` for a caller outside Trio (the asyncio bridge). The deadline starts now.

        Raises:
            InvalidArguments: as for `get_prompt`.
        """
        server, method = self.name, "prompts/get"
        given_text(server, method, "name", name)
        texts = None if arguments is None else given_texts(server, method, "arguments", arguments)
        meta = given_object(server, method, "meta", meta)
        return self._prepare(GetPrompt(name, texts, meta=meta, progress=progress))

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: Mapping[str, str],
        context_arguments: Mapping[str, str] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CompleteResult:
        """Request completions for an argument of a prompt or of a resource template.

        **Cancellation**: leaves at once.

        Args:
            ref: ``mcp.types.PromptReference(name="…")`` or ``mcp.types.ResourceTemplateReference(uri="…")``.
            argument: the argument's name and the text typed so far: ``{"name": "language", "value": "py"}``.
            context_arguments: the values of the other arguments, by name.
            progress: as for `call_tool`.
            meta: the request's ``_meta``.

        Returns:
            The SDK's result, with its ``completion``: at most 100 ``values``, their ``total`` and ``has_more``.

        Raises:
            InvalidArguments: an argument has the wrong type.
            NotSupported: the server has no completions capability.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self.send_complete(ref, argument, context_arguments, progress=progress, meta=meta).finish()

    def send_complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: Mapping[str, str],
        context_arguments: Mapping[str, str] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> PendingRequest[CompleteResult]:
        """Prepare a `complete` for a caller outside Trio (the asyncio bridge). The deadline starts now.

        Raises:
            InvalidArguments: as for `complete`.
        """
        server, method = self.name, "completion/complete"
        _check_ref(server, method, ref)
        asked = given_texts(server, method, "argument", argument)
        if asked.keys() != {"name", "value"}:
            problem = 'does not have exactly "name" and "value"; give {"name": "language", "value": "py"}'
            raise refused(server, method, "argument", (), problem)
        name = "context_arguments"
        known = None if context_arguments is None else given_texts(server, method, name, context_arguments)
        meta = given_object(server, method, "meta", meta)
        return self._prepare(Complete(ref, asked, known, meta=meta, progress=progress))


def _check_ref(server: str, method: str, ref: Any) -> None:
    if isinstance(ref, PromptReference):
        given_text(server, method, "ref", ref.name, "name")
    elif isinstance(ref, ResourceTemplateReference):
        given_text(server, method, "ref", ref.uri, "uri")
    else:
        problem = f"is {kind_of(ref)}; expected mcp.types.PromptReference(…) or ResourceTemplateReference(…)"
        raise refused(server, method, "ref", (), problem)


# --- Resources: their messages, and the methods that send them --------------------------------------------------------


@define(eq=False)
class ReadResource(PlainRequest[ReadResourceResult]):
    method: ClassVar[str] = "resources/read"
    model: ClassVar[type[ReadResourceResult]] = ReadResourceResult

    uri: str

    @property
    def operation(self) -> str:
        """``resources/read`` and the URI, with credentials masked."""
        return f"resources/read {mask_url(self.uri)!r:.200}"

    @property
    def subject(self) -> str:
        return mask_url(self.uri)

    def check(self, session: ConnectionSession, record: ConnectionRecord) -> None:
        require("resources", session.capabilities, record.config.name, self.operation)

    def given(self) -> Json:
        return {"uri": self.uri}


@explained_methods
class ResourceFunctions(ServerRequests):
    """The methods of a `ServerRef` for resources."""

    async def list_resources(self) -> tuple[Resource, ...]:
        """Request all pages of the server's resources.

        Empty for a server without the resources capability. The result is not cached; list again after the event
        `ResourcesChanged`. See also `resources`.

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

    async def read_resource(self, uri: str, **options: Unpack[RequestOptions]) -> ReadResourceResult:
        """Read a resource from the server; results are not cached.

        **Cancellation**: leaves at once.

        Args:
            uri: the resource's URI, as listed or made from a template.
            options: as for `call_tool`, apart from ``idempotent``.

        Returns:
            The SDK's result; each of its ``contents`` is a ``TextResourceContents`` with a ``text``, or a
            ``BlobResourceContents`` with a ``blob`` in Base64.

        Raises:
            InvalidArguments: `uri` is not a string that can be sent.
            NotSupported: the server has no resources capability, or asks for input that was not offered.
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self.send_read_resource(uri, **options).finish()

    def send_read_resource(
        self, uri: str, *, progress: ProgressCallback | None = None, meta: Mapping[str, Any] | None = None
    ) -> PendingRequest[ReadResourceResult]:
        """Prepare a `read_resource` for a caller outside Trio (the asyncio bridge). The deadline starts now.

        Raises:
            InvalidArguments: as for `read_resource`.
        """
        server, method = self.name, "resources/read"
        given_text(server, method, "uri", uri)
        meta = given_object(server, method, "meta", meta)
        return self._prepare(ReadResource(uri, meta=meta, progress=progress))

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

        **Cancellation**: leaves at once while subscribing.

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
        subscriptions, subscription = self._record.subscriptions, Subscription(given, self._caller.error_if_given_up)
        subscriptions.add(subscription)
        try:
            await self._ask(Subscribe(subscription))
            yield subscription
        finally:
            subscriptions.remove(subscription)
