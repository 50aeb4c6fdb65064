"""What outlives the connections to one server, and is handed to each of them."""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import trio
from mcp.types import PromptListChangedNotification, ResourceListChangedNotification, ToolListChangedNotification

from ..._errors import ServerUnavailable
from ...config import EffectiveCallbacks
from ...kernel import Crashed, Event, GaveUp, Restarting, Started, StartFailed, Starting, Stopped
from ..basics import problem_of
from ..policy import Breaker, Deadlines, LatencyCounts, RetryTokens
from ..tools import ServerCatalog
from ..transports import Masker
from ._events import HealthChanged, PromptsChanged, Recovered, ResourcesChanged, ServerEvent, StateChanged
from ._health import ServerHealth
from ._notifications import Listeners, NotificationsMissed
from ._reporter import CatalogReporter
from ._state import CONNECTED, FAILED, LISTED, SETTLED, ServerState
from ._subscriptions import Subscriptions
from ._transitions import next_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.types import LoggingLevel

    from ...catalog import ToolChecks
    from ...config import ServerConfig
    from ..policy import Era
    from ..tools import KnownTool
    from ..transports import Link
    from ._status import ServerInfo

__all__ = ["ServerRecord"]

logger = logging.getLogger("mcp_actors.servers")

E = TypeVar("E", bound=ServerEvent)


