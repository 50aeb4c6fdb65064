"""The base of links over HTTP: their client, requests and refusals.

A background task (`HttpLink.run`) owns the HTTP client. The task's failure ends the connection, and does not cancel
the actor's owner task. A TCP connection may end while the server lives (see `Reach`). A refusal may concern one
request, the session or the credentials (see `Refusals`).

Owns: the HTTP client; requests in flight; background tasks.
Writes: the connection's state; counts of the server's requests; wrappers around response bodies; masked errors;
requests to the server; the log.
Calls: config, transports, _bodies, _client, _failures.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio
import httpx2
import trio
from attrs import define, field
from mcp import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.types import METHOD_NOT_FOUND, JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ..._collapse import leaves
from ..._errors import LimitExceeded
from ..._foreign import Log
from ..._json import measured
from ..._tasks import Background, open_background
from ..._text import own_shortage
from ...config import Http, Sse
from .._credentials import Masker, named_credentials
from .._dialects import SkippedMessages
from .._exchange import HELD_BYTES, IncomingRequests
from .._link import Certificates, Lifeline, Link
from .._logs import discreet
from .._messages import ANSWERS_A_SECOND, ANSWERS_AT_ONCE, Bucket, ReadingPace
from ._bodies import HeardBody, is_sent, is_unsent, read_short, reads_of
from ._client import bound_on_connections, finish_refresh, make_client, proxy_variable
from ._failures import (
    MAX_REDIRECTS,
    UNREACHED,
    HttpFailures,
    NoAnswer,
    Send,
    answer_in,
    check_refusal,
    describe,
    is_about,
    is_about_origin,
    next_request_within_origin,
)

if TYPE_CHECKING:
    from ...config import ServerConfig


logger = Log("mcp_actors.servers.http")

Configured = TypeVar("Configured", Http, Sse)


CLOSING: Final = 0.9
"""Share of ``stop_timeout`` in which a server may react to the end of a session. The actor is killed after the rest."""


NOTIFICATION_TIMEOUT: Final = 10.0
"""Seconds for the POST of a message without a response, with the wait for earlier POSTs. Servers accept at once."""


class HttpLink(Link, ABC, Generic[Configured]):
    _background: Background
    """Runs the tasks that use the client, and ends before it: closing a client leaves the streams of tasks open."""

    def __init__(
        self,
        config: ServerConfig,
        transport: Configured,
        client: httpx2.AsyncClient,
        on_lost: Callable[[], None],
        masker: Masker,
    ) -> None:
        super().__init__(Lifeline(on_lost), masker)
        self.endpoint: str = transport.display_url
        self.max_connections: int | None = bound_on_connections(config, transport)
        self._name = config.name
        self._stop_timeout = config.stop_timeout
        self._max_values = config.limits.max_message_values
        self._pace = ReadingPace(config.limits.max_notifications)
        self._answers = Bucket(ANSWERS_AT_ONCE, ANSWERS_A_SECOND)
        self._requests = IncomingRequests(config.name, config.limits.max_requests)
        self._transport: Configured = transport
        self._client = client
        client.event_hooks["response"].append(self._hear)
        self._failures = HttpFailures(
            config.name, transport.display_url, masker, named_credentials(transport), proxy_variable(transport)
        )
        self._skipped = SkippedMessages(config.name, logger, masker)
        self._opened = trio.Event()
        self._receiving = trio.Event()  # set once unsolicited messages can be passed on
        self._reading = trio.CancelScope()  # around the reading; may be cancelled before it begins
        self._silent = trio.Event()  # set when nothing more comes
        self._left = trio.Event()
        self._ended = trio.Event()

    @property
    def malformed_lines(self) -> int:
        return self._skipped.count

    def __repr__(self) -> str:
        state = "closed" if self._left.is_set() else "lost" if self.lifeline.lost else "open"
        return f"<{type(self).__name__} {self._name!r} {self.endpoint}, {state}>"

    async def wait_turn(self, message: JSONRPCMessage) -> None:
        """Wait until an answer to the server may be sent: hundreds of its requests may come at once."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and (wait := self._answers.take(trio.current_time())):
            await trio.sleep(wait)

    async def _hear(self, response: httpx2.Response) -> None:
        """Note when the server was last heard: at the response and at each piece of the body. A response hook."""
        self.lifeline.heard_at = trio.current_time()
        response.stream = HeardBody(response.stream, self.lifeline, reads_of(response))  # type: ignore[arg-type]  # an AsyncClient's is

    @abstractmethod
    async def live(self) -> None:
        """Stay connected, in the task of the link, until ``_left`` is set or the connection ends.

        An implementation sets ``_opened`` once requests can be sent.
        """

    async def run(self) -> None:
        try:
            with discreet(self.masker, self._transport.url):
                async with self._client, finish_refresh(self._client), open_background() as self._background:
                    await self.live()
        except Exception as error:
            # The loss comes before the events below, which wake `wait_open` and the reader of the session. Both look
            # for the error that ended the connection, and after the end of `read` nothing counts as a loss.
            self.lifeline.lose(self.masker.clean(first_failure(error, self.masker)))
        finally:
            self._client.event_hooks = {}  # the hooks refer to this object
            self._skipped.end()
            self._opened.set()
            self._silent.set()
            self._ended.set()

    async def wait_open(self) -> None:
        """Wait until requests can be sent.

        Raises:
            Exception: the connection has failed.
        """
        await self._opened.wait()
        if self.lifeline.failure is not None:
            raise self.lifeline.failure

    async def close(self) -> None:
        """End the session within ``stop_timeout``, if the server reacts, and close all connections.

        **Cancellation**: does not interrupt this, or the server would keep an unused session.
        """
        self.lifeline.close()
        self._left.set()
        # Shielded and bounded. After the bound, leaving `open_background` cancels the task that owns the client.
        with trio.move_on_after(self._stop_timeout * CLOSING, shield=True):
            await self._ended.wait()


