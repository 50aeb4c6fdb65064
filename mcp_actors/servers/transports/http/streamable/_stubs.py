"""Pass messages through the SDK's HTTP transport without letting it parse them.

The SDK would parse a message once for each kind of message, and format it for its debug log even if that is off: an
event of 24 MB takes 200 ms and 190 MiB in one step. So each message is parsed before the SDK sees it. Unless it is a
small body, the SDK gets a stub instead, which is replaced by the message when it comes out of the SDK's transport.

The message itself travels in a context variable. The task that reads a stub also sends it on, together with a copy of
its context. So nothing is left behind if that task is cancelled.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import Context, ContextVar
from typing import Final, Protocol

import httpx2
import trio
from attrs import define, evolve, field
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from ...wire import ReadingPace
from .._bodies import OF_THE_BODY
from .._events import Event

UNKNOWN_ID: Final = "mcp_actors:unknown"
"""An id that no request of the SDK has."""

_message: Final[ContextVar[JSONRPCMessage | None]] = ContextVar("message", default=None)


def make_stub(message: JSONRPCMessage) -> bytes:
    """Return the JSON that stands for a message. The SDK must read it in the current task."""
    _message.set(message)
    if isinstance(message, JSONRPCResponse | JSONRPCError):
        request_id = UNKNOWN_ID if message.id is None else message.id
        return b'{"jsonrpc":"2.0","id":%s,"result":{}}' % json.dumps(request_id).encode()
    return b'{"jsonrpc":"2.0","method":"stub"}'


def replace_stub(received: JSONRPCMessage, context: Context | None) -> JSONRPCMessage:
    """Return the message of a stub. An error of the SDK itself is returned unchanged.

    Args:
        received: the stub or error from the SDK's transport.
        context: the context in which it was sent.
    """
    message = context.get(_message) if context is not None else None
    return received if message is None or isinstance(received, JSONRPCError) else message


class Events(Protocol):
    """Events that are closed after use."""

    def __aiter__(self) -> AsyncIterator[Event]: ...
    def __anext__(self) -> Awaitable[Event]: ...
    def aclose(self) -> Awaitable[None]: ...


@define(eq=False, repr=False)
class _Written(httpx2.AsyncByteStream):
    """A body of stubs, one for each message in a stream of events."""

    _response: httpx2.Response
    _events: Events
    _read: Callable[[Event], JSONRPCMessage | None]
    _pace: ReadingPace
    _answers: bool
    _pieces: AsyncGenerator[bytes, None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pieces = self._write()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def _write(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._events) as events:
            async for event in events:
                message = None
                # The SDK knows no other type and would log a warning for each.
                if event.name == b"message":
                    if not event.data and event.skipped is None:
                        yield event.written()  # it has an id, from which the SDK may resume the stream
                    elif (message := self._read(event)) is not None:
                        yield evolve(event, data=make_stub(message)).written()
                        _message.set(None)  # it may be long
                if not (self._answers and isinstance(message, JSONRPCResponse | JSONRPCError)):
                    request = isinstance(message, JSONRPCRequest)
                    await trio.sleep(self._pace.unasked(trio.current_time(), event.unpaced, request=request))

    async def aclose(self) -> None:
        await self._pieces.aclose()  # older versions of httpx2 leave that to the garbage collector
        await self._events.aclose()  # which may have begun before
        await self._response.aclose()


def with_stubs(
    response: httpx2.Response,
    events: Events,
    read: Callable[[Event], JSONRPCMessage | None],
    pace: ReadingPace,
    *,
    answers: bool,
) -> httpx2.Response:
    """Return a response that contains a stub of each message, in UTF-8 and not compressed.

    Args:
        response: the response that the events come from.
        events: the iterator of `read_events`.
        read: returns the message in an event, or None to drop the event; an exception ends the stream.
        pace: the reading speed of the connection, which unsolicited messages slow down.
        answers: True if the stream answers a request.
    """
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in OF_THE_BODY]
    stream = _Written(response, events, read, pace, answers)
    written = httpx2.Response(response.status_code, headers=headers, stream=stream, request=response.request)
    written.headers["content-type"] = "text/event-stream"
    return written
