"""The name, mailbox and state of an actor, across its incarnations."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

import trio
from attrs import frozen

from ..._collapse import EXITS
from .._events import DeadLetter, Stopped
from ._end import failure_summary, stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._events import Event, EventHub
    from ..mailbox import Envelope, Mailbox
    from ._end import End

ActorState = Literal["starting", "running", "backoff", "stopping", "stopped", "failed"]

DownReason = Literal["normal", "shutdown", "crashed", "killed", "ignored", "not_running"]

STATES: Final[tuple[ActorState, ...]] = get_args(ActorState)


@frozen(kw_only=True)
class ActorStatistics:
    """A snapshot of one actor.

    Attributes:
        state: its state.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
        queued: messages that wait in the mailbox.
        in_flight: messages that are being handled.
    """

    state: ActorState
    incarnation: int
    queued: int
    in_flight: int


class Change:
    """Wakes the tasks that wait for something to change. While none waits it is a single attribute."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def __call__(self) -> None:
        """Wake all tasks that wait; each checks again for what it waits for."""
        if self._event is not None:
            event, self._event = self._event, None
            event.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()


class Watcher(Protocol):
    """A monitor, as the record of the actor that it watches sees it."""

    @property
    def canceled(self) -> bool:
        """True once it wants no report."""

    def report(self, reason: DownReason, error: BaseException | None, *, comes_back: bool) -> None:
        """Take the report."""


class Sweeps(Protocol):
    """The sweeper of a tree of actors."""

    def add(self, sweep: Callable[[], bool]) -> None:
        """Call a function periodically until it returns False."""

    def discard(self, sweep: Callable[[], bool]) -> None:
        """Call it no more, and forget it."""


