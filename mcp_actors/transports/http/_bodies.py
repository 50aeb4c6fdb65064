"""Watch and limit HTTP bodies, and parse event streams.

The server may act on a request once the HTTP client begins to send the request's body. A surplus response must not
answer the next request (see `Reads`). Long bodies are read in small pieces, within limits.

Owns: parsers of event streams; counters of reads.
Writes: sent marks of requests; the time at which a link was last heard. Wraps response bodies and the `read` method of
network streams; shuts down sockets.
Calls: transports, _failures.
"""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from typing import Final, Self

import httpx2
import trio
from attrs import define, evolve, field, frozen
from mcp import MCPError

from ..._tasks import TimeSlice
from ..._text import plain_text
from .._exchange import SHOWN_TEXT
from .._link import Lifeline
from .._messages import (
    SKIPPED,
    Excerpt,
    LongLine,
    MessageLimits,
    PartialMessage,
    ReadingPace,
    TooManyValues,
    ValueCounter,
)
from .._request_table import RequestUnderWay
from ._failures import UNREACHED, error_in

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"

SHORT_BODY: Final = 64 * 1024
"""Maximum bytes of a body that should be short, as with an error status."""

SHORT_WAIT: Final = 1.0
"""Seconds to wait for a short body. The status, which comes before the body, matters more."""

SMALL: Final = 4 * 1024
"""Maximum bytes of a body that is read in one step."""

BODY_PIECE: Final = 64 * 1024
"""Bytes of a decoded body per step."""

ENCODED_PIECE: Final = 8 * 1024
"""Bytes decoded per step. A few compressed bytes can expand to very many."""

QUIET_STREAM: Final = 300.0
"""Seconds without a byte after which a stream of notifications counts as broken, as in the SDK."""

CHALLENGES: Final = frozenset({401, 403, 407})
"""Statuses after which an auth flow may send the request again."""


class BodyTooLong(Exception):
    """A body exceeds the limit on bytes."""


class WatchedRequestBody(httpx2.AsyncByteStream):
    """The body of a request.

    Attributes:
        offered: True once the HTTP library has read the body, so the request may have taken effect; False again after a
            challenge for credentials.
    """

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self.offered = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        self.offered = True
        return aiter(self._inner)

    def was_sent(self, request: httpx2.Request, error: Exception) -> bool:
        """Return True if the request of this body may have taken effect before an error.

        A failure to connect does not mean that nothing was sent: an auth flow, or the user's client, may have sent the
        request over an earlier connection. But if an auth flow has only read the body, `is_sent` is False.
        """
        return is_sent(request) if isinstance(error, UNREACHED) else self.offered


class ExchangeBody(WatchedRequestBody):
    """The body of a request to the server. The request may be answered once the body is read."""

    def __init__(self, inner: httpx2.AsyncByteStream, request: RequestUnderWay) -> None:
        super().__init__(inner)
        self._request = request

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._request.sent = True
        return super().__aiter__()


def is_unsent(request: httpx2.Request) -> bool:
    """Return True if certainly no byte of the body of a request was sent."""
    return isinstance(request.stream, WatchedRequestBody) and not request.stream.offered


def is_sent(request: httpx2.Request) -> bool:
    """Return True if the body was offered; False if an auth flow has read it in advance, and so replaced it."""
    return isinstance(request.stream, WatchedRequestBody) and request.stream.offered


async def note_refusal(response: httpx2.Response) -> None:
    """Note that a refused request had no effect, whatever the auth flow does next. A response hook."""
    body = response.request.stream
    if response.status_code in CHALLENGES and isinstance(body, WatchedRequestBody):
        body.offered = False


@define(eq=False, repr=False)
class _ResponseBody(httpx2.AsyncByteStream):
    """The body of a response. Not a generator, whose end older versions of httpx2 leave to the garbage collector."""

    _inner: httpx2.AsyncByteStream
    _chunks: AsyncIterator[bytes] = field(init=False)

    def __aiter__(self) -> Self:
        self._chunks = aiter(self._inner)
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        await self._inner.aclose()


