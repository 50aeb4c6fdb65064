"""Read messages from the pipe of a process.

There is no task or channel in between: the task that reads also settles requests and passes messages on. This saves a
quarter to a third of the cost of a small request. In return a reader that always finds data must let other tasks run.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import trio
from attrs import define, field
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic_core import from_json

from ...._errors import LimitExceeded
from ...._foreign import Log
from ...basics import work_clock
from ..credentials import Masker
from ..wire import (
    BYTE_ORDER_MARK,
    SKIPPED,
    LineSplitter,
    LongLine,
    MessageLimits,
    ReadingPace,
    Receive,
    RequestTable,
    ServerRequests,
    SkippedMessages,
    Unasked,
    answer_over_limit,
    parse_json,
    to_message,
    unreadable_answer,
)

if TYPE_CHECKING:
    from .._link import Lifeline

WaitExit: TypeAlias = Callable[[], Awaitable[bool]]
"""Gives a server whose pipe has ended a moment to exit, so that the first error can say how it ended.

Returns True if it has exited.
"""

logger = Log("mcp_actors.servers")

READ_BYTES: Final = 64 * 1024
"""Bytes per read: the capacity of a Linux pipe."""

BURST: Final = 16
"""Messages returned without a checkpoint in between. A checkpoint costs 3.5 µs, a third of parsing a small message;
sixteen small messages delay other tasks by less than a millisecond."""

INPUT_CLOSED: Final = "its process closed its stdin, so it reads no more requests; fix the server"
"""The reason of a loss, unless the process has exited."""

LOOK_EVERY: Final = 0.5
"""Seconds between two checks whether a server has closed its stdin, on systems that do not report it."""

SHOWN_BYTES: Final = 80
"""Bytes of a malformed line that are logged: enough to recognize a banner."""


async def read_pipe(stream: trio.lowlevel.FdStream) -> bytes:
    """Wait for data and read it; return empty bytes at the end. Always a checkpoint.

    **Cancellation:** nothing was read.

    Raises:
        trio.ClosedResourceError: our end was closed.
    """
    while stream.fileno() != -1:
        # Wait before the first read, although Trio's own streams read first: the pipe is nearly always empty here, and
        # a read that finds nothing costs more than the wait. So nothing is lost on cancellation either: between the
        # read and the return there is no checkpoint.
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
    """Return the bytes in a pipe that were not read yet; None if the system does not report that."""
    if sys.platform != "linux":
        return None
    count = array("i", [0])
    fcntl.ioctl(stream.fileno(), termios.FIONREAD, count)
    return count[0]


def has_no_reader(stream: trio.lowlevel.FdStream) -> bool:
    """Return True if every process has closed the other end of a pipe that is written to; False if that is unknown."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(0))


async def wait_no_reader(stream: trio.lowlevel.FdStream) -> None:
    """Wait until every process has closed the other end of a pipe that is written to.

    Trio waits until a pipe can be written, and it nearly always can be. An epoll of its own for no event at all reports
    errors only, and is itself something that Trio waits for: it costs nothing while the pipe is used.

    Returns too if our end was closed before this began.
    """
    try:
        watch: Any = select.epoll()  # type: ignore[attr-defined,unused-ignore]  # only Linux has it
    except (AttributeError, OSError):  # or there is no file descriptor left
        while stream.fileno() != -1 and not has_no_reader(stream):  # noqa: ASYNC110 - the system has no event for it
            await trio.sleep(LOOK_EVERY)
        return
    with watch:
        if stream.fileno() == -1:
            return
        watch.register(stream.fileno(), 0)
        await trio.lowlevel.wait_readable(watch.fileno())


