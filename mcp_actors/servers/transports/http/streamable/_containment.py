"""Containment: an HTTP request that fails, fails alone.

The SDK's transport answers one failed request by cancelling everything inside it: other requests, the session, the
connection. So it is given a client that never lets a request fail. It sends through the real client, turns whatever
goes wrong into an answer to that one message, and leaves what really happened in the request's `Exchange`.

Three things are let through. While the protocol is negotiated a failure ends the connect, because an outage says
nothing about what the server speaks. The stream of the server's notifications is the SDK's to reopen. And what a server
says in terms of MCP is its answer, whatever the status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import httpx2
import trio
from mcp.types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
)

from ....._errors import HttpStatusError, LimitExceeded
from ....basics import Background, ConnectionOver, Exchange, current_exchange
from ..._lifeline import Lifeline
from ...wire import INITIALIZED, Excess, MessageLimits, TooManyValues
from .._bodies import (
    OF_THE_BODY,
    BodyTooLong,
    WatchedRequestBody,
    WatchedResponseBody,
    media_type,
    read_body,
    read_short,
)
from .._events import Event, TooMuch, read_events, with_events
from .._failures import OF_HTTP, UNREACHED, HttpFailures, NoAnswer, nameless_error
from .._reach import Reach
from .._refusals import SESSION, Refusals
from ._notification_stream import NotificationStream

__all__ = ["ContainedClient", "posted"]

logger = logging.getLogger("mcp_actors.servers.http")

posted: Final[ContextVar[JSONRPCMessage | None]] = ContextVar("posted", default=None)
"""The message that an HTTP request is sent for: the SDK posts in the context in which a message was written."""

RESUMED: Final = "last-event-id"
HANDSHAKE: Final = frozenset({"server/discover", "initialize"})
LISTEN: Final = "subscriptions/listen"
EVENTS: Final = "text/event-stream"

POSTS: Final = 8
"""Messages without an answer that are posted at the same time. A server may send hundreds of requests at once; if as
many tasks answered them, the tasks of other servers would wait for all of them at each step."""

NOTIFICATION_TIMEOUT: Final = 10.0
"""Seconds for a message that has no answer: it is accepted at once, or something is wrong."""


class ContainedClient(httpx2.AsyncClient):
    """The client that the SDK is given. It has no connections of its own, and lets no request fail.

    Args:
        inner: the client that does the work; whoever made it closes it.
        url: where requests go. The SDK, which logs what it is told, is told `shown`.
        shown: the same without its query.
        failures: makes the errors.
        limits: the maximum size of one response, decoded.
        lifeline: where it is noted that the server is gone.
        background: runs what must not hold up the SDK.
    """

    def __init__(
        self,
        inner: httpx2.AsyncClient,
        *,
        url: str,
        shown: str,
        failures: HttpFailures,
        limits: MessageLimits,
        lifeline: Lifeline,
        background: Background,
    ) -> None:
        super().__init__(transport=httpx2.AsyncBaseTransport(), trust_env=False, max_redirects=inner.max_redirects)
        self._inner = inner
        self._url = url
        self._shown = shown
        self._failures = failures
        self._limits = limits
        self._lifeline = lifeline
        self._background = background
        self._reach = Reach(inner, url, failures, lifeline, background)
        self._posts = trio.Semaphore(POSTS)
        self._negotiated = False
        self._refusals = Refusals(inner)
        self._notifications = NotificationStream(failures.server, limits, lifeline, background)

    def build_request(self, method: str, url: httpx2.URL | str, **options: Any) -> httpx2.Request:
        """Build a request as the real client does, to where it really goes."""
        return self._inner.build_request(method, self._url if url == self._shown else url, **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request for the SDK. What comes back for a message is a response that it can handle.

        **Cancellation**: ends this request and touches no other.
        """
        message = posted.get()
        if request.method == "POST" and isinstance(message, JSONRPCRequest):
            return await self._ask(request, message)
        if request.method == "POST" and message is not None:
            return await self._tell(request, message)
        if request.method == "DELETE" and (self._lifeline.lost or self._reach.gone or self._refusals.forgotten):
            return httpx2.Response(204, request=request)  # nobody is there, or knows the session
        return await self._stream(request, message, options)

    async def _stream(
        self, request: httpx2.Request, message: JSONRPCMessage | None, options: dict[str, Any]
    ) -> httpx2.Response:
        """Open a stream of events, or end the session. The SDK bears it if that fails."""
        try:
            response = await self._inner.send(request, **options)
        except UNREACHED as error:
            self._reach.refused(error)
            raise
        if response.is_error:
            if request.method == "GET" and self._notifications.opened:  # else it may say that there is no such stream
                _, said = await read_short(response)
                if SESSION in request.headers and await self._refusals.is_forgotten(response, said):
                    self._lifeline.lose(self._failures.forgotten(said))
                elif await self._refusals.are_of_credentials(response, said):
                    self._lifeline.lose(self._failures.status(response, datetime.now(UTC), said))
            response.request = httpx2.Request(request.method, self._shown)  # the SDK logs its URL
        elif isinstance(message, JSONRPCRequest) and RESUMED in request.headers:
            return self._watch(request, response, current_exchange())
        elif request.method == "GET" and media_type(response) == EVENTS:
            response = self._events(response, self._notifications.admit)
            self._notifications.open(response)  # a server without such a stream may answer 404 too
        return response

    # --- messages without an answer ---------------------------------------------------------------------------------

    async def _tell(self, request: httpx2.Request, message: JSONRPCMessage) -> httpx2.Response:
        """Send a message that is not answered. The SDK sends nothing else before this returns."""
        if isinstance(message, JSONRPCNotification) and message.method == INITIALIZED:
            await self._notify(request)  # before it the server takes no request
        else:
            self._background.start_soon(self._notify, request, name=f"{self._failures.server}:notify")
        return httpx2.Response(202, request=request)

    async def _notify(self, request: httpx2.Request) -> None:
        try:
            async with self._posts:
                with trio.move_on_after(NOTIFICATION_TIMEOUT):
                    response = await self._inner.send(request, stream=True, follow_redirects=False)
                    await read_short(response)  # so that the connection can be used again
        except UNREACHED as error:
            self._reach.refused(error)
        except Exception as error:
            logger.debug("%s: a message to it was lost", self._failures.server, exc_info=error)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _ask(self, request: httpx2.Request, message: JSONRPCRequest) -> httpx2.Response:
        """Send a request, and return its answer or one that says that there is none."""
        exchange = current_exchange()
        exchange.failure = None
        self._negotiated = self._negotiated or message.method not in HANDSHAKE
        request.stream = body = WatchedRequestBody(request.stream)  # type: ignore[arg-type]  # the SDK's are async
        goes_on = False
        try:
            response = await self._reach.send(request)
            if response.next_request is not None:
                exchange.failure = self._failures.redirected(response)  # unless the SDK follows
                return await _bare(response)
            goes_on = response.is_success and media_type(response) == EVENTS
            if goes_on and message.method == LISTEN:
                self._reach.finished(request)  # the stream that it opens is no answer that is being waited for
            return self._watch(request, response, exchange) if goes_on else await self._read(response, message)
        except Exception as error:
            exchange.failure = failure = self._failures.of(error, request, sent=body.offered)
            if body.offered and isinstance(error, httpx2.TransportError):
                self._reach.look()
        finally:
            exchange.begun = exchange.begun or (body.offered and not isinstance(exchange.failure, ConnectionOver))
            if not goes_on:
                self._reach.finished(request)
        if not self._negotiated and not _tells_the_era(failure):
            raise failure
        # What this says does not matter: the exchange has the failure.
        return _answer(request, message, ErrorData(code=INTERNAL_ERROR, message=str(failure)))

    def _watch(self, request: httpx2.Request, response: httpx2.Response, exchange: Exchange) -> httpx2.Response:
        """Let the SDK read a stream of events, and note if it ends before it was closed."""

        def ended(error: Exception | None) -> None:
            if error is None:
                exchange.failure = self._failures.lost("the event stream ended before the response")
            elif isinstance(error, TooMuch):
                exchange.failure = self._too_large(error.data.excess)
            else:
                exchange.failure = self._failures.broken(error)
                self._reach.look()

        exchange.failure = None
        response = self._events(response, _within_limits)
        response.stream = WatchedResponseBody(
            response.stream,  # type: ignore[arg-type]  # an AsyncClient's are async
            on_end=ended,
            on_close=partial(self._reach.finished, request),
        )
        return response

    def _events(self, response: httpx2.Response, admit: Callable[[Event], bool]) -> httpx2.Response:
        """Let the SDK read those events of a stream that are within the limits."""
        return with_events(response, read_events(response, self._limits.bytes, self._limits.values), admit)

    def _too_large(self, excess: Excess) -> LimitExceeded:
        return self._failures.too_large(self._limits.response_too_large(excess))

    async def _read(self, response: httpx2.Response, message: JSONRPCRequest) -> httpx2.Response:
        """Read an answer that comes as a whole, and return it if it is one.

        Raises:
            ServerError, ConnectionOver: it is none.
        """
        try:
            if not response.is_success:
                return await self._refused(response, message)
            kind = media_type(response)
            if response.status_code == 202:
                raise self._failures.lost("it answered a request with 202 Accepted, which has no response")
            if kind != "application/json":
                raise self._failures.no_answer(f"it answered with {kind or 'no content type'!r}, which is not MCP")
            body = await read_body(response, self._limits.bytes, max_values=self._limits.values)
        except BodyTooLong:
            raise self._too_large("bytes") from None
        except TooManyValues:
            raise self._too_large("values") from None
        finally:
            await response.aclose()
        try:
            nameless = nameless_error(body, message.id)
        except NoAnswer as problem:
            raise self._failures.no_answer(str(problem)) from None
        return _with_body(response, body) if nameless is None else _answer(response.request, message, nameless)

    async def _refused(self, response: httpx2.Response, message: JSONRPCRequest) -> httpx2.Response:
        """What a status that is no success means."""
        _, error = await read_short(response)
        status = response.status_code
        if SESSION in response.request.headers and await self._refusals.is_forgotten(response, error):
            raise self._failures.forgotten(error)
        if error is not None and status not in OF_HTTP:
            return _answer(response.request, message, error.error)
        failure = self._failures.status(response, datetime.now(UTC), error)
        if self._negotiated and await self._refusals.are_of_credentials(response, error):
            self._lifeline.lose(failure)
        raise failure


def _tells_the_era(failure: Exception) -> bool:
    """Whether a refusal of the handshake may mean that the server speaks an older protocol."""
    return isinstance(failure, HttpStatusError) and 400 <= failure.status < 500 and failure.status not in OF_HTTP


def _within_limits(event: Event) -> bool:
    """Admit an event of the stream that answers a request; one that exceeds a limit ends it."""
    if event.skipped is not None:
        raise TooMuch(event.skipped)
    return True


def _with_body(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """A response whose body was read."""
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in OF_THE_BODY]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)


async def _bare(response: httpx2.Response) -> httpx2.Response:
    """A redirect without its body, which says nothing."""
    await response.aclose()
    bare = _with_body(response, b"")
    bare.next_request = response.next_request
    return bare


def _answer(request: httpx2.Request, message: JSONRPCRequest, error: ErrorData) -> httpx2.Response:
    """An answer to a message, made up here."""
    answer = JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
    return httpx2.Response(200, json=answer.model_dump(mode="json", exclude_none=True), request=request)
