"""What everybody holds of a server: a reference, valid across restarts and while it is down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import trio

from .._errors import (
    ActorCrashed,
    ActorError,
    ActorStopped,
    ConnectionLost,
    LimitExceeded,
    MailboxFull,
    ServerUnavailable,
)
from ..config import ToolRequest
from ._connection_errors import problem_of
from ._lifecycle import Reconnect, Start, Stop, change
from ._requests import CallTool, ListTools
from ._state import ACTIVE
from ._status import ServerStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.shared.dispatcher import ProgressFnT
    from mcp.types import CallToolResult, Tool

    from ..config import ServerConfig
    from ..kernel import ActorRef
    from ._deadlines import Deadline
    from ._lifecycle import Supervised
    from ._requests import Request
    from ._state import ServerState
    from ._status import ServerInfo

__all__ = ["ServerRef"]

T = TypeVar("T")


class ServerRef:
    """A reference to one server of a group. It stays valid across restarts.

    Requests may be sent from any task, as many at a time as one likes; ``max_in_flight`` of them are with the server
    at the same time, the others wait in order. While the server is down, requests wait for it to come back (unless it
    is configured with ``when_down="fail"``); once it will not come back by itself they fail at once.

    A request has the server's ``request_timeout`` from the call to the answer, whatever it waits for. There are no
    timeout arguments: callers that want less put ``trio.fail_after`` around.
    """

    def __init__(self, server: Supervised, lifecycle: ActorRef) -> None:
        self._server = server
        self._record = server.record
        self._actor = server.supervisor.child(server.name)
        self._lifecycle = lifecycle

    def __repr__(self) -> str:
        now = self._actor.statistics()
        return f"<ServerRef {self.name!r} {self.state}, {now.in_flight} in flight, {now.queued} queued>"

    @property
    def name(self) -> str:
        """Its configured name."""
        return self._record.config.name

    @property
    def config(self) -> ServerConfig:
        """What it was configured with."""
        return self._record.config

    @property
    def state(self) -> ServerState:
        """``pending, connecting, ready, backoff, failed, stopping`` or ``stopped``."""
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
            incarnation=record.incarnation,
            pid=record.pid,
            last_error=record.last_error,
            failures=record.failures,
            restarts=max(0, record.connects - 1),
            queued=actor.queued,
            in_flight=actor.in_flight,
            tools=len(record.tools),
        )

    async def wait_state(self, *states: ServerState) -> ServerState:
        """Wait until the state is one of these, and return it. A state that only flashes by may be missed.

        Raises:
            ServerUnavailable: the group was left in another state.
        """
        return await self._record.wait_state(*states)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool of this server. It is never sent twice.

        **Cancellation**: the caller leaves at once. A request that still waits is not sent; the server is told to
        cancel one that was sent, and whether that had its effect is unknown.

        Args:
            name: the tool's name as the server lists it (not its public name).
            arguments: JSON-like values by parameter name.
            progress: ``async (progress, total, message)``, called for each progress notice of the server.
            meta: the request's ``_meta``.

        Returns:
            The result as the SDK has it; one with ``is_error`` is returned, not raised.

        Raises:
            RequestTimedOut: there was no answer within ``request_timeout``, or no progress within ``progress_timeout``.
            ConnectionLost: the connection ended while the request was with the server.
            ServerUnavailable: the server does not serve and will not by itself.
            LimitExceeded: its mailbox is full and its overflow policy is ``"fail"``; or this was called from within
                one of the server's own requests while ``max_in_flight`` is 1.
            mcp.MCPError: the server's answer was an error.
        """
        with self._record.deadlines.begin(f"tools/call {name!r}") as deadline:
            tool = ToolRequest(server=self.name, name=name, arguments=arguments, meta=meta)
            return await self._ask(CallTool(tool, progress, deadline=deadline), deadline)

    async def list_tools(self) -> tuple[Tool, ...]:
        """Ask the server for all its tools, all pages of them; the group's catalogue follows.

        **Cancellation**: the caller leaves at once.

        Raises:
            RequestTimedOut, ConnectionLost, ServerUnavailable, LimitExceeded, mcp.MCPError: as for `call_tool`.
        """
        with self._record.deadlines.begin("tools/list") as deadline:
            return await self._ask(ListTools(deadline=deadline), deadline)

    async def _ask(self, request: Request[T], deadline: Deadline) -> T:
        """Send a message to the actor, and tell its failures in terms of servers."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._record.state not in ACTIVE:
            self._see_whether_to_wait()
        try:
            deadline.call = call = self._actor.send_request(request)
            return await call.wait()
        except ActorCrashed as exc:
            reason = _root_of(exc.__cause__)
        except ActorStopped as exc:
            failure = self._stopped_under(request) if exc.handed_over else self._unavailable()
            raise failure from self._record.error
        except MailboxFull:
            raise LimitExceeded(
                f"server {self.name!r}: {self.config.mailbox_size} requests wait already, which is its mailbox_size; "
                "send less at a time, raise mailbox_size, or use overflow='wait'",
                server=self.name,
            ) from None
        except ActorError:
            # What else the kernel refuses is a call from within a call while there is one slot.
            raise LimitExceeded(
                f"server {self.name!r}: was called from within one of its own requests, which would wait for itself "
                "while max_in_flight is 1; raise max_in_flight, or do not call it from there",
                server=self.name,
            ) from None
        why = f" ({problem_of(reason)})" if reason is not None else ""
        raise ConnectionLost(
            f"server {self.name!r}: the connection ended{why} while {request.operation} was with the server, "
            "which may have acted on it; send it again only if that does no harm",
            server=self.name,
        ) from reason

    def _see_whether_to_wait(self) -> None:
        """The server is down: wake it if it is lazy, or fail if that is what is wanted. Otherwise the request waits."""
        if self._record.dormant:
            self._wake()
        elif self.config.when_down == "fail" and self._record.error is not None:
            raise self._unavailable() from self._record.error

    def _wake(self) -> None:
        """Have a lazy server connected, and do not wait for it: requests wait in their places, as for any connect."""
        self._record.wanted = True
        self._lifecycle.tell_nowait(Start((self._server,)))

    def _stopped_under(self, request: Request[Any]) -> ServerUnavailable:
        return ServerUnavailable(
            f"server {self.name!r}: was stopped while {request.operation} was with it, and may have acted on it; "
            "send it again only if that does no harm",
            server=self.name,
            state=self.state,
            last_error=self._record.error,
            outcome="unknown",
        )

    def _unavailable(self) -> ServerUnavailable:
        state, error = self.state, self._record.error
        if self._lifecycle.state != "running":
            # The block has ended, and the servers are being stopped; `ServerRecord.left` comes after that.
            return self._record.group_left()
        if error is not None:
            what = f"is {state}: {problem_of(error)}; when that is mended, await its restart()"
        else:
            what = f"is {state}; await its start() to connect it again"
        return ServerUnavailable(f"server {self.name!r}: {what}", server=self.name, state=state, last_error=error)

    # --- life -------------------------------------------------------------------------------------------------------

    async def restart(self) -> None:
        """Disconnect if it is connected, and connect anew, with nothing of its restart budget spent.

        Requests that wait are served by the new connection; those that are with the server end in `ConnectionLost`.

        **Cancellation**: what has begun goes on.

        Raises:
            ConnectFailed: the server is required and could not be connected. If it is not required, see its state.
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
            ConnectFailed: the server is required and could not be connected. If it is not required, see its state.
            ServerUnavailable: the group was left.
        """
        await change(self._lifecycle, Start((self._server,)))

    async def wait_ready(self) -> None:
        """Wait until the server is ready.

        A lazy server that was not asked for yet is connected.

        **Cancellation**: changes nothing; a connect that has begun goes on.

        Raises:
            ServerUnavailable: it has failed or was stopped, so that waiting would be in vain.
        """
        if self._record.dormant:
            self._wake()
        if await self._record.wait_settled() != "ready":
            raise self._unavailable() from self._record.error


def _root_of(reason: BaseException | None) -> BaseException | None:
    """Why a connection was lost, where more is known than that it was."""
    if isinstance(reason, ConnectionLost) and reason.__cause__ is not None:
        return reason.__cause__
    return reason
