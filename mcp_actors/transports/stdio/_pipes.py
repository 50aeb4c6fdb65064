"""Read and write the messages of a process through its pipes.

Most messages pass through no task or channel, which saves a quarter or more of a small request's cost. A reader that
always finds data must yield to other tasks. A cancelled writer must never leave half a line in the pipe.

Owns: unparsed bytes; unsent lines; counts of messages.
Writes: answers to requests; marks on sent lines; the connection's state; the server's stdin; the log.
Calls: transports.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import anyio
import trio
from attrs import define, field
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse
from pydantic_core import from_json, to_json

from ..._errors import LimitExceeded
from ..._foreign import Log
from ..._tasks import work_clock
from .._credentials import Masker
from .._dialects import SkippedMessages, response_after
from .._exchange import CancelLine, IncomingRequests, Receive, Unasked
from .._link import ConnectionOver, Link
from .._messages import (
    SKIPPED,
    LineSplitter,
    LongLine,
    MessageLimits,
    ReadingPace,
    answer_over_limit,
    parse_json,
    to_message,
    unreadable_answer,
)
from .._request_table import RequestTable, RequestUnderWay, ignore

if TYPE_CHECKING:
    from ...config import ServerConfig
    from .._exchange import OutgoingLine, Unanswered
    from .._link import Lifeline


WaitExit: TypeAlias = Callable[[], Awaitable[bool]]
"""Waits a moment for a server to exit after its pipe has ended, so that the first error can name the exit code.

