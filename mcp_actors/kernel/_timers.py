"""Timers, late answers, and other messages of an actor to itself.

`Timer` and `Timers` send an actor a message after a delay or periodically; `Later` is an answer that is given later;
`LaterQueue` keeps such answers in order;
`OwnMessages` sends an incarnation the messages of its timers and of its monitors of other actors (`OwnMonitor`), and
removes them when the incarnation ends.

An `Actor` sets timers, watches actors and defers answers. Its incarnation makes and closes `Timers` and `OwnMessages`;
``_serving`` makes a `Later` and settles it, as its `Settles`. This file imports none of these three. It puts envelopes
into the mailbox of a record and removes them, has the records of watched actors report to it, starts the task of the
timers in a nursery that it is given, and reads Trio's clock. If the mailbox raises, it calls a function that it is
given; if the mailbox is closed, the message is dropped.

Theory of operation
-------------------
One task of the incarnation serves all of its timers. It runs while there are any, sleeps until the first of them is
due, and sends their messages. The heap may hold canceled timers: removing one at once would cost a walk through all, so
they are dropped when they are due, or when they are more than half of the heap.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import Context
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast
from weakref import WeakSet

import trio
from attrs import define, field

from .._errors import ActorError
from .._foreign import shown
from .._misuse import explained_names, is_number
from .._pickling import Handle
from ._envelope import Envelope, Message
from ._ref import ActorRef, Down, Monitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._record import Record


SHORTEST: Final = 0.001
"""The shortest period of `Actor.every` in seconds. A shorter one leaves no time to handle a message."""


class Timer(Handle):
    """A message that an actor sends itself later, once or again and again; see `Actor.after` and `Actor.every`.

    Attributes:
        message: the message.
        seconds: the delay, or the period.
        skipped: the number of periods without a message, because the one before was still queued.
    """

    __slots__ = ("_canceled", "_due", "_envelope", "_repeats", "_timers", "message", "seconds", "skipped")

    def __init__(self, timers: Timers, seconds: float, message: Message, *, repeats: bool) -> None:
        self.message: Message = message
        self.seconds: float = seconds
        self.skipped: int = 0
        self._timers = timers
        self._repeats = repeats
        self._due = trio.current_time() + seconds
        self._envelope: OwnEnvelope | None = None
        self._canceled = False

    def __repr__(self) -> str:
        when = f"every {self.seconds:g} s, {self.skipped} skipped" if self._repeats else f"after {self.seconds:g} s"
        return f"<Timer {type(self.message).__name__} {when}>"

    @property
    def due(self) -> float:
        """The Trio time of its next message."""
        return self._due

    @property
    def over(self) -> bool:
        """True once its messages are not to be handled: it was canceled, or the actor ends."""
        return self._canceled or self._timers.own.over

    def cancel(self) -> None:
        """Send no more messages. One that is still queued is removed; one that is being handled is not interrupted.

        Synchronous, and possible in any state, also in the handler of its own message.
        """
        if not self._canceled:
            self._canceled = True
            if self._envelope is not None:
                self._timers.own.forget(self._envelope)
            self._timers.note_canceled()

    def fire(self, now: float) -> bool:
        """Send the message. Return True if the timer is due again later."""
        own = self._timers.own
        if self._repeats and self._envelope is not None and own.has_queued(self._envelope):
            self.skipped += 1
        else:
            self._envelope = own.send(self.message, self)
        if self._repeats:
            # If the whole program has paused, several periods have passed. One message is enough for all of them.
            missed = int((now - self._due) // self.seconds)
            self.skipped += missed
            self._due += (missed + 1) * self.seconds
        return self._repeats


@define(eq=False, repr=False)
class Timers:
    """The timers of one incarnation, in a heap. See the top of the file.

    Attributes:
        own: sends their messages.
    """

    own: OwnMessages
    _heap: list[tuple[float, int, Timer]] = field(factory=list, init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)
    _canceled: int = field(default=0, init=False)
    _alarm: trio.CancelScope | None = field(default=None, init=False)

    @trio.lowlevel.enable_ki_protection  # half of it would leave timers without the task that serves them
    def set(self, seconds: float, message: Message, *, repeats: bool) -> Timer:
        """Set a timer. It does nothing if the end of the incarnation was decided."""
        _check(self.own.record.name, seconds, repeats=repeats)
        self.own.record.mailbox.check(message)
        timer = Timer(self, seconds, message, repeats=repeats)
        if not self.own.over:
            self._push(timer)
            if self._alarm is None:
                self._alarm = trio.CancelScope()
                self.own.start_soon(self._run, "timers")
            self._set_alarm()
        return timer

    def note_canceled(self) -> None:
        """Drop the canceled timers if they are more than half of the heap."""
        self._canceled += 1
        if 2 * self._canceled > len(self._heap):
            self._canceled = 0
            self._heap = [entry for entry in self._heap if not entry[2].over]
            heapq.heapify(self._heap)
            self._set_alarm()

    def release(self) -> None:
        """Refer to the timers no more, because the actor has ended. They refer to this object."""
        self._heap = []

    def _push(self, timer: Timer) -> None:
        heapq.heappush(self._heap, (timer.due, next(self._numbers), timer))

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.deadline = self._heap[0][0] if self._heap else -math.inf

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        """Serve the timers, in a task of the incarnation, until there are none."""
        while self._heap:
            with trio.CancelScope(deadline=self._heap[0][0]) as self._alarm:
                await trio.sleep_forever()
            self._fire_due()
        self._alarm = None

    def _fire_due(self) -> None:
        """Send the messages that are due, in the order in which they became due."""
        now = trio.current_time()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        for timer in due:
            if not timer.over and timer.fire(now):
                self._push(timer)


def _check(name: str, seconds: object, *, repeats: bool) -> None:
    if is_number(seconds) and (SHORTEST if repeats else 0) <= seconds < math.inf:
        return
    who = f"actor {name!r}: {'every' if repeats else 'after'}() takes"
    if not is_number(seconds):
        raise ValueError(f"{who} a number of seconds, not {seconds!r}; write it first, as in (1, message)")
    if not repeats:
        raise ValueError(f"{who} a delay of 0 s or more, not {seconds!r}; give finite seconds")
    remedy = "to send a message now, call self.ref.tell_nowait(message)"
    raise ValueError(f"{who} a period of at least {SHORTEST} s, not {seconds!r}; {remedy}")


# --- Late answers -----------------------------------------------------------------------------------------------------


T = TypeVar("T")


class Settles(Protocol):
    """The requests of an incarnation, as a `Later` sees them."""

    def reply(self, later: Later[T], value: T) -> bool:
        """Answer with a value."""

    def fail(self, later: Later[T], exc: BaseException) -> bool:
        """Do what the exception would do if a handler raised it."""


@explained_names
class Later(Handle, Generic[T]):
    """The answer to a message, which any task or step of the actor's tree gives later.

    `Actor.defer` makes one in a handler, `Actor.take` gets one without a handler. It is used once. The message counts
    as in flight, and keeps its slot, until then. If the incarnation ends first, the caller gets the same error as for a
    handler that was interrupted.

    Attributes:
        message: the message.
        on_cancel: called with this object, once, if the caller leaves, its deadline expires, or the incarnation ends.
            It runs in a step of the owner, in the sender's context variables, before ``running()`` is left. With None,
            the default, the slot is free at once. If it is set, and the incarnation goes on, the slot is free when
            `reply` or `fail` is called; the answer is dropped then. An exception from it is a crash.
        keep_slot: False if the slot is free as soon as the handler has returned.
    """

    __slots__ = ("_began", "_envelope", "_settles", "keep_slot", "message", "on_cancel")

    def __init__(self, envelope: Envelope, settles: Settles, keep_slot: bool = True) -> None:
        self._envelope = envelope
        self._settles = settles
        self.message: Message = envelope.message
        self.keep_slot: bool = keep_slot
        self.on_cancel: Callable[[Later[T]], object] | None = None
        self._began: float | None = None

    def __repr__(self) -> str:
        return f"<Later {'open' if self.open else 'closed'}: {shown(self.message)}>"

    @property
    def context(self) -> Context:
        """The context variables of the sender, for a task that goes on with the message; empty once that is over.

        So a task that comes too late, because the caller has left, may use it without a check.
        """
        context: Context | None = getattr(self._envelope, "context", None)
        return Context() if context is None else context

    @property
    def open(self) -> bool:
        """True until the message is answered or put back, its caller has left, or the incarnation ends."""
        envelope = self._envelope
        return envelope.later is self and not envelope.caller_left

    def reply(self, value: T) -> bool:
        """Answer with a value, and free the slot. Return False if no caller gets the answer.

        Raises:
            RuntimeError: the caller is in another thread, an asyncio program, or another Trio run.
        """
        return self._settles.reply(self, value)

    def fail(self, exc: BaseException) -> bool:
        """Answer with an exception, as if a handler raised it, and free the slot. Return False if no caller gets it.

        Each caller needs an exception object of its own. `NotSent` returns the message to its old place in the mailbox,
        and the actor takes no more messages until it calls `Actor.take_again`, or its next incarnation starts.

        Raises:
            RuntimeError: as for `reply`.
        """
        return self._settles.fail(self, exc)


class LaterQueue(Generic[T]):
    """Answers that wait, in order. An answer leaves by itself as soon as its caller has left.

    ::

        @handles(Next)
        def next(self, message: Next) -> str | Later[str]:
            if self._jobs:
                return self._jobs.popleft()
            return self._waiting.add(self.defer(message, keep_slot=False))

        @handles(Put)
        def put(self, message: Put) -> None:
            if not self._waiting.reply(message.job):
                self._jobs.append(message.job)
    """

    __slots__ = ("_laters",)

    def __init__(self) -> None:
        self._laters: OrderedDict[Later[T], Callable[[Later[T]], object] | None] = OrderedDict()

    def __repr__(self) -> str:
        return f"<LaterQueue {len(self)} waiting>"

    def __len__(self) -> int:
        return len(self._laters)

    def __iter__(self) -> Iterator[Later[T]]:
        return iter(tuple(self._laters))

    def add(self, later: Later[T]) -> Later[T]:
        """Add an answer at the end, and return it. If it has an ``on_cancel``, that is called when the caller leaves.

        A handler adds it and returns it without an ``await`` between.
        """
        self._laters[later] = later.on_cancel
        later.on_cancel = self._left
        return later

    def popleft(self) -> Later[T] | None:
        """Remove the answer that has waited longest, and return it; None if none waits."""
        while self._laters:
            later, on_cancel = self._laters.popitem(last=False)
            later.on_cancel = on_cancel
            if later.open:
                return later
        return None

    def reply(self, value: T) -> bool:
        """Answer the caller that has waited longest. Return False if none waits."""
        while (later := self.popleft()) is not None:
            if later.reply(value):
                return True
        return False

    def _left(self, later: Later[T]) -> None:
        on_cancel = self._laters.pop(later, None)
        if on_cancel is not None:
            on_cancel(later)
        else:
            later.reply(cast("T", None))  # which frees the slot; no caller gets it


# --- Messages of an incarnation to itself, from its timers and monitors -----------------------------------------------

# They wait in the mailbox like the messages of others, in their order of arrival, but do not survive their incarnation:
# the next one has set no timers and watches no actor yet. A full mailbox refuses none of them, whatever its policy:
# they wait in the entrance then. Each timer and each monitor has at most one message in the mailbox.
#
# They are sent in the context variables of ``running()``, not in those of the handler that has set the timer, nor of
# the task that has ended the watched actor. So a message every second does not belong to the trace of one request
# forever, and no chain of messages keeps the contexts of earlier ones alive.


class Source(Protocol):
    """A timer or a monitor."""

    @property
    def over(self) -> bool:
        """True once its messages are not to be handled: it was canceled, or its incarnation ends."""


class OwnEnvelope(Envelope):
    """A message of an incarnation to itself. No sender waits for it, so it is never open."""

    __slots__ = ("_source",)

    droppable = False

    def __init__(self, message: Message, source: Source) -> None:
        super().__init__(message, is_call=False)
        self.open = False
        self._source = source

    @property
    def withdrawn(self) -> bool:
        """True if it is not to be handled."""
        return self._source.over


class OwnMonitor(Monitor):
    """A monitor of an actor, whose report is a message to that actor."""

    __slots__ = ("_envelope", "_own")

    def __init__(self, ref: ActorRef, own: OwnMessages) -> None:
        super().__init__(ref)
        self._own = own
        self._envelope: OwnEnvelope | None = None

    @property
    def over(self) -> bool:
        """True once its report is not to be handled."""
        return self.canceled or self._own.over

    def cancel(self) -> None:
        """Watch no longer."""
        super().cancel()
        self._own.monitors.pop(self, None)
        if self._envelope is not None:
            self._own.forget(self._envelope)

    def _deliver(self, down: Down) -> None:
        self._own.monitors.pop(self, None)
        self._envelope = self._own.send(down, self)


@define(eq=False, repr=False)
class OwnMessages:
    """Sends an incarnation its own messages, and removes them when it ends.

    Attributes:
        record: that of the actor.
        nursery: runs the tasks of the incarnation.
        crash: ends the incarnation with an exception.
        over: True once the end of the incarnation was decided.
        monitors: those that have not reported yet.
    """

    record: Record
    nursery: trio.Nursery | None
    crash: Callable[[BaseException], object]
    over: bool = field(kw_only=True)
    monitors: dict[OwnMonitor, None] = field(factory=dict, init=False)
    # A walk through a long queue would make each end slow. Weak, because it must keep no message alive.
    _sent: WeakSet[OwnEnvelope] = field(factory=WeakSet, init=False)

    def start_soon(self, fn: Callable[[], Awaitable[Any]], name: str) -> None:
        """Run a function in a task that ends with the incarnation."""
        assert self.nursery is not None  # the incarnation has begun, and has not ended
        self._in_context(partial(self.nursery.start_soon, fn, name=f"{self.record.name}:{name}"))

    def _in_context(self, fn: Callable[[], object]) -> None:
        # A copy: the context itself may be in use, by the owner or, where an actor takes messages without a task, by
        # another message to itself.
        assert self.nursery is not None
        self.nursery.parent_task.context.copy().run(fn)

    def send(self, message: Message, source: Source) -> OwnEnvelope | None:
        """Send a message. Return None if the mailbox is closed, because nothing more is handled then."""
        if self.record.mailbox.refuses:
            return None
        envelope = OwnEnvelope(message, source)
        self._sent.add(envelope)
        try:
            self._in_context(partial(self.record.mailbox.put, envelope, wait=True))
        except BaseException as exc:
            # Of the key function of a pool. This may be a step of the actor that is watched, which must be completed.
            self.crash(exc)
        return envelope

    def watch(self, ref: ActorRef) -> OwnMonitor:
        """Watch an actor, unless the end of the incarnation was decided."""
        if not isinstance(ref, ActorRef):  # type: ignore[redundant-expr,unused-ignore]  # users may get it wrong
            raise TypeError(
                f"actor {self.record.name!r}: watch() takes an ActorRef, not {ref!r}; a supervisor gives it by the id "
                "of the child: self.watch(self.supervisor.child(id))"
            )
        if ref._record is self.record:
            raise ActorError(
                f"actor {self.record.name!r}: cannot watch itself, because it has ended by then; clean up after the "
                "yield of running()",
                actor=self.record.name,
            )
        self.record.mailbox.check_class(Down)
        monitor = OwnMonitor(ref, self)
        if not self.over:
            self.monitors[monitor] = None
            monitor.begin()
        return monitor

    def has_queued(self, envelope: OwnEnvelope) -> bool:
        """Return True while an envelope waits in the mailbox."""
        return envelope.holder is self.record.mailbox and not envelope.withdrawn

    def forget(self, envelope: OwnEnvelope) -> None:
        """Remove an envelope from the mailbox if it waits there."""
        if getattr(envelope, "holder", None) is self.record.mailbox:  # else it was not queued, or was taken
            self.record.mailbox.forget(envelope)

    def close(self) -> None:
        """Remove all envelopes from the mailbox, because the end was decided. None that was taken returns to it."""
        self.over = True
        for monitor in tuple(self.monitors):
            monitor.cancel()
        for envelope in tuple(self._sent):
            self.forget(envelope)
