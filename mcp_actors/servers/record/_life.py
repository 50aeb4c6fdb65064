"""The state of one server over all its connections."""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from attrs import define, field

from ..._errors import ServerUnavailable
from ..._foreign import Log
from ...auth import SignInRequired
from ...kernel import Crashed, Event, GaveUp, Started, StartFailed, Starting, Stopped, Stopping
from ..basics import problem_of
from ._events import Draining, HealthChanged, Recovered, ServerEvent, StateChanged
from ._reasons import reason_of, reason_of_absence
from ._state import ACTIVE, CONNECTED, FAILED, LISTED, PARKED, SETTLED, ServerState
from ._transitions import next_state, rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...config import ServerConfig
    from ..tools import ServerCatalog
    from ..transports import Link
    from ._health import ServerHealth
    from ._state import Departure

logger = Log("mcp_actors.servers")

E = TypeVar("E", bound=Event)

ASKS: Final = 2
"""Questions to a person per connect. A server may change its authorization server between a sign-in and its use."""


@define(eq=False, repr=False)
class ServerLife:
    """The state of one server, the reasons for it, and what is wanted of the server.

    Attributes:
        state: the fold of the events of its actor (`follow`, which also writes the next eight).
        since: `trio.current_time` at the last change of the state.
        changed_at: the wall-clock time of that change.
        parked: True from being parked until it serves or is started explicitly, also while it is retried.
        incarnation: the number of the current or last incarnation of its actor.
        connects: the number of attempts to connect.
        failures: failed connects and lost connections since it last served.
        error: the current problem; None while it serves. The connection may replace it (`note_failure`).
        last_error: the last failure, kept after the server has recovered.
        overdue: the warning about a connect that has exceeded ``connect_timeout`` and goes on; else None. Callers no
            longer wait for it, unless the server is required. Written by the connection (`note_overdue`).
        wanted: whether the server should be running. False after `stop()`, and for a lazy server that has not been used
            yet. Written in the step of the caller (``ref._lifecycle``, `Caller.wake`).
        asks_left: how often a connect may ask a person to sign in, by a configured callback, until the server serves or
            is started explicitly. Zero once the person has refused.
        held: True while its supervisor is exchanged: an incarnation has nothing to run. Written by the lifecycle actor.
        wishes: the number of explicit starts and stops (`want`).
        starts: the number of explicit starts and reconnects under way, and of renewals of one replica. Written by them
            (``ref._lifecycle``).
        resting: True while it is being disconnected because it is idle. Written by the lifecycle actor, and by `want`.
        draining: True while it finishes its requests before it is disconnected.
        holding: True while requests wait for the next connection. Written by the lifecycle actor.
        leaving: why new requests are refused for good, or None. ``"block"``: the block has ended. ``"signal"``: it is
            about to be ended by a signal, and until then requests wait instead. ``"removal"``: the server is being
            removed from its group.
        returning: the number of changes under way that disconnect it in order to connect it again. Written by the
            lifecycle actor (`count_returns`).
        left: True once it is no longer in an open group; nothing changes any more.

    Args:
        config: the configuration of the server.
        emit: emits an event.
        catalog: its tools; while they are not listed, a connected server is degraded.
        health: its health; while that is bad, a connected server is degraded or unhealthy.
        required: whether callers wait for it without a limit while it connects.
        on_change: called at each change of the state.
    """

    _config: ServerConfig
    _emit: Callable[[Event], None]
    _catalog: ServerCatalog
    _health: ServerHealth
    _required: bool = field(kw_only=True)
    _on_change: Callable[[], None] = field(kw_only=True)
    state: ServerState = field(default="pending", init=False)
    since: float = field(factory=trio.current_time, init=False)
    changed_at: datetime = field(factory=partial(datetime.now, UTC), init=False)
    parked: bool = field(default=False, init=False)
    incarnation: int = field(default=0, init=False)
    connects: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    error: Exception | None = field(default=None, init=False)
    last_error: Exception | None = field(default=None, init=False)
    overdue: str | None = field(default=None, init=False)
    wanted: bool = field(init=False)
    asks_left: int = field(default=ASKS, init=False)
    wishes: int = field(default=0, init=False)
    starts: int = field(default=0, init=False)
    held: bool = field(default=False, init=False)
    returning: int = field(default=0, init=False)
    resting: bool = field(default=False, init=False)
    draining: bool = field(default=False, init=False)
    holding: bool = field(default=False, init=False)
    leaving: Departure | None = field(default=None, init=False)
    left: bool = field(default=False, init=False)
    _reason: str = field(init=False)
    _link: Link | None = field(default=None, init=False)
    _retry_at: datetime | None = field(default=None, init=False)
    _change: trio.Event | None = field(default=None, init=False)
    _shown: ServerLife | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.wanted = self._config.connect == "eager"
        self._reason = "about to connect" if self.wanted else "not used yet"

    def configure(self, config: ServerConfig, *, required: bool) -> None:
        """Take over a changed configuration. A lazy server that was not used yet may be an eager one now."""
        if self.dormant:
            self.wanted = config.connect == "eager"
        self._config, self._required, self._shown = config, required, None

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def dormant(self) -> bool:
        """True for a lazy server that has not been used yet, and for one that was idle, until it is used again."""
        return self.state == "pending" and not self.wanted

    @property
    def idle(self) -> bool:
        """True while there is nothing to run. If its actor is started nevertheless, the events of that mean nothing."""
        return self.state in ("pending", "stopped") and not self.startable

    @property
    def startable(self) -> bool:
        """True unless an incarnation of its actor has nothing to run."""
        return self.wanted and not self.held and not self.leaving

    @property
    def keeps_requests(self) -> bool:
        """True if requests wait while there is nothing to run: for the first use, or for the new configuration."""
        return self.dormant or (self.wanted and self.held)

    @property
    def retry_at(self) -> datetime | None:
        """The time of the next attempt of a parked server; None if there is none."""
        return self._retry_at if self.state in PARKED and self.wanted and not self.left else None

    @property
    def signed_out(self) -> bool:
        """True while a person has to sign in, also while it is tried again."""
        return isinstance(self.error, SignInRequired)

    @property
    def troubled(self) -> bool:
        """True while it has an error, also while it reconnects."""
        return self.error is not None or self.state in FAILED

    @property
    def listed(self) -> bool:
        """True while its tools are shown: it serves, or will without being started explicitly.

        The tools of a parked server stay hidden while it is retried.
        """
        return (self.state in LISTED and not self.parked) or self.resting or self._comes_back

    @property
    def _comes_back(self) -> bool:
        """True while a change connects it, or is about to, after it has been disconnected."""
        starting = self.starts > 0 and self.state in ("stopping", "stopped")
        return self.wanted and (self.returning > 0 or starting)  # unless stop() was called meanwhile

    @property
    def settled(self) -> bool:
        """True while it serves, or will not by itself: it is parked or stopped, and no task is starting it."""
        starting = self.returning > 0 or (self.wanted and self.starts > 0 and self.state not in ACTIVE)
        return self.state in SETTLED and not starting

    @property
    def awaited(self) -> bool:
        """True while it is about to be connected and callers wait for that."""
        comes = self.returning > 0 or self.state == "connecting" or (self.state == "pending" and self.wanted)
        return comes and (self._required or self.overdue is None)

    @property
    def level_of_attempt(self) -> int:
        """The log level of a warning about a connect, which repeats at each attempt of an outage."""
        return logging.WARNING if self.error is None else logging.DEBUG

    @property
    def reason(self) -> str:
        """The reason for the state. While a process starts, that is the last line of its stderr."""
        if self._shown is not None or self._link is None:
            return self._reason if self._shown is None else self._shown.reason
        return self._link.obituary().last_line or f"{self._reason}; its process has written nothing to stderr"

    def outage(self) -> tuple[str, Exception | None]:
        """Describe why it does not serve, with the current error; an empty text while it serves."""
        if self.state in ACTIVE:
            return "", None
        why = self.reason if self.error is None else problem_of(self.error)
        return f"the server is in state {self.state!r} ({why})", self.error

    # --- events -----------------------------------------------------------------------------------------------------

    def follow(self, event: Event) -> StateChanged | None:
        """Take an event of the server's actor into account. Return the event to emit if the state has changed."""
        self.incarnation = event.incarnation
        if isinstance(event, Draining | Stopping | Crashed):
            self.draining = isinstance(event, Draining)
        match event:
            case Crashed(error=error) | StartFailed(error=error):
                self.failures += 1
                self.note_failure(error)
            case GaveUp(error=error, retry_in=retry_in):
                self.note_failure(error if self.error is None else None)
                self.parked = True
                self._retry_at = None if retry_in is None else event.at + timedelta(seconds=retry_in)
            case Starting():
                self.connects += 1
            case Started() | Recovered() | HealthChanged():
                self.error = None
                self.failures = 0
                self.parked = False
                self.allow_asking()
                self.note_failure(self._catalog.failure)
                self.note_failure(self._health.problem)
        parked: ServerState = "needs_auth" if self.signed_out else "failed"
        stopped: ServerState = "pending" if self.resting else "stopped"
        new = next_state(self.state, event, serving=self._serving_state(), parked=parked, stopped=stopped)
        return self._become(new, event) if new != self.state else None

    def reflect(self, replicas: Sequence[ServerLife]) -> None:
        """Show what the replicas of the server are like, but for the state."""
        best = min(replicas, key=lambda each: rank(each.state))
        self.incarnation, self.failures, self.error = best.incarnation, best.failures, best.error
        self.overdue, self._retry_at = best.overdue, best._retry_at
        self.parked, self.connects = all(each.parked for each in replicas), sum(each.connects for each in replicas)
        self._wake()

    def follow_replicas(self, replicas: Sequence[ServerLife], event: Event) -> StateChanged | None:
        """Compute the state from those of the replicas. Return the event to emit if it has changed."""
        best = min(replicas, key=lambda each: rank(each.state))
        self.draining = self.draining and best.state in CONNECTED
        rests = best.state == "stopped" and self.resting
        new: ServerState = "stopping" if self.draining else "pending" if rests else best.state
        self._shown = best if new == best.state else None
        reason = None if self._shown is None else best._reason
        changed = self._become(new, event, reason) if new != self.state else None
        self.reflect(replicas)  # after the change of the state, which ends what is true of the one before
        return changed

    def _serving_state(self) -> ServerState:
        """Return the state of the server while it is connected."""
        if self._health.condition == "healthy":
            return "ready" if self._catalog.failure is None else "degraded"
        return self._health.condition

    def note_failure(self, error: BaseException | None) -> None:
        """Remember a failure, or a better description of the last one."""
        if isinstance(error, Exception):
            # The frames of its traceback refer to the connection, and so to the credentials of the connection.
            self.error = self.last_error = error.with_traceback(None)

    def note_question(self, error: Exception) -> None:
        """Note that a connect waits for a person. The start of the group goes on without it, unless it is required."""
        self.note_failure(error)
        self._wake()

    def recover(self) -> None:
        """Note that a connected server lists its tools again."""
        self._follow_own(Recovered, CONNECTED)

    def health_changed(self) -> None:
        """Note that the health of a connected server has changed."""
        self._follow_own(HealthChanged, CONNECTED)

    def emit(self, kind: type[ServerEvent], **details: object) -> None:
        """Emit an event about this server."""
        self._emit(self._event(kind, **details))

    def _follow_own(self, kind: type[Event], states: frozenset[ServerState]) -> None:
        """Follow an event of no actor in one of these states."""
        if self.state in states and (changed := self.follow(self._event(kind))) is not None:
            self._emit(changed)

    def _event(self, kind: type[E], **details: object) -> E:
        common = {"actor": self._config.name, "incarnation": self.incarnation, "time": trio.current_time()}
        return kind(**common, **details)  # type: ignore[arg-type]  # each caller knows its kind's fields

    def begin_to_drain(self, requests: int, seconds: float) -> None:
        """Note that a connected server only finishes its requests from now on."""
        self._shown = None  # it drains as a whole, while its replicas serve
        event = self._event(Draining, requests=requests, seconds=seconds)
        for each in (event, self.follow(event)):
            if each is not None:
                self._emit(each)

    def want(self, wanted: bool) -> None:
        """Note that the server was started or stopped explicitly."""
        self.wanted = wanted
        self.wishes += 1
        self.resting = self.resting and wanted

    def note_stopped(self) -> None:
        """Become ``stopped`` if the server is parked or lazy: no actor runs whose end could be followed."""
        self._follow_own(Stopped, PARKED | {"pending"})

    def note_connecting(self, link: Link) -> None:
        """Note the link over which the server is being connected."""
        self._link = link

    def allow_asking(self, allowed: bool = True) -> None:
        """Let connects ask a person to sign in again: the server serves, or is started explicitly. Or forbid it."""
        self.asks_left = ASKS if allowed else 0

    def note_overdue(self, warning: str) -> None:
        """Log and remember that the server has not answered within ``connect_timeout``; it goes on connecting."""
        if self.overdue is None:
            self.overdue = warning
            logger.log(self.level_of_attempt, "%s", self.overdue)
            self._wake()

    def end_rest(self) -> None:
        """Note that it has been disconnected because it was idle. Callers that wait for that may wake it now."""
        self.resting = False
        self._wake()

    def count_returns(self, change: int) -> None:
        """Note that a change is about to disconnect it in order to connect it again (1), or has ended (-1)."""
        self.returning += change
        self._wake()

    def count_starts(self, change: int) -> None:
        """Note that an explicit start or reconnect has begun (1), or ended (-1)."""
        self.starts += change
        self._wake()

    def leave(self) -> None:
        """Note that the ``open_servers`` block has exited, or that the server was removed from its group."""
        self.left = True
        self._wake()

    # --- waits ------------------------------------------------------------------------------------------------------

    async def wait_state(self, *states: ServerState) -> ServerState:
        """Wait until the state is one of these, and return it. A very short state may be missed.

        Raises:
            ServerUnavailable: the group was closed in another state.
        """
        await trio.lowlevel.checkpoint()
        while self.state not in states:
            await self.wait_change()
        return self.state

    async def wait_connected(self) -> ServerState:
        """Wait until the server serves, is parked or is stopped, and return its state.

        A server that is not required is awaited for at most its ``connect_timeout``.
        """
        timeout = self._config.connect_timeout
        until = math.inf if self._required or timeout is None else trio.current_time() + timeout
        await trio.lowlevel.checkpoint()
        while not self.settled:
            with trio.move_on_at(until if self.overdue else math.inf) as scope:
                await self.wait_change()
            if scope.cancelled_caught:
                break
        return self.state

    async def wait_awaited(self) -> None:
        """Wait until it has been connected, or has failed to, or is optional and overdue.

        Raises:
            ServerUnavailable: the group was closed, or the server was removed from it.
        """
        while self.awaited:
            await self.wait_change()

    async def wait_change(self) -> None:
        """Wait until the state changes.

        Raises:
            ServerUnavailable: the group was closed, or the server was removed from it.
        """
        if self.left:
            raise self.gone()
        if self._change is None:
            self._change = trio.Event()
        await self._change.wait()

    def gone(self) -> ServerUnavailable:
        """Return the error for the use of a server that is no longer in an open group."""
        name, why = self._config.name, reason_of_absence(removed=self.leaving == "removal")
        return ServerUnavailable(f"server {name!r} {why}", server=name, state=self.state, last_error=self.error)

    def _wake(self) -> None:
        self._on_change()
        if self._change is not None:
            self._change.set()
            self._change = None

    # --- changes of the state ---------------------------------------------------------------------------------------

    def _become(self, new: ServerState, event: Event, reason: str | None = None) -> StateChanged:
        old, self.state = self.state, new
        self.since, self.changed_at = event.time, event.at
        self.overdue = self._link = None
        catalog, health, resting = self._catalog, self._health, self.resting
        self._reason = reason = reason or reason_of(
            event, self.error, connects=self.connects, catalog=catalog, health=health, resting=resting
        )
        if new in ("stopped", "pending"):
            self.error = None
        self._wake()
        return StateChanged(
            actor=self._config.name,
            incarnation=event.incarnation,
            time=event.time,
            wall=event._wall,
            old=old,
            new=new,
            reason=reason,
        )
