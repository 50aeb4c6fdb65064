"""The HTTP session: state and streams that all requests share.

A legacy server may assign a session id, and may answer a GET by a stream of notifications. A modern server does
neither. A broken stream is opened again, and the gap, in which notifications may be lost, is reported.

Owns: the HTTP session; its notification stream.
Writes: losses and gaps of the link; messages to the server; outcomes of requests; the log. Starts tasks of the link.
Calls: auth, transports, _bodies, _failures, _link.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Final

import anyio
import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from ..._backoff import Backoff
from ..._foreign import Log
from ..._tasks import Background
from ..._text import own_shortage
from ...auth import SignInRequired
from .._dialects import NOT_A_MESSAGE, SkippedMessages
from .._exchange import IncomingRequests, Receive, Unanswered, Unasked
from .._link import Lifeline
from .._messages import MessageLimits, ReadingPace, answer_over_limit, parse_message, unreadable_answer
from .._request_table import CLOSED, Json, RequestTable
from ._bodies import EVENT_STREAM, JSON, NotificationBody, ServerSentEvent, TooMuch, media_type, read_events, read_short
from ._failures import UNREACHED, HttpFailures
from ._link import ACCEPT, NOTIFICATION_TIMEOUT, SESSION, Reach, Refusals

logger = Log("mcp_actors.servers.http")

SHORTAGE_WAIT: Final = 0.5
"""Seconds between attempts to open a stream while this program is short of descriptors, memory or threads."""


@define(eq=False)
class HttpSession:
    """Builds HTTP requests to an endpoint, and sends messages that have no answer.

    Attributes:
        id: the server's name of the session, byte for byte; None until the server sends one.
        negotiated: True once a request outside of the handshake was sent.
        listened: True once a stream of notifications was open.
    """

    client: httpx2.AsyncClient
    url: httpx2.URL
    failures: HttpFailures
    limits: MessageLimits
    pace: ReadingPace
    requests: IncomingRequests
    lifeline: Lifeline
    background: Background
    count_and_mask: Callable[[JSONRPCMessage], None]
    skipped: SkippedMessages
    on_flood: Callable[[], None]
    reach: Reach = field(init=False)
    refusals: Refusals = field(init=False)
    id: bytes | None = field(default=None, init=False)
    negotiated: bool = field(default=False, init=False)
    listened: bool = field(default=False, init=False)
    _version: str | None = field(default=None, init=False)
    # A server may send hundreds of requests. If all answers were posted at once, other servers would wait.
    _posts: trio.Semaphore = field(factory=partial(trio.Semaphore, 8), init=False)

    def __attrs_post_init__(self) -> None:
        self.reach = Reach(self.client, str(self.url), self.failures, self.lifeline, self.background)
        self.refusals = Refusals(self.client)

    @property
    def legacy(self) -> bool:
        """True for a protocol before 2026-07-28, or an unknown protocol."""
        return self._version not in MODERN_PROTOCOL_VERSIONS

    # --- HTTP requests ----------------------------------------------------------------------------------------------

    def post(self, message: Json, headers: Mapping[str, str]) -> httpx2.Request:
        """Build the request for a message. A protocol version in `headers` holds for later messages too."""
        if message.get("method") == "initialize":
            self._version = None  # not that of ``server/discover``
        self._version = headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        given = {**ACCEPT, "content-type": JSON, **headers}
        return self._build("POST", given, to_json(message, inf_nan_mode="null"))

    def _build(self, method: str, headers: Mapping[str, str | bytes], content: bytes | None = None) -> httpx2.Request:
        client, given = self.client, dict(headers)
        if self.id is not None:
            given.setdefault(SESSION, self.id)
        if self._version is not None:
            given.setdefault(MCP_PROTOCOL_VERSION_HEADER, self._version)
        fields = {
            name.lower().encode(): value if isinstance(value, bytes) else value.encode()
            for name, value in given.items()
        }
        if client.params:
            return client.build_request(method, self.url, headers=list(fields.items()), content=content)
        # The same as from the client, which copies the headers three times and scans them for each name.
        return httpx2.Request(
            method,
            self.url,
            headers=[*(each for each in client.headers.raw if each[0].lower() not in fields), *fields.items()],
            cookies=client.cookies,
            content=content,
        )

    def begin(self, response: httpx2.Response) -> None:
        names = {name.lower(): value for name, value in response.headers.raw}
        self.id = names.get(SESSION.lower().encode()) or self.id

    # --- messages without an answer ---------------------------------------------------------------------------------

    def notify_soon(self, message: Unanswered, headers: Mapping[str, str]) -> None:
        # Not written in the background, where a message that cannot become JSON would end the connection.
        request = self._written(message, headers)
        self.background.start_soon(self._notify, message, request, name=f"{self.failures.server}:notify")

    async def notify(self, message: Unanswered, headers: Mapping[str, str]) -> None:
        """Send a message without an answer. The message is lost if it cannot be sent."""
        await self._notify(message, self._written(message, headers))

    def _written(self, message: Unanswered, headers: Mapping[str, str]) -> httpx2.Request:
        return self.post(message.model_dump(by_alias=True, exclude_unset=True), headers)

    async def _notify(self, message: Unanswered, request: httpx2.Request) -> None:
        try:
            with self.requests.sending(message), trio.move_on_after(NOTIFICATION_TIMEOUT):
                async with self._posts:
                    response = await self.reach.follow(request, self.reach.send_twice)
                    await read_short(response)  # for the next use of the connection
        except UNREACHED as error:
            self.reach.refused(error)
        except Exception as error:
            logger.debug("server %r: a message could not be sent", self.failures.server, exc_info=error)

    async def judged(self, error: Exception, refused: httpx2.Request) -> Exception:
        """Return the error of a request; a `ConnectionOver` if a new session makes the sign-in needless."""
        if not isinstance(error, SignInRequired) or not await self.refusals.is_session_lost(refused, auth=None):
            return error
        return self.failures.forgotten(None, httpx2.Response(401, request=refused), datetime.now(UTC))

    async def end(self) -> None:
        """End the session, unless the server is gone or has forgotten the session."""
        if self.id is None or self.lifeline.lost or self.reach.gone or self.refusals.forgotten:
            return
        try:
            await read_short(await self.reach.follow(self._build("DELETE", {})))
        except Exception as error:
            logger.debug("server %r: the session could not be ended", self.failures.server, exc_info=error)

    # --- streams ----------------------------------------------------------------------------------------------------

    async def open_stream(self, last_id: bytes | None, *, last: bool = False) -> httpx2.Response:
        """Request a stream of events by a GET. A refusal (see `has_events`) is closed, and may lose the connection.

        Args:
            last_id: the id of the last event; None for the stream of notifications.
            last: whether no attempt follows a refusal.

        Raises:
            Exception: the stream could not be requested.
        """
        headers: dict[str, str | bytes] = {"accept": EVENT_STREAM, "cache-control": "no-store"}
        if last_id is not None:
            headers["last-event-id"] = last_id
        request = self._build("GET", headers)
        try:
            response = await self._send_past_shortage(request)
        except UNREACHED as exc:
            self.reach.refused(exc)
            raise
        except SignInRequired as exc:
            if self.listened:
                self.lifeline.lose(await self.judged(exc, request))  # as in `_note_refusal`
            raise
        if not has_events(response):
            await self._note_refusal(response, last=last)
        return response

    async def _send_past_shortage(self, request: httpx2.Request) -> httpx2.Response:
        """Request a stream, again after a shortage in this program, which does not count as an attempt."""
        while True:
            try:
                return await self.reach.follow(request)
            except (*UNREACHED, RuntimeError) as exc:
                if own_shortage(exc) is None:
                    raise
                logger.debug("server %r: a stream could not be opened", self.failures.server, exc_info=exc)
            await trio.sleep(SHORTAGE_WAIT)

    async def _note_refusal(self, response: httpx2.Response, *, last: bool) -> None:
        """Lose the connection if a stream is refused after a restart of the server, or for its credentials.

        A server without streams answers the first GET with 404 or 405, and so does a restarted server. A later refusal
        says more, and may be the only sign.
        """
        _, error = await read_short(response)
        if not response.is_error or not (self.listened or last):
            return
        if SESSION in response.request.headers and await self.refusals.is_forgotten(response, error):
            self.lifeline.lose(self.failures.forgotten(error))
        elif self.listened and await self.refusals.concerns_all(response, error):
            self.lifeline.lose(self.failures.status(response, datetime.now(UTC), error))

    async def take(self, message: Unasked, receive: Receive) -> None:
        """Pass a message of the server on, within the limits on requests.

        Raises:
            mcp.MCPError: after too many requests, the connection is lost.
        """
        try:
            self.count_and_mask(message)
        except anyio.EndOfStream:
            self.on_flood()
            raise MCPError.from_error_data(CLOSED) from None
        await receive(message)


def has_events(response: httpx2.Response) -> bool:
    return response.is_success and media_type(response) == EVENT_STREAM


# --- Decide when and where an event stream goes on after its end ------------------------------------------------------

# No clock and no tasks, but `Reopening.delay` draws a random number.


REOPENING: Final = Backoff(first=0.1, initial=0.1, maximum=5.0, jitter=0.1)
"""Seconds between the openings of two streams, by the number of streams in a row without a message. A ``retry`` field
may ask for more."""

STREAM_RETRY: Final = 1.0
"""Seconds from the end of a stream to the opening of the next one, without a ``retry`` field."""

MAX_FRUITLESS: Final = 100
"""Maximum of streams in a row without a message for one request: about eight minutes."""

MAX_RESUMED: Final = 500

MAX_REFUSED: Final = 2


CONTROLS: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Bytes that a header must not contain."""