@define(eq=False, repr=False)
class HeardBody(_ResponseBody):
    """The body of a response; each piece updates ``Lifeline.heard_at``."""

    _lifeline: Lifeline
    _reads: Reads | None = None

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        self._lifeline.heard_at = trio.current_time()
        if self._reads is not None:
            self._reads.note_response()
        return chunk


@define(eq=False, repr=False)
class Reads:
    """Reads from one connection, and counts how often.

    A server may send a surplus response right after the response to a request. If both come in one read, the HTTP
    library keeps the surplus in a buffer, where the pool does not see it, and takes it as the response to the next
    request. Only the missing read reveals the surplus: a status or a redirect has no id.

    Attributes:
        count: the number of reads.
    """

    _read: Callable[..., Awaitable[bytes]]
    count: int = field(default=0, init=False)
    _at_response: int = field(default=-1, init=False)

    async def __call__(self, *args: object, **options: object) -> bytes:
        data = await self._read(*args, **options)
        self.count += 1
        return data

    @property
    def is_surplus(self) -> bool:
        """True if nothing was read since the last response: a response found now was not asked for."""
        return self.count == self._at_response

    def note_response(self) -> None:
        """Note that a part of a response has come. Not called at the end: another request may have the connection."""
        self._at_response = self.count


def reads_of(response: httpx2.Response) -> Reads | None:
    """Return the counter of reads from the connection, set at the first response; None if impossible.

    Over HTTP/2 each response names a request, so nothing is counted.
    """
    stream = response.extensions.get("network_stream")
    if stream is None or response.http_version == "HTTP/2":
        return None
    if not isinstance(stream.read, Reads):
        try:
            stream.read = Reads(stream.read)
        except AttributeError:  # a stream of the user's client may have slots
            return None
    reads: Reads = stream.read
    return reads


async def refuse_surplus(response: httpx2.Response) -> None:
    """Refuse a response that came before the request, and close the connection. A response hook.

    Raises:
        httpx2.RemoteProtocolError: the outcome of the request is unknown.
    """
    if (reads := reads_of(response)) is not None:
        if reads.is_surplus:
            raise httpx2.RemoteProtocolError("a response came before the request was sent", request=response.request)
        reads.note_response()


@define(eq=False, repr=False)
class NotificationBody(_ResponseBody):
    """The body of a stream of notifications, which breaks after `QUIET_STREAM` seconds without a byte.

    A proxy may silently drop a connection over which this side never sends. Other requests, health checks included,
    take other connections, so only a new stream shows that the old one was dead.
    """

    async def __anext__(self) -> bytes:
        with trio.move_on_after(QUIET_STREAM):
            return await super().__anext__()
        raise httpx2.ReadTimeout(f"no byte came in {QUIET_STREAM:g} s")


