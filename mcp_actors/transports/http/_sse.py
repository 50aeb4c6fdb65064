"""The link over HTTP with SSE, the transport of 2024-11-05.

One event stream carries all messages of the server, and the first event names the endpoint for all posts. Background
tasks post most messages. The end of the stream ends the connection.

Owns: the event stream; posting tasks.
Writes: outcomes of callers' requests; the connection's state; messages to the session; posts to the server; the log.
Calls: auth, config, transports, _bodies, _client, _failures, _link.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urljoin

import anyio
import httpx2
import trio
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic_core import to_json

from ..._errors import ServerError
from ..._foreign import Log
from ..._text import own_shortage
from ...auth import SignInRequired
from ...config import Sse
from .._dialects import NOT_A_MESSAGE
from .._exchange import Receive, Unanswered
from .._logs import discreet
from .._messages import INITIALIZED, Excerpt, MessageLimits, answer_over_limit, parse_message, unreadable_answer
from .._request_table import Json, RequestUnderWay, notice_of
from ._bodies import ExchangeBody, ServerSentEvent, TooMuch, WatchedRequestBody, media_type, read_events, read_short
from ._client import real_url
from ._failures import REMEDY_STREAM, UNREACHED, Send
from ._link import NOTIFICATION_TIMEOUT, PING_ID, HttpLink, Reach, Refusals, count_and_mask

logger = Log("mcp_actors.servers.http")

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of one message: the default of stdio."""

ACCEPT_WAIT: Final = 1.0
"""Seconds for the response to a POST once its request was answered or cancelled: a waiting POST holds a connection."""


