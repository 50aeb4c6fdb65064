"""Message streams that are the pipes of a process: no task, no channel and no copy in between.

`PipeReader` reads in the task that wants the message, `PipeWriter` writes in the task that has it. That takes a
quarter to a third off the cost of a small request, at the price of two duties that a task in between would have
had: a writer that is cancelled must never leave half a line in the pipe, and a reader that always finds data must let
other tasks run.

A write wakes a process, which takes a tenth of what a small request takes in all. So while answers come several at a
time, and several requests are likely to follow, the writer collects what is sent in a tick and writes it in the next.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import termios
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import trio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage

from ...._errors import LimitExceeded
from ..credentials import Masker
from ..wire import (
    LineSplitter,
    LongLine,
    MessageLimits,
    MessageReader,
    ReadingPace,
    ServerRequests,
    SkippedMessages,
    Stream,
    answer_over_limit,
    parse_message,
    unreadable_answer,
    with_result_type,
)

if TYPE_CHECKING:
    from ...basics import Background
    from .._lifeline import Lifeline

__all__ = ["PipeReader", "PipeWriter", "read_pipe", "unread_bytes"]

WaitExit: TypeAlias = Callable[[], Awaitable[None]]
"""Gives a server whose pipe has ended a moment to exit, so that whoever hears of the end first hears why."""

logger = logging.getLogger("mcp_actors.servers")

READ_BYTES: Final = 64 * 1024
"""What a Linux pipe holds: more cannot come at once."""

BACKLOG_BYTES: Final = 1024 * 1024
"""How much may wait for a full pipe before senders wait too. One message may exceed it, so that any can be sent."""

BURST: Final = 16
"""Messages handed out without a checkpoint between. One costs 3.5 µs, a third of parsing a small message; sixteen small
messages delay other tasks by less than a millisecond."""

SKIPPED: Final = 16
"""Maximum size of a skipped answer, as a multiple of the limit. One that never ends must not be read for ever."""


SHOWN_BYTES: Final = 80
"""How much of a malformed line is logged: enough to recognize a banner."""


async def read_pipe(stream: trio.lowlevel.FdStream) -> bytes:
    """Wait for something and read it; empty at the end. Always a checkpoint; cancelled, it read nothing.

    Raises:
        trio.ClosedResourceError: our end was closed.
    """
    while stream.fileno() != -1:
        # To wait comes first, as there is nearly always nothing to read yet, and to find that out would cost more.
        await trio.lowlevel.wait_readable(stream.fileno())
        try:
            return os.read(stream.fileno(), READ_BYTES)
        except BlockingIOError:
            pass
        except OSError:
            if stream.fileno() != -1:
                return b""
    raise trio.ClosedResourceError("the pipe was closed")


def unread_bytes(stream: trio.lowlevel.FdStream) -> int | None:
    """How much of what was written to a pipe was not read so far; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    count = array("i", [0])
    fcntl.ioctl(stream.fileno(), termios.FIONREAD, count)
    return count[0]


