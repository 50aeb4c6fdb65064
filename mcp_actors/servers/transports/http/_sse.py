"""The link over HTTP with SSE, the transport of 2024-11-05.

A single event stream carries all messages of the server. Its first event names the endpoint to which all messages are
posted. The SDK's own client waits for ever if a message cannot be posted or the endpoint is not allowed, and posts one
message after the other. So this is an implementation of its own, based on the SDK's messages.

A message that cannot be posted fails alone. The connection ends when the event stream ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, TypeAlias
from urllib.parse import urljoin

import anyio
import httpx2
import trio
from attrs import define
from mcp.shared._httpx_utils import next_request_within_origin
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from ...._errors import ServerError
from ...._foreign import Log
from ....auth import SignInRequired
from ....config import Sse
from ...basics import ConnectionOver, RequestTrace, current_trace, own_shortage
from .._link import Lifeline
from ..credentials import discreet
from ..wire import (
    CANCELLED,
    INITIALIZED,
    Excerpt,
    MessageLimits,
    MessageReader,
    OpenStreams,
    SkippedMessages,
    Stream,
    answer_over_limit,
    comparable_id,
    parse_message,
    unreadable_answer,
)
from ._bodies import WatchedRequestBody, media_type, read_short
from ._client import real_url
from ._events import Event, TooMuch, read_events
from ._failures import MAX_REDIRECTS, UNREACHED
from ._link import HttpLink
from ._reach import Reach
from ._refusals import PING_ID, Refusals

logger = Log("mcp_actors.servers.http")

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of one message: the default of stdio."""

ACCEPT_WAIT: Final = 1.0
"""Seconds for the response to a POST whose request is answered or cancelled: each that waits holds a connection."""

NOTIFICATION_TIMEOUT: Final = 10.0
"""Seconds for the response to the POST of any other message, as over streamable HTTP."""

Send: TypeAlias = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


@define(eq=False, repr=False)
class _Reader(MessageReader):
    """The messages that have arrived."""

    _inner: trio.MemoryReceiveChannel[SessionMessage]
    _link: SseLink
    _lifeline: Lifeline

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        try:
            item = await self._inner.receive()
        except trio.EndOfChannel:
            raise anyio.EndOfStream from None
        except trio.ClosedResourceError:
            raise anyio.ClosedResourceError from None
        self._link.admit(item.message)
        return item

    async def aclose(self) -> None:
        """Stop reading."""
        self._lifeline.closing = True
        self._inner.close()


@define(eq=False, repr=False)
class _Writer(Stream):
    """Posts messages concurrently."""

    _link: SseLink
    _lifeline: Lifeline

    async def send(self, item: SessionMessage, /) -> None:
        """Post a message, usually in the background."""
        await self._link.wait_turn(item.message)
        if self._lifeline.closing or self._lifeline.lost:
            raise anyio.ClosedResourceError
        await trio.lowlevel.checkpoint()
        message = item.message
        with discreet(self._link.masker, self._link.configured_url):
            # Servers refuse every request that overtakes the end of the handshake, so wait until that is posted.
            if isinstance(message, JSONRPCNotification) and message.method == INITIALIZED:
                await self._link.post(message, current_trace())
            else:
                self._link.post_soon(message, current_trace())

    async def aclose(self) -> None:
        """Take no more messages."""
        self._lifeline.closing = True


