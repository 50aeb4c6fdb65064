"""Write messages to the pipe of a process.

There is no task or channel in between: `PipeWriter` writes in the step that sends. This saves a quarter to a third of
the cost of a small request. In return a writer that is cancelled must never leave half a line in the pipe. The bytes
that the pipe does not take at once are written by one background task.

Each write wakes the server's process, which is a tenth of the cost of a small request. So while responses arrive
several at a time, and several requests are likely to follow, the writer collects the messages of one tick of the event
loop and writes them in the next.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import anyio
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED

from ...basics import ConnectionOver
from ..wire import CLOSED, CancelLine, RequestTable, ServerRequests
from ._pipes import INPUT_CLOSED, READ_BYTES, PipeReader, WaitExit

if TYPE_CHECKING:
    from .._link import Lifeline
    from ..wire import OutgoingLine, Unanswered

BACKLOG_BYTES: Final = 1024 * 1024
"""Bytes that may wait for a full pipe before senders wait too. One message may exceed it, so that any can be sent."""


def _ignore() -> None:
    """Ignore that there is room again."""


@define(eq=False, repr=False)
class PipeWriter:
    """The messages that a server reads from stdin: the `Pipe` of its link. Any number of tasks may send.

    One background task (`run`) writes what the pipe does not take at once.
    """

    _stream: trio.lowlevel.FdStream
    _reader: PipeReader
    _lifeline: Lifeline
    _wait_exit: WaitExit
    _requests: ServerRequests
    table: RequestTable
    on_room: Callable[[], None] = field(default=_ignore, init=False)
    # Bytes that must be written before anything else. Otherwise messages would overtake each other, or split a line.
    _backlog: bytearray = field(factory=bytearray, init=False)
    # Requests whose last bytes are in the backlog, with the number of all bytes that have been there by their end.
    _unsent: deque[tuple[int, OutgoingLine]] = field(factory=deque, init=False)
    _drained: int = field(default=0, init=False)
    # Lines that may still be withdrawn.
    _collected: dict[OutgoingLine, None] = field(factory=dict, init=False)
    _blocked: bool = field(default=False, init=False)
    _broken: OSError | None = field(default=None, init=False)
    _room_wanted: bool = field(default=False, init=False)
    _work: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot, init=False)
    _waiting: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot, init=False)
    _begun: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def sent(self) -> bool:
        """True if something was sent, and all of it was written to the pipe."""
        return self._begun and not self._backlog

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could leave half a line, or a backlog without its task
    async def send(self, message: Unanswered) -> None:
        """Send a message that has no answer, whole. See `Link.send`."""
        # All checkpoints come before the first byte is written. After it this method must not raise Cancelled: the
        # caller would believe that nothing was sent. Usually the pipe takes the whole line at once; the rest is written
        # by the background task, which the cancellation of the sender does not reach.
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        with self._requests.sending(message):
            await trio.lowlevel.checkpoint_if_cancelled()
            self._check_open()
            full = self._full
            while self._full:
                await self._waiting.park()
                self._check_open()
            try:
                await self._give(line)
            except anyio.BrokenResourceError:
                self._check_open()
            if full:
                self._let_in()

    async def _give(self, line: bytes) -> None:
        taken = 0
        if not self._backlog and not self._blocked and not self._reader.crowded:
            taken = await self._write(line)
            self._blocked = taken < len(line)
        self._begun = True
        if taken < len(line):
            self._put_off(memoryview(line)[taken:], None)
            self._work.unpark()

    def _put_off(self, rest: memoryview, of: OutgoingLine | None) -> None:
        """Add the rest of a line to the backlog."""
        self._backlog += rest
        if of is not None:
            self._unsent.append((self._drained + len(self._backlog), of))

    def _drain(self, number: int) -> None:
        """Note that so many bytes of the backlog were written."""
        del self._backlog[:number]
        self._drained += number
        while self._unsent and self._unsent[0][0] <= self._drained:
            self._unsent.popleft()[1].sent = True

    @trio.lowlevel.enable_ki_protection
    def offer(self, line: OutgoingLine) -> bool:
        """See `Pipe.offer`."""
        if self._blocked or self._closed or self._lifeline.lost:
            self._room_wanted = True
            return False
        if self._collected or self._backlog or self._reader.crowded:
            self.collect(line)
        elif taken := self._write_nowait(line.line):
            self._take(line, taken)
        else:
            self._room_wanted = True
            return False
        return True

    def withdraw_all(self) -> None:
        """See `Pipe.withdraw_all`."""
        withdrawn, self._collected = self._collected, {}
        for line in withdrawn:
            if isinstance(line, CancelLine):
                self._put_off(memoryview(line.line), None)  # it is written before stdin is closed
            line.withdrawn()

    def count_request(self) -> None:
        """See `Pipe.count_request`."""
        self._requests.sent()

    def count_cancelled(self) -> None:
        """See `Pipe.count_cancelled`."""
        self._requests.cancelled()

    def collect(self, line: OutgoingLine) -> None:
        """See `Pipe.collect`."""
        if self._lifeline.lost or self._closed:
            line.withdrawn()  # no task would write it
            return
        if not self._collected:
            self._work.unpark()
        self._collected[line] = None

    def withdraw(self, line: OutgoingLine) -> None:
        """See `Pipe.withdraw`."""
        del self._collected[line]

    def _take(self, line: OutgoingLine, taken: int) -> None:
        """Note that the pipe has taken at least the first bytes of a line; the rest must follow."""
        self._begun = True
        if taken < len(line.line):
            line.sent = False
            self._put_off(memoryview(line.line)[taken:], line)
            self._block()
        else:
            line.sent = True
        line.written()

    def _block(self) -> None:
        """Refuse lines until the pipe has room."""
        self._blocked = True
        self._work.unpark()

    def _write_nowait(self, data: bytes) -> int:
        """Write the bytes that the pipe takes at once. If it takes none, leave the rest to the background task."""
        try:
            return os.write(self._stream.fileno(), data)
        except BlockingIOError:
            pass
        except OSError as error:
            self._broken = error
        self._block()
        return 0

    @property
    def _full(self) -> bool:
        return len(self._backlog) >= BACKLOG_BYTES

    def _let_in(self) -> None:
        # Wake one sender at a time; it wakes the next if there is still room. If all of thousands were woken, each
        # would take a step for each line that is written.
        if not self._full:
            self._waiting.unpark()

    def _check_open(self) -> None:
        if self._lifeline.closing or self._lifeline.lost:
            raise MCPError(CONNECTION_CLOSED, CLOSED.message)

    async def _write(self, data: bytes | bytearray) -> int:
        """Write the bytes that the pipe takes at once; return their number. A checkpoint only if the server is gone."""
        try:
            return os.write(self._stream.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            await self._lose(error)

    async def _lose(self, error: OSError) -> NoReturn:
        # The `finally` covers a sender that is cancelled while it waits here. The connection is lost all the same, and
        # the parked senders would wait for room for ever.
        exited = False
        try:
            exited = await self._wait_exit()
        finally:
            self._lifeline.lose(None if exited else ConnectionOver(INPUT_CLOSED))
            self._waiting.unpark_all()
        raise anyio.BrokenResourceError from error

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C between the write and the `del` would write bytes twice
    async def run(self) -> None:
        """Write the backlog and the collected lines whenever there are any, in a background task of the link."""
        try:
            while True:
                if not self._backlog and not self._collected and not self._blocked:
                    await self._work.park()
                if self._broken is not None:
                    await self._lose(self._broken)
                if self._backlog:
                    self._drain(await self._write(self._backlog))
                    self._let_in()
                elif self._collected:
                    await self._write_collected()
                if self._backlog or self._blocked:
                    self._blocked = True
                    await trio.lowlevel.wait_writable(self._stream.fileno())
                if not self._backlog:
                    self._unblock()
        except (anyio.BrokenResourceError, trio.ClosedResourceError):
            # The loss is noted in `_write`, or this side closed the pipe. The backlog stays, so no sender can write
            # behind half a line.
            self._blocked = True

    async def _write_collected(self) -> None:
        """Write lines as the pipe takes them, many at a time."""
        batch: list[OutgoingLine] = []
        size = 0
        for each in self._collected:
            batch.append(each)
            size += len(each.line)
            if size >= READ_BYTES:
                break
        taken = await self._write(b"".join([each.line for each in batch]))
        if taken < size:
            self._blocked = True
        for each in batch:
            if taken <= 0:
                return
            # No checkpoint since the write, so each of them is still there.
            del self._collected[each]
            self._take(each, taken)
            taken -= len(each.line)

    def _unblock(self) -> None:
        self._blocked = False
        self._let_in()
        if self._room_wanted and not self._collected:
            self._room_wanted = False
            self.on_room()

    def close(self) -> None:
        """Take no more messages; senders that wait for room raise.

        Messages without an answer are written first, because the link closes stdin soon after.
        """
        with suppress(OSError):  # the pipe is full, or the server is gone
            del self._backlog[: os.write(self._stream.fileno(), self._backlog)]
        self._closed = True
        self._lifeline.closing = True
        self._waiting.unpark_all()
