"""The link over streamable HTTP, and the way of one request.

The answer to a POST comes in the response, in a resumed stream, or in the stream of notifications. A failed request may
leave the connection open, and the caller must learn whether the request may have taken effect.

Owns: the HTTP session; exchanges of requests; tasks that end streams.
Writes: outcomes of requests; the connection's end; messages to the server; the log.
Calls: auth, config, transports, _bodies, _client, _failures, _link, _session.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Final

import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ..._errors import HttpStatusError, LimitExceeded, ServerError
from ..._foreign import Log
from ..._text import plain_text
from ...auth import SignInRequired
from ...config import Http
from .._dialects import NOT_A_MESSAGE
from .._exchange import SHOWN_TEXT, Receive, Unanswered, Unasked
from .._link import ConnectionOver
from .._logs import discreet
from .._messages import INITIALIZED, Excess, MessageLimits, TooManyValues, parse_message, unreadable_answer
from .._request_table import Json, RequestUnderWay, comparable_id, mcp_error, notice_of
from ._bodies import (
    EVENT_STREAM,
    JSON,
    BodyTooLong,
    ExchangeBody,
    NotificationBody,
    ServerSentEvent,
    TooMuch,
    hang_up,
    is_small,
    media_type,
    read_body,
    read_events,
    read_short,
)
from ._client import real_url
from ._failures import (
    OF_HTTP,
    REMEDY_SERVER,
    NoAnswer,
    WrongId,
    answer_in,
    check_id,
    check_refusal,
    may_mean_unknown_session,
)
from ._link import SESSION, HttpLink, count_and_mask
from ._session import MAX_REFUSED, HttpSession, NotificationStream, Reopening, has_events

# --- One request over streamable HTTP, from its POST to its answer ----------------------------------------------------

# The way of a request::
#
#     POST ──► a body ──────────────────────────────────────────► the answer
#          ──► a stream of events ──► other messages, handled ──► the answer
#                    │ it ends without an answer
#                    ▼
#              GET with the id of its last event, if it had one ► the answer
#          ──► a redirect within the origin: the same once more
#          ──► a refusal, or anything else ─────────────────────► an error
#
# A legacy server may instead answer in the stream of notifications, which settles the request and ends its wait.
#
# A failure is a `ConnectionOver` if the server is not reached or has forgotten the session, else a `ServerError`.


logger = Log("mcp_actors.servers.http")

Answer = JSONRPCResponse | JSONRPCError

STREAM_ENDED: Final = "the event stream ended before the response"

END_WAIT: Final = 0.2  # seconds for a stream to end after its answer; servers end it at once


@define(eq=False)
class HttpExchange:
    """Sends a request, and waits for the answer."""

    _session: HttpSession
    _request: RequestUnderWay
    _receive: Receive
    _http: httpx2.Request = field(init=False)
    _body: ExchangeBody = field(init=False)
    _misdirected: WrongId | None = field(default=None, init=False)
    _odd: bytes = field(default=b"", init=False)

    async def run(self) -> Json:
        """Send the request and return the result of the answer; see `Link.exchange`."""
        request, waiting = self._request, trio.CancelScope()
        request.on_outcome = lambda _: waiting.cancel("it has its outcome")  # perhaps from the stream of notifications
        self._session.negotiated |= request.method not in ("server/discover", "initialize")
        self._http = self._session.post(request.message, request.headers or {})
        self._http.stream = self._body = ExchangeBody(self._http.stream, request)  # type: ignore[arg-type]  # it is bytes
        try:
            with waiting:
                await self._ask()
        except trio.Cancelled:
            self._ask_to_cancel()
            raise
        if self._body.offered and not isinstance(request.outcome, dict | ConnectionOver):
            # A response is closed under a shield, so the caller may have left meanwhile. Then raise `Cancelled` here
            # instead of the error, which no caller would get and the kernel would log. Not for a request without
            # effect: it may be sent over the next connection, so its error must not be lost.
            await trio.lowlevel.checkpoint_if_cancelled()
        return await request.wait()

    def _ask_to_cancel(self) -> None:
        """Ask a legacy server to cancel a sent request. Since 2026-07-28 it is enough to close the response."""
        session, request = self._session, self._request
        left = self._body.offered and request.outcome is None and not session.lifeline.closing
        if left and request.cancellable and session.legacy:
            session.notify_soon(notice_of(request.id), {})

    async def _ask(self) -> None:
        """Send the request, and settle it with the answer or the failure.

        Raises:
            mcp.MCPError: the connection is lost.
        """
        session, request = self._session, self._request
        try:
            answer = await self._answer()
            request.settle(answer.result if isinstance(answer, JSONRPCResponse) else mcp_error(answer.error))
        except MCPError:
            raise
        except Exception as raised:
            exc = await session.judged(raised, self._http)
            error = session.failures.of(exc, self._http, sent=self._body.was_sent(self._http, exc))
            if self._body.offered and isinstance(exc, httpx2.TransportError):
                session.reach.start_probe()
            if session.negotiated and isinstance(exc, SignInRequired):
                session.lifeline.lose(exc)
            if not session.negotiated and not _may_be_other_era(error) and request.outcome is None:
                session.lifeline.lose(error)  # an outage says nothing about the era
            request.settle(error)
        finally:
            session.reach.finished(self._http)

    async def _answer(self) -> Answer:
        session = self._session
        session.requests.count_sent()
        response = await session.reach.follow(self._http, session.reach.send)
        if response.next_request is not None:
            await response.aclose()
            raise session.failures.redirected(response)
        kind = media_type(response)
        if response.is_success and self._request.method == "initialize":
            session.begin(response)
        if response.is_success and kind == EVENT_STREAM:
            answer = await self._in_streams(response)
        else:
            answer = await self._in_body(response, kind)
        if isinstance(answer, JSONRPCError) and may_mean_unknown_session(answer.error):
            await self._check_session(response, MCPError.from_error_data(answer.error))
        session.count_and_mask(answer)
        return answer

    async def _check_session(self, response: httpx2.Response, error: MCPError | None) -> None:
        session = self._session
        if SESSION in response.request.headers and await session.refusals.is_forgotten(response, error):
            raise session.failures.forgotten(error, response, datetime.now(UTC))

    # --- a body -----------------------------------------------------------------------------------------------------

    async def _in_body(self, response: httpx2.Response, kind: str) -> Answer:
        limits, failures = self._session.limits, self._session.failures
        try:
            if not response.is_success:
                return await self._in_refusal(response)
            if response.status_code == 202:
                raise failures.lost("it answered a request with 202 Accepted, which has no response")
            body = b""
            if kind in (JSON, "", "text/plain", "text/html"):  # many frameworks write the last two by default
                body = await read_body(response, limits.bytes, max_values=limits.values, small=is_small(response))
            try:
                answer = self._answer_in(body)
            except NoAnswer as reason:
                await self._note_silence()
                found = plain_text(failures.masker(kind), limit=SHOWN_TEXT) or "no content type"
                what = reason if kind == JSON else f"it answered with {found!r}, which is not MCP"
                raise NoAnswer(f"{what}{failures.said(body, response)}") from None
            if kind != JSON:
                self._session.skipped.add("the wrong content type of a response", f" ({kind or 'none'})")
            return answer
        except BodyTooLong:
            raise self._too_large("bytes") from None
        except TooManyValues:
            raise self._too_large("values") from None
        except NoAnswer as reason:
            raise failures.no_answer(str(reason)) from None
        except WrongId as reason:
            hang_up(response)
            raise failures.misdirected(reason) from None
        finally:
            await response.aclose()

    async def _note_silence(self) -> None:
        """Lose the connection if the server does not answer in this session, but answers a ping in another session."""
        if await self._session.refusals.is_session_lost(self._http):
            self._session.lifeline.lose(self._session.failures.forgotten(None))

    def _answer_in(self, body: bytes) -> Answer:
        try:
            return answer_in(body, self._request.id, self._session.skipped.add)
        except NoAnswer:
            # Perhaps a list with some readable items.
            page = unreadable_answer(body) if self._request.method.endswith("/list") else None
            if page is None:
                raise
            check_id(page, self._request.id)
            return page

    def _too_large(self, excess: Excess) -> LimitExceeded:
        return self._session.failures.too_large(self._session.limits.response_too_large(excess))

    async def _in_refusal(self, response: httpx2.Response) -> Answer:
        session = self._session
        body, error = await read_short(response)
        if error is not None:
            check_refusal(body, self._request.id)
        await self._check_session(response, error)
        refusal = session.failures.status(response, datetime.now(UTC), error, body, answered=session.negotiated)
        if session.negotiated and await session.refusals.concerns_all(response, error, body):
            session.lifeline.lose(refusal)
        # 406 and 415 are about HTTP headers, which are not the caller's.
        if error is not None and response.status_code not in (*OF_HTTP, 406, 415):
            return JSONRPCError(jsonrpc="2.0", id=self._request.id, error=error.error)
        raise refusal

    # --- streams of events ------------------------------------------------------------------------------------------

    async def _in_streams(self, response: httpx2.Response) -> Answer:
        session, streams = self._session, Reopening()
        while True:
            streams.open(trio.current_time())
            failure: Exception | None = None
            try:
                if (answer := await self._in_stream(response, streams)) is not None:
                    return answer
            except (ServerError, MCPError):
                raise
            except Exception as exc:
                failure = session.failures.broken(exc)
                session.reach.start_probe()
            if (following := await self._resume(streams)) is None:
                if session.listened:
                    await trio.sleep(0.1)  # the answer may be unread in the stream of notifications
                if self._odd:
                    await self._note_silence()
                if self._misdirected is not None:
                    raise session.failures.misdirected(self._misdirected)
                raise failure or session.failures.lost(f"{STREAM_ENDED}{session.failures.said(self._odd)}")
            response = following

    async def _in_stream(self, response: httpx2.Response, streams: Reopening) -> Answer | None:
        session, answer = self._session, None
        if self._request.method == "subscriptions/listen":
            response.stream = NotificationBody(response.stream)  # type: ignore[arg-type]  # an AsyncClient's are async
            # `Reach.send` retries a refused request while others are in flight. If this stream counted, the retries
            # would go on until its end, and a server that shuts down gracefully waits until all listeners leave.
            session.reach.finished(self._http)
        # skipped=0: an event over a limit fails the request of this stream, so the end of the event is not needed.
        may_be_answer = attrgetter("may_be_answer")
        events = read_events(response, session.limits, session.pace, is_expected=may_be_answer, skipped=0)
        try:
            async for event in events:
                streams.note(event)
                message = self._message_in(event)
                if message is not None:
                    streams.deliver()
                else:
                    self._odd = event.data or self._odd
                if isinstance(message, Answer):
                    answer = message
                    return answer
                if message is not None:
                    await session.take(message, self._receive)
                request = isinstance(message, JSONRPCRequest)
                await trio.sleep(session.pace.unasked(trio.current_time(), event.unpaced, request=request))
            return None
        except TooMuch as exc:
            raise self._too_large(exc.data.excess) from None
        finally:
            session.reach.finished(self._http)
            if answer is None:
                await _close(response, events)
            else:
                name = f"{session.failures.server}:end of stream"
                session.background.start_soon(_read_end, response, events, name=name)

    def _message_in(self, event: ServerSentEvent) -> Answer | Unasked | None:
        """Return the message in an event; None without a message.

        Raises:
            TooMuch: the event exceeds a limit.
            ConnectionLost: the answer in the event is unreadable.
        """
        if event.name != b"message" or not (event.data or event.skipped):
            return None
        if event.skipped is not None:
            raise TooMuch(event.skipped)
        try:
            message = parse_message(event.data)
        except ValueError:
            return self._look_again(event.data)
        if isinstance(message, Answer):
            try:
                check_id(message, self._request.id)
            except WrongId as reason:
                self._misdirected = reason
                if not self._session.skipped.add_stray(message):
                    self._session.skipped.add("an answer to another request in the stream of a request")
                return None
        return message

    def _look_again(self, data: bytes) -> Answer | None:
        """Read what is readable of an invalid event; None without an answer.

        Raises:
            ConnectionLost: the event has the id of the request.
        """
        try:
            return self._answer_in(data)  # in a batch, or a page with some readable items
        except NoAnswer:
            pass
        except WrongId as reason:
            self._misdirected = reason
        answer = unreadable_answer(data)
        if answer is not None and answer.id == comparable_id(self._request.id):
            raise self._session.failures.lost("the response is not a valid MCP message")
        self._session.skipped.add(NOT_A_MESSAGE)
        return None

    async def _resume(self, streams: Reopening) -> httpx2.Response | None:
        """Open the stream that continues the last. Return None if impossible.

        Raises:
            ConnectionLost: the stream was resumed too often.
        """
        session, refused = self._session, 0
        while streams.last_id is not None and refused < MAX_REFUSED:
            if streams.exhausted:
                what = f"{STREAM_ENDED}, although it was resumed {streams.resumed} times; {REMEDY_SERVER}"
                raise session.failures.lost(what)
            await trio.sleep(streams.retry)
            await trio.sleep(streams.delay(trio.current_time()))
            try:
                if has_events(response := await session.open_stream(streams.last_id)):
                    return response
            except Exception as exc:
                logger.debug("server %r: a stream could not be resumed", session.failures.server, exc_info=exc)
            refused += 1
        return None


async def _close(response: httpx2.Response, events: AsyncGenerator[ServerSentEvent, None]) -> None:
    await events.aclose()
    await response.aclose()


async def _read_end(response: httpx2.Response, events: AsyncGenerator[ServerSentEvent, None]) -> None:
    """Read the end of a stream after the answer, for the next use of the connection."""
    with suppress(httpx2.HTTPError):
        try:
            with trio.move_on_after(END_WAIT):
                await anext(events, None)
        finally:
            await _close(response, events)


def _may_be_other_era(error: Exception) -> bool:
    if not isinstance(error, HttpStatusError) or error.status in OF_HTTP:
        return False
    # Some servers of older protocols refuse an unknown method with 500 or 501.
    return 400 <= error.status < 500 or error.status in (500, 501)


# --- The link over streamable HTTP ------------------------------------------------------------------------------------


class StreamableHttpLink(HttpLink[Http]):
    """A link over streamable HTTP.

    The connection is lost if

    - the handshake fails for another reason than the era of the server
    - the server is gone, forgets the session, or sends too many requests or an endless notification
    - credentials are refused for all requests, or a sign-in is required
    """

    _session: HttpSession

    async def live(self) -> None:
        self._session = HttpSession(
            self._client,
            httpx2.URL(real_url(self._transport)),
            self._failures,
            MessageLimits(self._transport.max_body_bytes, self._max_values, "max_body_bytes"),
            self._pace,
            self._requests,
            self.lifeline,
            self._background,
            partial(count_and_mask, self.masker, self._requests, self.lifeline),
            self._skipped,
            partial(self._reading.cancel, "the server has sent too many requests"),
        )
        self._opened.set()
        await self._left.wait()
        await self._session.end()

    async def exchange(self, request: RequestUnderWay, receive: Receive) -> Json:
        with discreet(self.masker, self._transport.url):
            return await HttpExchange(self._session, request, receive).run()

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """See `Link.send`. Answers wait for a turn. Returns once `INITIALIZED` is posted: no request may overtake."""
        await self.wait_turn(message)
        with discreet(self.masker, self._transport.url):
            if isinstance(message, JSONRPCNotification) and message.method == INITIALIZED:
                await self._session.notify(message, headers or {})
                self._receiving.set()
            else:
                self._session.notify_soon(message, headers or {})

    async def read(self, receive: Receive) -> None:
        """See `Link.read`. Without sessions, a server sends everything in responses."""
        try:
            with self._reading, discreet(self.masker, self._transport.url):
                await self._receiving.wait()
                if self._session.id is not None:
                    with suppress(MCPError):  # after too many requests; the scope is cancelled
                        await NotificationStream(self._session, self.table).run(receive)
                await trio.sleep_forever()
        finally:
            self.lifeline.close()
