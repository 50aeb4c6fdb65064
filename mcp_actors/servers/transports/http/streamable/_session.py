"""The HTTP session: what all requests to one endpoint share.

The server names the session in its answer to ``initialize``, and each later HTTP request has that name. Since
2026-07-28 there are no sessions, and no streams that a client opens by a GET.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import anyio
import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.types import CONNECTION_CLOSED, JSONRPCMessage
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from ....._foreign import Log
from .....auth import SignInRequired
from ....basics import Background, own_shortage
from ..._link import Lifeline
from ...wire import CLOSED, Json, MessageLimits, ReadingPace, Receive, ServerRequests, Unanswered, Unasked
from .._bodies import media_type, read_short
from .._failures import UNREACHED, HttpFailures
from .._reach import Reach
from .._redirects import Send
from .._refusals import ACCEPT, SESSION, Refusals

logger = Log("mcp_actors.servers.http")

EVENTS: Final = "text/event-stream"
OF_A_MESSAGE: Final = {**ACCEPT, "content-type": "application/json"}
OF_A_STREAM: Final = {"accept": EVENTS, "cache-control": "no-store"}

POSTS: Final = 8
"""Maximum of concurrent posts of messages without a response. A server may send hundreds of requests at once. If as
many tasks answered them, the tasks of other servers would wait for all of them at each step."""

SHORTAGE_WAIT: Final = 0.5
"""Seconds between two attempts to open a stream while this program has too few files, threads or other resources."""

NOTIFICATION_TIMEOUT: Final = 10.0
"""Seconds for a message without a response, in which it also waits for those before it. A server accepts it at once, or
something is wrong."""


@define(eq=False)
class HttpSession:
    """Builds HTTP requests to one endpoint, and sends those that expect no answer.

    Attributes:
        id: the name that the server has given to the session, byte for byte; None before that, and for a server
            without sessions.
        negotiated: True once a request was sent that is not part of the handshake.
        listened: True once a stream of notifications was open.
    """

    client: httpx2.AsyncClient
    url: httpx2.URL
    failures: HttpFailures
    limits: MessageLimits
    pace: ReadingPace
    requests: ServerRequests
    lifeline: Lifeline
    background: Background
    admit: Callable[[JSONRPCMessage], None]
    on_flood: Callable[[], None]
    reach: Reach = field(init=False)
    refusals: Refusals = field(init=False)
    id: bytes | None = field(default=None, init=False)
    negotiated: bool = field(default=False, init=False)
    listened: bool = field(default=False, init=False)
    _version: str | None = field(default=None, init=False)
    _posts: trio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reach = Reach(self.client, str(self.url), self.failures, self.lifeline, self.background)
        self.refusals = Refusals(self.client)
        self._posts = trio.Semaphore(POSTS)

    @property
    def legacy(self) -> bool:
        """True if the messages are those of a protocol before 2026-07-28, or if that is not known yet."""
        return self._version not in MODERN_PROTOCOL_VERSIONS

    # --- HTTP requests ----------------------------------------------------------------------------------------------

    def post(self, message: Json, headers: Mapping[str, str]) -> httpx2.Request:
        """Build the request for a message.

        Args:
            message: the message.
            headers: the headers of this message. A protocol version among them holds for later messages, too.
        """
        if message.get("method") == "initialize":
            self._version = None  # that of ``server/discover`` before it does not hold
        self._version = headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        return self._build("POST", OF_A_MESSAGE | dict(headers), to_json(message, inf_nan_mode="null"))

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

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        return await self.client.send(request, stream=True, follow_redirects=False)

    async def follow(self, request: httpx2.Request, send: Send | None = None) -> httpx2.Response:
        """Send a request and follow redirects within the origin. The first one still counts as in flight."""
        return await self.reach.follow(request, send or self._send)

    def begin(self, response: httpx2.Response) -> None:
        """Take the name of the session from the answer to ``initialize``."""
        names = {name.lower(): value for name, value in response.headers.raw}
        self.id = names.get(SESSION.lower().encode()) or self.id

    # --- messages without an answer ---------------------------------------------------------------------------------

    def notify_soon(self, message: Unanswered, headers: Mapping[str, str]) -> None:
        """Send a message without an answer in the background."""
        # Written here: in the background, a message that cannot be written as JSON would end the connection.
        request = self._written(message, headers)
        self.background.start_soon(self._notify, message, request, name=f"{self.failures.server}:notify")

    async def notify(self, message: Unanswered, headers: Mapping[str, str]) -> None:
        """Send a message without an answer. It is lost if it cannot be sent."""
        await self._notify(message, self._written(message, headers))

    def _written(self, message: Unanswered, headers: Mapping[str, str]) -> httpx2.Request:
        return self.post(message.model_dump(by_alias=True, exclude_unset=True), headers)

    async def _notify(self, message: Unanswered, request: httpx2.Request) -> None:
        try:
            with self.requests.sending(message), trio.move_on_after(NOTIFICATION_TIMEOUT):
                async with self._posts:
                    response = await self.follow(request)
                    await read_short(response)  # so that the connection can be used again
        except UNREACHED as error:
            self.reach.refused(error)
        except Exception as error:
            logger.debug("server %r: a message could not be sent", self.failures.server, exc_info=error)

    async def end(self) -> None:
        """End the session, unless the server is gone or does not know it."""
        if self.id is None or self.lifeline.lost or self.reach.gone or self.refusals.forgotten:
            return
        try:
            await read_short(await self.follow(self._build("DELETE", {})))
        except Exception as error:
            logger.debug("server %r: the session could not be ended", self.failures.server, exc_info=error)

    # --- streams ----------------------------------------------------------------------------------------------------

    async def open_stream(self, last_id: bytes | None) -> httpx2.Response:
        """Request a stream of events by a GET. If it is refused (see `has_events`), the response is read.

        Args:
            last_id: the id of the event after which it goes on; None for the stream of notifications.

        Raises:
            Exception: the stream could not be requested.
        """
        headers: dict[str, str | bytes] = dict(OF_A_STREAM)
        if last_id is not None:
            headers["last-event-id"] = last_id
        try:
            response = await self._send_past_shortage(headers)
        except UNREACHED as exc:
            self.reach.refused(exc)
            raise
        except SignInRequired as exc:
            if self.listened:
                self.lifeline.lose(exc)  # as in `_note_refusal`
            raise
        if not has_events(response):
            await self._note_refusal(response)
        return response

    async def _send_past_shortage(self, headers: Mapping[str, str | bytes]) -> httpx2.Response:
        """Request a stream once a shortage in this program has passed: only so many attempts are made."""
        while True:
            try:
                return await self.follow(self._build("GET", headers))
            except (*UNREACHED, RuntimeError) as exc:
                if own_shortage(exc) is None:
                    raise
                logger.debug("server %r: a stream could not be opened", self.failures.server, exc_info=exc)
            await trio.sleep(SHORTAGE_WAIT)

    async def _note_refusal(self, response: httpx2.Response) -> None:
        """Lose the connection if a stream is refused because the server was restarted, or for its credentials.

        A server without such streams answers 404 or 405 to the first GET. After a stream was open, a refusal says more,
        and no other request may come to notice it.
        """
        _, error = await read_short(response)
        if not response.is_error or not self.listened:
            return
        if SESSION in response.request.headers and await self.refusals.is_forgotten(response, error):
            self.lifeline.lose(self.failures.forgotten(error))
        elif await self.refusals.are_of_credentials(response, error):
            self.lifeline.lose(self.failures.status(response, datetime.now(UTC), error))

    async def take(self, message: Unasked, receive: Receive) -> None:
        """Pass a message of the server on, within the limits on its requests.

        Raises:
            mcp.MCPError: the server has sent too many requests, so the connection is lost.
        """
        try:
            self.admit(message)
        except anyio.EndOfStream:
            self.on_flood()
            raise MCPError(CONNECTION_CLOSED, CLOSED.message) from None
        await receive(message)


def has_events(response: httpx2.Response) -> bool:
    """Return True if a response is a stream of events."""
    return response.is_success and media_type(response) == EVENTS


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
