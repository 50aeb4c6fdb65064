"""What everybody holds of a server: a reference, valid across restarts and while it is down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from .._errors import ServerUnavailable
from .._states import check_states
from ..config import ToolRequest
from ._health_checks import check_health
from ._lifecycle import Reconnect, Start, Stop, change
from ._log_level import SetLogLevel, given_level
from ._pending import PendingRequest
from ._prompt_requests import PromptFunctions
from ._resource_requests import ResourceFunctions
from ._roots import TellRootsChanged
from ._state import ACTIVE, CONNECTED, STATES
from ._status import ServerStatus
from ._tool_requests import CallTool, ListTools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.shared.dispatcher import ProgressFnT
    from mcp.types import CallToolResult, LoggingLevel, Tool

    from ..config import ServerConfig
    from ..kernel import ActorRef
    from ._admission import ToolChanges
    from ._deadlines import Deadline
    from ._health import Health
    from ._lifecycle import Supervised
    from ._state import ServerState
    from ._status import ServerInfo

__all__ = ["ServerRef"]


class ServerRef(ResourceFunctions, PromptFunctions):
    """A reference to one server of a group. It stays valid across restarts.

    Requests may be sent from any task, as many at a time as one likes; ``max_in_flight`` of them are with the server
    at the same time, the others wait in order. While the server is down, requests wait for it to come back (unless it
    is configured with ``when_down="fail"``); once it will not come back by itself they fail at once.

    A request has the server's ``request_timeout`` from the call to the answer, whatever it waits for. There are no
    timeout arguments: callers that want less put ``trio.fail_after`` around.
    """

    def __init__(self, server: Supervised, lifecycle: ActorRef) -> None:
        super().__init__(server, lifecycle)
        self._server = server
        self._actor = server.supervisor.child(server.name)
        self._lifecycle = lifecycle

    def __repr__(self) -> str:
        now = self._actor.statistics()
        return f"<ServerRef {self.name!r} {self.state}, {now.in_flight} in flight, {now.queued} queued>"

    @property
    def config(self) -> ServerConfig:
        """What it was configured with."""
        return self._record.config

    @property
    def state(self) -> ServerState:
        """``pending, connecting, ready, degraded, unhealthy, backoff, failed, stopping`` or ``stopped``."""
        return self._record.state

    @property
    def info(self) -> ServerInfo:
        """What the server said about itself when it was connected last.

        Raises:
            ServerUnavailable: it was never connected.
        """
        if self._record.info is None:
            raise ServerUnavailable(
                f"server {self.name!r}: was never connected, so nothing is known about it (it is {self.state}); "
                "await wait_state('ready') first",
                server=self.name,
                state=self.state,
                last_error=self._record.error,
            )
        return self._record.info

    def statistics(self) -> ServerStatus:
        """A snapshot, as frozen data."""
        record, actor = self._record, self._actor.statistics()
        return ServerStatus(
            name=self.name,
            state=record.state,
            since=record.since,
            changed_at=record.changed_at,
            retry_at=record.retry_at,
            reason=record.reason,
            incarnation=record.incarnation,
            pid=record.pid,
            last_error=record.last_error,
            failures=record.failures,
            restarts=max(0, record.connects - 1),
            queued=actor.queued,
            in_flight=actor.in_flight,
            tools=len(record.tools),
            health=record.health.status(connected=record.state in CONNECTED),
            latency=record.latency.snapshot(),
        )

    async def wait_state(self, *states: ServerState) -> ServerState:
        """Wait until the state is one of these, and return it. A state that only flashes by may be missed.

        **Cancellation**: only ends the waiting.

        Raises:
            ServerUnavailable: the group was left in another state.
            ValueError: there is no such state, or none was given.
        """
        check_states(f"server {self.name!r}", states, STATES)
        return await self._record.wait_state(*states)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
    ) -> CallToolResult:
        """Call a tool of this server.

        It is sent again, within the server's ``retry`` policy and its time, only if that cannot do harm: nothing of it
        was sent, ``idempotent`` is True, or the server is trusted and says of the tool that it may be repeated.

        **Cancellation**: the caller leaves at once. A request that still waits is not sent; the server is told to
        cancel one that was sent, and whether that had its effect is unknown.

        Args:
            name: the tool's name as the server lists it (not its public name).
            arguments: JSON-like values by parameter name.
            progress: ``async (progress, total, message)``, called for each progress notification of the server.
            meta: the request's ``_meta``.
            idempotent: whether this call may be carried out more than once. None leaves it to the tool's annotations,
                which count only if the server is trusted (``trust_annotations``).

        Returns:
            The result as the SDK has it; one with ``is_error`` is returned, not raised.

        Raises:
            ToolNotFound: the server's ``tools`` filter hides it, or its ``on_tool_change`` until it is approved; or it
                was ``deferred``, and once it was connected the server did not list it any more. Nothing was sent.
            InvalidArguments: the tool asks for other arguments (see ``ServerConfig.validate``); nothing was sent.
            RequestTimedOut: there was no answer within ``request_timeout``, or no progress within ``progress_timeout``.
            ConnectionLost: the connection ended while the request was with the server.
            ServerUnavailable: the server does not serve and will not by itself, or is down and configured with
                ``when_down="fail"``; or its breaker is open.
            ConnectFailed: a retry was to have a connection of its own (``RetryPolicy.isolated``) and got none.
            LimitExceeded: its mailbox is full and its overflow policy is ``"fail"``; or this call would
                deadlock, as from a callback of a server with ``max_in_flight=1``.
            HttpStatusError: an HTTP server's answer was a status that is no success.
            InvalidResult: with ``validate="schema"``, the result is not what the tool promises.
            NotSupported: the tool needs to be run as a task; or it asks for input that it was not offered.
            mcp.MCPError: the server's answer was an error.
            Exception: what a middleware raised.
        """
        request, deadline = self._tool_call(name, arguments, progress, meta, idempotent)
        with deadline:
            return await self._caller.ask(request, deadline)

    def send_tool_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool | None = None,
    ) -> PendingRequest[CallToolResult]:
        """Prepare what `call_tool` does, for callers that are no tasks of Trio's. Its deadline begins now.

        Raises:
            ToolNotFound, InvalidArguments: as for `call_tool`.
        """
        return PendingRequest(self._caller, *self._tool_call(name, arguments, progress, meta, idempotent))

    def _tool_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        progress: ProgressFnT | None,
        meta: Mapping[str, Any] | None,
        idempotent: bool | None,
    ) -> tuple[CallTool, Deadline]:
        """Check a call, and begin its deadline."""
        record = self._record
        record.checks.check_request(name, meta)
        record.catalog.admission.check_call(name)
        checks = None if record.config.middleware else record.checks  # middleware may add what is missing
        if checks is not None:
            arguments = checks.check_arguments(name, arguments)
        tool = ToolRequest(server=record.config.name, name=name, arguments=arguments, meta=meta)
        deferred = record.deferred and any(remembered.name == name for remembered in record.tools)
        deadline = record.deadlines.begin(f"tools/call {name!r}")
        return CallTool(tool, progress, idempotent, checks, deferred=deferred, deadline=deadline), deadline

    async def list_tools(self) -> tuple[Tool, ...]:
        """Ask the server for all its tools, all pages of them; the group's catalogue follows.

        Those that its filter hides, and those that wait for approval, are left out. If the server has said meanwhile
        that they have changed, it is asked again in the background, and the catalogue waits for that answer.

        **Cancellation**: the caller leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, ConnectFailed, LimitExceeded, HttpStatusError,
                mcp.MCPError: as for `call_tool`.
        """
        return await self._ask(ListTools())

    @property
    def tool_changes(self) -> ToolChanges:
        """What of its tools waits for approval, with ``on_tool_change="block"``; false if nothing does."""
        return self._record.catalog.admission.changes()

    async def approve_tools(self, changes: ToolChanges, *names: str) -> None:
        """Accept tools that were added or changed; they are shown, and may be called, from now on.

        What is accepted is what was looked at: a tool that has changed once more since then stays hidden.

        Args:
            changes: what `tool_changes` was when somebody looked at it.
            names: the tools to accept. None given: all of it.

        Raises:
            ToolNotFound: there is no such tool among these changes, or they are another server's; nothing was accepted.
        """
        await trio.lowlevel.checkpoint()
        self._record.catalog.approve(changes, names)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Have the server send log messages from a level on: by this connection, and by all that follow.

        Whatever protocol it speaks: before 2026-07-28 the server is told, at this and at every later connect; since
        then every request says from which level on it wants to hear, and nothing is sent for this one.

        **Cancellation**: the caller leaves at once; a server that was told may have taken it in.

        Args:
            level: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``, ``"error"``, ``"critical"``, ``"alert"`` or
                ``"emergency"``.

        Raises:
            InvalidArguments: there is no such level.
            NotSupported: the server sends no log messages.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError, mcp.MCPError: as for
                `call_tool`.
        """
        await self._ask(SetLogLevel(given_level(self.name, level)))

    async def send_roots_list_changed(self) -> None:
        """Tell the server that ``Callbacks.roots`` would answer differently now, so that it asks again.

        There is nothing to tell a server that is not connected, as it will ask when it is; nor one that speaks
        2026-07-28, which asks whenever it wants to know.

        **Cancellation**: the caller leaves at once.

        Raises:
            NotSupported: it has no such callback.
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, HttpStatusError: as for `call_tool`.
        """
        if self._record.state in CONNECTED:
            await self._ask(TellRootsChanged())
        else:
            await trio.lowlevel.checkpoint()

    async def check_health(self) -> Health:
        """Check the server now. The check overtakes queued requests and takes no slot of ``max_in_flight``.

        The result counts as that of any health check (``ServerConfig.health``). Nothing is sent to a server that is not
        connected.

        **Cancellation**: the caller leaves at once.

        Returns:
            ``"healthy"`` if it answered within ``HealthPolicy.timeout``, else ``"unhealthy"``, and why.
        """
        return await check_health(self._record, self._actor)

    # --- life -------------------------------------------------------------------------------------------------------

    async def restart(self) -> None:
        """Disconnect if it is connected, and connect anew, with nothing of its restart budget spent.

        Requests that wait are served by the new connection; those that are with the server end in `ConnectionLost`.

        **Cancellation**: what has begun goes on.

        Raises:
            ConnectFailed: the server is required and could not be connected. If it is not required, see its state, as
                one that takes longer than ``connect_timeout`` is still ``connecting``.
            ServerUnavailable: the group was left.
        """
        await change(self._lifecycle, Reconnect((self._server,)))

    async def stop(self) -> None:
        """Disconnect and stay so. Requests that wait fail at once. Returns when everything of it is gone.

        It overtakes other changes, so it also ends a connect that hangs.

        **Cancellation**: what has begun goes on.

        Raises:
            ServerUnavailable: the group was left.
        """
        await change(self._lifecycle, Stop((self._server,)))

    async def start(self) -> None:
        """Connect a server that was stopped or has failed. If it runs, or is about to be tried again, nothing happens.

        **Cancellation**: what has begun goes on.

        Raises:
            ConnectFailed: the server is required and could not be connected. If it is not required, see its state, as
                one that takes longer than ``connect_timeout`` is still ``connecting``.
            ServerUnavailable: the group was left.
        """
        await change(self._lifecycle, Start((self._server,)))

    async def wait_ready(self) -> None:
        """Wait until the server serves: it is ready, or degraded.

        A lazy server that was not asked for yet is connected.

        **Cancellation**: only ends the waiting; a connect that has begun goes on.

        Raises:
            ServerUnavailable: it has failed or was stopped, so that waiting would be in vain; or it is not required,
                and its process has not answered within ``connect_timeout``. It goes on ``connecting`` then.
        """
        if self._record.dormant:
            self._caller.wake()
        if await self._record.wait_connected() not in ACTIVE:
            raise self._caller.unavailable() from self._record.error
