"""Parse server-sent events, and enforce limits while an event is still arriving.

httpx2 and the SDK parse event streams too, but one step of theirs may take any time: with chunks of a few bytes each,
with empty lines, or with a message of millions of values. So streams are parsed here, in small pieces. For the SDK the
events are serialized again, each of them complete and within the limits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Final

import httpx2
import trio
from attrs import evolve, field, frozen

from ...basics import TimeSlice
from ..wire import SKIPPED, Excerpt, LongLine, MessageLimits, PartialMessage, ReadingPace
from ._bodies import PIECE, pieces_of

MAX_FIELD: Final = 16 * 1024
"""Bytes kept of a line other than data, such as an id or a comment. The rest is dropped."""

LINES: Final = 1024
"""Bytes that are split into lines in one step if lines are short: each byte may be a line."""

FEW: Final = 64
"""Maximum lines of a piece that is split in one step. A message of any length is one line."""


MAX_RETRY: Final = 60_000
"""Maximum milliseconds until a stream is opened again, whatever its ``retry`` fields say: a server that asks for a week
must not keep a caller for a week."""

DATA: Final = b"data:"

MARK: Final = "\ufeff".encode()
"""The byte order mark, with which a stream may begin."""


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
        retry: its ``retry`` field, at most `MAX_RETRY`; None if it has none that is valid.
        skipped: an excerpt of data that exceeds a limit; then `data` is empty.
        unpaced: the number of bytes that arrived with it and have caused no pause yet.
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
        partial: the data that is still arriving; None if the event has no data yet.
    """

    def __init__(self, max_bytes: float, max_values: float) -> None:
        self._max_bytes = max_bytes
        self._max_values = max_values
        self._line = bytearray()
        self._in_data = False
        self._after_return = False
        self._at_start = True
        self._begin_event()

    @property
    def begun(self) -> bool:
        """True if a part of the next event has arrived."""
        return bool(self._fields) or self.partial is not None

    def _begin_event(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self.partial: PartialMessage | None = None

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
        if self._in_data and self.partial is not None:
            self.partial.append(part)
        elif len(self._line) < MAX_FIELD:
            self._line += part
            if self._at_start and self._line.startswith(MARK):
                self._at_start = False
                del self._line[: len(MARK)]
            if self._line.startswith(DATA) and len(self._line) > len(DATA):
                self._in_data = True
                self._begin_data().append(bytes(self._line[len(DATA) :]).removeprefix(b" "))

    def _end_line(self) -> bool:
        """End a line; return True if an event ends with it."""
        line, self._line = bytes(self._line), bytearray()
        self._at_start = False
        if self._in_data:
            self._in_data = False
            return False
        if not line:
            return self.begun
        name, _, value = line.partition(b":")
        if name == b"data":
            self._begin_data()
        elif name in (b"event", b"id"):
            self._fields[name] = value.removeprefix(b" ")
        elif name == b"retry" and (retry := _milliseconds(value.removeprefix(b" "))) is not None:
            self._fields[name] = retry
        return False

    def _begin_data(self) -> PartialMessage:
        if self.partial is None:
            self.partial = PartialMessage(self._max_bytes, self._max_values)
        else:
            self.partial.append(b"\n")
        return self.partial

    def _event(self) -> Event:
        data = b"" if self.partial is None else self.partial.value
        event = Event(
            self._fields.get(b"event") or b"message",
            data if isinstance(data, bytes) else b"",
            self._fields.get(b"id"),
            self._fields.get(b"retry"),
            data if isinstance(data, LongLine) else None,
        )
        self._begin_event()
        return event


def _milliseconds(value: bytes) -> bytes | None:
    """Return a valid ``retry`` field, clamped; None for any other. The SDK would sleep for a negative time."""
    if not value.isdigit():
        return None
    digits = value.lstrip(b"0")  # int() refuses thousands of digits
    return b"%d" % MAX_RETRY if len(digits) > len(str(MAX_RETRY)) else b"%d" % min(int(digits or b"0"), MAX_RETRY)


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

    Lines without an event, such as comments, slow the reading down (see ``_pace``). So does a long unsolicited event
    while it arrives.

    Args:
        response: the response to read.
        limits: the limits of each event.
        pace: the reading speed of the connection.
        is_expected: returns True if a long event, judged by its beginning, may be an awaited response.
        skipped: the maximum size of an event over a limit, as a multiple of the limit. It is read because its end may
            contain the id of the request.

    Raises:
        TooMuch: an event exceeds that size.
    """
    parser, time_slice, size = EventParser(limits.bytes, limits.values), TimeSlice(), 0
    async with aclosing(pieces_of(response)) as pieces:
        async for piece in pieces:
            for part in _parts(piece):
                await time_slice.checkpoint()
                began, idle, size = trio.current_time(), True, size + len(part)
                for event in parser.feed(part):
                    idle = False
                    yield evolve(event, unpaced=size)
                    size = 0
                    await time_slice.checkpoint()
                if idle and not parser.begun:
                    await trio.sleep(pace.wasted(trio.current_time() - began) or 0)
                elif (partial := parser.partial) and partial.coming and not is_expected(partial.coming):
                    await trio.sleep(pace.unasked_part(trio.current_time(), size))
                    size = 0
                if parser.partial and (long := parser.partial.skipped) and long.size > skipped * limits.bytes:
                    raise TooMuch(long)
