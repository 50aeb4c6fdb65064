"""Timers, and other messages of an actor to itself.

Messages from timers and monitors (`OwnMessages`) wait in the actor's mailbox, but must be gone once the incarnation
ends. A single task serves all timers of an incarnation.

Owns: timers; monitors; their messages; the task of the timers.
Writes: the actor's mailbox; watchers in other actors' records; the end of the incarnation if sending fails.
Calls: _envelope, _ref.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

import trio
from attrs import define, field

from .._errors import ActorError
from .._misuse import is_number
from .._pickling import Handle
from ._envelope import Envelope, Message
from ._ref import ActorRef, Down, Monitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._record import Record


SHORTEST_PERIOD: Final = 0.001
"""The shortest period of `Actor.every` in seconds. A shorter period leaves no time to handle a message."""


class Timer(Handle):
    """A message that an actor sends itself later, once or repeatedly; see `Actor.after` and `Actor.every`.

    Attributes:
        message: the message.
        seconds: the delay, or the period.
        skipped: how many periods sent no message: the last message was still queued, or the program had paused.
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
        """The Trio time of the next message."""
        return self._due

    @property
    def over(self) -> bool:
        """True once messages are not to be handled: the timer was canceled, or the actor ends."""
        return self._canceled or self._timers.own_messages.over

    def cancel(self) -> None:
        """Send no more messages. A queued message is removed; a message being handled is not interrupted.

        Synchronous, and possible in any state, also in the handler of the timer's own message.
        """
        if not self._canceled:
            self._canceled = True
            if self._envelope is not None:
                self._timers.own_messages.forget(self._envelope)
            self._timers.note_canceled()

    def fire(self, now: float) -> bool:
        """Send the message. Return True if another is due later."""
        own = self._timers.own_messages
        if self._repeats and self._envelope is not None and own.has_queued(self._envelope):
            self.skipped += 1
        else:
            self._envelope = own.send(self.message, self)
        if self._repeats:
            # After a pause of the whole program, one message is enough for all missed periods.
            missed = int((now - self._due) // self.seconds)
            self.skipped += missed
            self._due += (missed + 1) * self.seconds
        return self._repeats


@define(eq=False, repr=False)
class Timers:
    """The timers of one incarnation, and a task that sends their messages while there are timers.

    Canceled timers stay in the heap until due, or until more than half of the heap is canceled: removing each at once
    would take a walk through all.
    """

    own_messages: OwnMessages
    _heap: list[tuple[float, int, Timer]] = field(factory=list, init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)
    _canceled: int = field(default=0, init=False)
    _alarm: trio.CancelScope | None = field(default=None, init=False)

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C halfway would leave timers without the task that serves them
    def set(self, seconds: float, message: Message, *, repeats: bool) -> Timer:
        """Set a timer, unless the end was decided."""
        _check(self.own_messages.record.name, seconds, repeats=repeats)
        self.own_messages.record.mailbox.check(message)
        timer = Timer(self, seconds, message, repeats=repeats)
        if not self.own_messages.over:
            self._push(timer)
            if self._alarm is None:
                self._alarm = trio.CancelScope()
                self.own_messages.start_soon(self._run, "timers")
            self._set_alarm()
        return timer

    def note_canceled(self) -> None:
        self._canceled += 1
        if 2 * self._canceled > len(self._heap):
            self._canceled = 0
            self._heap = [entry for entry in self._heap if not entry[2].over]
            heapq.heapify(self._heap)
            self._set_alarm()

    def release(self) -> None:
        self._heap = []

    def _push(self, timer: Timer) -> None:
        heapq.heappush(self._heap, (timer.due, next(self._numbers), timer))

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.deadline = self._heap[0][0] if self._heap else -math.inf

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        while self._heap:
            with trio.CancelScope(deadline=self._heap[0][0]) as self._alarm:
                await trio.sleep_forever()
            self._fire_due()
        self._alarm = None

    def _fire_due(self) -> None:
        now = trio.current_time()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        for timer in due:
            if not timer.over and timer.fire(now):
                self._push(timer)


def _check(name: str, seconds: object, *, repeats: bool) -> None:
    if is_number(seconds) and (SHORTEST_PERIOD if repeats else 0) <= seconds < math.inf:
        return
    who = f"actor {name!r}: {'every' if repeats else 'after'}() takes"
    if not is_number(seconds):
        raise ValueError(f"{who} a number of seconds, not {seconds!r}; write it first, as in (1, message)")
    if not repeats:
        raise ValueError(f"{who} a delay of 0 s or more, not {seconds!r}; give finite seconds")
    remedy = "to send a message now, call self.ref.tell_nowait(message)"
    raise ValueError(f"{who} a period of at least {SHORTEST_PERIOD} s, not {seconds!r}; {remedy}")


# --- Messages of an incarnation to itself -----------------------------------------------------------------------------

# These messages wait in the mailbox in order of arrival, but do not survive the incarnation: the next has set no timers
# and watches no actor yet. A full mailbox refuses none, whatever the policy: they wait in the entrance, at most one for
# each timer and monitor.
#
# They are sent in the context variables of ``running()``, not of the handler that has set the timer, nor of the task
# that has ended the watched actor. So no message belongs to the trace of one request forever, or keeps the contexts of
# earlier ones alive.


class MessageSource(Protocol):
    """A timer or a monitor."""

    @property
    def over(self) -> bool:
        """True once messages are not to be handled: canceled, or the incarnation ends."""


class OwnEnvelope(Envelope):
    """A message of an incarnation to itself. Never open, because no sender waits."""

    __slots__ = ("_source",)

    droppable = False

    def __init__(self, message: Message, source: MessageSource) -> None:
        super().__init__(message, is_call=False)
        self.open = False
        self._source = source

    @property
    def withdrawn(self) -> bool:
        return self._source.over


class OwnMonitor(Monitor):
    """A monitor whose report is a message to the watching actor."""

    __slots__ = ("_envelope", "_own")

    def __init__(self, ref: ActorRef, own: OwnMessages) -> None:
        super().__init__(ref)
        self._own = own
        self._envelope: OwnEnvelope | None = None

    @property
    def over(self) -> bool:
        return self.canceled or self._own.over

    def cancel(self) -> None:
        super().cancel()
        self._own.monitors.pop(self, None)
        if self._envelope is not None:
            self._own.forget(self._envelope)

    def _deliver(self, down: Down) -> None:
        self._own.monitors.pop(self, None)
        self._envelope = self._own.send(down, self)


@define(eq=False, repr=False)
class OwnMessages:
    """Sends an incarnation its own messages, and removes them at the end.

    Attributes:
        crash: ends the incarnation with an exception.
        over: True once the end was decided.
        monitors: monitors that have not reported yet.
    """

    record: Record
    nursery: trio.Nursery | None
    crash: Callable[[BaseException], object]
    over: bool = field(kw_only=True)
    monitors: dict[OwnMonitor, None] = field(factory=dict, init=False)
    # Spares `close` a walk through a long queue. Weak, to keep no message alive.
    _sent: WeakSet[OwnEnvelope] = field(factory=WeakSet, init=False)

    def start_soon(self, fn: Callable[[], Awaitable[Any]], name: str) -> None:
        assert self.nursery is not None  # between begin and end
        self._in_context(partial(self.nursery.start_soon, fn, name=f"{self.record.name}:{name}"))

    def _in_context(self, fn: Callable[[], object]) -> None:
        # A copy: the owner, or another such message, may be using the context.
        assert self.nursery is not None
        self.nursery.parent_task.context.copy().run(fn)

    def send(self, message: Message, source: MessageSource) -> OwnEnvelope | None:
        """Send a message. Return None if the mailbox is closed."""
        if self.record.mailbox.refuses:
            return None
        envelope = OwnEnvelope(message, source)
        self._sent.add(envelope)
        try:
            self._in_context(partial(self.record.mailbox.put, envelope, wait=True))
        except BaseException as exc:
            # From a pool's key function. This may be a step of the watched actor, which must be completed.
            self.crash(exc)
        return envelope

    def watch(self, ref: ActorRef) -> OwnMonitor:
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
        return envelope.holder is self.record.mailbox and not envelope.withdrawn

    def forget(self, envelope: OwnEnvelope) -> None:
        if getattr(envelope, "holder", None) is self.record.mailbox:  # else never queued, or taken
            self.record.mailbox.forget(envelope)

    def close(self) -> None:
        """Remove all envelopes from the mailbox: the end was decided."""
        self.over = True
        for monitor in tuple(self.monitors):
            monitor.cancel()
        for envelope in tuple(self._sent):
            self.forget(envelope)
