"""The methods of a ref for asyncio programs.

Written by ``python -m tests.doors``; do not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Never, Unpack

from mcp.types import (
    CallToolResult,
    CompleteResult,
    GetPromptResult,
    LoggingLevel,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)

from .._misuse import explained_methods
from ..catalog import check_call, result_value
from ..config import ProgressCallback, SignInCallback
from ..servers import Health, ResourceUpdated, ServerState, ToolChanges
from ..servers.ref import RequestOptions
from ._bridge import AsyncioStream, open_stream
from ._callbacks import on_loop
from ._views import ServerView


@explained_methods
class AsyncioServerRef(ServerView):
    """A `mcp_actors.ServerRef` for asyncio programs."""

    __slots__ = ()

    async def wait_state(self, *states: ServerState) -> ServerState:
        """Wait for one of these states, and return the state. A very short state may be missed.

        **Cancellation**: ends only the wait.

        Raises:
            ServerUnavailable: the group was closed first, or has removed the server.
            ValueError: a state is unknown, or none was given.
        """
        return await self._bridge.call(self, partial(self._target.wait_state, *states))

    async def call(self, tool: str, /, *positional: Never, **arguments: Any) -> Any:
        """Call a tool of this server, and return its result as plain values.

        Combines `call_tool` and `result_value`: ``await servers["time"].call("convert", zone="Asia/Tokyo")``. Arguments
        that are not Python names, and options like ``progress``, need `call_tool`. An argument outside the tool's
        schema is logged with the nearest name, because most servers ignore it.

        **Cancellation**: as for `call_tool`.

        Args:
            tool: the tool's name as the server lists it (not its public name).
            positional: none; the tool's arguments have names.
            arguments: JSON-like values.

        Returns:
            JSON-like data, or `bytes` for binary content; see `result_value`.

        Raises:
            ToolFailed: the tool failed.
            TypeError: `arguments` has ``timeout``, ``progress``, ``meta`` or ``idempotent``, unknown to the tool.
            McpActorsError, mcp.MCPError: as for `call_tool`.
        """
        check_call(tool, positional, arguments, self._schema_of)
        return result_value(await self.call_tool(tool, arguments))

    async def call_tool(
        self,
        /,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
        **unknown: Never,
    ) -> CallToolResult:
        """Call a tool of this server.

        A call is retried, within the server's ``retry`` policy and ``request_timeout``, only if safe: nothing of the
        call was sent, or ``idempotent`` is True, or the annotations of a trusted server's tool allow it.

        **Cancellation**: leaves at once. A queued request is never sent. The server is asked to cancel a sent request,
        whose effect is unknown.

        Args:
            name: the tool's name as the server lists it (not its public name).
            arguments: JSON-like values by parameter name.
            progress: ``async (progress, total, message)``, called for each progress notification of the server.
            meta: the request's ``_meta``.
            idempotent: whether the call may be carried out more than once. None (default) uses the tool's annotations,
                if the server is trusted (``trust_annotations``).
            unknown: none; pass the tool's own arguments in `arguments`.

        Returns:
            The result as the SDK has it; a result with ``is_error`` is returned, not raised. For a tool that the server
            does not list, such a result is logged with the nearest listed names; an error has the names as a note.

        Raises:
            ToolNotFound: the tool is hidden by ``tool_filter``, or by ``on_tool_change`` until approved; or was
                ``deferred``, and the connected server does not list it. Nothing was sent.
            InvalidArguments: the arguments do not match the tool's schema (see ``ServerConfig.validate``), or another
                argument cannot be sent. Nothing was sent.
            RequestTimedOut: no answer arrived within ``request_timeout``, or no progress within ``progress_timeout``.
            ConnectionLost: the connection was lost after the request had been sent.
            ServerUnavailable: the server is down and will not come back by itself, or is down with
                ``when_down="fail"``; or its circuit breaker is open.
            ConnectFailed: a retry needed a connection of its own (``RetryPolicy.isolated``), which failed.
            LimitExceeded: the mailbox is full and its overflow policy is ``"fail"``; or the call would deadlock, for
                example from a callback of a server with ``max_in_flight=1``.
            HttpStatusError: an HTTP server answered with an error status.
            InvalidResult: the result does not match the tool's output schema (``validate="schema"`` only).
            NotSupported: the tool must be run as a task, or asks for input that was not offered.
            mcp.MCPError: the server answered with an error.
            Exception: a middleware raised it.
        """
        return await self._bridge.ask(
            self,
            partial(
                self._target.send_tool_call,
                name,
                arguments,
                progress=None if progress is None else on_loop(self._bridge, progress),
                meta=meta,
                idempotent=idempotent,
                **unknown,
            ),
        )

    async def list_tools(self) -> tuple[Tool, ...]:
        """Request all pages of the server's tools, and update the group's catalogue.

        Filtered tools and tools that wait for approval are left out. After a change notification in the meantime, the
        list is requested again in the background, and the catalogue waits for the second answer.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._bridge.call(self, self._target.list_tools)

    async def approve_tools(self, changes: ToolChanges, *names: str) -> None:
        """Approve added or changed tools, which are then listed and can be called.

        Only the reviewed version is approved: a tool that has changed again since stays hidden.

        Args:
            changes: the reviewed value of `tool_changes`.
            names: the tools to approve. Default: all.

        Raises:
            ToolNotFound: these changes do not include a tool of that name, or belong to another server; nothing was
                approved.
        """
        await self._bridge.call(self, partial(self._target.approve_tools, changes, *names))

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Set the lowest level of the server's log messages, for this connection and all later ones.

        Up to protocol 2025-11-25 the level is sent now and at every later connect. Since 2026-07-28 nothing is sent
        now, and every request carries the level. Callbacks get no message below the level, from any server.

        **Cancellation**: leaves at once; the server may already have changed its level.

        Args:
            level: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``, ``"error"``, ``"critical"``, ``"alert"`` or
                ``"emergency"``.

        Raises:
            InvalidArguments: the level is unknown.
            NotSupported: the server has no logging capability, so only callbacks keep to the level.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError, mcp.MCPError: as for
                `call_tool`.
        """
        await self._bridge.call(self, partial(self._target.set_log_level, level))

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the result of ``Callbacks.roots`` has changed.

        Nothing is sent to a server that is not connected, which asks for the roots after the connect; nor to a server
        with protocol 2026-07-28, which asks when it needs the roots.

        **Cancellation**: leaves at once.

        Raises:
            NotSupported: the server has no ``Callbacks.roots``.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError: as for `call_tool`.
        """
        await self._bridge.call(self, self._target.send_roots_list_changed)

    async def check_health(self) -> Health:
        """Check the server now. The check overtakes queued requests and takes no slot of ``max_in_flight``.

        The result counts like a periodic check (``ServerConfig.health``). Nothing is sent to a server that is not
        connected. With replicas, all connected ones are checked.

        **Cancellation**: leaves at once.

        Returns:
            ``"healthy"`` if the server answered within ``HealthPolicy.timeout``, else ``"unhealthy"`` and the reason;
            of several replicas, the worst result.
        """
        return await self._bridge.call(self, self._target.check_health)

    async def restart(self) -> None:
        """Close any connection, and connect again with a fresh restart budget.

        Requests in flight may be finished first, within ``drain_timeout`` (see `open_servers`); unfinished requests end
        with `ConnectionLost`. Other requests wait for the new connection. For a server that hangs, `stop` and `start`
        are faster.

        **Cancellation**: leaves at once; the restart continues.

        Raises:
            ConnectFailed: a required server could not be connected. The failure of an optional server shows in its
                state; one slower than ``connect_timeout`` is still ``connecting``.
            ServerUnavailable: the server was stopped or removed meanwhile, or the group was closed.
        """
        await self._bridge.call(self, self._target.restart)

    async def stop(self) -> None:
        """Disconnect the server and keep it stopped. Its requests fail at once, including those in flight.

        Returns when process, tasks and sockets are gone. Overtakes other changes, and so also ends a connect that
        hangs.

        **Cancellation**: leaves at once; the stop continues.

        Raises:
            ServerUnavailable: the group was closed, or has removed the server.
        """
        await self._bridge.call(self, self._target.stop)

    async def start(self) -> None:
        """Connect a server that was stopped or has failed.

        Does nothing for a server that runs or is about to be retried.

        **Cancellation**: leaves at once; the start continues.

        Raises:
            ConnectFailed: as for `restart`.
            ServerUnavailable: the server was stopped or removed meanwhile, or the group was closed.
        """
        await self._bridge.call(self, self._target.start)

    async def sign_in(self, *, show: SignInCallback | None = None) -> None:
        """Let a person sign in, then connect the server and wait until it serves.

        The person has ``OAuth.sign_in_timeout`` seconds. The tokens are stored for all processes of this user.

        **Cancellation**: ends the sign-in, and nothing is stored; a connect continues.

        Args:
            show: an async function that shows a URL to the person. It may return the code, or the redirect's URL, as
                pasted by the person. Default None: ``OAuth.on_sign_in``, or else the user's browser.

        Raises:
            SignInFailed: the person or the authorization server has refused, or the time is over.
            ConfigError: the server has no ``auth=OAuth()``, or the token store cannot be used.
            ConnectFailed: as for `sign_out`.
            ServerUnavailable: the server could not be connected afterwards, or `stop` was called during the sign-in.
        """
        await self._bridge.call(
            self, partial(self._target.sign_in, show=None if show is None else on_loop(self._bridge, show))
        )

    async def sign_out(self) -> bool:
        """Revoke the tokens if the authorization server offers that, forget them, and connect the server anew.

        Unless the server works without tokens, its state is then ``needs_auth``. The sign-in ends for all programs of
        this user with the same store. No person is asked to sign in again until an explicit restart. A stopped or lazy,
        unused server is not connected.

        **Cancellation**: leaves at once; a reconnect continues.

        Returns:
            False without tokens. Then nothing else was done.

        Raises:
            ConfigError: the server has no ``auth=OAuth()``, or the token store cannot be used.
            ConnectFailed: a credential of the configuration cannot be resolved, or as for `restart`.
            ServerUnavailable: as for `restart`.
        """
        return await self._bridge.call(self, self._target.sign_out)

    async def signed_in(self) -> bool:
        """Return True if the token store has a sign-in for this server, including sign-ins of other programs.

        Nothing is sent, so the authorization server may have ended the sign-in meanwhile.

        **Cancellation**: leaves at once.

        Raises:
            ConfigError: as for `sign_out`.
            ConnectFailed: a credential of the configuration cannot be resolved.
        """
        return await self._bridge.call(self, self._target.signed_in)

    async def wait_ready(self) -> None:
        """Wait until the server serves requests (``ready`` or ``degraded``). A lazy server is connected.

        **Cancellation**: ends the wait; a connect continues.

        Raises:
            ServerUnavailable: the server has failed or was stopped, and is not being started; or an optional server has
                not answered within ``connect_timeout``, and keeps ``connecting``.
        """
        await self._bridge.call(self, self._target.wait_ready)

    async def list_prompts(self) -> tuple[Prompt, ...]:
        """Request all pages of the server's prompts.

        Empty for a server without the prompts capability. The result is not cached; list again after the event
        `PromptsChanged`.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._bridge.call(self, self._target.list_prompts)

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
        if (progress := options.get("progress")) is not None:
            options["progress"] = on_loop(self._bridge, progress)
        return await self._bridge.ask(self, partial(self._target.send_get_prompt, name, arguments, **options))

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
        return await self._bridge.ask(
            self,
            partial(
                self._target.send_complete,
                ref,
                argument,
                context_arguments,
                progress=None if progress is None else on_loop(self._bridge, progress),
                meta=meta,
            ),
        )

    async def list_resources(self) -> tuple[Resource, ...]:
        """Request all pages of the server's resources.

        Empty for a server without the resources capability. The result is not cached; list again after the event
        `ResourcesChanged`. See also `resources`.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._bridge.call(self, self._target.list_resources)

    async def list_resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """Request all pages of the server's resource templates; otherwise like `list_resources`.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._bridge.call(self, self._target.list_resource_templates)

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
        if (progress := options.get("progress")) is not None:
            options["progress"] = on_loop(self._bridge, progress)
        return await self._bridge.ask(self, partial(self._target.send_read_resource, uri, **options))

    def subscribe(self, *uris: str) -> AbstractAsyncContextManager[AsyncioStream[ResourceUpdated]]:
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
        return open_stream(self._bridge, self, partial(self._target.subscribe, *uris))