def count_and_mask(masker: Masker, requests: IncomingRequests, lifeline: Lifeline, message: JSONRPCMessage) -> None:
    """Count a message of the server and mask an error, before the session sees either.

    Raises:
        anyio.EndOfStream: the server has sent too many requests, so the connection is lost.
    """
    masker.mask_error(message)
    size = measured(message, HELD_BYTES)[0] if isinstance(message, JSONRPCRequest) else 0
    try:
        requests.receive(message, size, trio.current_time())
    except LimitExceeded as exceeded:
        lifeline.lose(exceeded)
        raise anyio.EndOfStream from None


def first_failure(error: Exception, masker: Masker) -> Exception:
    first, *others = (leaf for leaf in leaves(error) if isinstance(leaf, Exception))
    for other in others:
        first.add_note(f"also: {describe(other, masker)}")
    return first


@asynccontextmanager
async def open_link_over_http(
    kind: type[HttpLink[Configured]],
    config: ServerConfig,
    transport: Configured,
    masker: Masker,
    certificates: Certificates,
    *,
    on_lost: Callable[[], None],
) -> AsyncIterator[HttpLink[Configured]]:
    """Create the client, and keep a link of the given class open until the block is left.

    Raises:
        ConnectFailed: a credential cannot be resolved, or the client cannot be created.
        Exception: the link could not be opened.
    """
    client = await make_client(config, transport, masker, certificates)
    async with open_background() as background:
        link = kind(config, transport, client, on_lost, masker)
        background.start_soon(link.run, name=f"{config.name}:http")
        try:
            with discreet(masker, transport.url):
                await link.wait_open()
                yield link
        finally:
            await link.close()


# --- Send HTTP requests, and notice a server that is gone -------------------------------------------------------------

# A refused connection is the sign that a server is gone. But a server that shuts down gracefully refuses new
# connections while it answers the requests in flight. So a refused request is retried while others are in flight. After
# a connection broke during a request, a probe notices the end of the server without further traffic.


