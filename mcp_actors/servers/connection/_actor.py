"""The server actor: one connection to one MCP server, from its first byte to its last, in one task.

Which task enters, which leaves: the owner task enters the link, then ``mcp.Client``, waits at the yield, and leaves
both in reverse. Requests run in tasks *outside* the client's nurseries, so a dying transport gives them errors and does
not cancel them. A cancel scope is around all of it, whose deadline is lifted once connected (`_patience`). A server
that does not survive the question for its era is connected to a second time (`_negotiation`).

The end is noticed without traffic: the link calls `_lost` the moment its other side is gone.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import anyio
import trio
from mcp import MCPError
from mcp.client import InputRequiredRoundsExceededError
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR
from pydantic_core import ValidationError

from ..._collapse import is_failure
from ..._errors import ConnectFailed, ConnectionLost, ConnectPhase
from ...config import InProcess
from ...kernel import Actor, IgnoreStart, NotSent
from ..basics import ClosingOrder, ConnectionOver, current_trace, open_trace
from ..record import NotificationsMissed, ServerInfo, open_incoming
from ..requests import keep_checking, keep_log_level, list_all_tools, send_through
from ..transports import Masker, open_link, refuse_unreadable
from ._drain import Departure
from ._failures import (
    TimedOut,
    answer_not_understood,
    connect_failed,
    connect_timed_out,
    connection_lost,
    connection_over,
    session_failed,
    tools_not_listed,
    unresponsive,
)
from ._input_required import attend_to_questions, too_many_rounds
from ._negotiation import Negotiation
from ._unchecked import leave_results_unchecked
from .callbacks import open_callbacks
from .upkeep import Listening, keep_refreshed, lists_that_change, subscribing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from ..basics import RequestTrace
    from ..policy import Verdict
    from ..record import ClientCallbacks, Incoming, ServerRecord
    from ..requests import Request
    from ..transports import Link
    from ._patience import Patience

__all__ = ["ServerActor"]

LIST_SHARE: Final = 1 / 2
"""Part of the connect time-out that a server has to list its tools if there are static ones to do without."""


class ServerActor(Actor):
    """One incarnation of one server.

    Args:
        record: the record of the server, which outlives it.
        closing: the order in which the group closes; None for a server that belongs to no group.
    """

    def __init__(self, record: ServerRecord, closing: ClosingOrder | None = None) -> None:
        self.max_in_flight = record.config.max_in_flight
        # Foreign code runs in handlers: progress callbacks, tools of an in-process server. It may call this server.
        self.reentrant = self.max_in_flight > 1
        self.default_shutdown = record.config.stop_timeout
        self._record = record
        self._name = record.config.name
        self._link: Link | None = None
        self._phase: ConnectPhase = "open"
        self._serving = False
        self._gone = False
        self._given_up = False
        self._departure = Departure(self.fail)
        self._closing = closing or ClosingOrder()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect, be connected, disconnect."""
        if not self._record.wanted:
            raise IgnoreStart(keep_mailbox=self._record.dormant)
        config, negotiation = self._record.config, Negotiation(self._record)
        try:
            async with self._connection(negotiation):
                try:
                    yield
                    await self._closing.wait_turn(self._name)
                finally:
                    self._closing.begin(self._name)
        except BaseException as exc:
            if not is_failure(exc):
                raise
            self._masker.clean(exc)
            if self._serving:
                self._record.note_failure(session_failed(self._name, exc, self._masker))
                raise
            if isinstance(exc, ConnectFailed):
                raise
            if isinstance(exc, TimedOut):
                negotiation.failed(None)
                raise connect_timed_out(config, self._phase, self._link, exc) from None
            failure = connect_failed(config, self._phase, self._link, exc)
            negotiation.failed(failure.__cause__)
            raise failure from failure.__cause__
        finally:
            self._record.pid, self._record.masker = None, Masker()
            if self._serving and self._link is not None and self._link.lost:
                self._record.note_failure(self._loss())

    @asynccontextmanager
    async def _connection(self, negotiation: Negotiation) -> AsyncIterator[None]:
        """Open a link and a session on it; if the server does not survive the question for its era, once more."""
        try:
            async with self._attempt(negotiation):
                yield
                return
        except Exception as exc:
            if self._serving or self._phase != "negotiate" or not negotiation.begins_anew(self._link, exc):
                raise
        await trio.lowlevel.checkpoint_if_cancelled()  # time that was up before a second start was up in this phase
        async with self._attempt(negotiation):
            yield

    @asynccontextmanager
    async def _attempt(self, negotiation: Negotiation) -> AsyncIterator[None]:
        """Open a link, negotiate and list tools; then serve."""
        self._phase = "open"
        with negotiation.patience() as patience:
            async with (
                open_callbacks(self._record, self.join_handler) as questions,
                open_link(self._record.config, on_lost=self._lost) as link,
            ):
                self._link, self._phase = link, "negotiate"
                self._record.masker = link.masker
                async with self._session(link, questions.for_client(), negotiation, patience):
                    patience.connected()
                    self._serving = True
                    yield

    @asynccontextmanager
    async def _session(
        self, link: Link, callbacks: ClientCallbacks, negotiation: Negotiation, patience: Patience
    ) -> AsyncIterator[None]:
        """Open a session over a link, negotiate and list tools."""
        async with (
            patience.follow(link),
            open_incoming(self._record.listeners) as incoming,
            self._well_informed(link),
            negotiation.client(link, incoming.callbacks() | callbacks) as self._client,
        ):
            with closing(incoming):
                await negotiation.agree(self._client, link, patience, incoming.tasks)
                await self._begin(link, incoming)
                negotiation.succeeded(self._client)
                if link.lost:
                    # The server left before `_serving` was set, and a loss is reported only once. So there must be no
                    # checkpoint from here to `_serving`, or the actor would serve a lost connection.
                    raise self._loss()
                with self._as_before(link, incoming):
                    yield

    @asynccontextmanager
    async def _well_informed(self, link: Link) -> AsyncIterator[None]:
        """Let a failure to connect leave when the link knows all about it, and as what the link knows it to be."""
        trace = open_trace()
        try:
            yield
        except Exception:
            if not self._serving:
                await link.wait_obituary()
                if trace.failure is not None:
                    raise trace.failure from trace.failure.__cause__
            raise

    async def _begin(self, link: Link, incoming: Incoming) -> None:
        """Learn what there is to know before anything is served."""
        leave_results_unchecked(self._client.session)
        attend_to_questions(self._client, self._name)
        self._phase = "list_tools"
        await self._listen(link, incoming)
        self._record.listeners.tell(NotificationsMissed())
        self._remember(link, await self._list_tools(link))
        self._check_health(link, incoming)
        incoming.tasks.start_soon(keep_refreshed, self._record, self.ref, name=f"{self._name}:refresh")

    def _check_health(self, link: Link, incoming: Incoming) -> None:
        """Start the health checks, which end the connection if the server does not answer."""

        def end(verdict: Verdict) -> None:
            self._given_up = verdict == "fail"
            if link.exited:
                link.lose()
            else:
                self.fail(unresponsive(self._name, self._record.health.ladder.failures, self._record.health.problem))

        self._record.health.begin(link)
        incoming.tasks.start_soon(keep_checking, self._record, self.ref, end, name=f"{self._name}:health")

    def _as_before(self, link: Link, incoming: Incoming) -> AbstractContextManager[None]:
        """Have a new connection take over what the one before it was told."""
        incoming.tasks.start_soon(keep_log_level, self._record, self.ref, name=f"{self._name}:log level")
        return subscribing(self._client, link, incoming.tasks, self._record, self.ref)

    async def _listen(self, link: Link, incoming: Incoming) -> None:
        """Hear of changes; servers of the modern era tell of them only if they are asked to."""
        link.hear_of_gaps(partial(incoming.listeners.tell, NotificationsMissed()))
        if lists := lists_that_change(self._client):
            await Listening(self._name, self._client, incoming, lists, self._endpoint_gone).begin()

    def _endpoint_gone(self, over: ConnectionOver) -> None:
        if self._serving:  # else the handshake fails by itself
            self._departure.begin(connection_over(self._name, over))

    async def _list_tools(self, link: Link) -> Callable[[], None]:
        """Ask for the tools. Returns how to show the outcome, once the rest is known.

        A server with ``static_tools`` need not list its own, but only within half of the time that the connect has.
        """
        catalog, config = self._record.catalog, self._record.config
        ticket = catalog.begin()
        if not config.static_tools:
            return partial(catalog.replace, ticket, await list_all_tools(self._client, self._record))
        seconds = math.inf if config.connect_timeout is None else config.connect_timeout * LIST_SHARE
        failure: Exception = tools_not_listed(self._name, seconds)
        trace = current_trace()
        with trio.move_on_after(seconds):
            try:
                return partial(catalog.replace, ticket, await list_all_tools(self._client, self._record))
            except Exception as exc:
                failure = trace.failure or exc
                self._masker.clean(failure)
                if link.lost or isinstance(failure, ConnectionOver):
                    raise
        trace.failure = None
        return partial(catalog.use_static, ticket, failure)

    def _remember(self, link: Link, show_tools: Callable[[], None]) -> None:
        client = self._client
        identity = client.server_info
        self._record.pid = link.pid
        self._record.info = ServerInfo(
            name=identity.name if identity is not None else None,
            version=identity.version if identity is not None else None,
            protocol_version=client.protocol_version,
            capabilities=client.server_capabilities,
            instructions=client.instructions,
        )
        show_tools()

    def _lost(self) -> None:
        """The other side is gone. While connecting, the handshake fails by itself."""
        if not self._serving:
            return
        lost = self._loss()
        if self._link is None or self._link.pid is None:
            self._departure.begin(lost)  # over HTTP each request has a connection of its own
        else:
            self.fail(lost)

    async def handle(self, message: Request[Any]) -> Any:
        """Send a request, through what the user has put around it, and wait for its result."""
        middleware = self._record.config.middleware
        return await (send_through(middleware, message, self._send, self._name) if middleware else self._send(message))

    async def _send(self, message: Request[Any]) -> Any:
        if self._departure.begun:
            await self._departure.wait()
            raise NotSent
        deadline = message.deadline
        trace = open_trace(deadline)
        self._departure.enter()
        if deadline is not None:
            deadline.renew()
        try:
            return await self._ask(message)
        except MCPError as exc:
            self._masker.clean(exc)
            if exc.code == CONNECTION_CLOSED and self._connection_is_gone(exc):
                raise self._died() from exc
            refuse_unreadable(self._name, message.operation, exc)
            if trace.failure is None:
                raise
        except InputRequiredRoundsExceededError as exc:
            raise too_many_rounds(self._name, message.operation) from exc
        except ValidationError as exc:
            misfit = answer_not_understood(self._name, message.operation, exc, self._masker)
            raise misfit from self._masker.clean(exc)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as exc:
            raise self._died() from exc
        finally:
            self._departure.leave()
            if deadline is not None:
                deadline.suspend()
        return await self._failed(trace)

    async def _ask(self, message: Request[Any]) -> Any:
        try:
            return await message.send(self._client, self._record)
        except BaseException as exc:
            if isinstance(exc, Exception) or not is_failure(exc):
                raise
            # The SDK serves an in-process server in this task. What its tool raises past `Exception`, such as asyncio's
            # CancelledError, would end the connection and all its other requests.
            reason = f"the in-process server raised {type(exc).__name__}: {exc}"
            raise MCPError(INTERNAL_ERROR, reason) from self._masker.clean(exc)

    async def _failed(self, trace: RequestTrace) -> NoReturn:
        """Tell what became of a request that the link knows more about than the SDK."""
        failure = trace.failure
        assert failure is not None
        self._masker.clean(failure)
        if not isinstance(failure, ConnectionOver):
            raise failure from failure.__cause__
        lost = connection_over(self._name, failure)
        if trace.begun:
            self._departure.begin(lost)
            raise connection_over(self._name, failure)
        await self._departure.wait(lost)
        raise NotSent

    @property
    def _masker(self) -> Masker:
        return self._link.masker if self._link is not None else Masker()

    def is_fatal(self, exc: Exception) -> bool:
        """A lost connection is the end of the incarnation; over HTTP, a lost request is not."""
        return self._gone and isinstance(exc, ConnectionLost)

    def is_hopeless(self, exc: BaseException) -> bool:
        """A failure that says that trying again cannot help."""
        return self._given_up or (isinstance(exc, ConnectFailed) and exc.hopeless)

    def _connection_is_gone(self, exc: MCPError) -> bool:
        # A server may use the code too, and the words. The link knows, but for one within this process.
        if self._link is None or self._link.lost:
            return True
        return isinstance(self._record.config.transport, InProcess) and exc.message == "Connection closed"

    def _died(self) -> ConnectionLost:
        self._gone = True
        return self._loss()

    def _loss(self) -> ConnectionLost:
        assert self._link is not None  # nothing is lost that was never open
        return connection_lost(self._name, self._link)
