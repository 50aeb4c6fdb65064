"""Parse server-sent events, and enforce limits while an event is still arriving.

httpx2 and the SDK parse event streams too, but one step of theirs may take any time: with chunks of a few bytes each,
with empty lines, or with a message of millions of values. So streams are parsed here, in small pieces. For the SDK the
events are serialized again, each of them complete and within the limits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from io import BytesIO
from time import perf_counter
from typing import Final, Literal

import httpx2
import trio
from attrs import evolve, field, frozen

from ...basics import TimeSlice
from ..wire import LONG, Excerpt, LongLine, MessageLimits, ReadingPace, ValueCounter
from ._bodies import PIECE, pieces_of

__all__ = ["Event", "EventParser", "TooMuch", "read_events"]

MAX_FIELD: Final = 16 * 1024
"""Bytes kept of a line other than data, such as an id or a comment. The rest is dropped."""

LINES: Final = 1024
"""Bytes that are split into lines in one step, where lines are short: each byte may be a line."""

FEW: Final = 64
"""Lines in a piece that is split in one step. A message of any length is one line."""

SKIPPED: Final = 16
"""Maximum size of a skipped answer, as a multiple of the limit. One that never ends must not be read for ever."""

DATA: Final = b"data:"


class TooMuch(httpx2.SSEError):
    """An event exceeds a limit.

    Attributes:
        data: the excerpt of its data that is kept.
    """

    def __init__(self, data: LongLine) -> None:
        super().__init__(f"an event has too many {data.excess}")
        self.data = data


@frozen
class Event:
    """One event, as it was sent.

    Attributes:
        name: its type.
        data: its data.
        id: its id; None if it has none.
        retry: its ``retry`` field; None if it has none.
        skipped: an excerpt of data that exceeds a limit; then `data` is empty.
        unpaced: the bytes that arrived with it and have caused no pause so far.
    """

    name: bytes = b"message"
    data: bytes = b""
    id: bytes | None = None
    retry: bytes | None = None
    skipped: LongLine | None = None
    unpaced: int = field(default=0, eq=False)

    def written(self) -> bytes:
        """Serialize the event as a server does."""
        fields = [(b"id", self.id), (b"retry", self.retry), (b"event", self.name)]
        lines = [b"%s: %s\n" % (name, value) for name, value in fields if value is not None]
        data = [DATA + b" " + line + b"\n" for line in self.data.split(b"\n")]
        return b"".join([*lines, *data, b"\n"])


class EventParser:
    """Splits a stream of bytes into events and looks at each byte once.

    Args:
        max_bytes: the maximum size of the data of one event.
        max_values: the maximum number of JSON values in it.

    Attributes:
        coming: the beginning of the data that is still arriving, if it is long.
        skipped: the same, once that data is over a limit.
    """

    def __init__(self, max_bytes: float, max_values: float) -> None:
        self._max_bytes = max_bytes
        self._max_values = max_values
        self._line = bytearray()
        self._in_data = False
        self._after_return = False
        self._begin_event()

    @property
    def begun(self) -> bool:
        """Whether a part of the next event has arrived."""
        return bool(self._fields) or self._data is not None

    def _begin_event(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self._data: BytesIO | None = None
        self._counter = ValueCounter()
        self.coming: Excerpt | None = None
        self.skipped: LongLine | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Take the next bytes of the stream, which may begin and end anywhere; yield the events that they complete."""
        if not piece:
            return
        if self._after_return:
            piece = piece.removeprefix(b"\n")
        self._after_return = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = piece.split(b"\n")
        self._take(first)
        for part in others:
            if self._end_line():
                yield self._event()
            self._take(part)

    def _take(self, part: bytes) -> None:
        """Take a part of a line."""
        if self._in_data:
            self._add(part)
        elif len(self._line) < MAX_FIELD:
            self._line += part
            if self._line.startswith(DATA) and len(self._line) > len(DATA):
                self._in_data = True
                self._begin_data()
                self._add(bytes(self._line[len(DATA) :]).removeprefix(b" "))

    def _end_line(self) -> bool:
        """End a line; return True if an event ends with it."""
        line, self._line = bytes(self._line), bytearray()
        if self._in_data:
            self._in_data = False
            return False
        if not line:
            return self.begun
        name, _, value = line.partition(b":")
        if name == b"data":
            self._begin_data()
        elif name in (b"event", b"id", b"retry"):
            self._fields[name] = value.removeprefix(b" ")
        return False

    def _begin_data(self) -> None:
        if self._data is None:
            self._data = BytesIO()
        else:
            self._add(b"\n")

    def _add(self, part: bytes) -> None:
        """Append to the data. Above a limit only its two ends are kept."""
        assert self._data is not None
        if self.skipped is not None:
            self.skipped.extend(part)
            return
        self._data.write(part)
        self._counter.feed(part)
        if self._data.tell() > self._max_bytes:
            self._skip("bytes")
        elif self._counter.values > self._max_values:
            self._skip("values")
        elif self.coming is None and self._data.tell() > LONG:
            self.coming = Excerpt(self._data.getbuffer())

    def _skip(self, excess: Literal["bytes", "values"]) -> None:
        assert self._data is not None
        self.coming = self.skipped = LongLine(self._data.getvalue(), excess)
        self._data = BytesIO()

    def _event(self) -> Event:
        event = Event(
            self._fields.get(b"event") or b"message",
            b"" if self._data is None else self._data.getvalue(),
            self._fields.get(b"id"),
            self._fields.get(b"retry"),
            self.skipped,
        )
        self._begin_event()
        return event


def _parts(piece: bytes) -> Iterator[bytes]:
    """Cut a piece of a stream into parts that each take a short step."""
    size = LINES if piece.count(b"\n") + piece.count(b"\r") > FEW else PIECE
    for begin in range(0, len(piece), size):
        yield piece[begin : begin + size]


async def read_events(
    response: httpx2.Response,
    limits: MessageLimits,
    pace: ReadingPace,
    *,
    is_expected: Callable[[Excerpt], bool] = lambda _: False,
    skipped: int = SKIPPED,
) -> AsyncGenerator[Event, None]:
    """Read a stream of events to its end, and yield to the event loop often, whatever the server sends.

    Lines that belong to no event, such as comments, slow the reading down (see ``_pace``), and so does a long event
    that nobody asked for, while it arrives.

    Args:
        response: the response to read.
        limits: the limits of each event.
        pace: the reading speed of the connection.
        is_expected: returns True if a long event, judged by its beginning, may be an awaited answer.
        skipped: how far an event over a limit is read, as a multiple of the limit: its end may tell what it answers.

    Raises:
        TooMuch: an event is even longer than that.
    """
    parser, time_slice, size = EventParser(limits.bytes, limits.values), TimeSlice(), 0
    async with aclosing(pieces_of(response)) as pieces:
        async for piece in pieces:
            for part in _parts(piece):
                await time_slice.checkpoint()
                began, idle, size = perf_counter(), True, size + len(part)
                for event in parser.feed(part):
                    idle = False
                    yield evolve(event, unpaced=size)
                    size = 0
                    await time_slice.checkpoint()
                if idle and not parser.begun:
                    await trio.sleep(pace.wasted(perf_counter() - began) or 0)
                elif parser.coming is not None and not is_expected(parser.coming):
                    await trio.sleep(pace.unasked_part(trio.current_time(), size))
                    size = 0
                if parser.skipped is not None and parser.skipped.size > skipped * limits.bytes:
                    raise TooMuch(parser.skipped)
