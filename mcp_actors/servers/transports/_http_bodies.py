"""The bodies of HTTP requests and responses: how far they came, how they end, how long they may be."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, Self

import httpx2
import trio
from mcp import MCPError

from ._http_failures import error_in
from ._values import TooManyValues, ValueCounter

__all__ = [
    "BodyTooLong",
    "WatchedRequestBody",
    "WatchedResponseBody",
    "is_unsent",
    "media_type",
    "note_refusal",
    "read_body",
    "read_short",
]

SHORT: Final = 64 * 1024
"""Bytes of a body that are read where little can be meant: what MCP says beside an error status is short."""

SHORT_WAIT: Final = 1.0
"""Seconds for such a body. The status that it explains is there already."""

WHO_ARE_YOU: Final = frozenset({401, 403, 407})
"""Statuses to which an auth flow may answer."""


class BodyTooLong(Exception):
    """A body is longer than allowed."""


class WatchedRequestBody(httpx2.AsyncByteStream):
    """The body of a request.

    Attributes:
        offered: it was asked for, so the server may have acted on it; but not if the server asked who we are.
    """

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self.offered = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.offered = True
        async for chunk in self._inner:
            yield chunk


def is_unsent(request: httpx2.Request) -> bool:
    """Whether it is known that nothing of the body of a request was offered to the server."""
    return isinstance(request.stream, WatchedRequestBody) and not request.stream.offered


async def note_refusal(response: httpx2.Response) -> None:
    """A hook for a client: what was answered with 401 was not acted upon, whatever its auth flow does next."""
    body = response.request.stream
    if response.status_code in WHO_ARE_YOU and isinstance(body, WatchedRequestBody):
        body.offered = False


class WatchedResponseBody(httpx2.AsyncByteStream):
    """The body of a response, while others read it.

    Args:
        inner: the body.
        on_end: called when it has ended by itself, with the failure if it was one.
        on_close: called when nobody reads it any more, whatever the reason; possibly more than once.
    """

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        *,
        on_end: Callable[[Exception | None], None],
        on_close: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._on_end = on_end
        self._on_close = on_close

    def __aiter__(self) -> Self:
        self._chunks = aiter(self._inner)
        return self

    async def __anext__(self) -> bytes:
        # Not a generator: older versions of httpx2 would leave its end to the garbage collector.
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            self._on_end(None)
            raise
        except Exception as error:
            self._on_end(error)
            raise

    async def aclose(self) -> None:
        self._on_close()
        await self._inner.aclose()


async def read_body(response: httpx2.Response, limit: int, *, max_values: float = math.inf) -> bytes:
    """Read a whole body, which is decoded piece by piece, and close the response.

    Raises:
        BodyTooLong: it has more than `limit` bytes. No more than that, and one piece, was held.
        TooManyValues: it has more than `max_values` values of JSON.
    """
    body, counter = bytearray(), ValueCounter()
    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > limit:
                    raise BodyTooLong
                counter.feed(piece)
                if counter.values > max_values:
                    raise TooManyValues
    finally:
        await response.aclose()
    return bytes(body)


async def read_short(response: httpx2.Response) -> tuple[bytes, MCPError | None]:
    """Read a body that may say little: itself, and the error of MCP in it.

    One that is long, broken or slow counts as empty.
    """
    body = b""
    try:
        with trio.move_on_after(SHORT_WAIT):
            body = await read_body(response, SHORT)
    except (BodyTooLong, httpx2.HTTPError):
        return b"", None
    return body, error_in(body) if media_type(response) == "application/json" else None


def media_type(response: httpx2.Response) -> str:
    """The ``Content-Type`` of a response, without its parameters, in lower case."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()
