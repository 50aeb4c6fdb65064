"""Contain the failure of an HTTP request, so no other request fails.

The SDK's transport reacts to a failed request by cancelling everything inside it: other requests, the session, the
connection. So it gets a client that never lets a request fail. This client sends through the real one, turns any
failure into a response to that one message, and leaves the real error in the request's `RequestTrace`.

Three things pass unchanged:

- failures while the protocol is negotiated. They end the connect, because an outage says nothing about the protocol.
- the end of the notification stream, which the SDK opens again.
- MCP errors in a body. They are the server's response, whatever the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final

import httpx2
import trio
from mcp.types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic_core import from_json, to_json

from ....._errors import HttpStatusError, LimitExceeded
from ....._foreign import Log
from ....._plain_text import plain_text
from .....auth import SignInRequired
from ....basics import Background, ConnectionOver, RequestTrace, current_trace, own_shortage
from ..._link import Lifeline
from ...wire import (
    INITIALIZED,
    SHOWN,
    Excess,
    MessageLimits,
    ReadingPace,
    ServerRequests,
    TooManyValues,
)
from .._bodies import (
    BodyTooLong,
    NotificationBody,
    WatchedRequestBody,
    WatchedResponseBody,
    hang_up,
    is_small,
    media_type,
    read_body,
    read_short,
)
from .._events import Event, TooMuch, read_events
from .._failures import (
    MAX_REDIRECTS,
    OF_HTTP,
    REMEDY_SERVER,
    UNREACHED,
    HttpFailures,
    NoAnswer,
    WrongId,
    answer_in,
    check_refusal,
)
from .._reach import Reach
from .._refusals import SESSION, Refusals
from ._notification_stream import NotificationStream
from ._replies import ENDED, Answered, BegunResponse, NotMessage, Reopening, bare, error_for, with_body
from ._stubs import make_stub, with_stubs

logger = Log("mcp_actors.servers.http")

posted: Final[ContextVar[JSONRPCMessage | None]] = ContextVar("posted", default=None)
"""The message that an HTTP request carries. The SDK posts a message in the context in which it was written."""

handed_over: Final[ContextVar[BegunResponse | None]] = ContextVar("handed_over", default=None)
"""The response to a request that was sent past the SDK, which the SDK is to continue with."""

reopened: Final[ContextVar[Reopening | None]] = ContextVar("reopened", default=None)
"""The streams of one request, in the task in which the SDK reads and resumes them. A call that is made while a message
of such a stream is handled inherits it, so it names its request."""

RESUMED: Final = "last-event-id"
HANDSHAKE: Final = frozenset({"server/discover", "initialize"})
LISTEN: Final = "subscriptions/listen"
EVENTS: Final = "text/event-stream"

OF_THE_SESSION: Final = frozenset({"accept", "content-type", "mcp-session-id", "mcp-protocol-version"})
"""Headers that are the same for all messages of a session."""

POSTS: Final = 8
"""Maximum of concurrent posts of messages without a response. A server may send hundreds of requests at once. If as
many tasks answered them, the tasks of other servers would wait for all of them at each step."""

SHORTAGE_WAIT: Final = 0.5
"""Seconds between two attempts to open a stream while this program has too few files, threads or other resources."""

NOTIFICATION_TIMEOUT: Final = 10.0
"""Seconds for a message without a response. A server accepts it at once, or something is wrong."""


class ContainedClient(httpx2.AsyncClient):
    """The client for the SDK. It has no connections of its own, and lets no request fail.

    Args:
        inner: the client that sends the requests. Its creator closes it.
        url: the URL of the endpoint.
        shown: the same without its query. The SDK gets this one, because it logs it.
        failures: builds the errors.
        limits: the maximum size of one response, decoded.
        pace: limits how fast unsolicited messages are read.
        requests: counts the requests of the server, and the answers to them.
        lifeline: is notified if the server is gone.
        background: runs the tasks that must not delay the SDK.
    """

    def __init__(
        self,
        inner: httpx2.AsyncClient,
        *,
        url: str,
        shown: str,
        failures: HttpFailures,
        limits: MessageLimits,
        pace: ReadingPace,
        requests: ServerRequests,
        lifeline: Lifeline,
        background: Background,
    ) -> None:
        super().__init__(transport=httpx2.AsyncBaseTransport(), trust_env=False, max_redirects=MAX_REDIRECTS)
        self._inner = inner
        self._url = httpx2.URL(url)  # parsed once, not at every request
        self._shown = shown
        self._failures = failures
        self._limits = limits
        self._pace = pace
        self._requests = requests
        self._lifeline = lifeline
        self._background = background
        self._reach = Reach(inner, url, failures, lifeline, background)
        self._posts = trio.Semaphore(POSTS)
        self._shared: dict[str, str] = {}
        self._negotiated = False
        self.initialized = False
        self._refusals = Refusals(inner)
        self._notifications = NotificationStream(failures.server, limits, lifeline, background)

    def build_request(self, method: str, url: httpx2.URL | str, **options: Any) -> httpx2.Request:
        """Build a request as the real client does, to the real URL."""
        if url != self._shown:
            return self._inner.build_request(method, url, **options)
        if options.keys() != {"headers", "json"}:
            return self._inner.build_request(method, self._url, **options)
        self._shared = {name: value for name, value in options["headers"].items() if name in OF_THE_SESSION}
        return self._build(options["headers"], options["json"])

    def build_post(self, headers: Mapping[str, str], content: object) -> httpx2.Request:
        """Build the request for a message that does not come from the SDK, as the SDK would.

        Args:
            headers: the headers of this message, besides those of the session.
            content: the message.
        """
        return self._build({**self._shared, **headers}, content)

    def _build(self, headers: Mapping[str, str], content: object) -> httpx2.Request:
        inner = self._inner
        if inner.params:
            return inner.build_request("POST", self._url, headers=headers, json=content)
        # The same as from the real client, which copies the headers three times and scans them for each name.
        # A session id should be ASCII, but some servers choose another one, and it is theirs to check.
        given = {name.lower().encode(): value.encode() for name, value in headers.items()}
        return httpx2.Request(
            "POST",
            self._url,
            headers=[*(each for each in inner.headers.raw if each[0].lower() not in given), *given.items()],
            cookies=inner.cookies,
            content=to_json(content, inf_nan_mode="null"),
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request of the SDK. For a message, return a response that the SDK can handle.

        **Cancellation**: ends this request and affects no other.
        """
        message = posted.get()
        if request.method == "POST" and isinstance(message, JSONRPCRequest):
            if (begun := handed_over.get()) is not None and not begun.taken:
                begun.taken = True
                return self._continue(begun)
            return await self._ask(request, message)
        if request.method == "POST" and message is not None:
            return await self._tell(request, message)
        if request.method == "DELETE" and (self._lifeline.lost or self._reach.gone or self._refusals.forgotten):
            return httpx2.Response(204, request=request)  # the server is gone, or does not know the session
        if isinstance(message, JSONRPCRequest) and RESUMED in request.headers:
            return await self._resume(request, message, options)
        return await self._stream(request, options)

    async def _resume(
        self, request: httpx2.Request, message: JSONRPCRequest, options: dict[str, Any]
    ) -> httpx2.Response:
        """Open the stream of a request again, but neither too soon nor too often."""
        reopening = _reopening_of(message)
        if reopening.exhausted:
            return self._give_up(request, message, reopening)
        await trio.sleep(reopening.delay(trio.current_time()))
        response = await self._open(request, options)
        if response.is_error:
            return response
        return self._continue(self._begin(request, message, response, current_trace()))

    async def _stream(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Open the stream of notifications, or end the session."""
        if request.method == "GET":
            await self._notifications.wait_turn()
        response = await self._open(request, options)
        if request.method == "GET" and not response.is_error and media_type(response) == EVENTS:
            response = self._listen(response)
            self._notifications.open(response)  # a server without such a stream may answer 404 too
        return response

    async def _open(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Open an event stream, or end the session. The SDK tolerates failures of these."""
        try:
            response = await self._send_past_shortage(request, options)
        except UNREACHED as exc:
            self._reach.refused(exc)
            raise
        except SignInRequired as exc:
            if request.method == "GET" and self._notifications.opened:
                self._lifeline.lose(exc)  # as below: the SDK gives up the stream, and no other request may notice
            raise
        if response.is_error:
            # A server without a notification stream answers 404 or 405 to the first GET. After a stream was open, a
            # refusal means that the server was restarted; no other request may come to notice that.
            if request.method == "GET" and self._notifications.opened:
                _, error = await read_short(response)
                if SESSION in request.headers and await self._refusals.is_forgotten(response, error):
                    self._lifeline.lose(self._failures.forgotten(error))
                elif await self._refusals.are_of_credentials(response, error):
                    self._lifeline.lose(self._failures.status(response, datetime.now(UTC), error))
            response.request = httpx2.Request(request.method, self._shown)  # the SDK logs its URL
        return response

    def _give_up(self, request: httpx2.Request, message: JSONRPCRequest, reopening: Reopening) -> httpx2.Response:
        """Return a stream with an error in place of one that would be resumed once more."""
        what = f"{ENDED}, although it was resumed {reopening.resumed} times; {REMEDY_SERVER}"
        current_trace().failure = self._failures.lost(what)
        # The text does not matter to the caller, who gets the error of the trace.
        error = error_for(message, ErrorData(code=INTERNAL_ERROR, message=ENDED))
        event = Event(data=error.model_dump_json(exclude_none=True).encode())
        return httpx2.Response(200, headers={"content-type": EVENTS}, content=event.written(), request=request)

    async def _send_past_shortage(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Send a request; for a stream, wait until a shortage in this program has passed.

        The SDK gives up the stream for the rest of the session if it cannot be opened twice.
        """
        while True:
            try:
                return await self._inner.send(request, **options)
            except (*UNREACHED, RuntimeError) as exc:
                if request.method != "GET" or own_shortage(exc) is None:
                    raise
                logger.debug("server %r: a stream could not be opened", self._failures.server, exc_info=exc)
            await trio.sleep(SHORTAGE_WAIT)

    def _listen(self, response: httpx2.Response) -> httpx2.Response:
        """Let the SDK read the stream of notifications. An event that never ends loses the connection."""

        def ended(error: Exception | None) -> None:
            if isinstance(error, TooMuch):
                self._lifeline.lose(self._failures.too_large(self._limits.message_too_large(error.data.excess)))

        response.stream = NotificationBody(response.stream)  # type: ignore[arg-type]  # an AsyncClient's are async
        events = read_events(response, self._limits, self._pace)
        response = with_stubs(response, events, self._notifications.read, self._pace, answers=False)
        response.stream = WatchedResponseBody(response.stream, on_end=ended)  # type: ignore[arg-type]  # it is async
        return response

    # --- messages without a response --------------------------------------------------------------------------------

    async def _tell(self, request: httpx2.Request, message: JSONRPCMessage) -> httpx2.Response:
        """Send a message without a response, usually in the background: the SDK sends nothing until this returns."""
        if isinstance(message, JSONRPCNotification) and message.method == INITIALIZED:
            await self._notify(request, message)  # the server refuses any request that overtakes this one
            self.initialized = True
        else:
            self.tell(request, message)
        return httpx2.Response(202, request=request)

    def tell(self, request: httpx2.Request, message: JSONRPCMessage) -> None:
        """Send a message without a response, soon."""
        self._background.start_soon(self._notify, request, message, name=f"{self._failures.server}:notify")

    async def _notify(self, request: httpx2.Request, message: JSONRPCMessage) -> None:
        try:
            with self._requests.sending(message):
                async with self._posts:
                    with trio.move_on_after(NOTIFICATION_TIMEOUT):
                        response = await self._inner.send(request, stream=True, follow_redirects=False)
                        await read_short(response)  # so that the connection can be used again
        except UNREACHED as error:
            self._reach.refused(error)
        except Exception as error:
            logger.debug("server %r: a message could not be sent", self._failures.server, exc_info=error)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _ask(self, request: httpx2.Request, message: JSONRPCRequest) -> httpx2.Response:
        """Send a request of the SDK; return a response that the SDK can handle."""
        reply = await self.exchange(request, message)
        if isinstance(reply, BegunResponse):
            return self._continue(reply)
        answer, response = reply.answer, reply.response
        if response is None:
            return httpx2.Response(200, json=answer.model_dump(mode="json", exclude_none=True), request=request)
        if (
            isinstance(answer, JSONRPCResponse)
            and is_small(response)
            and type(from_json(response.content)["id"]) is int
        ):
            return response  # the SDK parses it once more, which costs less than a response with a stub
        return with_body(response, make_stub(answer))

    async def exchange(self, request: httpx2.Request, message: JSONRPCRequest) -> Answered | BegunResponse:
        """Send a request; return its answer, an error in its place, or a response that does not simply answer it.

        **Cancellation**: ends this request and affects no other. It had no effect if the HTTP request `is_unsent`.

        Raises:
            Exception: the protocol is being negotiated, and the request has failed.
        """
        trace = current_trace()
        trace.failure = None
        self._negotiated = self._negotiated or message.method not in HANDSHAKE
        request.stream = body = WatchedRequestBody(request.stream)  # type: ignore[arg-type]  # the SDK's are async
        goes_on = False
        try:
            self._requests.sent()
            response = await self._reach.send(request)
            if response.next_request is not None:
                trace.failure = self._failures.redirected(response)  # unless the SDK follows
                return BegunResponse(message, await bare(response), trace, None, partial(self._reach.finished, request))
            kind = media_type(response)
            goes_on = response.is_success and kind == EVENTS
            if not goes_on:
                return await self._read(response, kind, message)
            if message.method == LISTEN:
                # The notification stream does not count as a request in flight: refused requests would wait for its
                # end, while a server that shuts down gracefully waits for its listeners.
                self._reach.finished(request)
            return self._begin(request, message, response, trace)
        except Exception as exc:
            trace.failure = error = self._failures.of(exc, request, sent=body.was_sent(request, exc))
            if body.offered and isinstance(exc, httpx2.TransportError):
                self._reach.look()
            if self._negotiated and isinstance(exc, SignInRequired):
                self._lifeline.lose(exc)
        finally:
            trace.begun = trace.begun or (body.offered and not isinstance(trace.failure, ConnectionOver))
            if not goes_on:
                self._reach.finished(request)
        if not self._negotiated and not _may_be_other_era(error):
            raise error
        # The text does not matter to the caller, who gets the error of the trace.
        return Answered(error_for(message, ErrorData(code=INTERNAL_ERROR, message=str(error))))

    def _begin(
        self, request: httpx2.Request, message: JSONRPCRequest, response: httpx2.Response, trace: RequestTrace
    ) -> BegunResponse:
        """Begin to read an event stream."""
        if message.method == LISTEN:
            response.stream = NotificationBody(response.stream)  # type: ignore[arg-type]  # an AsyncClient's are async
        # skipped=0: the end of an event over a limit is not needed, because it fails the request of this stream.
        events = read_events(response, self._limits, self._pace, is_expected=attrgetter("may_be_answer"), skipped=0)
        return BegunResponse(message, response, trace, events, partial(self._reach.finished, request))

    def _continue(self, begun: BegunResponse) -> httpx2.Response:
        """Let the SDK read an event stream, and note if it ends before the SDK has closed it. Or follow a redirect."""
        response = begun.response
        if begun.events is None:
            return response
        begun.trace.failure = None
        begun.reopening = _reopening_of(begun.message)
        begun.reopening.open(trio.current_time())
        response = with_stubs(response, begun, begun.read, self._pace, answers=True)
        response.stream = WatchedResponseBody(
            response.stream,  # type: ignore[arg-type]  # an AsyncClient's are async
            on_end=partial(self.note_end, begun),
        )
        return response

    def note_end(self, begun: BegunResponse, error: Exception | None) -> None:
        """Note why a stream ended before its answer."""
        trace = begun.trace
        if error is None:
            trace.failure = self._failures.lost(ENDED)
        elif isinstance(error, TooMuch):
            trace.failure = self._too_large(error.data.excess)
        elif isinstance(error, WrongId):
            trace.failure = self._failures.misdirected(error)
        elif isinstance(error, NotMessage):
            trace.failure = self._failures.lost(str(error))
        else:
            trace.failure = self._failures.broken(error)
            self._reach.look()

    def _too_large(self, excess: Excess) -> LimitExceeded:
        return self._failures.too_large(self._limits.response_too_large(excess))

    async def _read(self, response: httpx2.Response, kind: str, message: JSONRPCRequest) -> Answered:
        """Read a response that is not an event stream, and return the answer in it.

        Raises:
            ServerError, ConnectionOver: it does not answer the request.
        """
        try:
            if not response.is_success:
                return await self._refused(response, message)
            if response.status_code == 202:
                raise self._failures.lost("it answered a request with 202 Accepted, which has no response")
            if kind != "application/json":
                found = plain_text(kind, limit=SHOWN) or "no content type"
                raise self._failures.no_answer(f"it answered with {found!r}, which is not MCP")
            small = is_small(response)
            body = await read_body(response, self._limits.bytes, max_values=self._limits.values, small=small)
            return Answered(answer_in(body, message.id), response)
        except BodyTooLong:
            raise self._too_large("bytes") from None
        except TooManyValues:
            raise self._too_large("values") from None
        except NoAnswer as reason:
            raise self._failures.no_answer(str(reason)) from None
        except WrongId as reason:
            hang_up(response)
            raise self._failures.misdirected(reason) from None
        finally:
            await response.aclose()

    async def _refused(self, response: httpx2.Response, message: JSONRPCRequest) -> Answered:
        """Return the MCP error of a response with an error status, or raise an error for the status."""
        body, error = await read_short(response)
        if error is not None:
            check_refusal(body, message.id)
        status = response.status_code
        if SESSION in response.request.headers and await self._refusals.is_forgotten(response, error):
            raise self._failures.forgotten(error, response, datetime.now(UTC))
        if error is not None and status not in OF_HTTP:
            return Answered(error_for(message, error.error))
        describe = self._failures.of_request if self._negotiated else self._failures.status
        refusal = describe(response, datetime.now(UTC), error)
        if self._negotiated and await self._refusals.are_of_credentials(response, error):
            self._lifeline.lose(refusal)
        raise refusal


def _reopening_of(message: JSONRPCRequest) -> Reopening:
    """Return what counts the streams of a request."""
    reopening = reopened.get()
    if reopening is None or reopening.request != message.id:
        reopening = Reopening(message.id)
        reopened.set(reopening)
    return reopening


def _may_be_other_era(error: Exception) -> bool:
    """Return True if a refusal of the handshake may mean that the server speaks an older protocol."""
    return isinstance(error, HttpStatusError) and 400 <= error.status < 500 and error.status not in OF_HTTP