class Record:
    """The lasting part of one actor. Refs only read it; its supervisor and its incarnations write it.

    Attributes:
        killed: True if its latest incarnation was killed.
        gave_up: True from the moment its supervisor stops restarting it until it is started again.
        reentrant: True if its handlers may call it; see `Actor.reentrant`. Set by each incarnation.
        in_flight: the envelopes that are being handled; empty between incarnations.
        is_pool: True if its children share its work, as the members of a pool do.
        children: for a supervisor, the records of its children by id, which outlive its incarnations too.
        parent: the record of its supervisor; None for the actor that a block has opened.
        restarts: how often its supervisor has started it again after a failure, its own or another one of its group.
        last_error: the text of the last failure; not the exception, whose traceback would keep frames alive.
        runs: True from the start of an incarnation until it has released everything.
        sweeper: frees what its actors do not need any more. Only the record at the top has one.
    """

    __slots__ = (
        "_change",
        "_thread",
        "_watchers",
        "children",
        "gave_up",
        "hub",
        "in_flight",
        "incarnation",
        "is_pool",
        "killed",
        "last_error",
        "mailbox",
        "name",
        "parent",
        "reentrant",
        "restarts",
        "runs",
        "state",
        "sweeper",
    )

    def __init__(self, name: str, mailbox: Mailbox, hub: EventHub, parent: Record | None = None) -> None:
        self.name: str = name
        self.mailbox: Mailbox = mailbox
        self.hub: EventHub = hub
        self.state: ActorState = "starting"
        self.incarnation: int = 0
        self.killed: bool = False
        self.gave_up: bool = False
        self.reentrant: bool = False
        self.in_flight: set[Envelope] = set()
        self.is_pool: bool = False
        self.children: dict[str, Record] | None = None
        self.parent: Record | None = parent
        self.restarts: int = 0
        self.last_error: str | None = None
        self.runs: bool = False
        self.sweeper: Sweeps | None = None
        self._thread = get_ident()
        self._watchers: dict[Watcher, None] = {}
        self._change = Change()

    @property
    def lives_here(self) -> bool:
        """True if the caller is in the thread of the actor's Trio run. When that ends, so does the actor."""
        return get_ident() == self._thread

    @property
    def top(self) -> Record:
        """The record of the actor that a block has opened."""
        top = self
        while top.parent is not None:
            top = top.parent
        return top

    @property
    def path(self) -> str:
        """The names from the actor that a block has opened down to this one."""
        names, above = [self.name], self.parent
        while above is not None:
            names.append(above.name)
            above = above.parent
        return "/".join(reversed(names))

    def become(self, state: ActorState) -> None:
        """Set the state, and wake the tasks that wait for a change."""
        self.state = state
        self._change()
        if self._watchers and self._stays_down:
            self._report("not_running")

    async def wait_change(self) -> None:
        """Wait until the state is set anew."""
        await self._change.wait()

    # --- monitors ---------------------------------------------------------------------------------------------------

    @property
    def _stays_down(self) -> bool:
        """True if it has stopped. An incarnation inside a foreign shield still runs in a final state."""
        return not self.runs and self.state in ("stopped", "failed")

    def watch(self, watcher: Watcher) -> None:
        """Report the end of the incarnation that runs, else of the next one; or, as soon as it is known, that none."""
        if self._stays_down:
            watcher.report("not_running", None, comes_back=False)
        else:
            self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Report nothing to a watcher."""
        self._watchers.pop(watcher, None)

    def end_run(self, end: End, *, comes_back: bool) -> None:
        """Report to all watchers that an incarnation has ended and released everything."""
        self.runs = False
        if end.error is not None:
            self.last_error = failure_summary(end.error)
        reason: DownReason = "killed" if self.killed and not end.crashed else end.reason
        # The supervisor may have decided already, if the end was overdue.
        comes_back = comes_back and end.reason != "ignored" and self.state in ("starting", "backoff")
        self._report(reason, end.error, comes_back=comes_back)

    def _report(self, reason: DownReason, error: BaseException | None = None, *, comes_back: bool = False) -> None:
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            if not watcher.canceled:  # the report to one may run code that cancels another
                watcher.report(reason, error, comes_back=comes_back)

    # --- events -----------------------------------------------------------------------------------------------------

    def note(self, kind: type[Event], **details: object) -> None:
        """Emit an event about this actor, if there are observers."""
        if self.hub.observers:
            common = {"actor": self.name, "incarnation": self.incarnation, "time": trio.current_time()}
            try:
                self.hub.emit(kind(**common, **details))  # type: ignore[arg-type]  # each caller knows its kind's fields
            except EXITS as exc:
                self.hub.leave(exc)

    def note_stopped(self) -> None:
        """Emit `Stopped`."""
        self.note(Stopped, killed=self.killed)

    def close(self, why: str) -> None:
        """Close the mailbox, and answer all queued messages: nothing restarts the actor automatically."""
        for record in self._working:
            for dropped in record.mailbox.close(lambda: stopped(self.name, why)):
                self.note(DeadLetter, message=type(dropped.message).__name__)

    def statistics(self) -> ActorStatistics:
        """Return a snapshot, as frozen data."""
        return ActorStatistics(
            state=self.state,
            incarnation=self.incarnation,
            queued=sum(record.mailbox.queued for record in self._working),
            in_flight=sum(len(record.in_flight) for record in self._working),
        )

    @property
    def queued_since(self) -> float | None:
        """The Trio time since which the longest waiting message waits; None if none does."""
        times = [record.mailbox.queued_since for record in self._working]
        return min((time for time in times if time is not None), default=None)

    @property
    def _working(self) -> tuple[Record, ...]:
        """Itself and, for a pool, the members."""
        return (self, *self.children.values()) if self.is_pool and self.children else (self,)


def elsewhere(name: str) -> RuntimeError:
    """Return the error of a message from outside the actor's Trio run, which could corrupt both sides."""
    return RuntimeError(
        f"actor {name!r}: used outside its Trio run; in a thread call "
        "trio.from_thread.run(ref.call, message) or trio.from_thread.run_sync(ref.tell_nowait, message) (with "
        "trio_token=... if Trio did not start the thread), in an asyncio program open it with mcp_actors.bridge"
    )