Returns True if the process has exited."""

logger = Log("mcp_actors.servers")

READ_BYTES: Final = 64 * 1024
"""Bytes per read: the capacity of a Linux pipe."""

READ_BURST: Final = 12
"""Messages read without a checkpoint. A checkpoint costs 3.5 µs, a third of parsing a small message. A call of a quiet
server waits for up to three bursts of a noisy server, and for woken callers: 1.3 ms with 12, 1.7 to 2.3 with 16."""

INPUT_CLOSED: Final = "its process closed its stdin, so it reads no more requests; fix the server"
"""The reason of a loss, unless the process has exited."""

STDIN_POLL: Final = 0.5
"""Seconds between two checks for a closed stdin, on systems that do not report it."""

SHOWN_BYTES: Final = 80
"""Logged bytes of a malformed line: enough to recognize a banner."""

LSP: Final = "a header of the Language Server Protocol on stdout, which frames messages in another way than MCP"


def _kind_of(line: bytes) -> str:
    return LSP if line[:15].lower() == b"content-length:" else "a line on stdout that is not an MCP message"


async def read_pipe(stream: trio.lowlevel.FdStream) -> bytes:
    """Wait for data and return it; empty bytes at the end. Always a checkpoint.

    **Cancellation:** nothing was read.

    Raises:
        trio.ClosedResourceError: our end was closed.
    """
    while stream.fileno() != -1:
        # Wait first, although Trio's own streams read first: the pipe is nearly always empty here, and a read in vain
        # costs more than the wait. There is no checkpoint between the read and the return, or a cancellation would lose
        # the bytes.
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
    """Return the unread bytes in a pipe; None if unknown."""
    if sys.platform != "linux":
        return None
    count = array("i", [0])
    fcntl.ioctl(stream.fileno(), termios.FIONREAD, count)
    return count[0]


def has_no_reader(stream: trio.lowlevel.FdStream) -> bool:
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(0))


async def wait_no_reader(stream: trio.lowlevel.FdStream) -> None:
    """Wait until every process has closed the reading end of a pipe. Return at once if our end is closed.

    Trio can only wait until a pipe is writable, as it nearly always is. An epoll without events reports errors only,
    can be waited for, and costs nothing while the pipe is used.
    """
    try:
        watch: Any = select.epoll()  # type: ignore[attr-defined,unused-ignore]  # only Linux has it
    except (AttributeError, OSError):  # or there is no file descriptor left
        while stream.fileno() != -1 and not has_no_reader(stream):  # noqa: ASYNC110 - the system has no event for it
            await trio.sleep(STDIN_POLL)
        return
    with watch:
        if stream.fileno() == -1:
            return
        watch.register(stream.fileno(), 0)
        await trio.lowlevel.wait_readable(watch.fileno())


@define(eq=False, repr=False)
class PipeReader:
    """The messages that a server writes to stdout, for a single reading task.

    Attributes:
        crowded: True after a read of several messages.
        received: the number of received bytes.
    """

    _stream: trio.lowlevel.FdStream
    _lifeline: Lifeline
    _wait_exit: WaitExit
    _server: str
    _masker: Masker
    _requests: IncomingRequests
    _table: RequestTable
    _pace: ReadingPace
    _limits: MessageLimits
    _gone: str | None = field(default=None, kw_only=True)
    _clock: Callable[[], float] = field(factory=work_clock, init=False)
    _lines: LineSplitter = field(init=False)
    _burst: int = field(default=0, init=False)
    _rest: float = field(default=0.0, init=False)
    _spent: float = field(default=0.0, init=False)
    _paced: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)
    _skipped_lines: SkippedMessages = field(init=False)
    crowded: bool = field(default=False, init=False)
    received: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = LineSplitter(self._limits.bytes, self._limits.values)
        self._skipped_lines = SkippedMessages(self._server, logger, self._masker)

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could lose a message, or leave a lock of Trio held
    async def read(self, receive: Receive) -> None:
        """Settle answered requests and pass on all other messages until the stream ends.

        The stream ends when the server closes stdout, when a message other than a response exceeds a limit, or when
        this side closes. The reader pauses after many unsolicited messages and after long work on malformed lines (see
        `ReadingPace`). A checkpoint follows at least every `READ_BURST` messages.

        **Cancellation:** no message is lost.
        """
        try:
            while not self._closed:
                line = self._lines.pop()
                message = await self._read_more() if line is None else self._parse(line)
                if message is not None:
                    message = self._unasked(message)
                if line is not None:
                    self._paced = 0
                self._burst += 1
                if message is not None:
                    await receive(message)
                # Each request of the server starts a task. The checkpoint lets that task run before the next message is
                # read, or a flood of requests would be a single step of the event loop.
                if self._rest or self._burst >= READ_BURST or isinstance(message, JSONRPCRequest):
                    rest, self._rest, self._burst = self._rest, 0.0, 0
                    await trio.sleep(rest)
        except anyio.EndOfStream:
            return
        finally:
            self._skipped_lines.end()

    def _unasked(self, message: JSONRPCMessage) -> Unasked | None:
        """Settle a request with its answer, or count and return the message."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if self._skipped_lines.add_stray(message):
                answers = isinstance(message, JSONRPCError) and self._table.refuse_only(message.error)
            else:
                answers = self._table.settle_message(message)
            if not (answers and self._requests.count_answered()):
                self._count(message)
            return None
        self._count(message)
        return message

    def _count(self, message: JSONRPCMessage | None) -> None:
        now = trio.current_time()
        if message is not None:
            try:
                self._requests.receive(message, self._size, now)
            except LimitExceeded as exceeded:
                raise self._end(exceeded) from None
        request = isinstance(message, JSONRPCRequest)
        self._rest = max(self._rest, self._pace.unasked(now, max(self._size - self._paced, 0), request=request))

    def _parse(self, line: bytes | LongLine) -> JSONRPCMessage | None:
        if isinstance(line, LongLine):
            self._size = 0
            if (answer := answer_over_limit(line, self._limits.response_too_large(line.excess))) is None:
                raise self._too_large(line)
            return answer
        began, spent, self._spent = self._clock(), self._spent, 0.0
        parsed, self._size = None, len(line)
        try:
            parsed = from_json(line)
            return self._accept(parsed)
        except ValueError:
            # Some servers write a blank line after each message, which causes no pause.
            if not line or line.isspace() or self._lines.put_back(line):
                return None
            message = self._look_again(line, parsed)
            self._rest = max(self._rest, self._pace.wasted(spent + self._clock() - began))
            return message

    def _look_again(self, line: bytes, parsed: object) -> JSONRPCMessage | None:
        """Read what is readable of an invalid line; `parsed` is None if the line is not JSON."""
        if parsed is None:
            with suppress(ValueError):
                parsed = parse_json(line)
                return self._accept(parsed)
        if parsed is None and (found := response_after(line, self._table.awaits)) is not None:
            self._note_malformed("other output before a response", line)
            with suppress(ValueError):
                return self._accept(found)
        self._note_malformed(_kind_of(line), line)
        return unreadable_answer(line, parsed)

    def _accept(self, parsed: object) -> JSONRPCMessage | None:
        """Settle a request with its answer, or pass its report on; return anything else as a message."""
        if self._table.settle(parsed) and self._requests.count_answered():
            return None
        if self._table.reported(parsed):
            self._count(None)
            return None
        return to_message(parsed)

    @property
    def malformed_lines(self) -> int:
        return self._skipped_lines.count

    def _note_malformed(self, kind: str, line: bytes) -> None:
        # Without the text of the error, which repeats the line. The cut splits no credential: the masker does not
        # recognize a part.
        text = line[: SHOWN_BYTES + 4 * self._masker.longest].decode("utf-8", "replace")
        shown = self._masker(text[: self._masker.place_to_cut(text, SHOWN_BYTES)]).encode()
        remedy = "make the server write one message a line" if kind == LSP else "make the server log to stderr"
        self._skipped_lines.add(kind, f" ({len(line)} bytes: {shown!r})", remedy=remedy)

    def _too_large(self, line: LongLine) -> anyio.EndOfStream:
        reason = self._limits.message_too_large(line.excess)
        return self._end(LimitExceeded(f"server {self._server!r}: {reason}", server=self._server))

    async def _read_more(self) -> JSONRPCMessage | None:
        """Read the next bytes. At the end of the stream, return a last message without a newline."""
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
        self._size = 0
        # A killed server may leave half a message, which does not parse.
        with suppress(ValueError):
            return self._accept(parse_json(self._lines.take_rest()))
        # The wait comes before the loss: callers fail in the step of the loss, and their errors should say how the
        # process ended. After a cancellation here, the next call finds the end of the stream again.
        await self._wait_exit()
        raise self._end(None if self._gone is None else ConnectionOver(self._gone))

    def _end(self, error: Exception | None = None) -> anyio.EndOfStream:
        self._lifeline.lose(error)
        return anyio.EndOfStream()

    def close(self) -> None:
        """Stop reading. The pipe stays open, for the link to drain."""
        self._closed = True
        self._lifeline.close()