class _Sliced(httpx2.AsyncByteStream):
    """A body before decoding, in small pieces, with checkpoints in between even if all bytes have arrived."""

    def __init__(self, inner: httpx2.AsyncByteStream, size: int, time_slice: TimeSlice) -> None:
        self._inner = inner
        self._size = size
        self._time_slice = time_slice
        self._pieces = self._cut()

    async def _cut(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._inner:
            for begin in range(0, len(chunk), self._size):
                await self._time_slice.checkpoint()
                yield chunk[begin : begin + self._size]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._pieces.aclose()  # older versions of httpx2 would leave that to the garbage collector
        await self._inner.aclose()


async def pieces_of(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Decode a body in pieces of up to `BODY_PIECE` bytes, and let other tasks run in between.

    Raises:
        httpx2.DecodingError: the body cannot be decoded, or was encoded twice: any number of bytes could pass between
            two decoders in one step.
    """
    codings = [each.lower() for each in response.headers.get_list("content-encoding", split_commas=True)]
    codings = [each for each in codings if each != "identity"]
    if len(codings) > 1:
        raise httpx2.DecodingError(f"it was encoded more than once: {plain_text(', '.join(codings), limit=SHOWN_TEXT)}")
    time_slice = TimeSlice()
    size = ENCODED_PIECE if codings else BODY_PIECE
    response.stream = _Sliced(response.stream, size, time_slice)  # type: ignore[arg-type]  # an AsyncClient's are async
    async with aclosing(response.aiter_bytes()) as decoded:
        async for data in decoded:
            for begin in range(0, len(data), BODY_PIECE):
                await time_slice.checkpoint()
                yield data[begin : begin + BODY_PIECE]


def is_small(response: httpx2.Response) -> bool:
    """Return True if a body is certainly small: not encoded, with a length that the HTTP library enforces."""
    headers = {name.lower(): value for name, value in response.headers.raw}  # ten times as fast as single look-ups
    length = headers.get(b"content-length", b"")
    return length.isdigit() and int(length) <= SMALL and b"content-encoding" not in headers


async def read_body(
    response: httpx2.Response, limit: int, *, max_values: float = math.inf, small: bool = False
) -> bytes:
    """Read a whole body, piece by piece unless `small` (see `is_small`), and close the response.

    Raises:
        BodyTooLong: more than `limit` bytes. At most one piece more was held.
        TooManyValues: more than `max_values` values of JSON.
    """
    body, counter = bytearray(), ValueCounter()

    def take(piece: bytes) -> None:
        body.extend(piece)
        if len(body) > limit:
            raise BodyTooLong
        counter.feed(piece)
        if counter.values > max_values:
            raise TooManyValues

    try:
        if small:
            take(await response.aread())
        else:
            async with aclosing(pieces_of(response)) as pieces:
                async for piece in pieces:
                    take(piece)
    finally:
        await response.aclose()
    return bytes(body)


async def read_short(response: httpx2.Response) -> tuple[bytes, MCPError | None]:
    """Read a short body; return the bytes and the MCP error, if any. A long, broken or slow body counts as empty.

    Of a stream of events, the first event is the body.
    """
    body = b""
    try:
        with trio.move_on_after(SHORT_WAIT):
            body = await read_body(response, SHORT_BODY)
    except (BodyTooLong, httpx2.HTTPError):
        return b"", None
    if (kind := media_type(response)) == EVENT_STREAM:
        body = next((each.data for each in EventParser(SHORT_BODY, SHORT_BODY).feed(body + b"\n\n") if each.data), b"")
    return body, error_in(body) if kind in (JSON, EVENT_STREAM) else None


def hang_up(response: httpx2.Response) -> None:
    """Let no other request use the connection of a response, where a further response may wait.

    Does nothing over HTTP/2, where requests share the connection.
    """
    stream = response.extensions.get("network_stream")
    sock = None if stream is None or response.http_version == "HTTP/2" else stream.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):  # it is closed already
            sock.shutdown(socket.SHUT_RDWR)  # the pool drops an idle connection that can be read


def media_type(response: httpx2.Response) -> str:
    """Return the ``Content-Type`` of a response in lower case, without parameters."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


# --- Parse server-sent events, and enforce limits while an event is still arriving ------------------------------------

# httpx2 and the SDK parse event streams too, but a step of theirs may take any time: for tiny chunks, empty lines, or
# millions of values. So streams are parsed here, in small pieces.


MAX_FIELD: Final = 16 * 1024
"""Kept bytes of a line other than data, such as an id or a comment."""

LINES: Final = 1024
"""Bytes split per step if lines are short: each byte may be a line."""

LINES_A_STEP: Final = 64
"""Maximum lines of a piece that is split in one step. A message of any length is one line."""


MAX_RETRY: Final = 60_000
"""Maximum milliseconds until a stream is opened again, even if a ``retry`` field asks for a week."""

DATA: Final = b"data:"

STREAM_MARK: Final = "\ufeff".encode()
"""The byte order mark, with which a stream may begin."""


class TooMuch(httpx2.SSEError):
    """An event exceeds a limit; `data` is the kept excerpt."""

    def __init__(self, data: LongLine) -> None:
        super().__init__(f"an event has too many {data.excess}")
        self.data = data


@frozen
class ServerSentEvent:
    """One event, as it was sent.

    Attributes:
        name: the type of the event.
        data: the data.
        id: the id; None without an id.
        retry: the ``retry`` field, at most `MAX_RETRY`; None without a valid field.
        skipped: an excerpt of data over a limit; then `data` is empty.
        unpaced: the bytes that arrived with the event and have caused no pause yet.
    """

    name: bytes = b"message"
    data: bytes = b""
    id: bytes | None = None
    retry: bytes | None = None
    skipped: LongLine | None = None
    unpaced: int = field(default=0, eq=False)


class EventParser:
    """Splits a stream of bytes into events and looks at each byte once. `partial` has the arriving data, if any."""

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
        return bool(self._fields) or self.partial is not None

    def _begin_event(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self.partial: PartialMessage | None = None

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Take the next bytes of the stream, cut anywhere; yield completed events."""
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
                yield self.end_event()
            self._take(part)

    def _take(self, part: bytes) -> None:
        if self._in_data and self.partial is not None:
            self.partial.append(part)
        elif len(self._line) < MAX_FIELD:
            self._line += part
            if self._at_start and self._line.startswith(STREAM_MARK):
                self._at_start = False
                del self._line[: len(STREAM_MARK)]
            if self._line.startswith(DATA) and len(self._line) > len(DATA):
                self._in_data = True
                self._begin_data().append(bytes(self._line[len(DATA) :]).removeprefix(b" "))

    def _end_line(self) -> bool:
        """End a line; return True if an event ends too."""
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

    def end_event(self) -> ServerSentEvent:
        """Return the event so far, and begin the next."""
        data = b"" if self.partial is None else self.partial.value
        event = ServerSentEvent(
            self._fields.get(b"event") or b"message",
            data if isinstance(data, bytes) else b"",
            self._fields.get(b"id"),
            self._fields.get(b"retry"),
            data if isinstance(data, LongLine) else None,
        )
        self._begin_event()
        return event


def _milliseconds(value: bytes) -> bytes | None:
    """Return a valid ``retry`` field, at most `MAX_RETRY`; None if invalid."""
    if not value.isdigit():
        return None
    digits = value.lstrip(b"0")  # int() refuses thousands of digits
    return b"%d" % MAX_RETRY if len(digits) > len(str(MAX_RETRY)) else b"%d" % min(int(digits or b"0"), MAX_RETRY)


def _parts(piece: bytes) -> Iterator[bytes]:
    size = LINES if piece.count(b"\n") + piece.count(b"\r") > LINES_A_STEP else BODY_PIECE
    for begin in range(0, len(piece), size):
        yield piece[begin : begin + size]


async def read_events(
    response: httpx2.Response,
    limits: MessageLimits,
    pace: ReadingPace,
    *,
    is_expected: Callable[[Excerpt], bool] = lambda _: False,
    skipped: int = SKIPPED,
) -> AsyncGenerator[ServerSentEvent, None]:
    """Read a stream of events to its end, and yield to the event loop often, whatever the server sends.

    Lines without an event, such as comments, slow the reading down (see `ReadingPace`), and so does a long unsolicited
    event while it arrives. `is_expected` returns True if a long event, judged by its beginning, may be an awaited
    response.

    Raises:
        TooMuch: an event exceeds `skipped` times the limit. Up to there it is read, because its end may have the id of
            the request.
    """
    parser, time_slice, size = EventParser(limits.bytes, limits.values), TimeSlice(), 0
    async with aclosing(pieces_of(response)) as pieces:
        async for piece in pieces:
            for part in _parts(piece):
                await time_slice.checkpoint()
                began, idle, size = trio.current_time(), True, size + len(part)
                for event in parser.feed(part):
                    idle = False
                    # Before the event, not after: an event and the end of the stream, if both have come, are read in
                    # one step.
                    await time_slice.checkpoint()
                    yield evolve(event, unpaced=size)
                    size = 0
                if parser.partial is not None and parser.partial.complete:  # some servers write no blank line after it
                    yield evolve(parser.end_event(), unpaced=size)
                    size = 0
                elif idle and not parser.begun:
                    await trio.sleep(pace.wasted(trio.current_time() - began) or 0)
                elif (partial := parser.partial) and partial.coming and not is_expected(partial.coming):
                    await trio.sleep(pace.unasked_part(trio.current_time(), size))
                    size = 0
                if parser.partial and (long := parser.partial.skipped) and long.size > skipped * limits.bytes:
                    raise TooMuch(long)