class PipeReader(MessageReader):
    """The messages that a server writes to its stdout. One task reads; the SDK's read loop does, all the time.

    Attributes:
        crowded: whether several messages came with the last read.
        received: how many bytes have come.
    """

    def __init__(
        self,
        stream: trio.lowlevel.FdStream,
        lifeline: Lifeline,
        wait_exit: WaitExit,
        *,
        server: str,
        masker: Masker,
        requests: ServerRequests,
        pace: ReadingPace,
        limits: MessageLimits,
    ) -> None:
        self._stream = stream
        self._requests = requests
        self._pace = pace
        self._lifeline = lifeline
        self._wait_exit = wait_exit
        self._server = server
        self._masker = masker
        self._limits = limits
        self._lines = LineSplitter(limits.bytes, limits.values)
        self._burst = 0
        self._rest: float | None = None
        self._spent = 0.0
        self._paced = 0
        self._ended = False
        self._closed = False
        self.crowded = False
        self.received = 0
        self._skipped_lines = SkippedMessages(server, logger)

    @trio.lowlevel.enable_ki_protection  # or else a Ctrl-C could lose a message, or leave a lock of Trio's held
    async def receive(self) -> SessionMessage:
        """Return the next message. A checkpoint every `BURST` messages at least; cancelled, it loses none.

        There is one after every notification or request: the SDK starts a task for it, and without that the tasks of
        several would run in any order, and all in one step of the event loop. After many of these, or after lines that
        take time and come to nothing, it rests (see ``_pace``).

        Raises:
            anyio.EndOfStream: the server closed its stdout, or sent what is over a limit and no answer.
            anyio.ClosedResourceError: this stream, or the link it belongs to, was closed.
        """
        if self._lines.whole or self._rest:
            await self._pause()
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._ended:
                raise anyio.EndOfStream
            line = self._lines.pop()
            message = await self._read_more() if line is None else self._parse(line)
            if message is not None and not self._requests.is_answer(message):
                self._count(message, len(line) if isinstance(line, bytes) else 0)
            if line is not None:
                self._paced = 0
            if message is not None:
                return SessionMessage(with_result_type(message))
            if line is not None or self._rest:
                await self._pause()

    def _count(self, message: JSONRPCMessage, size: int) -> None:
        now = trio.current_time()
        try:
            self._requests.receive(message, size, now)
        except LimitExceeded as exceeded:
            raise self._end(exceeded) from None
        self._rest = max(self._rest or 0.0, self._pace.unasked(now, max(size - self._paced, 0)))

    async def _pause(self) -> None:
        rest, self._rest = self._rest, None
        self._burst += 1
        if rest is None and self._burst < BURST:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._burst = 0
            await trio.sleep(rest or 0)

    def _parse(self, line: bytes | LongLine) -> JSONRPCMessage | None:
        if isinstance(line, LongLine):
            return self._skipped(line)
        began, spent, self._spent = perf_counter(), self._spent, 0.0
        try:
            return parse_message(line)
        except ValueError:
            answer = None
            if line and not line.isspace():
                self._note_malformed(line)
                answer = unreadable_answer(line)
            self._rest = self._pace.wasted(spent + perf_counter() - began)
            return answer

    def _skipped(self, line: LongLine) -> JSONRPCMessage:
        answer = answer_over_limit(line, self._limits.response_too_large(line.excess))
        if answer is None:
            raise self._too_large(line)
        return answer

    @property
    def malformed_lines(self) -> int:
        """The number of lines that were not messages and were skipped."""
        return self._skipped_lines.count

    def _note_malformed(self, line: bytes) -> None:
        # Without the text of the error: it repeats the line, which may be long and contain credentials.
        what = f"a line on stdout that is not an MCP message ({len(line)} bytes: {self._excerpt(line)!r})"
        self._skipped_lines.add(f"{what}; make the server log to stderr")

    def _excerpt(self, line: bytes) -> bytes:
        """Return the beginning of a line, without a credential and without a piece of one."""
        text = line[: SHOWN_BYTES + 4 * self._masker.longest].decode("utf-8", "replace")
        return self._masker(text[: self._masker.place_to_cut(text, SHOWN_BYTES)]).encode()

    def _too_large(self, line: LongLine) -> anyio.EndOfStream:
        reason = self._limits.message_too_large(line.excess)
        return self._end(LimitExceeded(f"server {self._server!r}: {reason}", server=self._server))

    async def _read_more(self) -> JSONRPCMessage | None:
        """Read the next bytes; at the end, return the last message if it has no line end."""
        try:
            data = await read_pipe(self._stream)
        except trio.ClosedResourceError:
            raise anyio.ClosedResourceError from None
        self._burst = 0
        if not data:
            return await self._at_end()
        self._lifeline.heard_at = trio.current_time()
        self.received += len(data)
        began = perf_counter()
        self._lines.feed(data)
        self._spent += perf_counter() - began
        self.crowded = len(self._lines.whole) > 1
        coming, skipped = self._lines.coming, self._lines.skipped
        if coming is not None and not (self._requests.awaits_answer and coming.may_be_answer):
            part, self._paced = coming.size - self._paced, coming.size
            self._rest = self._pace.unasked_part(trio.current_time(), part)
        if skipped is not None and not (skipped.may_be_answer and skipped.size <= SKIPPED * self._limits.bytes):
            raise self._too_large(skipped)
        return None

    async def _at_end(self) -> JSONRPCMessage | None:
        # The rest of a killed server may be half a message, which does not parse and answers no request.
        with suppress(ValueError):
            return parse_message(self._lines.take_rest())
        await self._wait_exit()  # cancelled here, the next call finds the end again
        raise self._end()

    def _end(self, failure: Exception | None = None) -> anyio.EndOfStream:
        self._ended = True
        self._lifeline.lose(failure)
        return anyio.EndOfStream()

    async def aclose(self) -> None:
        """Stop reading; the pipe stays, the link still has to empty it. No checkpoint: this is part of clean-ups."""
        self._closed = True
        self._lifeline.closing = True


