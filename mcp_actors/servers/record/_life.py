"""States of a server and of its connections, each with a reason.

`ConnectionLife` folds the events of one actor into a state. `ServerLife` shows the state of the best connection.
Callers and the group may wish the server to run or stop; `ServerLife` holds the latest wish.

Owns: states and errors of the server and its connections; the latest wish.
Writes: events; the log. Removes tracebacks from errors; wakes readers of subscriptions.
Calls: auth, kernel, _states, _wanted.
"""

from __future__ import annotations

import logging
from contextlib import suppress
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
    LISTED_STATES,
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
"""Sign-in questions per connect. A server may change its authorization server before the tokens are used."""


@define(eq=False, repr=False)
class ConnectionLife:
    """The state of one connection, and the reasons for the state. Written by `follow` if not noted otherwise.

    Attributes:
        draining: the event of a drain, until the disconnect; else None.
        parked: True from parking until the connection serves or is started explicitly, also during a retry. Also
            written by `forgive`.
        failures: failed connects and lost connections since the connection last served.
        error: the current problem; None while ``ready``. Also written by the connection (`note_failure`).
        last_error: the last failure, kept after a recovery.
        overdue: the warning about a connect beyond ``connect_timeout``, else None. Callers then await only a required
            server. Written by the connection (`note_overdue`).
        asks_left: how often a connect may ask a person to sign in, until the server serves or is started explicitly.
            Zero once the person has refused. Written by the connection, and by `forgive`.
        began: the number of the wish (see `Wanted`) under which the last incarnation began; -1 before.
        broke: the number of the last wish for which a connect or a connection has failed; -1 before.
        verdict_due: True from a failure until the supervisor has decided about a retry, some steps later.
        ignored: True if the last incarnation has nothing to run, so its events are not shown. Written by
            `ServerRecord.ignores`.
        old: True from the end of ``max_lifetime`` until the next incarnation. Written by the lifecycle actor.
        holding: True while requests wait for the next connection. Written by the lifecycle actor.
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
        return self._server.wanted

    @property
    def state(self) -> ServerState:
        """The state of the actor, or ``stopping`` during a drain."""
        return "stopping" if self.draining is not None and self._state in CONNECTED else self._state

    @property
    def seen(self) -> Seen:
        return Seen(self.state, self.began, self.broke, self.old, self.overdue is not None)

    @property
    def retry_at(self) -> datetime | None:
        return self._retry_at if self.state in PARKED and self.wanted.mode == "run" else None

    @property
    def signed_out(self) -> bool:
        """True while the connection is parked until a person signs in, also during a retry."""
        return self.parked and isinstance(self.error, SignInRequired)

    @property
    def level_of_attempt(self) -> int:
        """The log level of a warning about a connect: DEBUG within an outage, whose attempts repeat the warning."""
        return logging.WARNING if self.error is None else logging.DEBUG

    @property
    def reason(self) -> str:
        """The reason for the state. For a starting process, the last line of its stderr."""
        if self.draining is not None:
            requests = "1 request" if self.draining.requests == 1 else f"{self.draining.requests} requests"
            return f"finishing {requests}, for at most {self.draining.seconds:g} s"
        if self._link is None:
            return self._reason
        silent = "its process has written nothing to stderr; check that its command starts an MCP server"
        return self._link.obituary().last_line or f"{self._reason}; {silent}"

    # --- events -----------------------------------------------------------------------------------------------------

    def follow(self, event: Event) -> None:
        """Apply an event of the actor, of the pool that ends the actor, or about the server."""
        if event.actor == self.name:
            self.incarnation = event.incarnation
        self.verdict_due = isinstance(event, Crashed | StartFailed)
        if isinstance(event, Draining | Stopping | Crashed | Recovered):
            self.draining = event if isinstance(event, Draining) else None
        if isinstance(event, Restarting | GaveUp):
            # The failure of a connection that is to be replaced says nothing about the last wish: without this test a
            # restart would report the error of the connection that it replaces.
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

    def _serving_state(self) -> ServerState:
        if self._health.condition == "healthy":
            return "ready" if self._catalog.failure is None else "degraded"
        return self._health.condition

    def note_failure(self, error: BaseException | None) -> None:
        """Remember a failure, or a better description of the last failure."""
        if isinstance(error, Exception):
            # The traceback's frames refer to the connection, and with the connection to credentials.
            self.error = self.last_error = error.with_traceback(None)

    def note_question(self, challenge: str | None) -> None:
        """Note that a connect waits for a person, which alone is not a failure.

        The wait holds up the start of a group only if the server is required.
        """
        self._reason = "a person is asked to sign in, by on_sign_in"
        name = self._server.config.name
        asks = SignInRequired(f"server {name!r}: {self._reason}", server=name, challenge=challenge)
        self.error = None if self.error is None else asks
        self.last_error = self._server.last_error = asks
        self._server.note_change()

    def health_changed(self) -> None:
        self._server.take(self._server.event(HealthChanged), CONNECTED, (self,))

    def emit(self, kind: type[ServerEvent], **details: object) -> None:
        self._server.emit(kind, incarnation=self.incarnation, **details)

    def note_connecting(self, link: Link) -> None:
        self._link = link

    def forgive(self, ask: bool = True) -> None:
        """Leave the parked state: the server serves, or is started explicitly.

        `ask` allows new questions to a person.
        """
        self.parked = False
        self.asks_left = ASKS if ask else 0

    def note_overdue(self, warning: str, *, logged: bool = False) -> None:
        """Remember, and log unless `logged`, that ``connect_timeout`` passed; the connect continues."""
        if self.overdue is None:
            self.overdue = warning
            if not logged:
                logger.log(self.level_of_attempt, "%s", warning)
            self._server.note_change()

    def release(self) -> None:
        self.draining = None
        del self._server, self._catalog, self._health

    # --- the reasons for states -------------------------------------------------------------------------------------

    def _reason_of(self, event: Event) -> str:
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
    """The state of a server, shown from its best connection, and the current wish.

    Attributes:
        connections: the state of each connection. Replaced by `consist_of`.
        best: the connection in the best state. Written by `follow`, like `state`, `since`, `changed_at`, `last_error`.
        since, changed_at: when the state last changed, by `trio.current_time` and by the wall clock.
        last_error: the last failure of a connection, kept after a recovery.
        leaving: `Wanted.departure`, for every request to read. Written by `want`.
        is_gone: True once the group has ended or has removed the server; nothing changes any more.
        end_of_group: returns why the group ends, or None if the block exits. Written by the roster.
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
    is_gone: bool = field(default=False, init=False)
    end_of_group: Callable[[], ServerUnavailable | None] = field(default=lambda: None, init=False)
    wanted: Wanted = field(init=False)
    _drains: bool = field(default=False, init=False)
    _change: trio.Event | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.wanted = first(self.config)

    def consist_of(self, connections: Iterable[ConnectionLife]) -> None:
        """Replace the connections, while none of them runs. A new connection begins in the state of the server."""
        before, self.connections = self.connections, tuple(connections)
        for each in self.connections if before else ():
            if each not in before:
                each._state, each._reason = self.best._state, self.best._reason
        self._choose()

    def _choose(self) -> None:
        # Once all connections drain, the server drains to the end. A draining connection may be lost and serve again
        # before the last one has ended; as the best connection it would show a stopping server as `ready`.
        self._drains = self._drains and any(each.state == "stopping" for each in self.connections)
        self.best = min(
            self.connections, key=lambda each: (self._drains and each.state != "stopping", rank(each.state))
        )

    def want(self, wanted: Wanted) -> Wanted:
        """Replace the current wish, and return the new one. The only writer of `wanted`."""
        self.wanted = wanted
        self.leaving = wanted.departure
        self.note_change()
        return wanted

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        return self.best.incarnation

    @property
    def connects(self) -> int:
        return sum(each.connects for each in self.connections)

    @property
    def failures(self) -> int:
        return self.best.failures

    @property
    def error(self) -> Exception | None:
        return self.best.error

    @property
    def overdue(self) -> str | None:
        return self.best.overdue

    @property
    def draining(self) -> bool:
        return any(each.draining is not None for each in self.connections)

    @property
    def dormant(self) -> bool:
        """True for a lazy server before the first use, and for an idle server until the next use."""
        return self.state == "pending" and self.wanted.mode == "rest"

    @property
    def idle(self) -> bool:
        return self.state in ("pending", "stopped") and self.wanted.mode != "run"

    @property
    def retry_at(self) -> datetime | None:
        return None if self.is_gone else self.best.retry_at

    @property
    def troubled(self) -> bool:
        """True while the server has an error, also while reconnecting."""
        return self.error is not None or self.state in FAILED

    @property
    def listed(self) -> bool:
        """True while the tools are shown: the server serves, or will without an explicit start.

        The tools of a parked server stay hidden during a retry.
        """
        comes_back = self.wanted.mode in ("run", "rest") and self.state in ("stopping", "stopped")
        return comes_back or (self.state in LISTED_STATES and not all(each.parked for each in self.connections))

    @property
    def reason(self) -> str:
        return self.best.reason

    def outage(self) -> tuple[str, Exception | None]:
        """Describe why the server does not serve, with the current error; an empty text while the server serves."""
        if self.state in ACTIVE:
            return "", None
        why = self.reason if self.error is None else problem_of(self.error)
        return f"the server is in state {self.state!r} ({why})", self.error

    # --- events -----------------------------------------------------------------------------------------------------

    def follow(self, event: Event, connections: Iterable[ConnectionLife]) -> list[ServerEvent]:
        """Apply an event to some connections. Return the events to emit for changes of state."""
        changes: list[ServerEvent] = []
        changed = False
        for each in connections:
            old = each.state
            each.follow(event)
            self.last_error = each.error or self.last_error
            if each.state != old:
                changed = True
                if each.name != self.config.name:  # a single connection would only repeat the StateChanged below
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
        """Apply an event without an actor to connections in some states, and emit the changes.

        `only` restricts the connections further. A spare connection is never included.
        """
        ours = [each for each in self.connections if each.state in states and each in (only or self.connections)]
        for change in self.follow(event, ours):
            self._emit(change)

    def emit(self, kind: type[ServerEvent], **details: object) -> None:
        self._emit(self.event(kind, **details))

    def event(self, kind: type[E], **details: Any) -> E:
        common = {"actor": self.config.name, "incarnation": self.incarnation, "time": trio.current_time()}
        return kind(**{**common, **details})

    def recover(self) -> None:
        self.take(self.event(Recovered), CONNECTED)

    def note_stopped(self) -> None:
        """Make connections without a running actor ``stopped``, or ``pending`` if the server rests."""
        self.take(self.event(Stopped), PARKED | {"pending", "stopped"})

    def begin_to_drain(self, requests: int, seconds: float, ends: Collection[ConnectionLife]) -> bool:
        """Let some connections only finish their requests from now on.

        Return True if the whole server drains.
        """
        event, whole = self.event(Draining, requests=requests, seconds=seconds), len(ends) == len(self.connections)
        self._drains = self._drains or whole
        changes = self.follow(event, [each for each in ends if each.state in CONNECTED])
        for each in [event, *changes] if whole else changes:
            self._emit(each)
        return whole

    def stay_connected(self) -> None:
        """End a drain whose old connections were all lost meanwhile."""
        draining = [each for each in self.connections if each.draining is not None]
        for change in self.follow(self.event(Recovered), draining):
            self._emit(change)

    def note_change(self) -> None:
        self._on_change()
        if self._change is not None:
            self._change.set()
            self._change = None

    def release(self) -> None:
        self.is_gone = True
        self.note_change()

    # --- waits ------------------------------------------------------------------------------------------------------

    async def wait_state(self, *states: ServerState) -> ServerState:
        """Wait for one of these states, and return the state. A very short state may be missed.

        Raises:
            ServerUnavailable: in another state, the group was closed, or has removed the server.
        """
        await trio.lowlevel.checkpoint()
        while self.state not in states:
            await self.wait_change()
        return self.state

    async def wait_change(self) -> None:
        """Wait for a change of the state, of the wish, or of any other fact that callers and verdicts read.

        Raises:
            ServerUnavailable: the group was closed, or has removed the server.
        """
        # No checkpoint between a caller's look at a fact, this call, and the event below: a change in between would set
        # no event, and the caller would wait for a change that has already happened. An event exists only while a task
        # waits, because most changes have no reader.
        if self.is_gone:
            raise self.gone()
        if self._change is None:
            self._change = trio.Event()
        await self._change.wait()

    async def wait_while(self, condition: Callable[[], bool]) -> None:
        """Wait while a condition holds, until the group was closed, or has removed the server."""
        with suppress(ServerUnavailable):
            while condition():
                await self.wait_change()

    def gone(self) -> ServerUnavailable:
        name, why = self.config.name, "is stopped because its open_servers() block has exited; open it again"
        end = None
        if self.leaving == "removal":
            why = "was removed from its group; to use it again, await servers.add(...)"
        elif (end := self.end_of_group()) is not None:
            why = f"is stopped because {problem_of(end)}"
        message, state = f"server {name!r} {why}", self.state
        error = ServerUnavailable(message, server=name, state=state, last_error=self.error, outcome="not_sent")
        return caused_by(error, end)
