"""Send requests of httpx2 over connections of our own, in HTTP/1.1.

httpx2 does auth, hooks, cookies and redirects. This file replaces its transport, which took half of a call's CPU
instructions. A cancellation or an error closes the connection in the same step: the next bytes could be the response to
the failed request.

Owns: connections to servers.
Writes: requests to servers; the protocols that TLS offers.
Calls: _bodies, _http11.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Final, Self, TypeAlias

import httpx2
import trio
from attrs import define, field

from ..._collapse import first_of, leaves
from ..._tasks import TimeSlice
from ._bodies import BODY_PIECE, Reads
from ._http11 import HttpReply, head_of, pieces_to_send

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Origin: TypeAlias = tuple[str, str, int]
Timeouts: TypeAlias = Mapping[str, float | None]


@contextmanager
def _phase(seconds: float | None, late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    """Limit a phase of a request to some seconds, and convert errors. Without a limit there is no cancel scope."""
    try:
        with nullcontext() if seconds is None else trio.fail_after(seconds):
            yield
    except trio.TooSlowError as error:
        raise late(str(error)) from error
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
        group = error.__cause__  # an error for each address of the host
        raise broken(str(error)) from (first_of(leaves(group)) if isinstance(group, BaseExceptionGroup) else error)


class Channel(trio.abc.Stream):
    """One connection, and the received bytes that belong to no response yet.

    TLS runs over this stream. Its methods use the socket. Unlike in Trio's streams, a write that need not wait has no
    checkpoint: the task of a request waits once, for the response.

    The task that sends a request makes the connection, writes, and reads the head of the response; the task that has
    the response reads the body, and closes the response. No task reads an idle connection: its end shows at the next
    use.

    Attributes:
        reply: the response that is being read, or was read last.
        since: the time when the last request left the connection.
        read: counts the reads from the socket (see `refuse_surplus`).
    """

    def __init__(self, origin: Origin, stream: trio.SocketStream) -> None:
        self.origin = origin
        self.buffer = bytearray()
        self.reply = HttpReply("", reusable=False)
        self.since = -math.inf
        self.read = Reads(self.receive_some)
        self._timeouts: Timeouts = {}
        self._socket = socket.socket(fileno=stream.socket.detach())
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._stream: trio.abc.Stream = self

    async def secure(self, context: ssl.SSLContext, name: str) -> None:
        """Begin TLS, and check the certificate."""
        # https_compatible: TLS may end without a closing message, as is usual for HTTPS.
        self._stream = tls = trio.SSLStream(self, context, server_hostname=name, https_compatible=True)
        await tls.do_handshake()

    async def ask(self, head: memoryview, body: memoryview, reply: HttpReply, timeouts: Timeouts) -> None:
        """Write a request, and read the head of its response."""
        self.reply, self._timeouts = reply, timeouts
        with suppress(httpx2.WriteError):  # a server may answer, and close, before it has read all of the request
            for piece in pieces_to_send(head, body):
                with _phase(None, httpx2.WriteTimeout, httpx2.WriteError):
                    await self._stream.send_all(piece)
        for _ in reply.take_head(self.buffer):
            if not await self.receive():
                reply.check_end()

    async def receive(self) -> bool:
        """Read what comes next into the buffer; return False at the end."""
        with _phase(self._timeouts.get("read"), httpx2.ReadTimeout, httpx2.ReadError):
            data = await self._stream.receive_some(BODY_PIECE)
        self.buffer += data
        return bool(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all data to the socket, nearly always at once."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await self.wait_send_all_might_not_block()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket takes more."""
        with _phase(self._timeouts.get("write"), httpx2.WriteTimeout, httpx2.WriteError):
            await trio.lowlevel.wait_writable(self._socket)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes from the socket; empty at the end."""
        while self._socket.fileno() >= 0:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                data = self._socket.recv(max_bytes or BODY_PIECE)
            except BlockingIOError:
                continue
            self.read.count += 1
            return data
        raise trio.ClosedResourceError("this connection was closed")

    @property
    def reusable(self) -> bool:
        """True if a request may be sent: the last response is complete, and neither bytes nor an end follow."""
        return self.reply.done and self.reply.reusable and not self.buffer and not self._poll.poll(0)

    def get_extra_info(self, info: str) -> object:
        """Return the socket, as the network streams of httpx2 do."""
        return self._socket if info == "socket" else None

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


@define(eq=False)
class ReplyBody(httpx2.AsyncByteStream):
    """The body of a response. Not a generator, whose end would be left to the garbage collector."""

    _channel: Channel
    _pieces: Iterator[bytes]
    _leave: Callable[[Channel], None]
    _closed: bool = field(default=False, init=False)
    _time_slice: TimeSlice = field(factory=TimeSlice, init=False)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            if piece:
                await self._time_slice.checkpoint()
                return piece
            if not await self._channel.receive():
                self._channel.reply.check_end()
                break
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Give the connection back, or close it if a part of the body is still to come. Not a checkpoint."""
        if not self._closed:
            self._closed = True
            self._leave(self._channel)