@define(eq=False)
class Reopening:
    """The successive streams of a request, or of notifications.

    Attributes:
        last_id: the id of the last event with an id, as sent; None without an id.
        retry: the seconds from the end of a stream to the next opening.
    """

    last_id: bytes | None = field(default=None, init=False)
    retry: float = field(default=STREAM_RETRY, init=False)
    _opened_at: float | None = field(default=None, init=False)
    _streams: int = field(default=0, init=False)
    _fruitless: int = field(default=0, init=False)

    @property
    def resumed(self) -> int:
        return self._streams - 1

    @property
    def exhausted(self) -> bool:
        """True if a request must not open another stream."""
        return self._fruitless > MAX_FRUITLESS or self.resumed >= MAX_RESUMED

    def open(self, now: float) -> None:
        self._opened_at = now
        self._streams += 1
        self._fruitless += 1

    def note(self, event: ServerSentEvent) -> None:
        """Note where the stream goes on after an event. An id that cannot be sent in a header is ignored."""
        name = (event.id or b"").strip(b" \t")
        if name and not CONTROLS.search(name):
            self.last_id = name
        if event.retry is not None:
            self.retry = int(event.retry) / 1000

    def deliver(self) -> None:
        self._fruitless = 0

    def delay(self, now: float) -> float:
        """Return the seconds until the next stream may be opened, apart from `retry`."""
        if self._opened_at is None:
            return 0.0
        due = self._opened_at + REOPENING.delay(max(self._fruitless, 1), random=random.random)
        return max(due - now, 0.0)


