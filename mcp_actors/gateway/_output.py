"""Write to clients, and notice gaps of the event loop.

A write never waits: a task writes the bytes that a client does not take at once. If the event loop did not run for a
while (a *gap*), unread requests may have timed out at the clients, so the `Heart` notifies all connections.

Owns: bytes waiting for clients; the last gap.
Writes: bytes to clients; the sum of waiting bytes of all gateways; gap notices to connections; the log.
Calls: _budget, _listen.
"""

from __future__ import annotations

import math
import os
import select
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import trio

from .._foreign import Log
from ._budget import STALLED, Budget, budget
from ._listen import GracefulConnection

if TYPE_CHECKING:
    from collections.abc import Callable

logger = Log("mcp_actors.gateway")

OUTPUT_BACKLOG: Final = 1024 * 1024
"""Reading from a client stops while this many bytes wait for it."""

BEAT: Final = 0.25  # seconds between looks at the clock

GAP: Final = 0.5
"""Seconds that a look at the clock may be late. More is a gap."""


class Heart:
    """Notices that the event loop did not run for a while, and notifies all connections.

    Attributes:
        gap: when the last gap was noticed; minus infinity before the first.
        silence: seconds of the last gap.
    """

    def __init__(self) -> None:
        self.now: float = trio.current_time()
        self.gap: float = -math.inf
        self.silence: float = 0.0
        self.connections: set[GapListener] = set()

    def look(self) -> bool:
        """Look at the clock; return True after a gap."""
        now = trio.current_time()
        silence, self.now = now - self.now, now
        late = silence > BEAT + GAP
        if late:
            self.gap, self.silence = now, silence
            for each in self.connections:
                each.note_gap()
        return late

    async def beat(self) -> None:
        while True:
            self.look()
            await trio.sleep(BEAT)


class GapListener(GracefulConnection, Protocol):
    """A connection whose unread data may be late."""

    def note_gap(self) -> None:
        """Note that the event loop did not run. Unread requests may have been given up since."""


class LogLine(bytes):
    """The line of a log message, made once for all clients. May be dropped while waiting."""

    @cached_property
    def event(self) -> LogLine:
        event = b"event: message\ndata: %b\n\n" % self
        return LogLine(b"%x\r\n%b\r\n" % (len(event), event))


class DescriptorWriter:
    """Writes to a non-blocking descriptor, without blocking the caller.

    Args:
        leave: called with the reason if the client has left, or does not read.

    Attributes:
        request_bytes: bytes of messages that have arrived and are not taken yet.
        waiting: bytes to be written.
        closed: nothing more is written; the descriptor's number may be another file's.
        moved: when bytes were last taken, or began to wait.
    """

    def __init__(self, descriptor: int, leave: Callable[[str], None], client: str, identity: str) -> None:
        self._descriptor = descriptor
        self._leave = leave
        self._client = client
        self.identity: str = identity
        self.budget: Budget = budget()
        self.budget.sources.add(self)
        self.request_bytes: int = 0
        self._is_counted = False  # True once the client has not taken something at once
        self._out: deque[bytes | memoryview] = deque()
        self._writer: trio.lowlevel.Task | None = None
        self._drained = trio.Event()
        self.waiting: int = 0
        self.closed: bool = False
        self.moved: float = 0.0

    def write(self, data: bytes | memoryview, *, at_once: bool = True) -> None:
        """Write data behind all waiting data. If nothing waits, write `at_once`, or with more data in the next turn."""
        if self.closed:
            return
        # Write directly only if nothing waits, or lines would overtake each other. The kernel may take a part: the rest
        # must be first in the queue, and becomes a `memoryview`, so that `give_back` cannot drop the end of a line
        # whose beginning was sent. An untouched `LogLine` stays droppable.
        if not self.waiting:
            if at_once:
                try:
                    sent = os.write(self._descriptor, data)
                except BlockingIOError:
                    sent = 0
                except OSError:
                    self._leave("the client has left")
                    return
                if sent == len(data):
                    return
                data = memoryview(data)[sent:] if sent else data
                self._is_counted = True
            self.moved = trio.current_time()
        self._out.append(data)
        if self._writer is not None:
            trio.lowlevel.reschedule(self._writer)
            self._writer = None
        self._count(len(data))

    async def run(self) -> None:
        """Write the waiting data. Does not return.

        **Cancellation**: the rest is not written.
        """
        while True:
            if not self._out:
                self._writer = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._end)
            lines = [self._out.popleft()]
            size = len(lines[0])
            while self._out and size < OUTPUT_BACKLOG:
                lines.append(self._out.popleft())
                size += len(lines[-1])
            data = memoryview(lines[0] if len(lines) == 1 else b"".join(lines))
            del lines  # or joined data would be held twice
            while data and not self.closed:  # `close` may come in any wait
                try:
                    sent = os.write(self._descriptor, data[:OUTPUT_BACKLOG])
                except BlockingIOError:
                    if not self._is_counted:
                        self._is_counted = True
                        self.budget.count(self, self.waiting)
                    data = _alone(data)
                    await trio.lowlevel.wait_writable(self._descriptor)
                except OSError:
                    self._leave("the client has left")
                    await trio.sleep_forever()
                else:
                    data = data[sent:]
                    self.moved = trio.current_time()
                    self._count(-sent)
                    self._drained.set()
                    if data:  # or a client as fast as this loop would delay all others
                        await trio.lowlevel.checkpoint()

    def _count(self, size: int) -> None:
        self.waiting += size
        if self._is_counted:
            self._is_counted = self.waiting > 0
            self.budget.count(self, size)

    def give_back(self, *, gently: bool) -> int:
        """Drop log messages and return how many, or, if not `gently`, disconnect a client that does not read."""
        if gently:
            before, self._out = self._out, deque(each for each in self._out if type(each) is not LogLine)
            self._count(sum(map(len, self._out)) - sum(map(len, before)))
            return len(before) - len(self._out)
        if trio.current_time() - self.moved >= STALLED and not poll(self._descriptor, select.POLLOUT):
            logger.warning("%s is disconnected: it does not read, while %d bytes wait", self._client, self.waiting)
            self.close()
            self._leave("the client does not read")
        return 0

    def close(self) -> None:
        self.closed, self.request_bytes = True, 0
        self._out.clear()
        self._count(-self.waiting)

    def _end(self, _: object) -> trio.lowlevel.Abort:
        self._writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def wait_drained(self, most: int = OUTPUT_BACKLOG) -> None:
        while self.waiting > most:
            if self._drained.is_set():  # another task may wait for the same event
                self._drained = trio.Event()
            await self._drained.wait()


def _alone(data: memoryview) -> memoryview:
    """Return waiting data, copied if it keeps a message of more than twice its size alive."""
    return memoryview(bytes(data)) if 2 * len(data) < memoryview(data.obj).nbytes else data


def poll(descriptor: int, events: int) -> int:
    polled = select.poll()
    polled.register(descriptor, events)
    return sum(flags for _, flags in polled.poll(0))
