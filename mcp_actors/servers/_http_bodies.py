"""The bodies of HTTP requests and responses: how far they came, how they end, how long they may be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import httpx2

__all__ = ["BodyTooLong", "WatchedRequestBody", "WatchedResponseBody", "media_type", "read_body"]


class BodyTooLong(Exception):
    """A body is longer than allowed."""


class WatchedRequestBody(httpx2.AsyncByteStream):
    """The body of a request.

    Attributes:
        offered: it was asked for, so the server may have it. Before that, nothing can have been acted upon.
    """

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self.offered = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.offered = True
        async for chunk in self._inner:
            yield chunk


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

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except Exception as error:
            self._on_end(error)
            raise
        self._on_end(None)

    async def aclose(self) -> None:
        self._on_close()
        await self._inner.aclose()


async def read_body(response: httpx2.Response, limit: int) -> bytes:
    """Read a whole body, which is decoded piece by piece, and close the response.

    Raises:
        BodyTooLong: it has more than `limit` bytes. No more than that, and one piece, was held.
    """
    body = bytearray()
    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > limit:
                    raise BodyTooLong
    finally:
        await response.aclose()
    return bytes(body)


def media_type(response: httpx2.Response) -> str:
    """The ``Content-Type`` of a response, without its parameters, in lower case."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()
