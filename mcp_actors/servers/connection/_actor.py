"""The server actor: one connection to one MCP server.

The owner task of a `ServerActor` enters the link, then the session, waits at the ``yield`` of `running`, and leaves
both in reverse order. Requests run outside the session's nurseries, so a failing transport raises errors in requests,
and cancels no task. `ConnectionPhase` draws the life of a connection.

Owns: the link; the session; tasks of the connection.
Writes: facts and errors in the server's records; progress of requests; requests to the server; this actor's mailbox;
its turn in the group's closing order.
Calls: config, kernel, servers, servers.record, servers.requests, transports, _callbacks, _direct, _negotiation,
_streams, _upkeep.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, closing
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import anyio
import trio
from mcp import MCPError
from mcp.client import InputRequiredRoundsExceededError
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR
from pydantic_core import ValidationError

from ..._collapse import is_failure
from ..._errors import ConnectFailed, ConnectionLost, ServerError
from ..._tasks import ClosingOrder
from ...config import Http, InProcess
from ...kernel import Actor, IgnoreStart, NotSent
from ...transports import ConnectionOver, Masker, open_link
from .._dispatcher import CarriedFailure, carried
from .._failures import (
    after_rounds,
    connect_failed,
    connection_lost,
    connection_over,
    known_failure,
    of_answer,
    reason_of_end,
    session_failed,
    too_many_rounds,
    tools_not_listed,
    unresponsive,
)
from ..record import NotificationsMissed, ServerInfo, SessionFacts as Facts, open_incoming
from ..requests import KeepResources, keep_checking, keep_log_level, list_all_tools
from ._callbacks import open_callbacks
from ._direct import DirectRequests, WindDown
from ._negotiation import Negotiation
from ._streams import ChangeStream, lists_that_change, renew_subscriptions
from ._upkeep import ask_to_sign_in, can_ask, keep_refreshed, keep_resources_listed, report_lifetime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractContextManager

    from ..._errors import ConnectPhase
    from ...config import ServerConfig
    from ...kernel import Later
    from ...transports import Link
    from .._dispatcher import Reports
    from .._rules import Verdict
    from .._session import ConnectionSession, SessionCallbacks
    from ..record import ConnectionRecord, MessageRelay
    from ..requests import Request
    from ._negotiation import ConnectLimits


T = TypeVar("T")


class ConnectionPhase(Enum):
    """The phase of a connection.

    ::

        opening --> negotiating --> listing --> serving --> winding down --> gone
           ^             |                         |                          ^
           +-------------+                         +--------------------------+

    A process may be started a second time, as a legacy server: back to opening. A failed connect has no further phase.
    A lost connection over stdio is gone at once, with its requests; over HTTP a connection winds down first: no more
    requests are sent, and sent requests are awaited. The first three values are also values of `ConnectFailed.phase`.
    """

    OPENING = "open"
    NEGOTIATING = "negotiate"
    LISTING = "list_tools"
    SERVING = "serving"
    WINDING_DOWN = "winding down"
    GONE = "gone"

    @property
    def connected(self) -> bool:
        """True once the connection serves, and afterwards."""
        return self in (ConnectionPhase.SERVING, ConnectionPhase.WINDING_DOWN, ConnectionPhase.GONE)


class ServerActor(Actor):
    """One incarnation of one server.

    Args:
        config: the configuration of the server.
        record_of: returns a connection's lasting record, by the name of the actor.
        closing: the order in which the group closes; None without a group.
    """

    slow_after: float | None = None  # requests have timeouts
    _control_slots = math.inf  # probes do not wait for each other

    def __init__(
        self,
        config: ServerConfig,
        record_of: Callable[[str], ConnectionRecord | None],
        closing: ClosingOrder | None = None,
    ) -> None:
        self.max_in_flight: int = config.max_in_flight
        # Handlers run user code that may call this server: progress callbacks, tools of an in-process server.
        self.reentrant: bool = self.max_in_flight > 1
        self.default_shutdown: float = config.stop_timeout
        self._record_of = record_of
        self._name = config.name
        self._link: Link | None = None
        self._phase = ConnectionPhase.OPENING
        self._hopeless = False
        self._wind_down = WindDown(self._end)
        self._closing = closing or ClosingOrder()
        self._direct: DirectRequests | None = None
        self._answered: dict[Reports, None] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        record = self._record_of(self.ref.name)
        assert record is not None
        del self._record_of
        self._record, life = record, record.life
        if life.ignored:
            raise IgnoreStart(keep_mailbox=life.wanted.mode in ("run", "rest"))
        config, negotiation = self._record.config, Negotiation(self._record)
        try:
            async with self._connection(negotiation):
                try:
                    yield
                    await self._closing.wait_turn(self._name)  # at once if the block of the group has not exited
                finally:
                    self._closing.begin(self._name)
        except BaseException as exc:
            if not is_failure(exc):
                raise
            self._masker.clean(exc)
            if self._phase.connected:
                self._record.life.note_failure(session_failed(self._name, exc, self._masker))
                raise
            if (known := known_failure(self._link, exc)) is not None:
                if type(known) is ConnectFailed and self._record.next_connect.worked:
                    known.hopeless = False  # a missing command or folder may come back
                raise known from known.__cause__
            failure = connect_failed(config, cast("ConnectPhase", self._phase.value), self._link, exc)
            cause = failure.__cause__
            negotiation.failed(cause)
            if cause is not None:
                cause.__context__ = None  # perhaps a group around the cause, and so a cycle
            raise failure from cause
        finally:
            self._record.session = Facts()
            self._record.keep_stderr()
            if self._phase.connected and self._link is not None and self._link.lifeline.lost:
                self._record.life.note_failure(reason_of_end(self._name, self._link))
            # Both refer to this object, and would keep the connection as cyclic garbage.
            self._direct, self._wind_down.end = None, lambda _: None
            if (session := vars(self).pop("_session", None)) is not None:
                vars(session.listener).clear()  # see `LinkDispatcher.run`

    @asynccontextmanager
    async def _connection(self, negotiation: Negotiation) -> AsyncIterator[None]:
        """Open a link and a session; once more after a sign-in, or if a process exits at ``server/discover``."""
        await ask_to_sign_in(self._record, self._record.life.error)  # required by a request of the last connection
        while True:
            try:
                async with self._attempt(negotiation):
                    yield
                    return
            except Exception as exc:
                again = self._phase is ConnectionPhase.NEGOTIATING and negotiation.switches_to_legacy(self._link, exc)
                required = known_failure(self._link, exc)
                if self._phase.connected or not (again or await ask_to_sign_in(self._record, required)):
                    raise
            # If the time-out expired during the first start, raise it before the phase is set back to opening.
            await trio.lowlevel.checkpoint_if_cancelled()

    @asynccontextmanager
    async def _attempt(self, negotiation: Negotiation) -> AsyncIterator[None]:
        self._phase = ConnectionPhase.OPENING
        async with (
            # The order matters. The limits are outermost, so they cover everything below. Callbacks come before
            # the link, and so end after: a callback that ignores cancellation cannot keep a process alive. The session
            # comes last, so it can still write while it closes.
            negotiation.limits() as limits,
            open_callbacks(self._record, self.join_handler) as questions,
            open_link(
                self._record.config,
                on_lost=self._link_lost,
                capacity=self._record.server.capacity,
                certificates=self._record.server.certificates,
            ) as link,
        ):
            self._link, self._phase = link, ConnectionPhase.NEGOTIATING
            self._record.session.masker = link.masker
            self._record.follow_stderr(lambda: link.obituary().stderr_tail)
            async with self._open_session(link, questions.for_session(), negotiation, limits):
                limits.connected()
                self._phase = ConnectionPhase.SERVING
                yield

    @asynccontextmanager
    async def _open_session(
        self, link: Link, callbacks: SessionCallbacks, negotiation: Negotiation, limits: ConnectLimits
    ) -> AsyncIterator[None]:
        async with (
            limits.follow(link),
            open_incoming(self._record.listeners, self._task_failed) as incoming,
            self._prefer_link_failure(link),
        ):
            callbacks["message_handler"] = incoming.handle
            session = self._session = negotiation.session(link, callbacks, self.join_handler)
            async with session.open():
                with closing(incoming):
                    await negotiation.agree(session, limits, incoming.tasks)
                    await self._begin(session, incoming)
                    negotiation.succeeded(session)
                    if link.lifeline.lost:
                        # A loss is reported only once, and `_link_lost` ignores a report before `SERVING`. So look
                        # here, and have no checkpoint from here to `SERVING`, or a lost connection would be served.
                        raise reason_of_end(self._name, link)
                    with self._restore_subscriptions(session, incoming):
                        yield

    @asynccontextmanager
    async def _prefer_link_failure(self, link: Link) -> AsyncIterator[None]:
        """Delay the error of a failed connect until the link knows the reason."""
        try:
            yield
        except Exception:
            if not self._phase.connected:
                await link.wait_obituary()
            raise

    async def _begin(self, session: ConnectionSession, incoming: MessageRelay) -> None:
        """List tools and resources, and start the tasks of the connection, before any request is served."""
        link = session.link
        self._phase = ConnectionPhase.LISTING
        # Modern servers announce changes only over a stream opened by the client.
        link.lifeline.on_gap.append(partial(incoming.listeners.tell, NotificationsMissed()))
        if lists := lists_that_change(session):
            await ChangeStream(self._name, session, incoming, lists, self._endpoint_gone).begin()
        # Mark lists stale before requesting: the answers then count as fresh. Marked afterwards, every list would be
        # requested again.
        self._record.listeners.tell(NotificationsMissed())
        show_tools = await list_tools(session, self._record, link)
        failure = await list_resources(session, self._record, link)
        self._remember(session, show_tools)
        self._check_health(link, incoming)
        if link.direct is not None and session.dispatcher.traffic is None:
            link.direct.on_room = self.take_again
            self._direct = DirectRequests(
                link.direct, session, self._record, self._wind_down, incoming.tasks, self._send, self._answered
            )
        incoming.tasks.start_soon(keep_refreshed, self._record, self.ref, name=f"{self._name}:refresh")
        if self._record.config.idle_timeout or self._record.config.max_lifetime:
            incoming.tasks.start_soon(report_lifetime, self._record, name=f"{self._name}:lifetime")
        if self._record.config.keep_resources:
            run = partial(keep_resources_listed, self._record, self.ref, failure)
            incoming.tasks.start_soon(run, name=f"{self._name}:resources")

    def _check_health(self, link: Link, incoming: MessageRelay) -> None:
        """Start the health checks, which may end the connection."""

        def end(verdict: Verdict) -> None:
            self._hopeless = verdict == "fail"
            if link.lifeline.exited:
                link.lifeline.lose()
            else:
                self._end(unresponsive(self._name, self._record.health.ladder.failures, self._record.health.problem))

        self._record.health.begin(link)
        incoming.tasks.start_soon(keep_checking, self._record, self.ref, end, name=f"{self._name}:health")

    def _restore_subscriptions(
        self, session: ConnectionSession, incoming: MessageRelay
    ) -> AbstractContextManager[None]:
        """Send the log level and the subscriptions of earlier connections again."""
        if self._record.next_connect.log_level is not None:
            incoming.tasks.start_soon(keep_log_level, self._record, self.ref, name=f"{self._name}:log level")
        return renew_subscriptions(session, session.link, incoming.tasks, self._record, self.ref)

    def _endpoint_gone(self, over: ConnectionOver) -> None:
        if self._phase.connected:  # else the handshake fails by itself
            self._wind_down_and_end(connection_over(self._name, over))

    def _remember(self, session: ConnectionSession, show_tools: Callable[[], None]) -> None:
        identity = session.listener.server_info
        self._record.session.pid, self._record.session.take_again = session.link.pid, self.take_again
        self._record.next_connect.worked = True
        self._record.server.info = ServerInfo(
            name=identity.name if identity is not None else None,
            version=identity.version if identity is not None else None,
            protocol_version=session.version,
            capabilities=session.capabilities,
            instructions=session.instructions,
        )
        show_tools()

    async def handle(self, message: Request[Any]) -> Any:
        deadline = message.deadline
        tries = 0 if deadline is None else deadline.tries
        if deadline is not None:
            deadline.handed_over(self._record.name)
        try:
            result = await self._send(message)
        except NotSent:
            if deadline is not None and deadline.tries == tries:  # else the next attempt was sent meanwhile
                deadline.put_back()
            raise
        reports, message.reports = message.reports, None
        if reports is None or reports.seen:
            return result
        later = self.defer(message, keep_slot=True)
        reports.answered(later, result, self._answered)
        return later

    def take(self, later: Later[Any]) -> bool:
        """Send a plain request without a task (see ``_direct``). `NotSent` keeps the request waiting."""
        if self._record.life.holding and not self._record.server.life.leaving:
            raise NotSent
        direct = self._direct
        return direct is not None and self._phase is ConnectionPhase.SERVING and direct.take(later)

    def ending(self) -> None:
        """Settle answered requests, and put back unwritten requests for the next connection."""
        for reports in tuple(self._answered):
            reports.hurry()
        if self._direct is not None:
            self._direct.pipe.withdraw_all()

    async def _send(self, message: Request[Any], ask: Callable[[], Awaitable[Any]] | None = None) -> Any:
        if self._wind_down.begun:
            await self._wind_down.wait()
            raise NotSent
        deadline = message.deadline
        message.begun = False
        self._wind_down.under_way += 1
        if deadline is not None:
            deadline.renew()
        try:
            return await (self._ask(message) if ask is None else ask())
        except (ServerError, ConnectionOver, CarriedFailure) as exc:
            failure = carried(exc)
        except (MCPError, ValidationError) as exc:
            if isinstance(exc, MCPError) and exc.code == CONNECTION_CLOSED and self._is_lost(exc):
                raise self._lost_by_request() from self._masker.clean(exc)
            assert self._link is not None  # it has brought the answer
            answer = of_answer(self._name, message.operation, self._link, exc)
            try:
                raise answer from answer.__cause__
            finally:
                del answer  # breaks a reference cycle, as below
        except InputRequiredRoundsExceededError as exc:
            raise too_many_rounds(self._name, message.operation) from exc
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as exc:
            raise self._lost_by_request() from exc
        finally:
            self._wind_down.note_ended()
            if deadline is not None:
                deadline.suspend()
        try:
            return await self._raise_failure(message, failure)
        finally:
            del failure  # its traceback refers to this frame

    async def _ask(self, message: Request[Any]) -> Any:
        try:
            return await message.send(self._session, self._record)
        except BaseException as exc:
            if isinstance(exc, Exception) or not is_failure(exc):
                raise
            # An in-process server runs in this task. A `BaseException` of a tool, such as asyncio's CancelledError,
            # would end the connection with all requests.
            reason = f"the in-process server raised {type(exc).__name__}: {exc}"
            raise MCPError(INTERNAL_ERROR, reason) from self._masker.clean(exc)

    async def _raise_failure(self, message: Request[Any], failure: Exception) -> NoReturn:
        """Raise the failure of a request, or requeue a request that provably had no effect."""
        self._masker.clean(failure)
        again = not message.begun or message.repeatable(self._record.server)
        if again and can_ask(self._record, failure):  # the next connection asks the person first
            await self._wind_down.wait(failure)
            raise NotSent
        if not isinstance(failure, ConnectionOver):
            message.session_refused = False
            raise after_rounds(message.operation, failure, begun=message.begun) from failure.__cause__
        if failure.refusal is not None and message.session_refused and not message.begun:
            raise failure.refusal
        message.session_refused = failure.refusal is not None
        lost = connection_over(self._name, failure)
        if message.begun:
            self._wind_down_and_end(lost)
            raise connection_over(self._name, failure)
        self._begin_to_wind_down()
        await self._wind_down.wait(lost)
        raise NotSent

    @property
    def _masker(self) -> Masker:
        return self._link.masker if self._link is not None else Masker()

    def _link_lost(self) -> None:
        """Note that the link is lost. A handshake fails by itself.

        Over a pipe, the link reports a loss even without a request.
        """
        if self._phase.connected:
            assert self._link is not None
            # Over HTTP each request has its own connection, so sent requests may still be answered.
            (self._wind_down_and_end if self._link.direct is None else self._end)(reason_of_end(self._name, self._link))

    def _wind_down_and_end(self, cause: Exception) -> None:
        """End the connection once all sent requests have ended."""
        self._begin_to_wind_down()
        self._wind_down.begin(cause)

    def _begin_to_wind_down(self) -> None:
        if self._phase is ConnectionPhase.SERVING:
            self._phase = ConnectionPhase.WINDING_DOWN

    def _end(self, cause: Exception) -> None:
        """End the connection at once, with its requests."""
        self._phase = ConnectionPhase.GONE
        self.fail(cause)

    def _task_failed(self, exc: Exception) -> None:
        """End the connection in the step in which its task fails; `running` raises the failure only later."""
        if self._phase.connected:
            self._end(session_failed(self._name, exc, self._masker))

    def _lost_by_request(self) -> ConnectionLost:
        """Return the error of a request that found the connection gone, and note this for `is_fatal`.

        Note nothing over HTTP while winding down: other requests may finish, and the original reason stays.
        """
        if not (self._wind_down.begun and isinstance(self._record.config.transport, Http)):
            self._phase = ConnectionPhase.GONE
        assert self._link is not None  # only an open link can be lost
        return connection_lost(self._name, self._link)

    def _is_lost(self, exc: MCPError) -> bool:
        # A server's own error may have this code and message. The link notices a loss, except in process.
        if self._link is None or self._link.lifeline.lost:
            return True
        return isinstance(self._record.config.transport, InProcess) and exc.message == "Connection closed"

    def is_fatal(self, exc: Exception) -> bool:
        """Return True if a request found the connection gone. Over HTTP, a lost request does not end the connection."""
        return self._phase is ConnectionPhase.GONE and isinstance(exc, ConnectionLost)

    def is_hopeless(self, exc: BaseException) -> bool:
        """Return True if another attempt to connect cannot help."""
        return self._hopeless or (isinstance(exc, ConnectFailed) and exc.hopeless and not can_ask(self._record, exc))


# --- List tools, and resources on request, before a connection serves -------------------------------------------------


async def list_tools(session: ConnectionSession, record: ConnectionRecord, link: Link) -> Callable[[], None]:
    """Send ``tools/list``. Return a function that shows the result, to call last.

    With ``static_tools`` a failure is not fatal, and half of ``connect_timeout`` is the limit.
    """
    catalog, ask = record.catalog, partial(list_all_tools, session, record)
    ticket = catalog.freshness.begin()
    if not record.config.static_tools:
        return partial(catalog.replace, ticket, await ask())
    listed = await _attempt(ask, record, link, partial(tools_not_listed, record.config.name))
    if isinstance(listed, Exception):
        return partial(catalog.use_static, ticket, listed)
    return partial(catalog.replace, ticket, listed)


async def list_resources(session: ConnectionSession, record: ConnectionRecord, link: Link) -> Exception | None:
    """List the resources to keep, if configured. Return the failure, which is not fatal, or None."""
    if not record.config.keep_resources:
        return None
    ask = partial(KeepResources().send, session, record)

    def late(seconds: float) -> Exception:
        return TimeoutError(f"timed out after {seconds:g} s, half of connect_timeout")

    failure = await _attempt(ask, record, link, late)
    if failure is not None:
        record.server.resources.mark_stale()
    return failure


async def _attempt(
    ask: Callable[[], Awaitable[T]], record: ConnectionRecord, link: Link, late: Callable[[float], Exception]
) -> T | Exception:
    """Send a request within half of ``connect_timeout``; return any failure but a lost connection."""
    timeout = record.config.connect_timeout
    seconds = math.inf if timeout is None else timeout / 2
    failure = late(seconds)
    with trio.move_on_after(seconds):
        try:
            return await ask()
        except Exception as exc:
            failure = exc
            link.masker.clean(failure)
            if link.lifeline.lost or isinstance(failure, ConnectionOver):
                raise
    return failure
