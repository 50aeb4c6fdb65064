"""The name, mailbox and state of an actor, across its incarnations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args

import trio
from attrs import define, field, frozen

from .._events import DeadLetter, Stopped
from ._end import failure_summary, stopped

if TYPE_CHECKING:
    from .._events import Event, EventHub
    from ..mailbox import Accepts, Envelope, Mailbox
    from ._end import End

ActorState = Literal["starting", "running", "backoff", "stopping", "stopped", "failed"]

DownReason = Literal["normal", "shutdown", "crashed", "killed", "ignored", "not_running"]

Report = Callable[[DownReason, BaseException | None, bool], object]
"""Takes the reason and the error of an end, and whether another incarnation is expected."""

STATES: Final[tuple[ActorState, ...]] = get_args(ActorState)


@frozen(kw_only=True)
class ActorStatistics:
    """A snapshot of one actor.

    Attributes:
        state: its state.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
        queued: messages that wait in the mailbox.
        in_flight: messages that are being handled. Not counted are calls that the end of an incarnation has answered,
            although their handlers have not yet ended.
    """

    state: ActorState
    incarnation: int
    queued: int
    in_flight: int


class Change:
    """Wakes the tasks that wait for something to change. While none waits it is a single attribute.

    With a `trio.Event`, an idle actor would need 300 bytes more.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[trio.lowlevel.Task, None] | None = None

    def __call__(self) -> None:
        """Wake all tasks that wait; each checks again for what it waits for."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            for task in waiting:
                trio.lowlevel.reschedule(task)

    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> None:
        """Wait for the next change."""
        if self._waiting is None:
            self._waiting = {}
        task, waiting = trio.lowlevel.current_task(), self._waiting
        waiting[task] = None

        def leave(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            del waiting[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    async def until(self, check: Callable[[], object]) -> None:
        """Wait until a check succeeds. It is made now, and again after each change."""
        while not check():
            await self.wait()


class Sweeps(Protocol):
    """The sweeper of a tree of actors."""

    def add(self, sweep: Callable[[], bool]) -> None:
        """Call a function periodically until it returns False."""

    def discard(self, sweep: Callable[[], bool]) -> None:
        """Do not call it any more, and forget it."""


@define(eq=False, repr=False)
class Record:
    """The lasting part of one actor. Refs only read it; its supervisor and its incarnations write it.

    Attributes:
        killed: True if its latest incarnation was killed.
        gave_up: True from the moment its supervisor stops restarting it until it is started again.
        gone: True once it never starts again: it was deleted, or the tree has ended. Its state is final then.
        reentrant: True if its handlers may call it; see `Actor.reentrant`. Set by each incarnation.
        in_flight: the envelopes that are being handled; empty between incarnations.
        is_pool: True if its children share its work, as the members of a pool do.
        children: for a supervisor, the records of its children by id, which outlive its incarnations too.
        change: wakes the tasks that wait for another state.
        actor_class: the class of the actor that runs, or ran last; None before the first start.
        parent: the record of its supervisor; None for the actor that a block has opened.
        restarts: how often its supervisor has started it again after a failure, its own or another one of its group.
        last_error: the text of the last failure; not the exception, whose traceback would keep frames alive.
        sweeper: frees what its actors do not need any more. Only the record at the top has one.
    """

    name: str
    mailbox: Mailbox
    hub: EventHub
    parent: Record | None = None
    state: ActorState = field(default="starting", init=False)
    incarnation: int = field(default=0, init=False)
    killed: bool = field(default=False, init=False)
    gave_up: bool = field(default=False, init=False)
    gone: bool = field(default=False, init=False)
    reentrant: bool = field(default=False, init=False)
    in_flight: set[Envelope] = field(factory=set, init=False)
    is_pool: bool = field(default=False, init=False)
    actor_class: type | None = field(default=None, init=False)
    children: dict[str, Record] | None = field(default=None, init=False)
    restarts: int = field(default=0, init=False)
    last_error: str | None = field(default=None, init=False)
    sweeper: Sweeps | None = field(default=None, init=False)
    _thread: int = field(factory=get_ident, init=False)
    _watchers: dict[Report, None] = field(factory=dict, init=False)
    change: Change = field(factory=Change, init=False)

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
        self.change()
        if self._watchers and self._stays_down:
            self._report("not_running", None, False)

    def leave(self) -> None:
        """Note that it never starts again, nor do the actors below it, which have ended."""
        for record in self.walk():
            record.gone = True
            record.change()

    def walk(self) -> Iterator[Record]:
        """Yield this record and all below it, parents first."""
        found = [self]
        for record in found:  # which grows: a tree may have more levels than Python allows calls
            yield record
            found.extend((record.children or {}).values())

    # --- monitors ---------------------------------------------------------------------------------------------------

    @property
    def _stays_down(self) -> bool:
        """True if it has stopped. An incarnation inside a foreign shield still runs in a final state."""
        return self.mailbox.life is None and self.state in ("stopped", "failed")

    def watch(self, report: Report) -> None:
        """Report the end of the incarnation that runs, else of the next one; if none follows, report that at once."""
        if self._stays_down:
            report("not_running", None, False)
        else:
            self._watchers[report] = None

    def unwatch(self, report: Report) -> None:
        """Report no end to this function any more."""
        self._watchers.pop(report, None)

    def end_run(self, end: End, *, comes_back: bool) -> None:
        """Report to all watchers that an incarnation has ended and released everything."""
        if end.error is not None:
            self.last_error = failure_summary(end.error)
        reason: DownReason = "killed" if self.killed and not end.crashed else end.reason
        # The supervisor may have decided already, if the end was overdue.
        comes_back = comes_back and end.reason != "ignored" and self.state in ("starting", "backoff")
        self._report(reason, end.error, comes_back)

    def _report(self, reason: DownReason, error: BaseException | None, comes_back: bool) -> None:
        watchers, self._watchers = self._watchers, {}
        for report in watchers:
            report(reason, error, comes_back)

    # --- incarnations -----------------------------------------------------------------------------------------------

    def adopt(self, actor_class: type, accepts: Accepts | None, *, has_children: bool) -> None:
        """Prepare for an incarnation: the one before it may have been an actor of another class."""
        self.actor_class = actor_class
        self.mailbox.accepts = accepts
        self.is_pool = False
        if self.children is not None and not has_children:
            self._end_children(f"{self.name!r} was started again without it")

    def _end_children(self, why: str) -> None:
        """Forget the actors that an earlier incarnation, a supervisor, expected to start again."""
        children, self.children = self.children or {}, None
        for child in children.values():
            child.forget(why)

    def forget(self, why: str) -> None:
        """End an actor that was expected to start again, and those below it, for good."""
        for record in reversed(tuple(self.walk())):
            record.close(why)
            record.become("stopped")
        self.leave()

    def runs(self, actor_class: type) -> bool:
        """Return False if it, or the members of a pool, are known to be actors of another class."""
        known = [record.actor_class for record in self._working if record.actor_class is not None]
        return not known or any(issubclass(each, actor_class) for each in known)

    # --- events -----------------------------------------------------------------------------------------------------

    def note(self, kind: type[Event], **details: object) -> None:
        """Emit an event about this actor, if there are observers."""
        if self.hub.observers:
            common = {"actor": self.name, "incarnation": self.incarnation, "time": trio.current_time()}
            self.hub.note(kind(**common, **details))  # type: ignore[arg-type]  # each caller knows its kind's fields

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
            # Copied in one step, because another thread may ask (the asyncio bridge) while this one changes it.
            in_flight=sum(not each.interrupted for record in self._working for each in record.in_flight.copy()),
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