@define(eq=False, repr=False)
class PipeReader:
    """The messages that a server writes to stdout. A single task reads them.

    Attributes:
        crowded: True if several messages arrived with the last read.
        received: the number of bytes that arrived.
    """

    _stream: trio.lowlevel.FdStream
    _lifeline: Lifeline
    _wait_exit: WaitExit
    _server: str
    _masker: Masker
    _requests: ServerRequests
    _table: RequestTable
    _pace: ReadingPace
    _limits: MessageLimits
    _clock: Callable[[], float] = field(factory=work_clock, init=False)
    _lines: LineSplitter = field(init=False)
    _burst: int = field(default=0, init=False)
    _rest: float = field(default=0.0, init=False)
    _spent: float = field(default=0.0, init=False)
    _paced: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)
    _skipped_lines: SkippedMessages = field(init=False)
    crowded: bool = field(default=False, init=False)
    received: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = LineSplitter(self._limits.bytes, self._limits.values)
        self._skipped_lines = SkippedMessages(self._server, logger)

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could lose a message, or leave a lock of Trio held
    async def read(self, receive: Receive) -> None:
        """Settle the requests that are answered, and pass on all other messages, until the stream ends.

        It ends when the server closes its stdout, when it exceeds a limit with a message that is not a response, or
        when this side closes. After many unsolicited messages, and after long work on malformed lines, the reader
        pauses (see ``_pace``). It has a checkpoint at least every `BURST` messages.

        **Cancellation:** no message is lost.
        """
        try:
            while not self._closed:
                line = self._lines.pop()
                message = await self._read_more() if line is None else self._parse(line)
                if message is not None:
                    message = self._unasked(message, len(line) if isinstance(line, bytes) else 0)
                if line is not None:
                    self._paced = 0
                self._burst += 1
                if message is not None:
                    await receive(message)
                # A task is started for each request of the server. The checkpoint lets that task run before the next
                # message is read: a flood of them must not be a single step of the event loop.
                if self._rest or self._burst >= BURST or isinstance(message, JSONRPCRequest):
                    await self._pause()
        except anyio.EndOfStream:
            return

    def _unasked(self, message: JSONRPCMessage, size: int) -> Unasked | None:
        """Settle the request that a message answers, and count what was not asked for; return a message that is not."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._table.settle_message(message)
            if not self._requests.answered():
                self._count(message, size)
            return None
        self._count(message, size)
        return message

    def _count(self, message: JSONRPCMessage, size: int) -> None:
        now = trio.current_time()
        try:
            self._requests.receive(message, size, now)
        except LimitExceeded as exceeded:
            raise self._end(exceeded) from None
        rest = self._pace.unasked(now, max(size - self._paced, 0), request=isinstance(message, JSONRPCRequest))
        self._rest = max(self._rest, rest)

    async def _pause(self) -> None:
        rest, self._rest, self._burst = self._rest, 0.0, 0
        await trio.sleep(rest)

    def _parse(self, line: bytes | LongLine) -> JSONRPCMessage | None:
        if isinstance(line, LongLine):
            return self._skipped(line)
        began, spent, self._spent = self._clock(), self._spent, 0.0
        parsed = None
        try:
            parsed = from_json(line)
            return self._accept(parsed)
        except ValueError:
            # Some servers write a blank line after each message; it causes no pause.
            if not line or line.isspace() or self._lines.put_back(line):
                return None
            if line.startswith(BYTE_ORDER_MARK):
                with suppress(ValueError):
                    return self._accept(parse_json(line))
            self._note_malformed(line)
            answer = unreadable_answer(line, parsed)
            self._rest = max(self._rest, self._pace.wasted(spent + self._clock() - began))
            return answer

    def _accept(self, parsed: object) -> JSONRPCMessage | None:
        """Settle the request that this answers; return the message if it is not an answer, or answers nothing."""
        return None if self._table.settle(parsed) and self._requests.answered() else to_message(parsed)

    def _skipped(self, line: LongLine) -> JSONRPCMessage:
        if (answer := answer_over_limit(line, self._limits.response_too_large(line.excess))) is None:
            raise self._too_large(line)
        return answer

    @property
    def malformed_lines(self) -> int:
        """The number of lines that were not messages and were skipped."""
        return self._skipped_lines.count

    def _note_malformed(self, line: bytes) -> None:
        # Without the text of the error: it repeats the line, which may be long. The excerpt is cut before or after a
        # credential and not within one, because the masker would not recognize a part of it.
        text = line[: SHOWN_BYTES + 4 * self._masker.longest].decode("utf-8", "replace")
        shown = self._masker(text[: self._masker.place_to_cut(text, SHOWN_BYTES)]).encode()
        what = f"a line on stdout that is not an MCP message ({len(line)} bytes: {shown!r})"
        self._skipped_lines.add(f"{what}; make the server log to stderr")

    def _too_large(self, line: LongLine) -> anyio.EndOfStream:
        reason = self._limits.message_too_large(line.excess)
        return self._end(LimitExceeded(f"server {self._server!r}: {reason}", server=self._server))

    async def _read_more(self) -> JSONRPCMessage | None:
        """Read the next bytes. At the end of the stream, return the last message if its newline is missing."""
        try:
            data = await read_pipe(self._stream)
        except trio.ClosedResourceError:
            raise anyio.EndOfStream from None
        self._burst = 0
        if not data:
            return await self._at_end()
        self._lifeline.heard_at = began = self._clock()
        self.received += len(data)
        self._lines.feed(data)
        self._spent += self._clock() - began
        self.crowded = len(self._lines.whole) > 1
        coming, skipped = self._lines.partial.coming, self._lines.partial.skipped
        if coming is not None and not (self._requests.awaits_answer and coming.may_be_answer):
            part, self._paced = coming.size - self._paced, coming.size
            self._rest = self._pace.unasked_part(trio.current_time(), part)
        if skipped is not None and not (skipped.may_be_answer and skipped.size <= SKIPPED * self._limits.bytes):
            raise self._too_large(skipped)
        return None

    async def _at_end(self) -> JSONRPCMessage | None:
        # A server that was killed may leave half a message, which does not parse.
        with suppress(ValueError):
            return self._accept(parse_json(self._lines.take_rest()))
        # Wait before the connection is marked as lost: callers fail in that step, and their errors should say how the
        # process ended. If cancelled here, the next call finds the end of the stream again.
        await self._wait_exit()
        raise self._end()

    def _end(self, error: Exception | None = None) -> anyio.EndOfStream:
        self._lifeline.lose(error)
        return anyio.EndOfStream()

    def close(self) -> None:
        """Stop reading. The pipe stays open, because the link still drains it."""
        self._closed = True
        self._lifeline.closing = True
