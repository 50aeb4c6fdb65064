"""Parse server-sent events, and enforce limits while an event is still arriving.

httpx2 and the SDK parse event streams too, but one step of theirs may take any time: with chunks of a few bytes each,
with empty lines, or with a message of millions of values. So streams are parsed here, in small pieces. For the SDK the
events are serialized again, each of them complete and within the limits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from io import BytesIO
from time import perf_counter
from typing import Final, Literal

import httpx2
import trio
from attrs import frozen

from ...basics import Turns
from ..wire import LongLine, ReadingPace, ValueCounter
from ._bodies import OF_THE_BODY, PIECE, pieces_of

__all__ = ["Event", "EventParser", "TooMuch", "read_events", "with_events"]

MAX_FIELD: Final = 16 * 1024
"""Bytes kept of a line other than data, such as an id or a comment. The rest is dropped."""

LINES: Final = 1024
"""Bytes that are split into lines in one step, where lines are short: each byte may be a line."""

FEW: Final = 64
"""Lines in a piece that is split in one step. A message of any length is one line."""

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
    """

    name: bytes = b"message"
    data: bytes = b""
    id: bytes | None = None
    retry: bytes | None = None
    skipped: LongLine | None = None

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
        self._skipped: LongLine | None = None

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
        if self._skipped is not None:
            self._skipped.extend(part)
            return
        self._data.write(part)
        self._counter.feed(part)
        if self._data.tell() > self._max_bytes:
            self._skip("bytes")
        elif self._counter.values > self._max_values:
            self._skip("values")

    def _skip(self, excess: Literal["bytes", "values"]) -> None:
        assert self._data is not None
        self._skipped = LongLine(self._data.getvalue(), excess)
        self._data = BytesIO()

    def _event(self) -> Event:
        event = Event(
            self._fields.get(b"event") or b"message",
            b"" if self._data is None else self._data.getvalue(),
            self._fields.get(b"id"),
            self._fields.get(b"retry"),
            self._skipped,
        )
        self._begin_event()
        return event


def _parts(piece: bytes) -> Iterator[bytes]:
    """Cut a piece of a stream into parts that each take a short step."""
    size = LINES if piece.count(b"\n") + piece.count(b"\r") > FEW else PIECE
    for begin in range(0, len(piece), size):
        yield piece[begin : begin + size]


async def read_events(response: httpx2.Response, max_bytes: float, max_values: float) -> AsyncGenerator[Event, None]:
    """Read a stream of events to its end, and yield to the event loop often, whatever the server sends.

    Lines that belong to no event, such as comments, slow the reading down (see ``_pace``).
    """
    parser, turns, pace = EventParser(max_bytes, max_values), Turns(), ReadingPace()
    async with aclosing(pieces_of(response)) as pieces:
        async for piece in pieces:
            for part in _parts(piece):
                await turns.take()
                began, idle = perf_counter(), True
                for event in parser.feed(part):
                    idle = False
                    yield event
                    await turns.take()
                if idle and not parser.begun:
                    await trio.sleep(pace.wasted(perf_counter() - began) or 0)


class _Written(httpx2.AsyncByteStream):
    """A body of events that are serialized again."""

    def __init__(
        self, response: httpx2.Response, events: AsyncGenerator[Event, None], admit: Callable[[Event], bool]
    ) -> None:
        self._response = response
        self._events = events
        self._admit = admit
        self._pieces = self._write()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def _write(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._events) as events:
            async for event in events:
                # The SDK knows no other type and would log a warning for each.
                if event.name == b"message" and self._admit(event):
                    written = event.written()
                    for begin in range(0, len(written), PIECE):
                        yield written[begin : begin + PIECE]

    async def aclose(self) -> None:
        await self._pieces.aclose()  # older versions of httpx2 leave that to the garbage collector
        await self._response.aclose()


def with_events(
    response: httpx2.Response, events: AsyncGenerator[Event, None], admit: Callable[[Event], bool]
) -> httpx2.Response:
    """Return a response from which the SDK can read the events: UTF-8, not compressed.

    Args:
        response: the response that the events come from.
        events: the iterator of `read_events`.
        admit: called with each event. An event is dropped if it returns False; an exception ends the stream.
    """
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in OF_THE_BODY]
    written = httpx2.Response(
        response.status_code, headers=headers, stream=_Written(response, events, admit), request=response.request
    )
    written.headers["content-type"] = "text/event-stream"
    return written