class SseLink(HttpLink[Sse]):
    """A link over HTTP with SSE."""

    target: OpenStreams

    @property
    def malformed_lines(self) -> int:
        """The number of events that were not messages and were skipped."""
        return self._skipped.count

    @cached_property
    def _skipped(self) -> SkippedMessages:
        return SkippedMessages(self._name, logger)

    @cached_property
    def _listening(self) -> trio.CancelScope:
        """The scope around reading the event stream. It exists early, because the link may be closed before that."""
        return trio.CancelScope()

    async def live(self) -> None:
        """Open the event stream, and pass on its messages until it ends or the link is left."""
        self._url = real_url(self._transport)
        self._limits = MessageLimits(MAX_EVENT_BYTES, self._max_values)
        self._reach = Reach(self._client, self._url, self._failures, self._lifeline, self._background)
        self._refusals = Refusals(self._client)
        self._unanswered: dict[RequestId | None, tuple[httpx2.Request, trio.CancelScope]] = {}
        self._has_answered = False
        self._inbox, messages = trio.open_memory_channel[SessionMessage](0)
        self.target = OpenStreams(_Reader(messages, self, self._lifeline), _Writer(self, self._lifeline))
        with self._inbox:
            try:
                with self._listening:
                    await self._listen()
                self._lifeline.lose(self._failures.ended())
            except Exception as error:
                # This must come before leaving `self._inbox`, which ends the stream of the session: its callers fail in
                # that step, and their errors should name this one.
                self._lifeline.lose(self._meaning(error))

    async def close(self) -> None:
        """End the event stream. This protocol has no message for the end of a session."""
        self._lifeline.closing = True
        self._listening.cancel("the link is left")
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
        """Read the event stream to its end."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        response = await self._sent(self._client.build_request("GET", self._url, headers=headers), self._open)
        try:
            if media_type(response) != "text/event-stream":
                raise self._failures.no_stream(media_type(response))
            events = read_events(response, self._limits, self._pace, is_expected=self._is_expected)
            async with aclosing(events):
                async for event in events:
                    await self._take(event)
        finally:
            await response.aclose()

    def _is_expected(self, excerpt: Excerpt) -> bool:
        return self._requests.awaits_answer and excerpt.may_be_answer

    async def _take(self, event: Event) -> None:
        """Handle one event, and pause after it if it was unsolicited."""
        message = None
        if event.name == b"endpoint":
            is_first = not self._opened.is_set()
            self._endpoint = self._checked(event.data.decode(errors="replace"))
            self._opened.set()
            if is_first:
                return
        elif event.name == b"message" and (message := self._message_in(event)) is not None:
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                if message.id == PING_ID:
                    return
                self._answered(message.id)
                self._has_answered = True
            is_answer = self._requests.is_answer(message)
            await self._inbox.send(SessionMessage(message))
            if is_answer:
                return
        request = isinstance(message, JSONRPCRequest)
        await trio.sleep(self._pace.unasked(trio.current_time(), event.unpaced, request=request))

    def _message_in(self, event: Event) -> JSONRPCMessage | None:
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
            self._skipped.add("an event that is not an MCP message; fix the server")
            return unreadable_answer(event.data)

    def _checked(self, endpoint: str) -> httpx2.URL:
        """Return the endpoint as a URL. It must have the origin of the stream, because it receives the credentials."""
        url, base = httpx2.URL(urljoin(self._url, endpoint.strip())), httpx2.URL(self._url)
        if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port) or url.userinfo:
            raise self._failures.endpoint_elsewhere(url)
        return url

    def _answered(self, id: RequestId | None) -> None:
        """Note that a request is no longer in flight."""
        request, posting = self._unanswered.pop(comparable_id(id), (None, None))
        if request is not None and posting is not None:
            self._reach.finished(request)
            posting.deadline = trio.current_time() + ACCEPT_WAIT

    # --- outgoing ---------------------------------------------------------------------------------------------------

    def post_soon(self, message: JSONRPCMessage, trace: RequestTrace) -> None:
        """Post a message in a task of its own, which the cancellation of a caller does not reach."""
        self._background.start_soon(self.post, message, trace, name=f"{self._name}:post")

    async def post(self, message: JSONRPCMessage, trace: RequestTrace) -> None:
        """Post a message. A request that cannot be posted is answered with an error."""
        content = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        request = self._client.build_request("POST", self._endpoint, json=content)
        request.stream = body = WatchedRequestBody(request.stream)  # type: ignore[arg-type]  # an AsyncClient's is
        posting = trio.CancelScope()
        if isinstance(message, JSONRPCRequest):
            trace.failure = None
            self._unanswered[comparable_id(message.id)] = request, posting
        else:
            posting.deadline = trio.current_time() + NOTIFICATION_TIMEOUT
        if isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            self._answered((message.params or {}).get("requestId"))  # its caller has left
        try:
            with posting, self._requests.sending(message):
                response = await self._sent(request, self._reach.send)
                trace.begun = True
                await read_short(response)  # so that the connection can be used again
        except Exception as exc:
            sent = body.was_sent(request, exc)
            error = self._failures.of(exc, request, sent=sent)
            trace.begun = trace.begun or (sent and not isinstance(error, ConnectionOver))
            if isinstance(error, SignInRequired):
                self._lifeline.lose(error)
            if isinstance(message, JSONRPCRequest):
                trace.failure = error
                await self._answer(message.id)
            else:
                logger.debug("server %r: a message could not be sent", self._name, exc_info=exc)
        finally:
            if not isinstance(message, JSONRPCRequest):
                self._reach.finished(request)

    async def _answer(self, id: RequestId) -> None:
        """Answer a request with an error of our own. Its text does not matter: the trace has the real error."""
        self._answered(id)
        failed = JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=INTERNAL_ERROR, message="not posted"))
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            await self._inbox.send(SessionMessage(failed))

    async def _open(self, request: httpx2.Request) -> httpx2.Response:
        return await self._client.send(request, stream=True, follow_redirects=False)

    async def _sent(self, request: httpx2.Request, send: Send) -> httpx2.Response:
        """Send a request, and follow redirects within the origin.

        Raises:
            HttpStatusError: the response has an error status.
            ConnectionOver: the server no longer knows the session.
        """
        response = await send(request)
        for _ in range(MAX_REDIRECTS):
            following = next_request_within_origin(response)
            if following is None:
                break
            await response.aclose()
            response = await send(following)
            self._reach.finished(following)  # the original request still counts as in flight
        if response.is_success:
            return response
        if response.next_request is not None:
            await response.aclose()
            raise self._failures.redirected(response)
        _, error = await read_short(response)
        describe = self._failures.of_request if self._has_answered else self._failures.status
        refusal = describe(response, datetime.now(UTC), error)
        if request.method == "POST":
            if await self._refusals.is_forgotten(response, error):
                raise self._failures.forgotten(error, response, datetime.now(UTC))
            if await self._refusals.are_of_credentials(response, error):
                self._lifeline.lose(refusal)
        raise refusal
