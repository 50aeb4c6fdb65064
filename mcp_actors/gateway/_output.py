"""Write to clients, and notice gaps of the event loop.

`Output` writes what one client is sent: in the step that has it, as far as the client takes it, and in a task of the
connection what is left, which `Budget` counts. It notifies the connection if the client has left, or if it does not
read while too much waits for all clients. A `LogLine` is made once for all clients. `Heart` notifies all connections
that the event loop did not run for a while, because then what they read may be late.

Connections over stdin, sockets (``_serve``) and HTTP (``http``) use them.
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
from ._listen import Draining

if TYPE_CHECKING:
    from collections.abc import Callable

logger = Log("mcp_actors.gateway")

BACKLOG: Final = 1024 * 1024
"""Bytes that wait for a client before it is no longer read from."""

BEAT: Final = 0.25
"""Seconds between two looks at the clock."""

GAP: Final = 0.5
"""Seconds that such a look may be late. A later one is a gap."""


class Heart:
    """Notices that the event loop did not run for a while, and lets all connections know.

    Attributes:
        now: the time of the last look.
        gap: the time at which the last gap was noticed; minus infinity before the first.
        silence: the seconds for which the event loop did not run then.
        connections: the connections.
    """

    def __init__(self) -> None:
        self.now: float = trio.current_time()
        self.gap: float = -math.inf
        self.silence: float = 0.0
        self.connections: set[Late] = set()

    def look(self) -> bool:
        """Look at the clock; return True if the event loop did not run since the last look."""
        now = trio.current_time()
        silence, self.now = now - self.now, now
        late = silence > BEAT + GAP
        if late:
            self.gap, self.silence = now, silence
            for each in self.connections:
                each.note_gap()
        return late

    async def beat(self) -> None:
        """Look again and again."""
        while True:
            self.look()
            await trio.sleep(BEAT)


class Late(Draining, Protocol):
    """A connection, which may have something to read that is late."""

    def note_gap(self) -> None:
        """Note that the event loop did not run."""


class LogLine(bytes):
    """The line of a log message, made once for all clients. It may be dropped while it waits."""

    @cached_property
    def event(self) -> LogLine:
        """The line as an event of a reply over HTTP in chunks."""
        event = b"event: message\ndata: %b\n\n" % self
        return LogLine(b"%x\r\n%b\r\n" % (len(event), event))


class Output:
    """Writes to a descriptor: at once, and in a task what is not taken at once.

    Args:
        descriptor: it does not block.
        leave: called with the reason if the client has left, or does not read.
        client: what log lines call the client.
        identity: whose client it is.

    Attributes:
        identity: see above.
        budget: counts what waits.
        in_flight: the bytes of messages of the client that have arrived and were not taken yet.
        waiting: the bytes that wait.
        closed: whether nothing is written any more. Then the number of the descriptor may be that of another file.
        moved: when bytes were last taken, or began to wait.
    """

    def __init__(self, descriptor: int, leave: Callable[[str], None], client: str, identity: str) -> None:
        self._descriptor = descriptor
        self._leave = leave
        self._client = client
        self.identity: str = identity
        self.budget: Budget = budget()
        self.budget.sources.add(self)
        self.in_flight: int = 0
        self._is_counted = False  # once the client has not taken something at once
        self._out: deque[bytes | memoryview] = deque()
        self._writer: trio.lowlevel.Task | None = None
        self._drained = trio.Event()
        self.waiting: int = 0
        self.closed: bool = False
        self.moved: float = 0.0

    def write(self, data: bytes | memoryview, *, at_once: bool = True) -> None:
        """Write data behind what waits; if nothing does, at once or with other data in the next turn."""
        if self.closed:
            return
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
                data = memoryview(data)[sent:] if sent else data  # a `LogLine` that was not begun may still be dropped
                self._is_counted = True
            self.moved = trio.current_time()
        self._out.append(data)
        if self._writer is not None:
            trio.lowlevel.reschedule(self._writer)
            self._writer = None
        self._count(len(data))

    async def run(self) -> None:
        """Write what was not written at once. Does not return.

        **Cancellation**: what waits is not written.
        """
        while True:
            if not self._out:
                self._writer = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._end)
            lines = [self._out.popleft()]
            size = len(lines[0])
            while self._out and size < BACKLOG:
                lines.append(self._out.popleft())
                size += len(lines[-1])
            data = memoryview(lines[0] if len(lines) == 1 else b"".join(lines))
            del lines  # or what was joined would be held twice
            while data and not self.closed:  # `close` may come in each wait below
                try:
                    sent = os.write(self._descriptor, data[:BACKLOG])
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
                    if data:  # a client that reads as fast as this writes does not delay others
                        await trio.lowlevel.checkpoint()

    def _count(self, size: int) -> None:
        """Count bytes that begin to wait, or, if negative, do not wait any more."""
        self.waiting += size
        if self._is_counted:
            self._is_counted = self.waiting > 0
            self.budget.count(self, size)

    def give_back(self, *, gently: bool) -> int:
        """Drop the log messages, and return their number; or, if not gently, disconnect a client that does not read."""
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
        """Write nothing more, and free what waits."""
        self.closed, self.in_flight = True, 0
        self._out.clear()
        self._count(-self.waiting)

    def _end(self, _: object) -> trio.lowlevel.Abort:
        self._writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def wait_drained(self, most: int = BACKLOG) -> None:
        """Wait until no more than so many bytes wait."""
        while self.waiting > most:
            if self._drained.is_set():  # another task may wait for the same event
                self._drained = trio.Event()
            await self._drained.wait()


def _alone(data: memoryview) -> memoryview:
    """Return data that waits, copied if it would hold a message of more than twice its size."""
    return memoryview(bytes(data)) if 2 * len(data) < memoryview(data.obj).nbytes else data


def poll(descriptor: int, events: int) -> int:
    """Return the events of a descriptor that have happened."""
    polled = select.poll()
    polled.register(descriptor, events)
    return sum(flags for _, flags in polled.poll(0))
