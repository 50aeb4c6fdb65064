"""The reference that users hold to one server, valid across restarts.

Each method checks its arguments before its first checkpoint. A request goes to the `Caller`, a start or a stop to
``_operations``, an approval to the catalogue, and a sign-in to ``connection``.

Owns: tasks of health checks.
Writes: approved tools; deadlines of requests; mailboxes of server actors and the lifecycle actor; the token store.
Calls: auth, catalog, config, servers, servers.connection, servers.record, servers.requests, _caller, _operations,
_prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Never

import trio
from mcp.types import CallToolResult, LoggingLevel, Tool

from ..._errors import ServerError
from ..._misuse import CALL_ARGUMENTS, check_option, check_states, explained_methods, unknown_argument
from ..._tasks import fan_out
from ...auth import SignInRequired
from ...catalog import check_call, result_value
from ...config import ProgressCallback, SignInCallback
from .._admission import ToolChanges
from .._failures import stopped_meanwhile
from .._rules import Health
from ..connection import is_signed_in, sign_in_to, sign_out_of
from ..record import CONNECTED, SERVER_STATES, ServerState
from ..requests import CallTool, ListTools, SetLogLevel, TellRootsChanged, check_health, given_level, unhealthy
from ._caller import PendingRequest
from ._operations import reconnect, start, stop
from ._prompts import PromptFunctions, ResourceFunctions

if TYPE_CHECKING:
    from ...kernel import ActorRef
    from .._deadlines import Deadline
    from ..record import ConnectionRecord
    from ._operations import ServerEntry


@explained_methods
class ServerRef(ResourceFunctions, PromptFunctions):
    """A reference to one server of a group, valid across restarts.

    Any number of tasks may send requests at once; up to ``max_in_flight`` are sent to the server, further requests wait
    in order. While the server is down, requests wait for its return (or fail at once with ``when_down="fail"``).
    Requests to a server that will not come back by itself fail at once.

    The server's ``request_timeout`` covers the time from the call to the answer, including the wait in the queue.
    Methods take no timeout arguments: for a shorter limit use ``trio.fail_after``.
    """

    def __init__(self, server: ServerEntry, lifecycle: ActorRef) -> None:
        super().__init__(server, lifecycle)
        self._server = server
        self._actor = server.actor(server.name)
        self._lifecycle = lifecycle

    def __repr__(self) -> str:
        now = self._actor.statistics()
        return f"<ServerRef {self.name!r} {self.state}, {now.in_flight} in flight, {now.queued} queued>"

    async def wait_state(self, *states: ServerState) -> ServerState:
        """Wait for one of these states, and return the state. A very short state may be missed.

        **Cancellation**: ends only the wait.

        Raises:
            ServerUnavailable: the group was closed first, or has removed the server.
            ValueError: a state is unknown, or none was given.
        """
        check_states(f"server {self.name!r}", states, SERVER_STATES)
        return await self._record.life.wait_state(*states)

    # --- requests ---------------------------------------------------------------------------------------------------

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
        request, deadline = self._tool_call(name, arguments, progress, meta, idempotent, unknown)
        try:
            return await self._caller.ask(request, deadline)
        finally:
            deadline.end()

    def send_tool_call(
        self,
        /,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
        **unknown: Never,
    ) -> PendingRequest[CallToolResult]:
        """Prepare a `call_tool` for a caller outside Trio (the asyncio bridge). The deadline starts now.

        Raises:
            ToolNotFound, InvalidArguments: as for `call_tool`.
        """
        return PendingRequest(self._caller, *self._tool_call(name, arguments, progress, meta, idempotent, unknown))

    def _tool_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        progress: ProgressCallback | None,
        meta: Mapping[str, Any] | None,
        idempotent: bool | None,
        unknown: Mapping[str, Any],
    ) -> tuple[CallTool, Deadline]:
        """Validate a call and start its deadline."""
        if unknown:
            raise unknown_argument("call_tool()", next(iter(unknown)), CALL_ARGUMENTS)
        record = self._record
        checks = record.catalog.checks
        checks.check_request(name, meta)
        if progress is not None or idempotent is not None:
            who, valid = f"server {self.name!r}: tool {name!r}", progress is None or callable(progress)
            check_option(who, "progress", progress, "an async function or None", valid=valid)
            valid = idempotent in (None, True, False)
            check_option(who, "idempotent", idempotent, "True, False or None", valid=valid)
        deferred = record.catalog.deferred and any(remembered.name == name for remembered in record.catalog.tools)
        request = CallTool(name, arguments, meta, progress, idempotent, None, deferred)
        try:
            if record.config.middleware:  # which may add what is missing
                record.catalog.admission.check_call(name)
            else:
                request.prepare(record, checks)
        except ServerError as exc:
            if (observed := record.calls.deadlines.observed) is not None:
                observed.refused(CallTool.method, name, exc)
            raise
        return request, record.calls.deadlines.begin(request)

    async def list_tools(self) -> tuple[Tool, ...]:
        """Request all pages of the server's tools, and update the group's catalogue.

        Filtered tools and tools that wait for approval are left out. After a change notification in the meantime, the
        list is requested again in the background, and the catalogue waits for the second answer.

        **Cancellation**: leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListTools())

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
        await trio.lowlevel.checkpoint()
        self._record.catalog.approve(changes, names)

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
        await self._ask_each(partial(SetLogLevel, given_level(self.name, level)))

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the result of ``Callbacks.roots`` has changed.

        Nothing is sent to a server that is not connected, which asks for the roots after the connect; nor to a server
        with protocol 2026-07-28, which asks when it needs the roots.

        **Cancellation**: leaves at once.

        Raises:
            NotSupported: the server has no ``Callbacks.roots``.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError: as for `call_tool`.
        """
        if self._record.life.state in CONNECTED:
            await self._ask_each(TellRootsChanged)
        else:
            await trio.lowlevel.checkpoint()

    async def check_health(self) -> Health:
        """Check the server now. The check overtakes queued requests and takes no slot of ``max_in_flight``.

        The result counts like a periodic check (``ServerConfig.health``). Nothing is sent to a server that is not
        connected. With replicas, all connected ones are checked.

        **Cancellation**: leaves at once.

        Returns:
            ``"healthy"`` if the server answered within ``HealthPolicy.timeout``, else ``"unhealthy"`` and the reason;
            of several replicas, the worst result.
        """
        if self._record.life.is_gone:  # its connections have no health any more
            await trio.lowlevel.checkpoint()
            return unhealthy(self._record.life)
        results: list[Health] = []

        async def check(connection: ConnectionRecord) -> None:
            results.append(await check_health(connection, self._server.actor(connection.name)))

        await fan_out(check, self._record.connected, "check")
        return min(results, key=lambda result: (result.status == "healthy", -(result.latency or 0.0)))

    # --- life -------------------------------------------------------------------------------------------------------

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
        await reconnect(self._lifecycle, (self._server,))

    async def stop(self) -> None:
        """Disconnect the server and keep it stopped. Its requests fail at once, including those in flight.

        Returns when process, tasks and sockets are gone. Overtakes other changes, and so also ends a connect that
        hangs.

        **Cancellation**: leaves at once; the stop continues.

        Raises:
            ServerUnavailable: the group was closed, or has removed the server.
        """
        await stop(self._lifecycle, self._server)

    async def start(self) -> None:
        """Connect a server that was stopped or has failed.

        Does nothing for a server that runs or is about to be retried.

        **Cancellation**: leaves at once; the start continues.

        Raises:
            ConnectFailed: as for `restart`.
            ServerUnavailable: the server was stopped or removed meanwhile, or the group was closed.
        """
        await start(self._lifecycle, self._server)

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
        before = self._record.life.wanted
        await sign_in_to(self.config, show, self._record.life.error)
        wanted = self._record.life.wanted
        if wanted.mode == "stop" and wanted.generation != before.generation:
            raise stopped_meanwhile(self.config, self._record.life)
        await self.restart()
        await self.wait_ready()

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
        signed_out = await sign_out_of(self.config)
        if signed_out and self._record.life.wanted.mode == "run":
            with suppress(SignInRequired):
                await reconnect(self._lifecycle, (self._server,), ask=False)
        return signed_out

    async def signed_in(self) -> bool:
        """Return True if the token store has a sign-in for this server, including sign-ins of other programs.

        Nothing is sent, so the authorization server may have ended the sign-in meanwhile.

        **Cancellation**: leaves at once.

        Raises:
            ConfigError: as for `sign_out`.
            ConnectFailed: a credential of the configuration cannot be resolved.
        """
        return await is_signed_in(self.config)

    async def wait_ready(self) -> None:
        """Wait until the server serves requests (``ready`` or ``degraded``). A lazy server is connected.

        **Cancellation**: ends the wait; a connect continues.

        Raises:
            ServerUnavailable: the server has failed or was stopped, and is not being started; or an optional server has
                not answered within ``connect_timeout``, and keeps ``connecting``.
        """
        await trio.lowlevel.checkpoint()
        life, timeout = self._record.life, self.config.connect_timeout
        until = math.inf if self._record.required or timeout is None else trio.current_time() + timeout
        while (verdict := self._caller.verdict_of_ready) == "wait":
            if life.wanted.mode == "rest":
                self._caller.wake()
            with trio.move_on_at(until if life.overdue else math.inf) as scope:
                await life.wait_change()
            if scope.cancelled_caught:
                break
        if verdict != "done":
            raise self._caller.unavailable() from life.error
