"""The methods of a ref for programs without an event loop.

Written by ``python -m tests.doors``; do not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from ..bridge._views import ServerView
from ..catalog import check_call, result_value
from ..config import ProgressCallback, SignInCallback
from ..servers import Health, ServerState, ToolChanges
from ..servers.ref import RequestOptions
from ._wait import ThreadBridge, completed, in_caller


@explained_methods
class SyncServerRef(ServerView):
    """A `mcp_actors.ServerRef` for programs without an event loop."""

    __slots__ = ()

    _bridge: ThreadBridge

    def wait_state(self, *states: ServerState) -> ServerState:
        """Wait for one of these states, and return the state. A very short state may be missed.

        **Ctrl-C**: ends only the wait.

        Raises:
            ServerUnavailable: the group was closed first, or has removed the server.
            ValueError: a state is unknown, or none was given.
        """
        return completed(self._bridge.call(self, partial(self._target.wait_state, *states)))

    def call(self, tool: str, /, *positional: Never, **arguments: Any) -> Any:
        """Call a tool of this server, and return its result as plain values.

        Combines `call_tool` and `result_value`: ``servers["time"].call("convert", zone="Asia/Tokyo")``. Arguments
        that are not Python names, and options like ``progress``, need `call_tool`. An argument outside the tool's
        schema is logged with the nearest name, because most servers ignore it.

        **Ctrl-C**: as for `call_tool`.

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
        return result_value(self.call_tool(tool, arguments))

    def call_tool(
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

        **Ctrl-C**: leaves at once. A queued request is never sent. The server is asked to cancel a sent request,
        whose effect is unknown.

        Args:
            name: the tool's name as the server lists it (not its public name).
            arguments: JSON-like values by parameter name.
            progress: ``(progress, total, message)``, called for each progress notification of the server.
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
        return completed(
            self._bridge.ask(
                self,
                partial(
                    self._target.send_tool_call,
                    name,
                    arguments,
                    progress=None if progress is None else in_caller(self._bridge, progress),
                    meta=meta,
                    idempotent=idempotent,
                    **unknown,
                ),
            )
        )

    def list_tools(self) -> tuple[Tool, ...]:
        """Request all pages of the server's tools, and update the group's catalogue.

        Filtered tools and tools that wait for approval are left out. After a change notification in the meantime, the
        list is requested again in the background, and the catalogue waits for the second answer.

        **Ctrl-C**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return completed(self._bridge.call(self, self._target.list_tools))

    def approve_tools(self, changes: ToolChanges, *names: str) -> None:
        """Approve added or changed tools, which are then listed and can be called.

        Only the reviewed version is approved: a tool that has changed again since stays hidden.

        Args:
            changes: the reviewed value of `tool_changes`.
            names: the tools to approve. Default: all.

        Raises:
            ToolNotFound: these changes do not include a tool of that name, or belong to another server; nothing was
                approved.
        """
        completed(self._bridge.call(self, partial(self._target.approve_tools, changes, *names)))

    def set_log_level(self, level: LoggingLevel) -> None:
        """Set the lowest level of the server's log messages, for this connection and all later ones.

        Up to protocol 2025-11-25 the level is sent now and at every later connect. Since 2026-07-28 nothing is sent
        now, and every request carries the level. Callbacks get no message below the level, from any server.

        **Ctrl-C**: leaves at once; the server may already have changed its level.

        Args:
            level: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``, ``"error"``, ``"critical"``, ``"alert"`` or
                ``"emergency"``.

        Raises:
            InvalidArguments: the level is unknown.
            NotSupported: the server has no logging capability, so only callbacks keep to the level.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError, mcp.MCPError: as for
                `call_tool`.
        """
        completed(self._bridge.call(self, partial(self._target.set_log_level, level)))

    def send_roots_list_changed(self) -> None:
        """Notify the server that the result of ``Callbacks.roots`` has changed.

        Nothing is sent to a server that is not connected, which asks for the roots after the connect; nor to a server
        with protocol 2026-07-28, which asks when it needs the roots.

        **Ctrl-C**: leaves at once.

        Raises:
            NotSupported: the server has no ``Callbacks.roots``.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError: as for `call_tool`.
        """
        completed(self._bridge.call(self, self._target.send_roots_list_changed))

    def check_health(self) -> Health:
        """Check the server now. The check overtakes queued requests and takes no slot of ``max_in_flight``.

        The result counts like a periodic check (``ServerConfig.health``). Nothing is sent to a server that is not
        connected. With replicas, all connected ones are checked.

        **Ctrl-C**: leaves at once.

        Returns:
            ``"healthy"`` if the server answered within ``HealthPolicy.timeout``, else ``"unhealthy"`` and the reason;
            of several replicas, the worst result.
        """
        return completed(self._bridge.call(self, self._target.check_health))

    def restart(self) -> None:
        """Close any connection, and connect again with a fresh restart budget.

        Requests in flight may be finished first, within ``drain_timeout`` (see `open_servers`); unfinished requests end
        with `ConnectionLost`. Other requests wait for the new connection. For a server that hangs, `stop` and `start`
        are faster.

        **Ctrl-C**: leaves at once; the restart continues.

        Raises:
            ConnectFailed: a required server could not be connected. The failure of an optional server shows in its
                state; one slower than ``connect_timeout`` is still ``connecting``.
            ServerUnavailable: the server was stopped or removed meanwhile, or the group was closed.
        """
        completed(self._bridge.call(self, self._target.restart))

    def stop(self) -> None:
        """Disconnect the server and keep it stopped. Its requests fail at once, including those in flight.

        Returns when process, tasks and sockets are gone. Overtakes other changes, and so also ends a connect that
        hangs.

        **Ctrl-C**: leaves at once; the stop continues.

        Raises:
            ServerUnavailable: the group was closed, or has removed the server.
        """
        completed(self._bridge.call(self, self._target.stop))

    def start(self) -> None:
        """Connect a server that was stopped or has failed.

        Does nothing for a server that runs or is about to be retried.

        **Ctrl-C**: leaves at once; the start continues.

        Raises:
            ConnectFailed: as for `restart`.
            ServerUnavailable: the server was stopped or removed meanwhile, or the group was closed.
        """
        completed(self._bridge.call(self, self._target.start))

    def sign_in(self, *, show: SignInCallback | None = None) -> None:
        """Let a person sign in, then connect the server and wait until it serves.

        The person has ``OAuth.sign_in_timeout`` seconds. The tokens are stored for all processes of this user.

        **Ctrl-C**: ends the sign-in, and nothing is stored; a connect continues.

        Args:
            show: a function that shows a URL to the person. It may return the code, or the redirect's URL, as
                pasted by the person. Default None: ``OAuth.on_sign_in``, or else the user's browser.

        Raises:
            SignInFailed: the person or the authorization server has refused, or the time is over.
            ConfigError: the server has no ``auth=OAuth()``, or the token store cannot be used.
            ConnectFailed: as for `sign_out`.
            ServerUnavailable: the server could not be connected afterwards, or `stop` was called during the sign-in.
        """
        completed(
            self._bridge.call(
                self, partial(self._target.sign_in, show=None if show is None else in_caller(self._bridge, show))
            )
        )

    def sign_out(self) -> bool:
        """Revoke the tokens if the authorization server offers that, forget them, and connect the server anew.

        Unless the server works without tokens, its state is then ``needs_auth``. The sign-in ends for all programs of
        this user with the same store. No person is asked to sign in again until an explicit restart. A stopped or lazy,
        unused server is not connected.

        **Ctrl-C**: leaves at once; a reconnect continues.

        Returns:
            False without tokens. Then nothing else was done.

        Raises:
            ConfigError: the server has no ``auth=OAuth()``, or the token store cannot be used.
            ConnectFailed: a credential of the configuration cannot be resolved, or as for `restart`.
            ServerUnavailable: as for `restart`.
        """
        return completed(self._bridge.call(self, self._target.sign_out))

    def signed_in(self) -> bool:
        """Return True if the token store has a sign-in for this server, including sign-ins of other programs.

        Nothing is sent, so the authorization server may have ended the sign-in meanwhile.

        **Ctrl-C**: leaves at once.

        Raises:
            ConfigError: as for `sign_out`.
            ConnectFailed: a credential of the configuration cannot be resolved.
        """
        return completed(self._bridge.call(self, self._target.signed_in))

    def wait_ready(self) -> None:
        """Wait until the server serves requests (``ready`` or ``degraded``). A lazy server is connected.

        **Ctrl-C**: ends the wait; a connect continues.

        Raises:
            ServerUnavailable: the server has failed or was stopped, and is not being started; or an optional server has
                not answered within ``connect_timeout``, and keeps ``connecting``.
        """
        completed(self._bridge.call(self, self._target.wait_ready))

    def list_prompts(self) -> tuple[Prompt, ...]:
        """Request all pages of the server's prompts.

        Empty for a server without the prompts capability. The result is not cached; list again after the event
        `PromptsChanged`.

        **Ctrl-C**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return completed(self._bridge.call(self, self._target.list_prompts))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[RequestOptions]
    ) -> GetPromptResult:
        """Get a prompt, filled in with arguments.

        **Ctrl-C**: leaves at once.

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
            options["progress"] = in_caller(self._bridge, progress)
        return completed(self._bridge.ask(self, partial(self._target.send_get_prompt, name, arguments, **options)))

    def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: Mapping[str, str],
        context_arguments: Mapping[str, str] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CompleteResult:
        """Request completions for an argument of a prompt or of a resource template.

        **Ctrl-C**: leaves at once.

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
        return completed(
            self._bridge.ask(
                self,
                partial(
                    self._target.send_complete,
                    ref,
                    argument,
                    context_arguments,
                    progress=None if progress is None else in_caller(self._bridge, progress),
                    meta=meta,
                ),
            )
        )

    def list_resources(self) -> tuple[Resource, ...]:
        """Request all pages of the server's resources.

        Empty for a server without the resources capability. The result is not cached; list again after the event
        `ResourcesChanged`. See also `resources`.

        **Ctrl-C**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return completed(self._bridge.call(self, self._target.list_resources))

    def list_resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """Request all pages of the server's resource templates; otherwise like `list_resources`.

        **Ctrl-C**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return completed(self._bridge.call(self, self._target.list_resource_templates))

    def read_resource(self, uri: str, **options: Unpack[RequestOptions]) -> ReadResourceResult:
        """Read a resource from the server; results are not cached.

        **Ctrl-C**: leaves at once.

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
            options["progress"] = in_caller(self._bridge, progress)
        return completed(self._bridge.ask(self, partial(self._target.send_read_resource, uri, **options)))