# --- Keep the notification stream of a legacy HTTP server open --------------------------------------------------------

# Proxies close idle streams. So an ended stream is opened again for as long as the connection lasts, with growing
# delays while attempts fail. A server that refuses the first stream for good has no streams. Notifications between two
# streams are lost, so the gap is reported when the next stream is open; also the gap before the first, which opens
# while the lists are requested. A server may also answer a request here.


GAP_BACKOFF: Final = Backoff(first=0.0, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from a new stream to the report of the gap. Listeners then request all lists: too often, if each stream ends
at once."""


REFUSED_BACKOFF: Final = Backoff(first=0.0, initial=1.0, maximum=60.0, jitter=0.1)
"""Seconds from a failed attempt to open a stream to the next, added to the server's own delay."""


class NotificationStream:
    """The successive notification streams of a connection."""

    def __init__(self, session: HttpSession, table: RequestTable) -> None:
        self._session = session
        self._table = table
        self._server = session.failures.server
        self._opened_at: float | None = None
        self._short = 0
        self._streams = Reopening()
        self._reporting = False

    async def run(self, receive: Receive) -> None:
        """Read one stream after the other. Return if the server has no streams."""
        refused = 0
        while True:
            await trio.sleep(self._streams.delay(trio.current_time()))
            try:
                last = refused + 1 >= MAX_REFUSED and not self._session.listened
                response = await self._session.open_stream(self._streams.last_id, last=last)
            except Exception as error:
                refused += 1
                logger.debug("server %r: the notification stream could not be opened", self._server, exc_info=error)
            else:
                if has_events(response):
                    refused = 0
                    await self._read(response, receive)
                else:
                    refused += 1
                    if refused >= MAX_REFUSED and not self._session.listened and is_for_good(response):
                        return
            await trio.sleep(self._streams.retry + REFUSED_BACKOFF.delay(max(refused, 1), random=random.random))

    async def _read(self, response: httpx2.Response, receive: Receive) -> None:
        """Read a stream to the end. An endless event loses the connection."""
        session = self._session
        self._note_opening()
        response.stream = NotificationBody(response.stream)  # type: ignore[arg-type]  # an AsyncClient's are async
        try:
            async with aclosing(read_events(response, session.limits, session.pace)) as events:
                async for event in events:
                    self._streams.note(event)
                    message = await self._take(event, receive)
                    request = isinstance(message, JSONRPCRequest)
                    await trio.sleep(session.pace.unasked(trio.current_time(), event.unpaced, request=request))
        except TooMuch as exc:
            reason = session.limits.message_too_large(exc.data.excess)
            session.lifeline.lose(session.failures.too_large(reason))
        except httpx2.HTTPError as error:
            logger.debug("server %r: the notification stream broke", self._server, exc_info=error)
        finally:
            await response.aclose()

    async def _take(self, event: ServerSentEvent, receive: Receive) -> JSONRPCMessage | None:
        if event.name != b"message" or not (event.data or event.skipped):
            return None
        message = self._message_in(event)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._session.count_and_mask(message)
            if not self._session.skipped.add_stray(message):
                self._table.settle_message(message)
        elif message is not None:
            await self._session.take(message, receive)
        return message

    def _message_in(self, event: ServerSentEvent) -> JSONRPCMessage | None:
        if event.skipped is not None:
            excess = event.skipped.excess
            limit, remedy = self._session.limits.exceeded(excess)
            self._session.skipped.add("an event that is too large", f" ({limit})", remedy=remedy)
            return answer_over_limit(event.skipped, self._session.limits.response_too_large(excess))
        try:
            message = parse_message(event.data)
        except ValueError:
            self._session.skipped.add(NOT_A_MESSAGE)
            return unreadable_answer(event.data)
        self._streams.deliver()
        return message

    def _note_opening(self) -> None:
        """Note that a stream has begun, and report the gap before."""
        now = trio.current_time()
        if self._opened_at is not None:
            # After 30 s a stream counts as stable, and `GAP_BACKOFF` starts again.
            self._short = 0 if now - self._opened_at >= 30.0 else self._short + 1
        if not self._reporting:
            self._reporting = True
            delay = GAP_BACKOFF.delay(self._short + 1, random=random.random)
            self._session.background.start_soon(self._report_gap, delay, name=f"{self._server}:gap")
        self._opened_at = now
        self._session.listened = True
        self._streams.open(now)

    async def _report_gap(self, delay: float) -> None:
        await trio.sleep(delay)
        self._reporting = False
        self._session.lifeline.gap()


def is_for_good(refusal: httpx2.Response) -> bool:
    """Return True if a refusal is unlikely to be temporary."""
    return (refusal.status_code < 500 and refusal.status_code not in (408, 425, 429)) or refusal.status_code == 501
