"""Timers: messages that an actor sends itself later.

One task of the incarnation serves all of its timers. It runs while there are any, sleeps until the first of them is
due, and sends their messages. The heap may hold canceled timers: removing one at once would cost a walk through all, so
they are dropped when they are due, or when they are more than half of the heap.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field

from ..._checks import is_number, is_seconds
from ..mailbox import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._own import OwnEnvelope, OwnMessages


SHORTEST: Final = 0.001
"""The shortest period of `Actor.every` in seconds. A shorter one leaves no time to handle a message."""


class Timer:
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
    """The timers of one incarnation. See the top of the file.

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
    """Raise an error if there is no such timer."""
    if repeats and not (is_seconds(seconds) and seconds >= SHORTEST):
        raise ValueError(
            f"actor {name!r}: every() takes a period of at least {SHORTEST} s, not {seconds!r}; to send a message "
            "now, call self.ref.tell_nowait(message)"
        )
    if not repeats and not (is_number(seconds) and 0 <= seconds < math.inf):
        raise ValueError(f"actor {name!r}: after() takes a delay of 0 s or more, not {seconds!r}; give finite seconds")
