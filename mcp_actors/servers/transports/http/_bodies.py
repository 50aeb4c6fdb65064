"""Watch the bodies of HTTP requests and responses, and limit their size."""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final, Self

import httpx2
import trio
from attrs import define, field
from mcp import MCPError

from ...._text import plain_text
from ...basics import TimeSlice
from .._link import Lifeline
from ..wire import SHOWN, Exchange, TooManyValues, ValueCounter
from ._failures import UNREACHED, error_in

SHORT: Final = 64 * 1024
"""Bytes of a body that are read if little is expected, as with the MCP error of an error status."""

SHORT_WAIT: Final = 1.0
"""Seconds to wait for such a body. The status is known already, and matters more."""

SMALL: Final = 4 * 1024
"""Bytes of a body that may be read, or parsed twice, in one step."""

PIECE: Final = 64 * 1024
"""Bytes of a decoded body that are processed in one step."""

ENCODED_PIECE: Final = 8 * 1024
"""Bytes that are decoded in one step. A few compressed bytes can expand to very many."""

OF_THE_BODY: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that describe a body as it was sent, not the decoded one."""

QUIET: Final = 300.0
"""Seconds without a byte after which a stream of notifications counts as broken, as in the SDK's own HTTP client."""

CHALLENGES: Final = frozenset({401, 403, 407})
"""Statuses to which an auth flow may react by sending the request again."""


class BodyTooLong(Exception):
    """A body exceeds the limit on bytes."""


class WatchedRequestBody(httpx2.AsyncByteStream):
    """The body of a request.

    Attributes:
        offered: True if the HTTP library read the body, so the request may have taken effect; False again after a
            challenge for credentials.
    """

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self.offered = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        self.offered = True
        return aiter(self._inner)

    def was_sent(self, request: httpx2.Request, error: Exception) -> bool:
        """Return True if the request, whose body this is, may have taken effect before an error.

        A connection that could not be made proves nothing about an earlier one: an auth flow may send a request again
        after any response, and a client of the user's after any error. But an auth flow may also read the body in
        advance.
        """
        return is_sent(request) if isinstance(error, UNREACHED) else self.offered


class ExchangeBody(WatchedRequestBody):
    """The body of a request to the server, which may be answered once it is read."""

    def __init__(self, inner: httpx2.AsyncByteStream, request: Exchange) -> None:
        super().__init__(inner)
        self._request = request

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._request.sent = True
        return super().__aiter__()


def is_unsent(request: httpx2.Request) -> bool:
    """Return True if certainly nothing of the body of a request was sent."""
    return isinstance(request.stream, WatchedRequestBody) and not request.stream.offered


def is_sent(request: httpx2.Request) -> bool:
    """Return True if the body of a request was offered, and not only read in advance by an auth flow."""
    return isinstance(request.stream, WatchedRequestBody) and request.stream.offered


async def note_refusal(response: httpx2.Response) -> None:
    """Note that a refused request had no effect, whatever its auth flow does next. A response hook."""
    body = response.request.stream
    if response.status_code in CHALLENGES and isinstance(body, WatchedRequestBody):
        body.offered = False