class ServerRecord:
    """One server's lasting part. Everybody may read it; who writes what is said with each attribute.

    Attributes:
        config: what to connect to. Never changes.
        required: whether a failed start is an error for who asked for it. Never changes.
        callbacks: the user's, for what it asks and tells. Never changes.
        state: see ``_state``. Written by `follow`, that is by the events of the actor, as are the next eight.
        since: `trio.current_time` when it came into that state.
        changed_at: the same by the wall clock.
        parked: True from being parked until it serves or somebody starts it (``_lifecycle``), also while it is tried.
        incarnation: which of its incarnations is on, or was the last.
        connects: how many connects were tried.
        failures: failed connects and lost connections since it last served.
        error: what is wrong now; None while it serves. The connection may put it into better words (`note_failure`).
        last_error: the last failure there was; likewise.
        info: what the server said about itself at the last connect. Written by the connection, as are the next two.
        pid: its process, while there is one. (Also forgotten by `follow`, at once when the connection is lost.)
        masker: masks the credentials of the current connection. Written by it, and dropped with it.
        catalog: its tools; see ``_catalog``. Written by the connection and by requests for them.
        era: what the next connect begins with, as far as ``protocol="auto"`` has found out; None: it asks.
        listeners: who hears of what it sends unasked; see ``_notifications``. Written by whoever wants to.
        subscriptions: who wants to hear of changes of its resources. Written by who subscribes; see there.
        log_level: from which level on it is to send log messages; None: as it likes. Written by the request for it.
        deadlines: those of its requests, which are kept while it is down too. Written by its callers, as are the next
            three.
        health: its health, over all connections. Written by its checks, and by requests that end.
        tokens: how much is left of its retry budget.
        breaker: its circuit breaker, if it has one.
        latency: how its requests ended, and how long they took.
        overdue: the warning about a connect that has exceeded ``connect_timeout`` without an answer and goes on; else
            None. Callers wait for it no longer unless it is required. Written by the connection (`note_overdue`).
        wanted: False once somebody has stopped it by hand and nobody started it again, and while nobody has asked for
            a lazy one. Written in the step of whoever asks (``_lifecycle.change``, `Caller.wake`).
        returning: True while it is being disconnected only to be connected anew. Written by the lifecycle actor;
            `follow` ends it when the new connect begins.
        left: True once its group was left, so that nothing changes any more. Written by the door (`leave`).
    """

    def __init__(
        self,
        config: ServerConfig,
        emit: Callable[[Event], None],
        *,
        required: bool,
        callbacks: EffectiveCallbacks | None = None,
    ) -> None:
        self.config = config
        self.required = required
        self.state: ServerState = "pending"
        self.since: float = trio.current_time()
        self.changed_at: datetime = datetime.now(UTC)
        self.parked: bool = False
        self.incarnation: int = 0
        self.connects: int = 0
        self.failures: int = 0
        self.error: Exception | None = None
        self.last_error: Exception | None = None
        self.info: ServerInfo | None = None
        self.pid: int | None = None
        self.masker: Masker = Masker()
        self.era: Era | None = None
        self.listeners: Listeners = Listeners(config.name)
        reporter = CatalogReporter(config, self.tell, self.recover, lambda text: self.masker(text))
        self.catalog: ServerCatalog = ServerCatalog(config, reporter)
        self.subscriptions: Subscriptions = Subscriptions(self.listeners)
        self.callbacks: EffectiveCallbacks = callbacks or EffectiveCallbacks()
        self.log_level: LoggingLevel | None = self.callbacks.log_level if self.callbacks.logging is not None else None
        self.deadlines: Deadlines = Deadlines(config.name, config.request_timeout, config.progress_timeout)
        self.health: ServerHealth = ServerHealth(config.name, config.health, self.deadlines, self._health_changed)
        self.deadlines.on_timeout = self.health.timed_out
        self.tokens: RetryTokens = RetryTokens(config.retry.budget)
        self.breaker: Breaker | None = Breaker(config.name, config.breaker) if config.breaker is not None else None
        self.latency: LatencyCounts = LatencyCounts()
        self.overdue: str | None = None
        self.wanted: bool = config.connect == "eager"
        self.returning: bool = False
        self.left: bool = False
        self._emit = emit
        self._reason = "nobody has asked for it" if config.connect == "lazy" else "it is about to be connected"
        self._link: Link | None = None
        self._retry_at: datetime | None = None
        self._change: trio.Event | None = None
        self._listen()

    def _listen(self) -> None:
        """Hear of changes of its lists, over whichever connection."""
        self.listeners.add(ToolListChangedNotification, self.catalog.mark_stale)
        self.listeners.add(NotificationsMissed, self.catalog.mark_stale)
        self.listeners.add(ResourceListChangedNotification, lambda _: self.tell(ResourcesChanged))
        self.listeners.add(PromptListChangedNotification, lambda _: self.tell(PromptsChanged))
        self.listeners.add(NotificationsMissed, lambda _: self._lists_may_have_changed())

    @property
    def dormant(self) -> bool:
        """True for a lazy server for which nobody has asked yet. What its actor reports until then means nothing."""
        return self.state == "pending" and not self.wanted

    @property
    def retry_at(self) -> datetime | None:
        """The time of the next attempt of a parked server; None if there is none."""
        return self._retry_at if self.state == "failed" and self.wanted and not self.left else None

    def follow(self, event: Event) -> StateChanged | None:
        """Take an event of the server's actor into account. Returns what is to be told, if it changed the state."""
        self.incarnation = event.incarnation
        match event:
            case Crashed(error=error) | StartFailed(error=error):
                self.failures += 1
                self.pid = None
                self.note_failure(error)
            case GaveUp(error=error, retry_in=retry_in):
                self.note_failure(error if self.error is None else None)
                self.parked = True
                self._retry_at = None if retry_in is None else event.at + timedelta(seconds=retry_in)
            case Starting():
                self.connects += 1
                self.returning = False
            case Started() | Recovered() | HealthChanged():
                self.error = None
                self.failures = 0
                self.parked = False
                self.note_failure(self.catalog.failure)
                self.note_failure(self.health.problem)
        new = next_state(self.state, event, serving=self._serving)
        return self._become(new, event) if new != self.state else None

    @property
    def _serving(self) -> ServerState:
        """The state of the server while it is connected."""
        if self.health.condition == "healthy":
            return "ready" if self.catalog.failure is None else "degraded"
        return self.health.condition

    def note_failure(self, error: BaseException | None) -> None:
        """Remember what went wrong, in the words that are known best so far."""
        if isinstance(error, Exception):
            # Its frames refer to the connection, and so to what was resolved for it.
            self.error = self.last_error = error.with_traceback(None)

    @property
    def troubled(self) -> bool:
        """Whether it has an error, also while it reconnects."""
        return self.error is not None or self.state in FAILED

    @property
    def level_of_attempt(self) -> int:
        """The log level for a warning about a connect, which repeats at each attempt of an outage."""
        return logging.WARNING if self.error is None else logging.DEBUG

    @property
    def listed(self) -> bool:
        """Whether its tools are shown. The tools of a parked server stay hidden while it is retried."""
        return (self.state in LISTED and not self.parked) or self.returning

    @property
    def tools(self) -> tuple[KnownTool, ...]:
        """Those of its tools that are shown."""
        return self.catalog.tools

    @property
    def deferred(self) -> bool:
        """True while the tools come from an earlier run and the server has not listed any yet."""
        return self.catalog.deferred

    @property
    def checks(self) -> ToolChecks:
        """What its tools ask of their arguments."""
        return self.catalog.checks

    def tell(self, kind: type[ServerEvent], **details: object) -> None:
        """Emit an event about this server."""
        self._emit(self._event(kind, **details))

    def recover(self) -> None:
        """It lists its tools, which it did not do when it was connected."""
        self._follow_own(Recovered)

    def _health_changed(self) -> None:
        self._follow_own(HealthChanged)

    def _follow_own(self, kind: type[ServerEvent]) -> None:
        """Follow an event of our own about a connected server, and report a change of its state."""
        if self.state in CONNECTED and (changed := self.follow(self._event(kind))) is not None:
            self._emit(changed)

    def note_stopped(self) -> None:
        """Become ``stopped`` if the server has failed: no actor runs whose end could be followed."""
        if self.state == "failed":
            stopped = Stopped(actor=self.config.name, incarnation=self.incarnation, time=trio.current_time())
            if (changed := self.follow(stopped)) is not None:
                self._emit(changed)

    def _event(self, kind: type[E], **details: object) -> E:
        common = {"actor": self.config.name, "incarnation": self.incarnation, "time": trio.current_time()}
        return kind(**common, **details)  # type: ignore[arg-type]  # each caller knows its kind's fields

    def _lists_may_have_changed(self) -> None:
        """Notifications were missed, unless there was nobody yet to give any."""
        if self.info is not None and self.info.supports.resources:
            self.tell(ResourcesChanged)
        if self.info is not None and self.info.supports.prompts:
            self.tell(PromptsChanged)

    async def wait_state(self, *states: ServerState) -> ServerState:
        """Wait until the state is one of these, and return it. A state that only flashes by may be missed.

        Raises:
            ServerUnavailable: the group was left in another state.
        """
        await trio.lowlevel.checkpoint()
        while self.state not in states:
            await self.wait_change()
        return self.state

    async def wait_settled(self) -> ServerState:
        """Wait until it serves, or will not by itself: ``ready``, ``degraded``, ``failed`` or ``stopped``."""
        await trio.lowlevel.checkpoint()
        while self.returning or self.state not in SETTLED:
            await self.wait_change()
        return self.state

    def set_returning(self, returning: bool) -> None:
        """It is about to be disconnected, only to be connected anew; or that is over, whatever came of it."""
        self.returning = returning
        self._wake()

    def _wake(self) -> None:
        self.subscriptions.wake()
        if self._change is not None:
            self._change.set()
            self._change = None

    @property
    def reason(self) -> str:
        """Why it is in its state, for people. While its process starts, that is the last line of its stderr."""
        if self._link is None:
            return self._reason
        return self._link.obituary().last_line or f"{self._reason}; its process has written nothing to stderr"

    @property
    def awaited(self) -> bool:
        """Whether it is about to be connected, and callers keep waiting for that."""
        return (self.returning or self.state == "connecting") and (self.required or self.overdue is None)

    def note_connecting(self, link: Link) -> None:
        """Note the link over which it is being connected."""
        self._link = link

    def note_overdue(self, warning: str) -> None:
        """Note, and log, that it has not answered within ``connect_timeout``; it goes on connecting."""
        if self.overdue is None:
            self.overdue = warning
            logger.log(self.level_of_attempt, "%s", self.overdue)
            self._wake()

    async def wait_connected(self) -> ServerState:
        """Wait as `wait_settled` does; for a server that is not required no longer than its ``connect_timeout``."""
        timeout = self.config.connect_timeout
        until = math.inf if self.required or timeout is None else trio.current_time() + timeout
        await trio.lowlevel.checkpoint()
        while self.returning or self.state not in SETTLED:
            with trio.move_on_at(until if self.overdue else math.inf) as scope:
                await self.wait_change()
            if scope.cancelled_caught:
                break
        return self.state

    def leave(self) -> None:
        """Its group was left."""
        self.left = True
        self.subscriptions.close()
        self._wake()

    def group_left(self) -> ServerUnavailable:
        """The error for whoever wants something of a server whose group was left."""
        return ServerUnavailable(
            f"server {self.config.name!r}: is {self.state}, as its group was left; open the group again",
            server=self.config.name,
            state=self.state,
            last_error=self.error,
        )

    async def wait_change(self) -> None:
        """Wait until the state changes.

        Raises:
            ServerUnavailable: the group was left.
        """
        if self.left:
            raise self.group_left()
        if self._change is None:
            self._change = trio.Event()
        await self._change.wait()

    def _become(self, new: ServerState, event: Event) -> StateChanged:
        old, self.state = self.state, new
        self.since, self.changed_at = event.time, event.at
        self.overdue = self._link = None
        self._reason = reason = self._reason_of(event)
        if new == "stopped":
            self.error = None
        self._wake()
        return StateChanged(
            actor=event.actor,
            incarnation=event.incarnation,
            time=event.time,
            wall=event._wall,
            old=old,
            new=new,
            reason=reason,
        )

    def _number_of_tools(self) -> str:
        number = "1 tool" if len(self.tools) == 1 else f"{len(self.tools)} tools"
        return number if self.error is None else f"{number}, as it does not list them: {problem_of(self.error)}"

    def _reason_of(self, event: Event) -> str:
        """Why the state changes, for people."""
        now = problem_of(self.error) if self.error is not None else "no error is known"
        match event:
            case Starting():
                reason = "first connect" if self.connects == 1 else f"connect number {self.connects}"
            case Started():
                reason = f"connected, {self._number_of_tools()}"
            case Recovered():
                reason = f"it lists its tools again: {self._number_of_tools()}"
            case HealthChanged() if self.health.problem is None:
                reason = f"it answers again: {self._number_of_tools()}"
            case HealthChanged():
                reason = f"{self.health.ladder.failures} failures in a row, the last: {now}"
            case Crashed():
                reason = now
            case Restarting(delay=delay):
                reason = f"trying again in {delay:.3g} s, after: {now}"
            case GaveUp(retry_in=None):
                reason = f"no further attempt, after: {now}"
            case GaveUp(retry_in=float(seconds)):
                reason = f"next attempt in {seconds:.0f} s, after: {now}"
            case _:
                reason = "asked to stop" if self.error is None else f"stopped, after: {now}"
        return reason