# --- Write messages to the pipe of a process --------------------------------------------------------------------------

# Each write wakes the server's process, a tenth of the cost of a small request. So while responses arrive several at a
# time, and several requests are likely to follow, the writer collects the messages of one tick of the event loop and
# writes them in the next.


BACKLOG_BYTES: Final = 1024 * 1024
"""Bytes that may wait for a full pipe before senders wait too. One message may exceed the limit."""


@define(eq=False)
class LooseLine:
    """A line without an answer, collected behind earlier lines."""

    line: bytes
    sent: bool | None = None

    def withdrawn(self) -> None:
        """See `OutgoingLine.withdrawn`."""


@define(eq=False, repr=False)
class PipeWriter:
    """The messages that a server reads from stdin, from any number of senders. The `Pipe` of the link.

    Writes in the step that sends, if possible. A background task (`run`) first writes the *backlog* of bytes that no
    line may overtake, then *collected* lines, which are not begun.
    """

    _stream: trio.lowlevel.FdStream
    _reader: PipeReader
    _lifeline: Lifeline
    _wait_exit: WaitExit
    _requests: IncomingRequests
    table: RequestTable
    _gone: str = field(default=INPUT_CLOSED, kw_only=True)
    on_room: Callable[[], None] = field(default=ignore, init=False)
    # Written before `_collected`, or messages would overtake each other or split a line.
    _backlog: bytearray = field(factory=bytearray, init=False)
    # Lines that end in the backlog, each with the count of all bytes ever put there up to its end.
    _unsent: deque[tuple[int, OutgoingLine]] = field(factory=deque, init=False)
    _drained: int = field(default=0, init=False)
    _collected: dict[OutgoingLine, None] = field(factory=dict, init=False)  # may still be withdrawn
    # Total bytes of the collected `LooseLine` objects. The slots of the actor limit all other lines.
    _loose: int = field(default=0, init=False)
    _blocked: bool = field(default=False, init=False)
    _broken: OSError | None = field(default=None, init=False)
    _room_wanted: bool = field(default=False, init=False)
    _work: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot, init=False)
    _waiting: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot, init=False)
    _begun: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def sent(self) -> bool:
        """True if something was sent, and the pipe has taken everything."""
        return self._begun and not self._backlog

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C could leave half a line, or a backlog without its task
    async def send(self, message: Unanswered) -> None:
        """Send a message without an answer, whole. See `Link.send`."""
        # All checkpoints come before the first byte. A later `Cancelled` would make the caller believe that nothing was
        # sent, and half a line would garble all later messages. Usually the pipe takes the whole line at once. The
        # background task, which no cancellation of a sender reaches, writes the rest.
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        self.table.disturbed = True
        with self._requests.sending(message):
            await trio.lowlevel.checkpoint_if_cancelled()
            self._lifeline.check_open()
            full = self._full
            while self._full:
                await self._waiting.park()
                self._lifeline.check_open()
            try:
                await self._give(line)
            except anyio.BrokenResourceError:
                self._lifeline.check_open()
            if full:
                self._let_in()

    async def _give(self, line: bytes) -> None:
        if self._collected:
            # A cancellation notice may be collected. No later message may overtake the notice: a gateway takes the
            # answer to its ping as proof that earlier notices have arrived.
            self._loose += len(line)
            self.collect(LooseLine(line))
            return
        taken = 0
        if not self._backlog and not self._blocked and not self._reader.crowded:
            taken = await self._write(line)
            self._blocked = taken < len(line)
        self._begun = True
        if taken < len(line):
            self._put_off(memoryview(line)[taken:], None)
            self._work.unpark()

    def _put_off(self, rest: memoryview, of: OutgoingLine | None) -> None:
        self._backlog += rest
        if of is not None:
            self._unsent.append((self._drained + len(self._backlog), of))

    def _drain(self, number: int) -> None:
        del self._backlog[:number]
        self._drained += number
        while self._unsent and self._unsent[0][0] <= self._drained:
            self._unsent.popleft()[1].sent = True

    @trio.lowlevel.enable_ki_protection
    def offer(self, line: OutgoingLine) -> bool:
        if self._blocked or self._closed or self._lifeline.lost:
            self._room_wanted = True
            return False
        if self._collected or self._backlog or self._reader.crowded:
            self.collect(line)
        elif (taken := self._write_nowait(line.line)) == len(line.line):
            self._begun = line.sent = True
            self._requests.count_sent()
        elif taken:
            self._take(line, taken)
        else:
            self._room_wanted = True
            return False
        return True

    def begin(self, request: RequestUnderWay) -> None:
        request.line = to_json(request.message, inf_nan_mode="null") + b"\n"
        if not self.offer(request):
            self.collect(request)

    def withdraw_all(self) -> None:
        withdrawn, self._collected, self._loose = self._collected, {}, 0
        for line in withdrawn:
            if isinstance(line, (CancelLine, LooseLine)):
                self._put_off(memoryview(line.line), None)  # written before stdin is closed
            line.withdrawn()

    def collect(self, line: OutgoingLine) -> None:
        if isinstance(line, CancelLine):
            self._requests.count_cancelled()
        if self._lifeline.lost or self._closed:
            line.withdrawn()  # no task would write it
            return
        if not self._collected:
            self._work.unpark()
        self._collected[line] = None

    def withdraw(self, line: OutgoingLine) -> None:
        del self._collected[line]

    def _take(self, line: OutgoingLine, taken: int) -> None:
        """Note that the pipe has taken a line, or its first bytes: the rest must follow."""
        self._begun = True
        if taken < len(line.line):
            line.sent = False
            self._put_off(memoryview(line.line)[taken:], line)
            self._block()
        else:
            line.sent = True
        if isinstance(line, RequestUnderWay):
            self._requests.count_sent()
        elif isinstance(line, LooseLine):
            self._loose -= len(line.line)
        else:
            line.withdrawn()

    def _block(self) -> None:
        self._blocked = True
        self._work.unpark()

    def _write_nowait(self, data: bytes) -> int:
        """Write the bytes that the pipe takes now; return the number. After 0, the background task waits for room."""
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
        return len(self._backlog) + self._loose >= BACKLOG_BYTES

    def _let_in(self) -> None:
        # Wake one sender at a time, which wakes the next while there is room. Thousands of woken senders would take a
        # step each for every written line.
        if not self._full:
            self._waiting.unpark()

    async def _write(self, data: bytes | bytearray) -> int:
        """Write the bytes that the pipe takes now; return the number. A checkpoint only if the server is gone."""
        try:
            return os.write(self._stream.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            await self._lose(error)

    async def _lose(self, error: OSError) -> NoReturn:
        # The `finally` covers a sender that is cancelled during the wait. The connection is lost all the same, and the
        # parked senders would otherwise wait for room for ever.
        exited = False
        try:
            exited = await self._wait_exit()
        finally:
            self._lifeline.lose(None if exited else ConnectionOver(self._gone))
            self._waiting.unpark_all()
        raise anyio.BrokenResourceError from error

    @trio.lowlevel.enable_ki_protection  # otherwise a Ctrl-C between the write and the `del` would write bytes twice
    async def run(self) -> None:
        """Write the backlog and the collected lines, in a background task of the link."""
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
                    self._blocked = False
                    self._let_in()
                    if self._room_wanted and not self._collected:
                        self._room_wanted = False
                        self.on_room()
        except (anyio.BrokenResourceError, trio.ClosedResourceError):
            # `_lose` has noted the loss, or this side has closed the pipe. The backlog stays and blocks all writes, so
            # no sender can write behind half a line.
            self._blocked = True

    async def _write_collected(self) -> None:
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
            # No checkpoint since the write, or a request that the server reads could have been withdrawn.
            del self._collected[each]
            self._take(each, taken)
            taken -= len(each.line)

    def close(self) -> None:
        """Take no more messages, after a last write of the backlog: the link closes stdin soon."""
        with suppress(OSError):  # the pipe is full, or the server is gone
            del self._backlog[: os.write(self._stream.fileno(), self._backlog)]
        self._closed, self.on_room = True, ignore
        self._lifeline.close()
        self._waiting.unpark_all()


class LinesLink(Link):
    """The part of a link that reads and writes lines, over pipes or one socket for both streams.

    `gone` is the reason of a loss, None for pipes.
    """

    def __init__(
        self,
        config: ServerConfig,
        reads: trio.lowlevel.FdStream,
        writes: trio.lowlevel.FdStream,
        wait_exit: WaitExit,
        max_line_bytes: int,
        lifeline: Lifeline,
        masker: Masker,
        *,
        gone: str | None = None,
    ) -> None:
        super().__init__(lifeline, masker)
        self._name = config.name
        requests = IncomingRequests(config.name, config.limits.max_requests)
        self._reader = PipeReader(
            reads,
            lifeline,
            wait_exit,
            server=config.name,
            masker=masker,
            requests=requests,
            table=self.table,
            pace=ReadingPace(config.limits.max_notifications),
            limits=MessageLimits(max_line_bytes, config.limits.max_message_values, "max_line_bytes"),
            gone=gone,
        )
        self._writer = PipeWriter(
            writes, self._reader, lifeline, wait_exit, requests, self.table, gone=gone or INPUT_CLOSED
        )
        self.direct: PipeWriter = self._writer

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        await self._writer.send(message)

    def read(self, receive: Receive) -> Coroutine[Any, Any, None]:
        return self._reader.read(receive)  # not awaited here: a frame less at each message

    @property
    def malformed_lines(self) -> int:
        return self._reader.malformed_lines
