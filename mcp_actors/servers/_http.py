"""Servers that are reached over streamable HTTP.

Who owns what. The actor's owner task enters `open_http_link` and leaves it. Between, one background task of the link
owns the HTTP client and the SDK's transport: it enters both, waits until the link is left, and leaves both. It is a
task of its own because the SDK's transport answers what it cannot bear by cancelling everything inside it: here that
ends this task, the session above reads the end of its stream, and the owner gets no `Cancelled` that nobody asked for.

What the SDK's transport cannot bear is kept from it (see `_containment`), so a request that fails, fails alone. The
connection is lost when the server cannot be reached any more (see `_reach`), or does not know the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import httpx2
import trio
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError

from .._collapse import leaves
from .._errors import ConnectFailed
from ..config import resolve_headers
from ._background import Background, open_background
from ._containment import ContainedClient, posted
from ._credentials import resolve_credentials
from ._discretion import discreet
from ._exchange import current_exchange
from ._http_failures import HttpFailures
from ._lifeline import Lifeline
from ._obituary import Obituary
from ._streams import MessageReader, OpenStreams, Stream

if TYPE_CHECKING:
    import contextvars

    from mcp.client._transport import ReadStream, TransportStreams, WriteStream

    from ..config import Http, ServerConfig

__all__ = ["HttpLink", "open_http_link"]

TIMEOUT: Final = httpx2.Timeout(connect=10.0, write=30.0, read=None, pool=None)
"""Seconds for what tells that the network is broken. None for what only tells that a server is slow, or we are busy:
deadlines are the caller's, and a time-out here would end the whole connection, not one request."""

MIN_CONNECTIONS: Final = 50
"""Connections allowed however few requests are: server-sent streams hold one each."""

SPARE_CONNECTIONS: Final = 4
"""Beyond one per request in flight: the stream of notices, a probe, a cancellation, the end of the session."""

KEEPALIVE: Final = 60.0
"""Seconds that an unused connection is kept."""

CAUSE_WAIT: Final = 0.5
"""Seconds from the end of the stream to the end of the SDK's transport, which brings the cause. Usually no time."""

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""The longest message in an event stream, as for stdio. The SDK's own limit of 1 MiB fails honest results."""

BAD_EVENT: Final = "Failed to parse SSE message: "
EVENT_TOO_LONG: Final = "SSE stream failed: Server-sent event exceeded"
"""How the errors begin that the SDK makes up for an event it cannot read. A server has no reason to say this."""


class _WatchedReader(MessageReader):
    """The SDK's stream of messages, which also notes its end, and what only the SDK can see of a bad answer."""

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        lifeline: Lifeline,
        failures: HttpFailures,
        transport_ended: trio.Event,
    ) -> None:
        self._inner = inner
        self._lifeline = lifeline
        self._failures = failures
        self._transport_ended = transport_ended

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context in which the last message was sent; the session starts its handler in that."""
        context: contextvars.Context | None = getattr(self._inner, "last_context", None)
        return context

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        try:
            item = await self._inner.receive()
        except anyio.EndOfStream:
            # The SDK ends this stream before it raises what ended it.
            with trio.move_on_after(CAUSE_WAIT):
                await self._transport_ended.wait()
            self._lifeline.lose()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCError) and self.last_context:
            self.last_context.run(self._note_bad_event, item.message.error.message)
        return item

    def _note_bad_event(self, words: str) -> None:
        """See whether an error is the SDK's own, about an event it could not read; runs in the request's context."""
        if words.startswith(EVENT_TOO_LONG):
            current_exchange().failure = self._failures.too_long(MAX_EVENT_BYTES)
        elif words.startswith(BAD_EVENT):
            current_exchange().failure = self._failures.lost("it sent an event that is no message of MCP")

    async def aclose(self) -> None:
        """Stop reading."""
        self._lifeline.closing = True
        await self._inner.aclose()


class _WatchedWriter(Stream):
    """The SDK's stream of outgoing messages, which also notes that this side has begun to close."""

    def __init__(self, inner: WriteStream[SessionMessage], lifeline: Lifeline) -> None:
        self._inner = inner
        self._lifeline = lifeline

    async def send(self, item: SessionMessage, /) -> None:
        """Hand one message to the SDK's transport, and let the context in which it posts know what it is."""
        token = posted.set(item.message)
        try:
            with discreet():
                await self._inner.send(item)
        finally:
            posted.reset(token)

    async def aclose(self) -> None:
        """Take no more messages. The SDK's transport ends its other stream in turn, which is no loss."""
        self._lifeline.closing = True
        await self._inner.aclose()