class KeepAliveTransport(httpx2.AsyncBaseTransport):
    """Sends requests, over as few connections as possible. More connections do not make a request slower.

    No request is sent twice here. Proxies, HTTP/2 and a configured client need the transport of httpx2.

    Args:
        context: the settings of TLS.
        limits: the maximum of connections, and the seconds for which an idle one is kept.
    """

    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits) -> None:
        assert limits.max_connections is not None
        assert limits.keepalive_expiry is not None
        context.set_alpn_protocols(["http/1.1"])
        self._context = context
        self._expiry = limits.keepalive_expiry
        self._slots = trio.Semaphore(limits.max_connections)
        self._busy = set[Channel]()
        self._idle = OrderedDict[Channel, None]()  # in order of the last use

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return its response as soon as its head has come.

        **Cancellation**: closes the connection.

        Raises:
            httpx2.TransportError: there is no response.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # here, because writing need not be a checkpoint
        timeouts, channel = request.extensions.get("timeout", {}), None
        origin, head = _origin_of(request.url), head_of(request)
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            with _phase(timeouts.get("pool"), httpx2.PoolTimeout, httpx2.NetworkError):
                await self._slots.acquire()
        try:
            if (channel := self._kept(origin)) is None:
                with _phase(timeouts.get("connect"), httpx2.ConnectTimeout, httpx2.ConnectError):
                    channel = Channel(origin, await trio.open_tcp_stream(*origin[1:]))
                    if origin[0] == "https":
                        await channel.secure(self._context, request.extensions.get("sni_hostname") or origin[1])
            self._busy.add(channel)
            # Not before there is a connection: a body that was read counts as sent.
            body = memoryview(b"".join([part async for part in request.stream]))  # type: ignore[union-attr]  # an AsyncClient's is
            reply = HttpReply(request.method, reusable=b"\r\nconnection: close\r\n" not in bytes(head).lower())
            await channel.ask(head, body, reply, timeouts)
        except BaseException:
            self._leave(channel)
            raise
        extensions = {"http_version": reply.version, "reason_phrase": reply.reason, "network_stream": channel}
        stream = ReplyBody(channel, reply.take_body(channel.buffer), self._leave)
        return httpx2.Response(reply.status, headers=reply.fields, stream=stream, extensions=extensions)

    def _kept(self, origin: Origin) -> Channel | None:
        """Take the idle connection of an origin that was used last and has neither ended nor expired.

        Without one, the caller makes a connection. If that exceeds the limit, close the connection that has been idle
        longest, which is to another origin.
        """
        while (channel := next((each for each in reversed(self._idle) if each.origin == origin), None)) is not None:
            del self._idle[channel]
            if trio.current_time() - channel.since < self._expiry and channel.reusable:
                return channel
            channel.close()
        if len(self._idle) > self._slots.value:
            self._idle.popitem(last=False)[0].close()
        return None

    def _leave(self, channel: Channel | None) -> None:
        """End a request: keep its connection if another request may follow, and close those that have expired."""
        self._slots.release()
        if channel is not None:
            self._busy.discard(channel)
            channel.since = trio.current_time()
            if channel.reusable:
                self._idle[channel] = None
            else:
                channel.close()
        while self._idle and trio.current_time() - next(iter(self._idle)).since >= self._expiry:
            self._idle.popitem(last=False)[0].close()

    async def aclose(self) -> None:
        """Close all connections. Not a checkpoint."""
        for channel in (*self._busy, *self._idle):
            channel.close()


def _origin_of(url: httpx2.URL) -> Origin:
    if (port := DEFAULT_PORTS.get(url.scheme)) is None:
        raise httpx2.UnsupportedProtocol(f"Request URL has an unsupported protocol {url.scheme!r}.")
    return url.scheme, url.raw_host.decode("ascii"), url.port or port
