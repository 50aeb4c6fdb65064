"""The states of a server and of its connections, and their reasons.

`ConnectionLife` is the fold of the events of one connection's actor. `ServerLife` shows the best of them as the state
of the server, and keeps what is wanted of the server. The last part describes in words why a state has changed.

The record of a server has a `ServerLife`, and each of its connections a `ConnectionLife`; the classes say who writes
them. Refs and the group wait for changes of a `ServerLife`. The file reads the catalogue and the health of a connection
and, while that connects, its link. It emits events by the function that it was given, logs an overdue connect, and
reads Trio's clock and the wall clock. It starts no task and sends no request.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
from attrs import define, field

from ..._collapse import caused_by
from ..._errors import ServerUnavailable
from ..._foreign import Log
from ..._text import problem_of
from ...auth import SignInRequired
from ...kernel import Crashed, Event, GaveUp, Restarting, Started, StartFailed, Starting, Stopped, Stopping
from ._states import (
    ACTIVE,
    CONNECTED,
    FAILED,
    LISTED,
    PARKED,
    Draining,
    HealthChanged,
    Recovered,
    ReplicaChanged,
    ServerEvent,
    ServerState,
    StateChanged,
    next_state,
    rank,
)
from ._wanted import Seen, Wanted, first

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ...config import ServerConfig
    from ...transports import Link
    from .._catalog import ServerCatalog
    from ._health import ConnectionHealth
    from ._states import Departure

logger = Log("mcp_actors.servers")

E = TypeVar("E", bound=Event)

ASKS: Final = 2
"""Questions to a person per connect. A server may change its authorization server between a sign-in and its use."""


@define(eq=False, repr=False)
class ConnectionLife:
    """The state of one connection, and the reasons for it.

    Attributes:
        name: the name of its actor.
        draining: the event of its drain while it finishes its requests before it is disconnected; else None. Written
            by `follow`, as the next six, and from `began` to `verdict_due`.
        parked: True from being parked until it serves or is started explicitly, also while it is retried. Also written
            by `forgive`.
        incarnation: the number of the current or last incarnation of its actor.
        connects: the number of attempts to connect.
        failures: failed connects and lost connections since it last served.
        error: the current problem; None while it serves. The connection may replace it (`note_failure`).
        last_error: the last failure, kept after it has recovered.
        overdue: the warning about a connect that has exceeded ``connect_timeout`` and goes on; else None. Callers no
            longer wait for it, unless the server is required. Written by the connection (`note_overdue`).
        asks_left: how often a connect may ask a person to sign in, by a configured callback, until the server serves or
            is started explicitly. Zero once the person has refused. Written by the connection, and by `forgive`.
        began: the number of the wish (see `Wanted`) that was valid when its last incarnation began; -1 before that.
        broke: the number of the last wish for which a connect or a connection has failed; -1 before that.
        verdict_due: True from a failure until its supervisor has decided what follows, which is some steps later.
        ignored: True if the last incarnation has nothing to run, so its events are not shown. Written by
            `ServerRecord.ignores`.
        old: True while it is to be replaced because of its age, until the next one begins. Written by the lifecycle
            actor.
        holding: True while requests wait for the next connection. Written by the lifecycle actor.

    Args:
        name: see above.
        server: the life of its server.
        catalog: the tools; while they are not listed, a connected server is degraded.
        health: its health; while that is bad, it is degraded or unhealthy.
    """

    name: str
    _server: ServerLife
    _catalog: ServerCatalog
    _health: ConnectionHealth
    draining: Draining | None = field(default=None, init=False)
    parked: bool = field(default=False, init=False)
    incarnation: int = field(default=0, init=False)
    connects: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    error: Exception | None = field(default=None, init=False)
    last_error: Exception | None = field(default=None, init=False)
    overdue: str | None = field(default=None, init=False)
    asks_left: int = field(default=ASKS, init=False)
    began: int = field(default=-1, init=False)
    broke: int = field(default=-1, init=False)
    verdict_due: bool = field(default=False, init=False)
    ignored: bool = field(default=False, init=False)
    old: bool = field(default=False, init=False)
    holding: bool = field(default=False, init=False)
    _link: Link | None = field(default=None, init=False)
    _retry_at: datetime | None = field(default=None, init=False)
    _state: ServerState = field(default="pending", init=False)  # the fold of the events of its actor
    _reason: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reason = "about to connect" if self.wanted.mode == "run" else "not used yet"

    @property
    def wanted(self) -> Wanted:
        """What is wanted of the server."""
        return self._server.wanted

    @property
    def state(self) -> ServerState:
        """The state: that of its actor, or ``stopping`` while it drains."""
        return "stopping" if self.draining is not None and self._state in CONNECTED else self._state

    @property
    def seen(self) -> Seen:
        """What decisions about the server need to know of it."""
        return Seen(self.state, self.began, self.broke, self.old, self.overdue is not None)

    @property
    def retry_at(self) -> datetime | None:
        """The time of the next attempt of a parked connection; None if there is none."""
        return self._retry_at if self.state in PARKED and self.wanted.mode == "run" else None

    @property
    def signed_out(self) -> bool:
        """True while it is parked until a person signs in, also while it is tried again."""
        return self.parked and isinstance(self.error, SignInRequired)

    @property
    def level_of_attempt(self) -> int:
        """The log level of a warning about a connect, which repeats at each attempt of an outage."""
        return logging.WARNING if self.error is None else logging.DEBUG

    @property
    def reason(self) -> str:
        """The reason for the state. While a process starts, that is the last line of its stderr."""
        if self.draining is not None:
            requests = "1 request" if self.draining.requests == 1 else f"{self.draining.requests} requests"
            return f"finishing {requests}, for at most {self.draining.seconds:g} s"
        if self._link is None:
            return self._reason
        silent = "its process has written nothing to stderr; check that its command starts an MCP server"
        return self._link.obituary().last_line or f"{self._reason}; {silent}"

    # --- events -----------------------------------------------------------------------------------------------------

    def follow(self, event: Event) -> None:
        """Take an event into account: of its actor, of the pool with which it ends, or about the server."""
        if event.actor == self.name:
            self.incarnation = event.incarnation
        self.verdict_due = isinstance(event, Crashed | StartFailed)
        if isinstance(event, Draining | Stopping | Crashed | Recovered):
            self.draining = event if isinstance(event, Draining) else None
        if isinstance(event, Restarting | GaveUp):
            # A connection that is to be replaced was not for the last wish, so its failure says nothing about that.
            self.broke = self.began if self.began < self.wanted.fresh else self.wanted.generation
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
                self.began, self.old = self.wanted.generation, False
            case Started() | Recovered() | HealthChanged():
                self.error = None
                self.failures = 0
                self.forgive()
                self.note_failure(self._catalog.failure)
                self.note_failure(self._health.problem)
        parked: ServerState = "needs_auth" if self.signed_out else "failed"
        stopped: ServerState = "pending" if self.wanted.mode == "rest" else "stopped"
        new = next_state(self._state, event, serving=self._serving_state(), parked=parked, stopped=stopped)
        if new != self._state:
            self._state = new
            self.overdue = self._link = None
            self._reason = self._reason_of(event)
            if new in ("stopped", "pending"):
                self.error = None

    def begin_as(self, other: ConnectionLife) -> None:
        """Begin in the state of another one, which does not run: the server has other connections from now on."""
        self._state, self._reason = other._state, other._reason

    def _serving_state(self) -> ServerState:
        if self._health.condition == "healthy":
            return "ready" if self._catalog.failure is None else "degraded"
        return self._health.condition

    def note_failure(self, error: BaseException | None) -> None:
        """Remember a failure, or a better description of the last one."""
        if isinstance(error, Exception):
            # The frames of its traceback refer to the connection, and so to the credentials of the connection.
            self.error = self.last_error = error.with_traceback(None)

    def note_question(self, challenge: str | None) -> None:
        """Note that a connect waits for a person, as its requests do. That alone is not a failure.

        The start of the group goes on without it, unless it is required.
        """
        self._reason = "a person is asked to sign in, by on_sign_in"
        name = self._server.config.name
        asks = SignInRequired(f"server {name!r}: {self._reason}", server=name, challenge=challenge)
        self.error = None if self.error is None else asks
        self.last_error = self._server.last_error = asks
        self._server.note_change()

    def health_changed(self) -> None:
        """Note that its health has changed."""
        self._server.take(self._server.event(HealthChanged), CONNECTED, (self,))

    def emit(self, kind: type[ServerEvent], **details: object) -> None:
        """Emit an event about the server."""
        self._server.emit(kind, incarnation=self.incarnation, **details)

    def note_connecting(self, link: Link) -> None:
        """Note the link over which it is being connected."""
        self._link = link

    def forgive(self, ask: bool = True) -> None:
        """Forget that it was parked: it serves, or is started explicitly. It may `ask` a person again, or must not."""
        self.parked = False
        self.asks_left = ASKS if ask else 0

    def note_overdue(self, warning: str) -> None:
        """Log and remember that the server has not answered within ``connect_timeout``; it goes on connecting."""
        if self.overdue is None:
            self.overdue = warning
            logger.log(self.level_of_attempt, "%s", self.overdue)
            self._server.note_change()

    def leave(self) -> None:
        """Refer to the server no more: nothing changes any more."""
        self.draining = None
        del self._server, self._catalog, self._health

    # --- the reasons for states -------------------------------------------------------------------------------------

    def _reason_of(self, event: Event) -> str:
        """Describe why the state changes by an event."""
        now = problem_of(self.error) if self.error is not None else "no error is known"
        match event:
            case Starting():
                reason = "first connect" if self.connects == 1 else f"connect number {self.connects}"
            case Started():
                reason = f"connected, {self._tools()}"
            case Recovered():
                reason = f"it lists its tools again: {self._tools()}"
            case HealthChanged() if self._health.problem is None:
                reason = f"it answers again: {self._tools()}"
            case HealthChanged():
                reason = f"{self._health.ladder.failures} failures in a row, the last: {now}"
            case Crashed():
                reason = now
            case Restarting(delay=delay):
                reason = f"trying again in {delay:.3g} s, after: {now}"
            case GaveUp(retry_in=seconds):
                reason = f"not retried: {now}" if seconds is None else f"{now}; next attempt in {seconds:.0f} s"
            case _:
                reason = self._asked() if self.error is None else f"stopped, after: {now}"
        return reason

    def _asked(self) -> str:
        if self.wanted.mode != "rest":
            return "asked to stop"
        why = "not used for a while" if self.wanted.config == self._server.config else "lazy from now on"
        return f"{why}; the next request connects it again"

    def _tools(self) -> str:
        number = "1 tool" if len(self._catalog.tools) == 1 else f"{len(self._catalog.tools)} tools"
        return number if self.error is None else f"{number}, as it does not list them: {problem_of(self.error)}"


@define(eq=False, repr=False)
class ServerLife:
    """The state of a server, which is that of its best connection, and what is wanted of the server.

    Attributes:
        config: the configuration of the server. Replaced by the record.
        connections: its connections. Replaced by `consist_of`.
        best: the one in the best state, which the server shows. This and the next four are written by `follow`.
        state: the state of that one.
        since: `trio.current_time` at the last change of the state.
        changed_at: the wall-clock time of that change.
        last_error: the last failure of a connection, kept after the server has recovered.
        leaving: `Wanted.departure`, to which each request looks. Written by `want`.
        left: True once it is no longer in an open group; nothing changes any more. Written by `leave`.
        end_of_group: returns why its group ends, if not because the block exits. Written by the roster.

    Args:
        config: see above.
        emit: emits an event.
        on_change: called at each change that `wait_change` waits for.
    """

    config: ServerConfig
    _emit: Callable[[Event], None]
    _on_change: Callable[[], None]
    connections: tuple[ConnectionLife, ...] = field(default=(), init=False)
    best: ConnectionLife = field(init=False)
    state: ServerState = field(default="pending", init=False)
    since: float = field(factory=trio.current_time, init=False)
    changed_at: datetime = field(factory=partial(datetime.now, UTC), init=False)
    last_error: Exception | None = field(default=None, init=False)
    leaving: Departure | None = field(default=None, init=False)
    left: bool = field(default=False, init=False)
    end_of_group: Callable[[], ServerUnavailable | None] = field(default=lambda: None, init=False)
    _drains: bool = field(default=False, init=False)
    _wanted: Wanted = field(init=False)
    _change: trio.Event | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._wanted = first(self.config)

    def consist_of(self, connections: Iterable[ConnectionLife]) -> None:
        """Replace the connections, while none of them runs. A new one begins in the state of the server."""
        before, self.connections = self.connections, tuple(connections)
        for each in self.connections if before else ():
            if each not in before:
                each.begin_as(self.best)
        self._choose()

    def _choose(self) -> None:
        # While all drain, the server does, even if one of them is lost and serves again before the others have ended.
        self._drains = self._drains and any(each.state == "stopping" for each in self.connections)
        self.best = min(
            self.connections, key=lambda each: (self._drains and each.state != "stopping", rank(each.state))
        )

    # --- wishes -----------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> Wanted:
        """What is wanted of the server."""
        return self._wanted

    def want(self, wanted: Wanted) -> Wanted:
        """Replace what is wanted of the server, and return that. Nothing else replaces it."""
        self._wanted = wanted
        self.leaving = wanted.departure
        self.note_change()
        return wanted

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """The number of the current or last incarnation of the best connection."""
        return self.best.incarnation

    @property
    def connects(self) -> int:
        """The number of attempts to connect, of all connections."""
        return sum(each.connects for each in self.connections)

    @property
    def failures(self) -> int:
        """Failed connects and lost connections since the best connection last served."""
        return self.best.failures

    @property
    def error(self) -> Exception | None:
        """The current problem; None while it serves."""
        return self.best.error

    @property
    def overdue(self) -> str | None:
        """The warning about a connect that takes too long; see `ConnectionLife.overdue`."""
        return self.best.overdue

    @property
    def verdict_due(self) -> bool:
        """True from a failure until it is decided what follows; see `ConnectionLife.verdict_due`."""
        return self.best.verdict_due

    @property
    def draining(self) -> bool:
        """True while it finishes requests before it is disconnected."""
        return any(each.draining is not None for each in self.connections)

    @property
    def dormant(self) -> bool:
        """True for a lazy server that has not been used yet, and for one that was idle, until it is used again."""
        return self.state == "pending" and self.wanted.mode == "rest"

    @property
    def idle(self) -> bool:
        """True while there is nothing to run."""
        return self.state in ("pending", "stopped") and self.wanted.mode != "run"

    @property
    def retry_at(self) -> datetime | None:
        """The time of the next attempt of a parked server; None if there is none."""
        return None if self.left else self.best.retry_at

    @property
    def signed_out(self) -> bool:
        """True while it is parked until a person signs in, also while it is tried again."""
        return self.best.signed_out

    @property
    def troubled(self) -> bool:
        """True while it has an error, also while it reconnects."""
        return self.error is not None or self.state in FAILED

    @property
    def listed(self) -> bool:
        """True while its tools are shown: it serves, or will without being started explicitly.

        The tools of a parked server stay hidden while it is retried.
        """
        comes_back = self.wanted.mode in ("run", "rest") and self.state in ("stopping", "stopped")
        return comes_back or (self.state in LISTED and not all(each.parked for each in self.connections))

    @property
    def reason(self) -> str:
        """The reason for the state; see `ConnectionLife.reason`."""
        return self.best.reason

    def outage(self) -> tuple[str, Exception | None]:
        """Describe why it does not serve, with the current error; an empty text while it serves."""
        if self.state in ACTIVE:
            return "", None
        why = self.reason if self.error is None else problem_of(self.error)
        return f"the server is in state {self.state!r} ({why})", self.error

    # --- events -----------------------------------------------------------------------------------------------------

    def follow(self, event: Event, connections: Iterable[ConnectionLife]) -> list[ServerEvent]:
        """Let some connections take an event into account. Return the events to emit if a state has changed."""
        changes: list[ServerEvent] = []
        changed = False
        for each in connections:
            old = each.state
            each.follow(event)
            self.last_error = each.error or self.last_error
            if each.state != old:
                changed = True
                if each.name != self.config.name:  # else it is the whole server, whose change says the same
                    details = {"replica": each.name, "incarnation": each.incarnation}
                    changes.append(self._changed(ReplicaChanged, event, old, each, **details))
        if changed:
            old = self.state
            self._choose()
            if self.best.state != old:
                self.state, self.since, self.changed_at = self.best.state, event.time, event.at
                changes.append(self._changed(StateChanged, event, old, self.best))
            self.note_change()
        return changes

    def _changed(
        self, kind: type[ServerEvent], event: Event, old: ServerState, now: ConnectionLife, **details: Any
    ) -> ServerEvent:
        common = {"actor": self.config.name, "incarnation": event.incarnation, "time": event.time, "wall": event._wall}
        return kind(**{**common, "old": old, "new": now.state, "reason": now.reason, **details})

    def take(self, event: Event, states: Iterable[ServerState], only: Iterable[ConnectionLife] = ()) -> None:
        """Let connections in some states take an event of no actor into account, and emit what has changed by it.

        Without `only`, all in these states take it. A spare connection does not take it.
        """
        ours = [each for each in self.connections if each.state in states and each in (only or self.connections)]
        for change in self.follow(event, ours):
            self._emit(change)

    def emit(self, kind: type[ServerEvent], **details: object) -> None:
        """Emit an event about this server."""
        self._emit(self.event(kind, **details))

    def event(self, kind: type[E], **details: Any) -> E:
        """Return an event about this server, or one of no actor."""
        common = {"actor": self.config.name, "incarnation": self.incarnation, "time": trio.current_time()}
        return kind(**{**common, **details})

    def recover(self) -> None:
        """Note that a connected server lists its tools again."""
        self.take(self.event(Recovered), CONNECTED)

    def note_stopped(self) -> None:
        """Become ``stopped``, or ``pending`` if it rests, unless an actor runs whose end is followed."""
        self.take(self.event(Stopped), PARKED | {"pending", "stopped"})

    def begin_to_drain(self, requests: int, seconds: float, ends: Collection[ConnectionLife]) -> bool:
        """Note that connections only finish their requests from now on. Return True if all do, and so the server."""
        event, whole = self.event(Draining, requests=requests, seconds=seconds), len(ends) == len(self.connections)
        self._drains = self._drains or whole
        changes = self.follow(event, [each for each in ends if each.state in CONNECTED])
        for each in [event, *changes] if whole else changes:
            self._emit(each)
        return whole

    def stay_connected(self) -> None:
        """Drain no more: the old connections have all been lost meanwhile."""
        draining = [each for each in self.connections if each.draining is not None]
        for change in self.follow(self.event(Recovered), draining):
            self._emit(change)

    def note_change(self) -> None:
        """Wake the tasks that wait for a change."""
        self._on_change()
        if self._change is not None:
            self._change.set()
            self._change = None

    def leave(self) -> None:
        """Note that the ``open_servers`` block has exited, or that the server was removed from its group."""
        self.left = True
        self.note_change()

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

    async def wait_change(self) -> None:
        """Wait until the state, what is wanted, or another fact changes that a verdict or a caller looks at.

        There must be no checkpoint between the look and this call, or a change in between would be missed.

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
        name, why = self.config.name, "is stopped because its open_servers() block has exited; open it again"
        end = None
        if self.leaving == "removal":
            why = "was removed from its group; to use it again, await servers.add(...)"
        elif (end := self.end_of_group()) is not None:
            why = f"is stopped because {problem_of(end)}"
        message, state = f"server {name!r} {why}", self.state
        error = ServerUnavailable(message, server=name, state=state, last_error=self.error, outcome="not_sent")
        return caused_by(error, end)