@define(eq=False, repr=False)
class _ResponseBody(httpx2.AsyncByteStream):
    """The body of a response. Not a generator: older versions of httpx2 leave its end to the garbage collector."""

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
class WatchedResponseBody(_ResponseBody):
    """The body of a response, whose end is reported.

    Args:
        inner: the body.
        on_end: called when the body ends by itself, with the exception if it broke.
    """

    _on_end: Callable[[Exception | None], None] = field(kw_only=True)

    async def __anext__(self) -> bytes:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            self._on_end(None)
            raise
        except Exception as error:
            self._on_end(error)
            raise


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

    A server may send a second response right after one that was asked for. If both come in one read, the HTTP library
    keeps the second in its buffer, where the pool does not see it, and takes it as the response to the next request. No
    read is needed for it then, and only that shows what it is: a status or a redirect has no id.
    """

    _read: Callable[..., Awaitable[bytes]]
    _count: int = field(default=0, init=False)
    _at_response: int = field(default=-1, init=False)

    async def __call__(self, *args: object, **options: object) -> bytes:
        data = await self._read(*args, **options)
        self._count += 1
        return data

    @property
    def is_surplus(self) -> bool:
        """True if nothing was read since the last response, so a new one was not asked for."""
        return self._count == self._at_response

    def note_response(self) -> None:
        """Note that a part of a response has come. Not at its end: another request may have the connection then."""
        self._at_response = self._count


def reads_of(response: httpx2.Response) -> Reads | None:
    """Return what counts the reads of a connection, from its first response on; None if it cannot be known.

    Over HTTP/2 each response names its request.
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
    """Refuse a response that was there before its request was sent; its connection is closed. A response hook.

    Raises:
        httpx2.RemoteProtocolError: it was. What has become of the request is unknown.
    """
    if (reads := reads_of(response)) is not None:
        if reads.is_surplus:
            raise httpx2.RemoteProtocolError("a response came before the request was sent", request=response.request)
        reads.note_response()


@define(eq=False, repr=False)
class NotificationBody(_ResponseBody):
    """The body of a stream of notifications, which breaks after `QUIET` seconds without a byte.

    A proxy or a router may drop a connection without telling this side, and nothing is ever sent over it. All other
    requests, health checks included, take other connections. So only a new stream shows that the old one was dead.
    """

    async def __anext__(self) -> bytes:
        with trio.move_on_after(QUIET):
            return await super().__anext__()
        raise httpx2.ReadTimeout(f"no byte came in {QUIET:g} s")


class _Sliced(httpx2.AsyncByteStream):
    """An encoded body in small pieces, with checkpoints in between even if all of it has arrived."""

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
    """Decode a body in pieces of up to `PIECE` bytes, and let other tasks run in between.

    Raises:
        httpx2.DecodingError: the body cannot be decoded, or was encoded more than once. Between two decoders, an
            unlimited number of bytes could pass in one step.
    """
    codings = [each.lower() for each in response.headers.get_list("content-encoding", split_commas=True)]
    codings = [each for each in codings if each != "identity"]
    if len(codings) > 1:
        raise httpx2.DecodingError(f"it was encoded more than once: {plain_text(', '.join(codings), limit=SHOWN)}")
    time_slice = TimeSlice()
    size = ENCODED_PIECE if codings else PIECE
    response.stream = _Sliced(response.stream, size, time_slice)  # type: ignore[arg-type]  # an AsyncClient's are async
    async with aclosing(response.aiter_bytes()) as decoded:
        async for data in decoded:
            for begin in range(0, len(data), PIECE):
                await time_slice.checkpoint()
                yield data[begin : begin + PIECE]


def is_small(response: httpx2.Response) -> bool:
    """Return True if a body is certainly small: not encoded, with a length that the HTTP library keeps to."""
    headers = {name.lower(): value for name, value in response.headers.raw}  # one by one they take ten times as long
    length = headers.get(b"content-length", b"")
    return length.isdigit() and int(length) <= SMALL and b"content-encoding" not in headers


async def read_body(
    response: httpx2.Response, limit: int, *, max_values: float = math.inf, small: bool = False
) -> bytes:
    """Read a whole body, which is decoded piece by piece unless it `is_small`, and close the response.

    Raises:
        BodyTooLong: it has more than `limit` bytes. No more than that, and one piece, was held.
        TooManyValues: it has more than `max_values` values of JSON.
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
    """Read a short body; return it and the MCP error in it. A body that is long, broken or slow counts as empty."""
    body = b""
    try:
        with trio.move_on_after(SHORT_WAIT):
            body = await read_body(response, SHORT)
    except (BodyTooLong, httpx2.HTTPError):
        return b"", None
    return body, error_in(body) if media_type(response) == "application/json" else None


def hang_up(response: httpx2.Response) -> None:
    """Let no other request use the connection of a response, because what is left on it may be a response too.

    Over HTTP/2 each response has a stream of its own, and other requests use the same connection.
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
