"""Replies to a request: an answer, or a response for the SDK.

An answer is known whole when the response was read. A stream of events may hold notifications and requests of the
server before the answer, and may be resumed; a redirect may be followed. The SDK does all of that, so it is given the
response, from its first event on.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from typing import Final, Self

import httpx2
from attrs import define, field
from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId

from ....._backoff import Backoff
from ....basics import RequestTrace
from ...wire import parse_message
from .._bodies import OF_THE_BODY
from .._events import Event, TooMuch
from .._failures import check_id

Answer = JSONRPCResponse | JSONRPCError

ENDED: Final = "the event stream ended before the response"

REOPENING: Final = Backoff(first=0.1, initial=0.1, maximum=5.0, jitter=0.1)
"""Seconds from the opening of a stream to that of the next one, by the number of streams in a row that brought no
message. The server may ask for more with a ``retry`` field, but not for less."""

MAX_FRUITLESS: Final = 100
"""Maximum of streams in a row without a message that one request may open. They take about eight minutes."""

MAX_RESUMED: Final = 500
"""Maximum of streams of one request in all. The SDK resumes a stream from within the one before, which recurses."""


@define(eq=False)
class Reopening:
    """Decides when a stream that has ended may be opened again: that of notifications, or that of one request.

    Attributes:
        request: the id of the request; None for notifications.
    """

    request: RequestId | None = None
    _opened_at: float | None = field(default=None, init=False)
    _streams: int = field(default=0, init=False)
    _fruitless: int = field(default=0, init=False)

    @property
    def resumed(self) -> int:
        """How many streams followed the first one."""
        return self._streams - 1

    @property
    def exhausted(self) -> bool:
        """True if a request must not open another stream."""
        return self._fruitless > MAX_FRUITLESS or self.resumed >= MAX_RESUMED

    def open(self, now: float) -> None:
        """Note that a stream has begun."""
        self._opened_at = now
        self._streams += 1
        self._fruitless += 1

    def deliver(self) -> None:
        """Note that a message has arrived."""
        self._fruitless = 0

    def delay(self, now: float) -> float:
        """Return the seconds until the next stream may be opened."""
        if self._opened_at is None:
            return 0.0
        due = self._opened_at + REOPENING.delay(max(self._fruitless, 1), random=random.random)
        return max(due - now, 0.0)


class NotMessage(httpx2.SSEError):
    """An event is not an MCP message, or there is none."""


@define(eq=False)
class Answered:
    """An answer, and the response that held it; None if the answer is an error of our own."""

    answer: Answer
    response: httpx2.Response | None = None


@define(eq=False)
class BegunResponse:
    """A response that does not simply answer a request: a stream of events, which this iterates over, or a redirect.

    Attributes:
        message: the request.
        response: the response.
        trace: the trace of the request.
        events: the events that were not read yet; None for a redirect.
        finished: called when the response is closed; possibly more than once.
        taken: True once the SDK has the response.
        reopening: is informed of messages; None until the SDK has the response.
    """

    message: JSONRPCRequest
    response: httpx2.Response
    trace: RequestTrace
    events: AsyncGenerator[Event, None] | None
    finished: Callable[[], None]
    taken: bool = False
    reopening: Reopening | None = None
    _first: Event | None = field(default=None, init=False)
    _message: JSONRPCMessage | None = field(default=None, init=False)

    async def read_first(self) -> Answer | None:
        """Return the answer if the first event holds it. Otherwise the iterator begins with that event.

        Raises:
            TooMuch, NotMessage, WrongId: the event has no valid message, or there is none.
        """
        assert self.events is not None
        event = await anext(self.events, None)
        if event is None:
            raise NotMessage(ENDED)
        message = self._read(event) if is_message(event) else None
        if isinstance(message, Answer):
            return message
        self._first, self._message = event, message
        return None

    async def read_end(self) -> None:
        """Wait for the end of the stream, or for an event after the answer."""
        assert self.events is not None
        await anext(self.events, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event, self._first = self._first, None
        if event is not None:
            return event
        assert self.events is not None
        return await anext(self.events)

    def read(self, event: Event) -> JSONRPCMessage:
        """Return the message in an event.

        Raises:
            TooMuch, NotMessage, WrongId: it has no valid message, which ends the stream.
        """
        message, self._message = self._message, None  # the SDK reads the first event first
        if self.reopening is not None:
            self.reopening.deliver()
        return self._read(event) if message is None else message

    def _read(self, event: Event) -> JSONRPCMessage:
        message = read_event(event)
        if isinstance(message, Answer):
            check_id(message, self.message.id)
        return message

    async def aclose(self) -> None:
        """Close the response."""
        self.finished()
        if self.events is not None:
            await self.events.aclose()
        await self.response.aclose()


def is_message(event: Event) -> bool:
    """Return True if an event should hold a message. An event without data has an id, from which the SDK may resume."""
    return event.name == b"message" and bool(event.data or event.skipped is not None)


def read_event(event: Event) -> JSONRPCMessage:
    """Return the message in an event of a stream that answers a request.

    Raises:
        TooMuch, NotMessage: the event has no valid message, which ends the stream.
    """
    if event.skipped is not None:
        raise TooMuch(event.skipped)
    try:
        return parse_message(event.data)
    except ValueError:
        raise NotMessage("it sent an event that is not an MCP message") from None


def with_body(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """Return a response with a body that was read."""
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in OF_THE_BODY]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)


async def bare(response: httpx2.Response) -> httpx2.Response:
    """Return a redirect without its body."""
    await response.aclose()
    copy = with_body(response, b"")
    copy.next_request = response.next_request
    return copy


def error_for(message: JSONRPCRequest, error: ErrorData) -> JSONRPCError:
    """Return an answer of our own to a message."""
    return JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