class SseLink(HttpLink[Sse]):
    """A link over HTTP with SSE.

    The SDK's client waits for ever if a post fails, and posts one message after the other; here a background task posts
    each message but `INITIALIZED`. A request that cannot be posted fails alone. Other messages that cannot be posted
    are dropped. The connection is lost if

    - the event stream cannot be opened, ends, breaks, or names an endpoint elsewhere
    - an event over a limit cannot be matched with a request, or the server sends too many requests
    - credentials are refused for all requests, or a sign-in is required
    - a message other than a request cannot reach the server, and no request is in flight
    """

    async def live(self) -> None:
        self._url = real_url(self._transport)
        self._limits = MessageLimits(MAX_EVENT_BYTES, self._max_values)
        self._reach = Reach(self._client, self._url, self._failures, self.lifeline, self._background)
        self._refusals = Refusals(self._client)
        self._has_answered = False
        try:
            with self._reading:
                await self._listen()
            self.lifeline.lose(self._failures.ended() if self._opened.is_set() else self._failures.no_endpoint())
        except anyio.EndOfStream:
            pass  # too many requests; the connection is lost
        except Exception as error:
            # Note the loss before `read` ends, which makes all callers fail: their errors name this error.
            self.lifeline.lose(self._meaning(error))
        self._silent.set()

    async def read(self, receive: Receive) -> None:
        """See `Link.read`. The task of the link reads the event stream, from before the first request on."""
        self._receive = receive
        self._receiving.set()
        try:
            await self._silent.wait()
        finally:
            self.lifeline.close()

    async def close(self) -> None:
        """End the event stream. This protocol has no message for the end of a session."""
        self.lifeline.close()
        self._reading.cancel("the link is left")
        await super().close()

    def _meaning(self, error: Exception) -> Exception:
        if isinstance(error, ServerError):
            return error
        if isinstance(error, TooMuch):
            return self._failures.too_large(self._limits.message_too_large(error.data.excess))
        if isinstance(error, (*UNREACHED, RuntimeError)) and (shortage := own_shortage(error)) is not None:
            return self._failures.short(error, shortage)
        return self._failures.unreached(error) if isinstance(error, UNREACHED) else self._failures.ended(error)

    # --- incoming ---------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        response = await self._sent(self._client.build_request("GET", self._url, headers=headers))
        try:
            if media_type(response) != "text/event-stream":
                raise self._failures.no_stream(media_type(response))
            events = read_events(response, self._limits, self._pace, is_expected=self._is_expected)
            async with aclosing(events):
                async for event in events:
                    await self._take(event)
        except trio.Cancelled:
            if not self._opened.is_set():  # the connect has timed out
                logger.warning("%s", self._failures.no_endpoint())
            raise
        finally:
            await response.aclose()

    def _is_expected(self, excerpt: Excerpt) -> bool:
        return self._requests.awaits_answer and excerpt.may_be_answer

    async def _take(self, event: ServerSentEvent) -> None:
        """Handle one event, and pause after an unsolicited one."""
        message = None
        # Some servers name the endpoint in an event of another type.
        nameless = not self._opened.is_set() and re.fullmatch(rb"(?:https?://|[/?])\S*+", event.data)
        if event.name == b"endpoint" or nameless:
            is_first = not self._opened.is_set()
            self._endpoint = self._checked(event.data.decode(errors="replace"))
            self._opened.set()
            if is_first:
                return
        elif event.name == b"message" and not self._opened.is_set():
            self._skipped.add("an event before the one that names the endpoint", remedy=REMEDY_STREAM)
        elif event.name == b"message" and (message := self._message_in(event)) is not None:
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                if message.id == PING_ID:
                    return
                self._has_answered = True
            if await self._pass_on(message):
                return
        request = isinstance(message, JSONRPCRequest)
        await trio.sleep(self._pace.unasked(trio.current_time(), event.unpaced, request=request))

    async def _pass_on(self, message: JSONRPCMessage) -> bool:
        """Settle a request, or pass the message on. Return True for an expected answer."""
        is_answer = isinstance(message, JSONRPCResponse | JSONRPCError) and self._requests.count_answered()
        count_and_mask(self.masker, self._requests, self.lifeline, message)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if not self._skipped.add_stray(message):
                self.table.settle_message(message)
        else:
            await self._receiving.wait()
            await self._receive(message)
        return is_answer

    def _message_in(self, event: ServerSentEvent) -> JSONRPCMessage | None:
        """Return the message in an event, or an error in place of an unreadable response; None to skip the event."""
        if event.skipped is not None:
            answer = answer_over_limit(event.skipped, self._limits.response_too_large(event.skipped.excess))
            if answer is None:
                raise TooMuch(event.skipped)
            return answer
        if not event.data:
            return None
        try:
            return parse_message(event.data)
        except ValueError:
            self._skipped.add(NOT_A_MESSAGE)
            return unreadable_answer(event.data)

    def _checked(self, endpoint: str) -> httpx2.URL:
        """Return the URL of the endpoint, which must have the stream's origin to receive the credentials."""
        url, base = httpx2.URL(urljoin(self._url, endpoint.strip())), httpx2.URL(self._url)
        if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port) or url.userinfo:
            raise self._failures.endpoint_elsewhere(url)
        return url

    # --- outgoing ---------------------------------------------------------------------------------------------------

    async def exchange(self, request: RequestUnderWay, receive: Receive) -> Json:
        """See `Link.exchange`. The answer comes as an event."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.lifeline.check_open()
        posting = trio.CancelScope()
        # Not built in the background, where a message that cannot become JSON would end the connection.
        post = self._build(request.message)
        with discreet(self.masker, self._transport.url):
            # The cancellation of the caller does not reach this task.
            self._background.start_soon(self._ask, request, post, posting, name=f"{self._name}:post")
        try:
            return await request.wait()
        except trio.Cancelled:
            if not request.sent:
                # The post may still wait for a connection or a token. If it went out later, no notice would follow.
                posting.cancel("its caller has left")
            elif request.cancellable and not self.lifeline.closing:
                self._tell_soon(notice_of(request.id))
            raise
        finally:
            self._reach.finished(post)
            posting.deadline = trio.current_time() + ACCEPT_WAIT

    async def _ask(self, request: RequestUnderWay, post: httpx2.Request, posting: trio.CancelScope) -> None:
        """Post a request. A failure settles it, unless an event has answered before."""
        if posting.cancel_called:
            return
        post.stream = body = ExchangeBody(post.stream, request)  # type: ignore[arg-type]  # an AsyncClient's is
        self._requests.count_sent()
        try:
            with posting:
                await read_short(await self._sent(post, self._reach.send))  # for the next use of the connection
        except Exception as exc:
            request.settle(self._failed(post, body, exc))

    async def send(self, message: Unanswered, headers: Mapping[str, str] | None = None) -> None:
        """See `Link.send`. Answers wait for a turn. Returns once `INITIALIZED` is posted: no request may overtake."""
        await self.wait_turn(message)
        await trio.lowlevel.checkpoint()
        self.lifeline.check_open()
        with discreet(self.masker, self._transport.url):
            if isinstance(message, JSONRPCNotification) and message.method == INITIALIZED:
                await self._tell(message, self._written(message))
            else:
                self._tell_soon(message)

    def _tell_soon(self, message: Unanswered) -> None:
        self._background.start_soon(self._tell, message, self._written(message), name=f"{self._name}:post")

    async def _tell(self, message: Unanswered, request: httpx2.Request) -> None:
        request.stream = body = WatchedRequestBody(request.stream)  # type: ignore[arg-type]  # an AsyncClient's is
        try:
            with trio.move_on_after(NOTIFICATION_TIMEOUT), self._requests.sending(message):
                await read_short(await self._sent(request, self._reach.send_twice))
        except Exception as exc:
            if isinstance(exc, UNREACHED):
                self._reach.refused(exc)
            self._failed(request, body, exc)
            logger.debug("server %r: a message could not be sent", self._name, exc_info=exc)

    def _written(self, message: Unanswered) -> httpx2.Request:
        return self._build(message.model_dump(by_alias=True, exclude_unset=True))

    def _build(self, content: Json) -> httpx2.Request:
        # Not by the `json` of httpx2, which refuses values that `to_json` writes, such as dates.
        headers = {"Content-Type": "application/json"}
        body = to_json(content, inf_nan_mode="null")
        return self._client.build_request("POST", self._endpoint, headers=headers, content=body)

    def _failed(self, request: httpx2.Request, body: WatchedRequestBody, exc: Exception) -> Exception:
        """Return the error for a failed POST; a required sign-in ends the connection."""
        error = self._failures.of(exc, request, sent=body.was_sent(request, exc))
        if isinstance(error, SignInRequired):
            self.lifeline.lose(error)
        return error

    async def _sent(self, request: httpx2.Request, send: Send | None = None) -> httpx2.Response:
        """Send a request, and follow redirects within the origin.

        Raises:
            HttpStatusError: the response has an error status.
            ConnectionOver: the server no longer knows the session.
        """
        response = await self._reach.follow(request, send)
        if response.is_success:
            return response
        if response.next_request is not None:
            await response.aclose()
            raise self._failures.redirected(response)
        text, error = await read_short(response)
        if (request.method, response.status_code) == ("POST", HTTPStatus.NOT_FOUND) and not self._has_answered:
            raise self._failures.of_endpoint(response, datetime.now(UTC))
        remedy = REMEDY_STREAM if request.method == "GET" and response.status_code in (400, 404, 405, 406) else None
        refusal = self._failures.status(
            response, datetime.now(UTC), error, text, answered=self._has_answered, remedy=remedy
        )
        if request.method == "POST":
            if await self._refusals.concerns_all(response, error):
                self.lifeline.lose(refusal)
            elif await self._refusals.is_forgotten(response, error):
                raise self._failures.forgotten(error, response, datetime.now(UTC))
        raise refusal