class HttpLink:
    """A link to an HTTP endpoint."""

    pid: None = None
    malformed_lines: int = 0

    def __init__(
        self,
        config: ServerConfig,
        transport: Http,
        url: str,
        client: httpx2.AsyncClient,
        lifeline: Lifeline,
        background: Background,
    ) -> None:
        self._name = config.name
        self._stop_timeout = config.stop_timeout
        self._lifeline = lifeline
        self._client = client
        self._shown = str(httpx2.URL(url).copy_with(query=None, fragment=None))
        self._failures = HttpFailures(config.name, transport.display_url)
        self._contained = ContainedClient(
            client,
            url=url,
            shown=self._shown,
            failures=self._failures,
            max_body_bytes=MAX_EVENT_BYTES,
            lifeline=lifeline,
            background=background,
        )
        self._opened = trio.Event()
        self._left = trio.Event()
        self._ended = trio.Event()
        self.endpoint = transport.display_url
        self.target: OpenStreams

    def __repr__(self) -> str:
        state = "closed" if self._left.is_set() else "lost" if self.lost else "open"
        return f"<HttpLink {self._name!r} {self.endpoint}, {state}>"

    @property
    def lost(self) -> bool:
        """The server cannot be reached any more, or the connect failed, while we had not begun to close."""
        return self._lifeline.lost

    @property
    def failure(self) -> Exception | None:
        """Why it was lost."""
        return self._lifeline.failure

    def obituary(self) -> Obituary:
        """Return an empty one: there is no process of ours."""
        return Obituary()

    async def wait_obituary(self) -> Obituary:
        """Return an empty one: there is no process of ours."""
        await trio.lowlevel.checkpoint()
        return Obituary()

    async def run(self) -> None:
        """Own the HTTP client and the SDK's transport, from here until the link is left or the transport fails."""
        try:
            with discreet():
                async with self._client, self._transport() as (reader, writer):
                    watched = _WatchedReader(reader, self._lifeline, self._failures, self._ended)
                    self.target = OpenStreams(watched, _WatchedWriter(writer, self._lifeline))
                    self._opened.set()
                    await self._left.wait()
        except Exception as error:
            self._lifeline.lose(first_failure(error))
        finally:
            self._ended.set()

    def _transport(self) -> AbstractAsyncContextManager[TransportStreams]:
        return streamable_http_client(self._shown, http_client=self._contained, max_sse_event_size=MAX_EVENT_BYTES)

    async def wait_open(self) -> None:
        """Wait until there is a target. That is no matter of the network: nothing is sent yet."""
        await self._opened.wait()

    async def close(self) -> None:
        """End the session on the server, if it answers within ``stop_timeout``, and all connections.

        **Cancellation**: does not interrupt it; the server would keep a session that nobody uses. When the time is
        over, the task that owns the connections is cancelled (see `open_background`).
        """
        self._lifeline.closing = True
        self._left.set()
        with trio.move_on_after(self._stop_timeout, shield=True):
            await self._ended.wait()


def _make_client(url: str, headers: dict[str, str], max_in_flight: int) -> tuple[str, httpx2.AsyncClient]:
    """Make the HTTP client; return it and the URL to use with it, without user name and password.

    They are sent all the same. `httpx2` logs every URL, and so would log them.
    """
    parsed = httpx2.URL(url)
    user_info = (parsed.username, parsed.password)
    client = httpx2.AsyncClient(
        headers=headers,
        auth=httpx2.BasicAuth(*user_info) if any(user_info) else None,
        timeout=TIMEOUT,
        limits=httpx2.Limits(
            max_connections=max(MIN_CONNECTIONS, max_in_flight + SPARE_CONNECTIONS), keepalive_expiry=KEEPALIVE
        ),
    )
    return str(parsed.copy_with(userinfo=b"")), client


def first_failure(error: Exception) -> Exception:
    """Take the first failure out of the groups that the SDK's task groups wrap it in; later ones become notes."""
    first, *others = (leaf for leaf in leaves(error) if isinstance(leaf, Exception))
    for other in others:
        first.add_note(f"at the same time: {type(other).__name__}: {other}")
    return first


@asynccontextmanager
async def open_http_link(
    config: ServerConfig, transport: Http, *, on_lost: Callable[[], None]
) -> AsyncIterator[HttpLink]:
    """Prepare to talk to the endpoint; nothing is sent before the session that uses the link sends something.

    Raises:
        ConnectFailed: a value of the headers cannot be resolved, or what the environment says about certificates or
            proxies cannot be used.
    """
    headers = await resolve_credentials(resolve_headers, transport.headers, server=config.name, field="headers")
    try:
        # In a thread, because reading the certificates of this machine takes some 25 ms.
        url, client = await trio.to_thread.run_sync(_make_client, transport.url, headers, config.max_in_flight)
    except Exception as error:
        raise ConnectFailed(
            # Not the text of the error: it may show the URL of a proxy, password and all.
            f"server {config.name!r}: the HTTP client cannot be set up ({type(error).__name__}); check SSL_CERT_FILE, "
            "SSL_CERT_DIR and the proxy variables of the environment",
            server=config.name,
            phase="configure",
            hopeless=True,
        ) from error
    async with open_background() as background:
        link = HttpLink(config, transport, url, client, Lifeline(on_lost), background)
        background.start_soon(link.run, name=f"{config.name}:http")
        try:
            await link.wait_open()
            yield link
        finally:
            await link.close()
