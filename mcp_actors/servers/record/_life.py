"""The state of one server, and the reasons for it.

`ServerLife` follows the events of the server's actor; that of a server with replicas is computed from theirs. It keeps
the state, the errors, the attempts, and what is wanted of the server. The last part describes in words why a state has
changed.

The record has one for a server and, with replicas, one for each. The record, connections, refs and the group write it,
by its methods and a few fields; the class says who writes most of them. Refs and the group wait for its changes. It
reads the catalogue and the health of the server and, while that connects, its link. It emits events by the function
that it was given, logs an overdue connect, and reads Trio's clock and the wall clock. It starts no task and sends no
request.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

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
    ServerEvent,
    ServerState,
    StateChanged,
    next_state,
    rank,
)
from ._wanted import Seen, Wanted, first

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...config import ServerConfig
    from ...transports import Link
    from .._catalog import ServerCatalog
    from ._health import ServerHealth
    from ._states import Departure

logger = Log("mcp_actors.servers")

E = TypeVar("E", bound=Event)

ASKS: Final = 2
"""Questions to a person per connect. A server may change its authorization server between a sign-in and its use."""


@define(eq=False, repr=False)
class ServerLife:
    """The state of one server, the reasons for it, and what is wanted of the server.

    What is wanted of a replica is what is wanted of its server.

    Attributes:
        state: the fold of the events of its actor (`follow`, which also writes the next eight, and from `began` to
            `verdict_due`).
        since: `trio.current_time` at the last change of the state.
        changed_at: the wall-clock time of that change.
        parked: True from being parked until it serves or is started explicitly, also while it is retried. Also written
            by the loop of the group, which forgives failures (``group/_loop.py``).
        incarnation: the number of the current or last incarnation of its actor.
        connects: the number of attempts to connect.
        failures: failed connects and lost connections since it last served.
        error: the current problem; None while it serves. The connection may replace it (`note_failure`).
        last_error: the last failure, kept after the server has recovered.
        overdue: the warning about a connect that has exceeded ``connect_timeout`` and goes on; else None. Callers no
            longer wait for it, unless the server is required. Written by the connection (`note_overdue`).
        asks_left: how often a connect may ask a person to sign in, by a configured callback, until the server serves or
            is started explicitly. Zero once the person has refused.
        began: the number of the wish (see `Wanted`) that was valid when its last incarnation began; -1 before that.
        broke: the number of the last wish for which a connect or a connection has failed; -1 before that.
        verdict_due: True from a failure until its supervisor has decided what follows, which is some steps later.
        ignored: True if the last incarnation has nothing to run, so its events are not shown (`ServerRecord.ignores`).
        old: True while its connection is to be replaced because of its age, until the next one begins. Written by the
            lifecycle actor.
        draining: True while it finishes its requests before it is disconnected.
        holding: True while requests wait for the next connection. Written by the lifecycle actor.
        leaving: `Wanted.departure`, of the life of a server only: each request looks at it.
        left: True once it is no longer in an open group; nothing changes any more.
        end_of_group: returns why its group ends, if not because the block exits. Written by the roster.

    Args:
        config: the configuration of the server.
        emit: emits an event.
        catalog: its tools; while they are not listed, a connected server is degraded.
        health: its health; while that is bad, a connected server is degraded or unhealthy.
        required: whether callers wait for it without a limit while it connects.
        on_change: called at each change that `wait_change` waits for.
        of: the life of its server, if it is that of a replica.
    """

    _config: ServerConfig
    _emit: Callable[[Event], None]
    _catalog: ServerCatalog
    _health: ServerHealth
    _required: bool = field(kw_only=True)
    _on_change: Callable[[], None] = field(kw_only=True)
    _of: ServerLife | None = field(default=None, kw_only=True)
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
    asks_left: int = field(default=ASKS, init=False)
    began: int = field(default=-1, init=False)
    broke: int = field(default=-1, init=False)
    verdict_due: bool = field(default=False, init=False)
    ignored: bool = field(default=False, init=False)
    old: bool = field(default=False, init=False)
    draining: bool = field(default=False, init=False)
    holding: bool = field(default=False, init=False)
    left: bool = field(default=False, init=False)
    leaving: Departure | None = field(default=None, init=False)
    end_of_group: Callable[[], ServerUnavailable | None] = field(default=lambda: None, init=False)
    _wanted: Wanted = field(init=False)
    _reason: str = field(init=False)
    _link: Link | None = field(default=None, init=False)
    _retry_at: datetime | None = field(default=None, init=False)
    _change: trio.Event | None = field(default=None, init=False)
    _shown: ServerLife | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._wanted = first(self._config)
        self._reason = "about to connect" if self._wanted.mode == "run" else "not used yet"

    def configure(self, config: ServerConfig, *, required: bool) -> None:
        """Take over a changed configuration."""
        self._config, self._required, self._shown = config, required, None

    # --- wishes -----------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> Wanted:
        """What is wanted of the server."""
        return self._wanted if self._of is None else self._of.wanted

    def want(self, wanted: Wanted) -> Wanted:
        """Replace what is wanted of the server, and return that. Nothing else replaces it."""
        self._wanted = wanted
        self.leaving = wanted.departure
        self._wake()
        return wanted

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def dormant(self) -> bool:
        """True for a lazy server that has not been used yet, and for one that was idle, until it is used again."""
        return self.state == "pending" and self.wanted.mode == "rest"

    @property
    def idle(self) -> bool:
        """True while there is nothing to run."""
        return self.state in ("pending", "stopped") and self.wanted.mode != "run"

    @property
    def seen(self) -> Seen:
        """What decisions about the server need to know of its connection."""
        return Seen(self.state, self.began, self.broke, self.old, self.overdue is not None)

    @property
    def retry_at(self) -> datetime | None:
        """The time of the next attempt of a parked server; None if there is none."""
        return self._retry_at if self.state in PARKED and self.wanted.mode == "run" and not self.left else None

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
        comes_back = self.wanted.mode in ("run", "rest") and self.state in ("stopping", "stopped")
        return (self.state in LISTED and not self.parked) or comes_back

    @property
    def level_of_attempt(self) -> int:
        """The log level of a warning about a connect, which repeats at each attempt of an outage."""
        return logging.WARNING if self.error is None else logging.DEBUG

    @property
    def reason(self) -> str:
        """The reason for the state. While a process starts, that is the last line of its stderr."""
        if self._shown is not None or self._link is None:
            return self._reason if self._shown is None else self._shown.reason
        silent = "its process has written nothing to stderr; check that its command starts an MCP server"
        return self._link.obituary().last_line or f"{self._reason}; {silent}"

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
        self.verdict_due = isinstance(event, Crashed | StartFailed)
        if isinstance(event, Draining | Stopping | Crashed):
            self.draining = isinstance(event, Draining)
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
                self.parked = False
                self.allow_asking()
                self.note_failure(self._catalog.failure)
                self.note_failure(self._health.problem)
        parked: ServerState = "needs_auth" if self.signed_out else "failed"
        stopped: ServerState = "pending" if self.wanted.mode == "rest" else "stopped"
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
        new: ServerState = "stopping" if self.draining else best.state
        self._shown = best if new == best.state else None
        reason = None if self._shown is None else best._reason
        changed = self._become(new, event, reason) if new != self.state else None
        self.reflect(replicas)  # after the change of the state, which resets some of these
        return changed

    def _serving_state(self) -> ServerState:
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

    def stay_connected(self, replicas: Sequence[ServerLife]) -> None:
        """Drain no more, and show the replicas again."""
        self.draining = False
        if (changed := self.follow_replicas(replicas, self._event(Recovered))) is not None:
            self._emit(changed)

    def note_stopped(self) -> None:
        """Become ``stopped``, or ``pending`` if it rests, unless an actor runs whose end is followed."""
        self._follow_own(Stopped, PARKED | {"pending", "stopped"})

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

    def note_change(self) -> None:
        """Wake the tasks that wait for a change of anything but the state."""
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
        name, why = self._config.name, "is stopped because its open_servers() block has exited; open it again"
        end = None
        if self.leaving == "removal":
            why = "was removed from its group; to use it again, await servers.add(...)"
        elif (end := self.end_of_group()) is not None:
            why = f"is stopped because {problem_of(end)}"
        error = ServerUnavailable(f"server {name!r} {why}", server=name, state=self.state, last_error=self.error)
        return caused_by(error, end)

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
        self._reason = reason = reason or _reason_of(
            event,
            self.error,
            connects=self.connects,
            catalog=self._catalog,
            health=self._health,
            wanted=self.wanted,
            config=self._config,
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


# --- The reasons for states -------------------------------------------------------------------------------------------


def _reason_of(
    event: Event,
    error: Exception | None,
    *,
    connects: int,
    catalog: ServerCatalog,
    health: ServerHealth,
    wanted: Wanted,
    config: ServerConfig,
) -> str:
    """Describe why the state changes.

    Args:
        event: the event that changes it.
        error: the current problem of the server.
        connects: the number of attempts to connect.
        catalog: its tools.
        health: its health.
        wanted: what is wanted of it.
        config: its configuration.
    """
    now = problem_of(error) if error is not None else "no error is known"
    match event:
        case Starting():
            reason = "first connect" if connects == 1 else f"connect number {connects}"
        case Started():
            reason = f"connected, {_tools(catalog, error)}"
        case Recovered():
            reason = f"it lists its tools again: {_tools(catalog, error)}"
        case HealthChanged() if health.problem is None:
            reason = f"it answers again: {_tools(catalog, error)}"
        case HealthChanged():
            reason = f"{health.ladder.failures} failures in a row, the last: {now}"
        case Crashed():
            reason = now
        case Restarting(delay=delay):
            reason = f"trying again in {delay:.3g} s, after: {now}"
        case GaveUp(retry_in=seconds):
            attempt = "no further attempt" if seconds is None else f"next attempt in {seconds:.0f} s"
            reason = f"{attempt}, after: {now}"
        case Draining(requests=requests, seconds=seconds):
            what = "1 request" if requests == 1 else f"{requests} requests"
            reason = f"finishing {what}, for at most {seconds:g} s"
        case _:
            reason = _asked(wanted, config) if error is None else f"stopped, after: {now}"
    return reason


def _asked(wanted: Wanted, config: ServerConfig) -> str:
    if wanted.mode != "rest":
        return "asked to stop"
    why = "not used for a while" if wanted.config == config else "lazy from now on"
    return f"{why}; the next request connects it again"


def _tools(catalog: ServerCatalog, error: Exception | None) -> str:
    number = "1 tool" if len(catalog.tools) == 1 else f"{len(catalog.tools)} tools"
    return number if error is None else f"{number}, as it does not list them: {problem_of(error)}"
