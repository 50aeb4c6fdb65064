"""Pass messages through the SDK's HTTP transport without letting it parse them.

The SDK would parse a message once for each kind of message that there is, and format it for its debug log even if
nobody reads that: an event of 24 MB takes 200 ms and 190 MiB in one step. So each message is parsed before the SDK sees
it. The SDK gets a short stub instead, and the stub is exchanged for the message when it comes out.

The message itself travels in a context variable. The task that reads a stub also sends it on, and what it sends
carries a copy of its context. So nothing is left behind if that task is cancelled.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from contextvars import Context, ContextVar
from typing import Final

import httpx2
import trio
from attrs import evolve
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from ...wire import ReadingPace
from .._bodies import OF_THE_BODY
from .._events import Event

__all__ = ["make_stub", "replace_stub", "with_stubs"]

NOBODY: Final = "mcp_actors:nobody"
"""An id that no request of the SDK has."""

_message: Final[ContextVar[JSONRPCMessage | None]] = ContextVar("message", default=None)


def make_stub(message: JSONRPCMessage) -> bytes:
    """Return the JSON to give to the SDK in the current task, in place of a message."""
    _message.set(message)
    if isinstance(message, JSONRPCResponse | JSONRPCError):
        request_id = NOBODY if message.id is None else message.id
        return b'{"jsonrpc":"2.0","id":%s,"result":{}}' % json.dumps(request_id).encode()
    return b'{"jsonrpc":"2.0","method":"stub"}'


def replace_stub(received: JSONRPCMessage, context: Context | None) -> JSONRPCMessage:
    """Return the message that a stub stands for; an error that the SDK has made up is returned as it is.

    Args:
        received: what comes out of the SDK's transport.
        context: the context in which it was sent.
    """
    message = context.get(_message) if context is not None else None
    if message is None or isinstance(received, JSONRPCError):
        return received
    if isinstance(message, JSONRPCResponse | JSONRPCError) and isinstance(received, JSONRPCResponse):
        message.id = received.id  # the SDK has set it to that of the request, whose stream this was
    return message


class _Written(httpx2.AsyncByteStream):
    """A body of stubs, one for each message in a stream of events."""

    def __init__(
        self,
        response: httpx2.Response,
        events: AsyncGenerator[Event, None],
        read: Callable[[Event], JSONRPCMessage | None],
        pace: ReadingPace,
        answers: bool,
    ) -> None:
        self._response = response
        self._events = events
        self._read = read
        self._pace = pace
        self._answers = answers
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
        await self._response.aclose()


def with_stubs(
    response: httpx2.Response,
    events: AsyncGenerator[Event, None],
    read: Callable[[Event], JSONRPCMessage | None],
    pace: ReadingPace,
    *,
    answers: bool,
) -> httpx2.Response:
    """Return a response in which the SDK finds a stub of each message: UTF-8, not compressed.

    Args:
        response: the response that the events come from.
        events: the iterator of `read_events`.
        read: returns the message in an event, or None to drop the event; an exception ends the stream.
        pace: the reading speed of the connection: messages that nobody asked for slow the reading down.
        answers: whether the stream belongs to a request, which it answers.
    """
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in OF_THE_BODY]
    stream = _Written(response, events, read, pace, answers)
    written = httpx2.Response(response.status_code, headers=headers, stream=stream, request=response.request)
    written.headers["content-type"] = "text/event-stream"
    return written