class PipeWriter(Stream):
    """The messages that a server reads from its stdin. Any number of tasks may send."""

    def __init__(
        self,
        stream: trio.lowlevel.FdStream,
        reader: PipeReader,
        lifeline: Lifeline,
        wait_exit: WaitExit,
        background: Background,
        requests: ServerRequests,
        *,
        server: str,
    ) -> None:
        self._stream = stream
        self._reader = reader
        self._lifeline = lifeline
        self._wait_exit = wait_exit
        self._background = background
        self._requests = requests
        self._server = server
        # What was collected, or the pipe did not take. While it holds anything, one background task writes it and
        # nobody else writes.
        self._backlog = bytearray()
        self._waiting = trio.lowlevel.ParkingLot()
        self._begun = False
        self._closed = False

    @property
    def sent(self) -> bool:
        """Whether something was sent, and nothing of that is still here."""
        return self._begun and not self._backlog

    @trio.lowlevel.enable_ki_protection  # or else a Ctrl-C could leave half a line, or a backlog that nobody writes
    async def send(self, item: SessionMessage, /) -> None:
        """Send one message, whole.

        Usually the pipe takes all of it at once, and then this is no checkpoint: what was taken cannot be taken back,
        and a cancellation must not look as if it could. What is collected, and what the pipe does not take, is written
        by a background task that the sender's cancellation does not reach.

        **Cancellation:** nothing was sent.

        Raises:
            anyio.BrokenResourceError: the server is gone; nothing, or a useless part of the message, was sent.
            anyio.ClosedResourceError: this stream, or the link it belongs to, was closed; nothing was sent.
        """
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        with self._requests.sending(item.message):
            await trio.lowlevel.checkpoint_if_cancelled()
            self._check_open()
            full = self._full
            while self._full:
                await self._waiting.park()
                self._check_open()
            await self._give(line)
            if full:
                self._let_in()

    async def _give(self, line: bytes) -> None:
        if self._backlog:
            self._backlog += line
            return
        self._begun = True
        taken = 0 if self._reader.crowded else await self._write(line)
        if taken < len(line):
            self._backlog += memoryview(line)[taken:]
            self._background.start_soon(self._write_backlog, name=f"{self._server}:stdin")

    @property
    def _full(self) -> bool:
        return len(self._backlog) >= BACKLOG_BYTES

    def _let_in(self) -> None:
        # Wake one sender at a time; it wakes the next if there is still room. If all were woken, each of thousands
        # would take a step for each line that is written.
        if not self._full:
            self._waiting.unpark()

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._lifeline.lost:
            raise anyio.BrokenResourceError

    async def _write(self, data: bytes | bytearray) -> int:
        """Write what the pipe takes at once, and return how much that was. No checkpoint unless the server is gone."""
        try:
            return os.write(self._stream.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            try:
                await self._wait_exit()
            finally:
                self._lifeline.lose()
                self._waiting.unpark_all()
            raise anyio.BrokenResourceError from error

    @trio.lowlevel.enable_ki_protection  # or else a Ctrl-C could have something written twice
    async def _write_backlog(self) -> None:
        try:
            while True:
                del self._backlog[: await self._write(self._backlog)]
                self._let_in()
                if not self._backlog:
                    return
                await trio.lowlevel.wait_writable(self._stream.fileno())
        except (anyio.BrokenResourceError, trio.ClosedResourceError):
            # Noted where it was found, or our own doing. The backlog stays: nobody may write behind half a line.
            pass

    async def aclose(self) -> None:
        """Take no more messages; senders that wait for room leave. No checkpoint: this is part of clean-ups.

        What was collected goes out first, as the end of the input may follow at once.
        """
        with suppress(OSError):  # it is full, or gone
            del self._backlog[: os.write(self._stream.fileno(), self._backlog)]
        self._closed = True
        self._lifeline.closing = True
        self._waiting.unpark_all()