STALE: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""Errors of a kept connection that the server has closed. A request is tried again if no byte was sent."""


@define(eq=False, repr=False)
class Reach:
    """Sends requests through a client, and knows which are in flight. The `background` runs its probe."""

    _client: httpx2.AsyncClient
    _url: str
    _failures: HttpFailures
    _lifeline: Lifeline
    _background: Background
    _sent: set[httpx2.Request] = field(factory=set, init=False)
    _refused: set[httpx2.Request] = field(factory=set, init=False)
    _gone: trio.Event = field(factory=trio.Event, init=False)
    _probing: bool = field(default=False, init=False)

    @property
    def gone(self) -> bool:
        return self._gone.is_set()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, which counts as in flight until `finished`, with options of `httpx2.AsyncClient.send`.

        **Cancellation**: ends this request and affects no other.

        Raises:
            httpx2.ConnectError, httpx2.ConnectTimeout: the server could not be reached and no request is in flight, or
                this program has a shortage.
        """
        self._sent.add(request)
        give_up: float | None = None
        stale = 0
        while True:
            try:
                response = await self._client.send(request, stream=True, follow_redirects=False, **options)
            except UNREACHED as error:
                if own_shortage(error) is not None:
                    raise  # the server has refused nothing
                now = trio.current_time()
                give_up = now + 60.0 if give_up is None else give_up  # a request in flight may never be answered
                if not is_about(error, request) or is_sent(request) or now > give_up:
                    raise
                # Refused requests wait while a request in flight may still be answered. The last refused one sets the
                # event, so all fail in the same step and share one reconnect. Failing one by one would start a
                # reconnect each.
                self._refused.add(request)
                if self._sent > self._refused:
                    logger.debug("server %r: connection refused; trying again", self._failures.server)
                    with trio.move_on_after(0.25):
                        await self._gone.wait()
                else:
                    self._gone.set()
                if self.gone:
                    raise
            except STALE:
                stale += 1
                # Pools hardly hold more than a hundred, and some servers close every connection.
                if stale > 100 or not is_unsent(request):
                    raise
            else:
                self._refused.discard(request)
                return response

    async def send_apart(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request that does not count as in flight, and is not retried."""
        return await self._client.send(request, stream=True, follow_redirects=False)

    async def send_twice(self, request: httpx2.Request) -> httpx2.Response:
        """Send a message without an answer, and again if the connection breaks meanwhile.

        A server that gets the message twice learns nothing new from the second.
        """
        try:
            return await self.send_apart(request)
        except STALE:
            return await self.send_apart(request)

    async def follow(self, request: httpx2.Request, send: Send | None = None) -> httpx2.Response:
        """Send a request, and follow up to `MAX_REDIRECTS` redirects within the origin. Return the last response.

        A further request is `finished` after the response; the first still counts as in flight. `send` sends each
        request; `send_apart` by default.
        """
        send = send or self.send_apart
        response = await send(request)
        for _ in range(MAX_REDIRECTS):
            if (following := next_request_within_origin(response)) is None:
                break
            await read_short(response)  # so that the connection can be used again
            try:
                response = await send(following)
            finally:
                self.finished(following)
        return response

    def finished(self, request: httpx2.Request) -> None:
        self._sent.discard(request)
        self._refused.discard(request)

    def refused(self, error: httpx2.RequestError) -> None:
        """Note that a notification, a stream or a probe could not be sent. Requests in flight notice by themselves.

        An error of the auth flow about another server does not count.
        """
        of_server = own_shortage(error) is None and is_about_origin(error, httpx2.URL(self._url))
        if of_server and not self._sent:
            self._lifeline.lose(self._failures.unreached(error))

    def start_probe(self) -> None:
        """Start a probe unless one runs."""
        if not self._probing and not self._lifeline.lost and not self._lifeline.closing:
            self._probing = True
            self._background.start_soon(self._probe, name=f"{self._failures.server}:probe")

    async def _probe(self) -> None:
        request = self._client.build_request("OPTIONS", self._url)
        unreached: httpx2.RequestError | None = None
        try:
            with trio.move_on_after(10.0):  # a silent server may be slow or frozen, and is not gone
                # Without the auth flow, which might ask the user for a password only because of this probe.
                response = await self.send(request, auth=None)
                await response.aclose()
        except UNREACHED as error:
            unreached = error
        except Exception:
            pass  # any other error proves that something listens there
        finally:
            self._probing = False
            self.finished(request)
        # After `finished`: the probe itself must not count as a request in flight.
        if unreached is not None:
            self.refused(unreached)


# --- Decide whether a refusal concerns one request, its session or its credentials ------------------------------------

# Servers answer 400 and 404 both to an unknown session and to a bad request. A ping needs only the session and the
# credentials: if refused in the same way, every other request would be refused too.


SESSION: Final = "mcp-session-id"

PING_ID: Final = "mcp_actors:ping"
"""No request of the SDK has this id, so the response cannot be mistaken for another."""

PING: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": PING_ID, "method": "ping"}

_OF_US: Final = {"capabilities": {}, "clientInfo": {"name": "mcp_actors", "version": "0"}}
INITIALIZE: Final = PING | {
    "method": "initialize",
    "params": {"protocolVersion": HANDSHAKE_PROTOCOL_VERSIONS[-1], **_OF_US},
}

ACCEPT: Final = {"accept": "application/json, text/event-stream"}
"""The header of every POST, but not of a request for a stream of notifications."""


@define(eq=False)
class Refusals:
    """The refusals of one connection. `forgotten` is True once the server no longer knows the session."""

    client: httpx2.AsyncClient
    forgotten: bool = field(default=False, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)
    _asked: float = field(default=-math.inf, init=False)

    async def is_forgotten(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return True if the server no longer knows the session of a refused request. `response` may be closed.

        **Cancellation**: leaves at once and affects no other request.
        """
        # For an unknown session the specification says 404. Often the status is 400; or 401, if the server begins
        # another session with these credentials.
        known = error is not None if response.is_success else response.status_code in (400, 401, 404)
        if not known or _code(error) == METHOD_NOT_FOUND:
            return False
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            return await self.is_session_lost(response.request)
        refused = trio.current_time()
        async with self._turn:  # many requests may be refused at once; one ping decides for all
            if not self.forgotten and self._asked <= refused:
                asked = trio.current_time()
                self.forgotten = await self.refuses_ping(response, error)
                self._asked = asked
        return self.forgotten

    async def concerns_all(self, response: httpx2.Response, error: MCPError | None, body: bytes = b"") -> bool:
        """Return True if a 401, or a server error that names the session, answers a ping too.

        Some servers list their tools to everybody and require a token for calls only. An overload passes, and the
        session may survive, so a status such as 503 alone says nothing.
        """
        named = response.is_server_error and SESSION in response.request.headers and b"session" in body.lower()
        return (named or response.status_code == HTTPStatus.UNAUTHORIZED) and await self.refuses_ping(response, error)

    async def refuses_ping(self, response: httpx2.Response, error: MCPError | None) -> bool:
        """Return True if a ping is refused as the request was: equal status, and equal MCP error if any.

        **Cancellation**: as for `is_forgotten`.
        """
        refused = response.request
        status, pinged, _ = await self._ask(refused, PING, refused.headers.get(SESSION))
        return status == response.status_code and _code(pinged) == _code(error) and _code(pinged) != METHOD_NOT_FOUND

    async def is_session_lost(self, refused: httpx2.Request, **options: Any) -> bool:
        """Return True if a ping fails in the session of a request, and is answered in another session.

        With ``auth=None``, an option of ``send``, no new token is requested.
        """
        async with self._turn:
            if not self.forgotten and (name := refused.headers.get(SESSION)) is not None:
                status, error, _ = await self._ask(refused, PING, name, **options)
                failed = status != 0 and (status, error) != (HTTPStatus.OK, None)
                self.forgotten = failed and await self._begins_another(refused, error, **options)
        return self.forgotten

    async def _begins_another(self, refused: httpx2.Request, met: MCPError | None, **options: Any) -> bool:
        """Return True if the server begins another session, ended at once, and answers a ping there.

        Many servers begin a session with any credentials. `met` is the error of the refused ping: some servers know no
        ping.
        """
        status, _, name = await self._ask(refused, INITIALIZE, None, **options)
        if status != HTTPStatus.OK or name is None:
            return status == HTTPStatus.OK
        status, error, _ = await self._ask(refused, PING, name, **options)
        await self._ask(refused, None, name, **options)
        return status == HTTPStatus.OK and (error is None or _code(error) != _code(met))

    async def _ask(
        self, refused: httpx2.Request, message: Any, session: str | None, **options: Any
    ) -> tuple[int, MCPError | None, str | None]:
        """Send a message of our own with the token of a refused request. The message None ends a session.

        Returns:
            The status, the MCP error and the session of the answer. The status is 0 without a response to the message,
            and 204 if a success has no MCP response.
        """
        copied = ["authorization", *[MCP_PROTOCOL_VERSION_HEADER] * (message is not INITIALIZE)]
        headers = ACCEPT | {name: refused.headers[name] for name in copied if name in refused.headers}
        headers |= {} if session is None else {SESSION: session}
        method = "DELETE" if message is None else "POST"
        asked = self.client.build_request(method, refused.url, headers=headers, json=message)
        try:
            with trio.move_on_after(5.0):  # a refusal comes at once; silence means that only the request was refused
                answer = await self.client.send(asked, stream=True, follow_redirects=False, **options)
                body, error = await read_short(answer)
                if message is PING and (answer.is_success or error is not None):
                    (answer_in if answer.is_success else check_refusal)(body, PING_ID)
                return answer.status_code, error, answer.headers.get(SESSION)
        except NoAnswer:
            return HTTPStatus.NO_CONTENT, None, None
        except Exception:
            pass  # proves nothing about the refusal; other requests notice if the server is gone
        return 0, None, None


def _code(error: MCPError | None) -> int | None:
    return None if error is None else error.code
