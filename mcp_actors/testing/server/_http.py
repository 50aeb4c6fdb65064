"""Serve a script over HTTP.

Streamable HTTP is at ``/mcp``, HTTP with SSE at ``/sse``.
"""

from __future__ import annotations

import json
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import anyio
import h11
import trio
from mcp.server.sse import SseServerTransport

from ._behavior import CONNECTION, Behavior, Garble, HttpError, Noise
from ._connection import Connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._behavior import Script


# --- Run an ASGI application on one HTTP connection, in Trio ----------------------------------------------------------

# It is small because its only client is a test: no pipelining, no upgrade, no limits.


async def serve_asgi(stream: trio.SocketStream, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
    """Answer the requests of a connection, one after the other, until the client closes it, even within a request."""
    http = h11.Connection(h11.SERVER)
    async with stream:
        with suppress(h11.RemoteProtocolError, OSError):  # also if its socket is closed before its address is read
            while True:
                event = await _next_event(http, stream)
                if not isinstance(event, h11.Request):
                    return
                body = b""
                while isinstance(part := await _next_event(http, stream), h11.Data):
                    body += part.data
                await _Exchange(http, stream, event, body).run(app)
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    return
                http.start_next_cycle()


async def _next_event(http: h11.Connection, stream: trio.SocketStream) -> Any:
    while True:
        event = http.next_event()
        if event is not h11.NEED_DATA:
            return event
        http.receive_data(await _receive(stream))


async def _receive(stream: trio.SocketStream) -> bytes:
    """Return the next bytes; empty if the connection has ended in any way, also by a reset of this side."""
    try:
        return bytes(await stream.receive_some())
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""


class _Exchange:
    """One request and its response."""

    def __init__(self, http: h11.Connection, stream: trio.SocketStream, request: h11.Request, body: bytes) -> None:
        self._http = http
        self._stream = stream
        self._body: bytes | None = body
        self._left = trio.Event()
        path, _, query = request.target.partition(b"?")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(name, value) for name, value in request.headers],
            "client": stream.socket.getpeername(),
            "server": stream.socket.getsockname(),
        }

    async def run(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            await app(self._scope, self._receive, self._send)
            nursery.cancel_scope.cancel("the response is complete")

    async def _watch(self) -> None:
        """Notice that the client has left, also while nothing is sent."""
        while data := await _receive(self._stream):
            self._http.receive_data(data)
        self._left.set()

    async def _receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Any) -> None:
        if event["type"] == "http.response.start":
            headers = list(event.get("headers", []))
            await self._write(h11.Response(status_code=event["status"], headers=headers))
        else:
            if event.get("body"):
                await self._write(h11.Data(event["body"]))
            if not event.get("more_body"):
                await self._write(h11.EndOfMessage())

    async def _write(self, part: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        if self._http.our_state is h11.DONE:  # if a session ends while it answers, the SDK answers a second time
            return
        # After a client has left, an application may go on sending.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_all(self._http.send(part) or b"")


CLOSE_GRACE: Final = 1.0
SESSION: Final = b"mcp-session-id"
RESET: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket resets its connection."""


class Endpoint:
    """A port with a server behind it, which can be away, and comes back as a new process would: without its sessions.

    Attributes:
        port: the port.
        process: the server that runs now; None until it has started.
        started: set when one has started.
    """

    port: int

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listening: trio.CancelScope | None = None
        self._streams: set[trio.SocketStream] = set()
        self.process: _HttpProcess | None = None
        self.started = trio.Event()
        self._fewer = trio.Event()

    async def run(self, host: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, with one server after the other."""
        self._host = host
        self.port = 0
        async with trio.open_nursery() as self._nursery:
            await self.set_listening(True)
            if self._script.refusing:  # it has a port now, at which to refuse
                await self.set_listening(False)
            task_status.started()
            while True:
                await _HttpProcess(self._script, self).run()

    async def set_listening(self, listening: bool) -> None:
        """Refuse connections, or take them again on the same port."""
        await trio.lowlevel.checkpoint()
        if self._listening is not None:
            self._listening.cancel("the scripted server is down")
            self._listening = None
        if listening:
            self._listening = trio.CancelScope()
            await self._nursery.start(self._listen, self._listening)
        else:
            self.reset()

    async def _listen(self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        with scope:
            listeners = await trio.open_tcp_listeners(self.port, host=self._host)
            self.port = listeners[0].socket.getsockname()[1]
            task_status.started()
            await trio.serve_listeners(self._serve, listeners, handler_nursery=self._nursery)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._streams.add(stream)
        try:
            await serve_asgi(stream, self._answer)
        except* anyio.ClosedResourceError:
            pass  # the SDK was about to answer when its session was closed
        finally:
            self._streams.discard(stream)
            self._fewer.set()

    async def close(self) -> None:
        """Reset all connections, and give their tasks a moment to end by themselves."""
        self.reset()
        with trio.move_on_after(CLOSE_GRACE):
            while self._streams:
                self._fewer = trio.Event()
                await self._fewer.wait()

    async def _answer(self, *args: Any) -> None:
        while self.process is None:
            await self.started.wait()
        await self.process(*args)

    def reset(self) -> None:
        """Reset all connections."""
        for stream in list(self._streams):
            with suppress(OSError):
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            stream.socket.close()


class _HttpProcess(Connection):
    """The server behind the port, from one crash to the next."""

    def __init__(self, script: Script, endpoint: Endpoint) -> None:
        super().__init__(script)
        self.behavior = Behavior(script)
        self._script = script
        self._endpoint = endpoint
        self._forgotten: set[bytes] = set()
        self._sessions: set[bytes] = set()
        self._scope = trio.CancelScope()
        self._handlers: set[trio.CancelScope] = set()
        self._app = self.behavior.server.streamable_http_app()
        self._sse = SseServerTransport("/messages/")

    async def run(self) -> None:
        """Serve until the crash."""
        try:
            with self._scope:
                async with self._app.router.lifespan_context(self._app), trio.open_nursery() as self._tasks:
                    self._endpoint.process = self
                    self._endpoint.started.set()
                    await trio.sleep_forever()
        finally:
            self._script.disconnect(self)

    def cut(self) -> None:
        self._endpoint.process, self._endpoint.started = None, trio.Event()
        self._endpoint.reset()
        for scope in (*self._handlers, self._scope):
            scope.cancel("the scripted server crashes")

    def start_soon(self, fn: Any) -> None:
        self._tasks.start_soon(fn)

    def forget_sessions(self) -> None:
        """Answer all requests of open sessions with 404, as the specification has it for unknown ones."""
        self._forgotten |= self._sessions

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        CONNECTION.set(self)
        if scope["path"] == "/sse":  # ends with its socket; the SDK would leave its streams open if it were cancelled
            await self._handle(scope, receive, send)
            return
        with trio.CancelScope() as handler:
            self._handlers.add(handler)
            try:
                await self._handle(scope, receive, send)
            finally:
                self._handlers.discard(handler)

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:
        await self._thawed.wait()
        headers = dict(scope["headers"])
        if headers.get(SESSION) in self._forgotten:
            await _respond(
                send, 404, {}, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}'
            )
        elif scope["path"] == "/sse":
            server = self.behavior.server
            async with self._sse.connect_sse(scope, receive, self._watching(send)) as (reader, writer):
                await server.run(reader, writer, server.create_initialization_options())
        else:
            await self._post(scope, receive, send)

    async def _post(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on to the SDK, unless it is to be answered with an HTTP status."""
        message = await receive()
        if isinstance(fault := self._refusal(message.get("body", b"")), HttpError):
            await _respond(send, fault.status, fault.headers, b"")
            return
        first = [message]

        async def replay() -> Any:
            return first.pop() if first else await receive()

        app = self._sse.handle_post_message if scope["path"] == "/messages/" else self._app
        await app(scope, replay, self._watching(send))

    def _refusal(self, body: bytes) -> object:
        try:
            request = json.loads(body or b"null")
        except ValueError:
            return None
        if not isinstance(request, dict) or "method" not in request:
            return None
        if request["method"] == "notifications/cancelled":
            self.behavior.note_cancelled(request.get("params") or {})
        if "id" not in request:
            return None
        return self._script.take(request["method"], (request.get("params") or {}).get("name"), http=True)

    def _watching(self, send: Any) -> Any:
        """Return a `send` that keeps the ids of sessions, and garbles or doubles answers."""
        start: Any = None

        async def watch(event: Any) -> None:
            nonlocal start
            await self._thawed.wait()
            if event["type"] == "http.response.start":
                start = event
                self._sessions |= {value for name, value in event["headers"] if name.lower() == SESSION}
                if _is_json(event):  # its length may change
                    return
            else:
                event = {**event, "body": self._faulty(event.get("body", b""), once=_is_json(start))}
                if _is_json(start):
                    await send(_with_length(start, len(event["body"])))
            await send(event)

        return watch

    def _faulty(self, body: bytes, *, once: bool) -> bytes:
        """Return a body, or a part of one, with what is to be garbled or doubled in it."""
        for request_id, fault in list(self._marks.items()):
            if b'"id":%s' % json.dumps(request_id).encode() in body.replace(b" ", b"") and b'"method"' not in body:
                del self._marks[request_id]
                if isinstance(fault, Garble):
                    return fault.line if once else _event(fault.line)
                if once:
                    return body
                return _event(fault.line) + body if isinstance(fault, Noise) else body + body
        return body


def _event(line: bytes) -> bytes:
    return b"event: message\r\ndata: %s\r\n\r\n" % line


def _is_json(start: Any) -> bool:
    """Return True if a response is one JSON value, and not a stream of events."""
    return any(name.lower() == b"content-type" and b"json" in value for name, value in start["headers"])


def _with_length(start: Any, length: int) -> Any:
    others = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    return {**start, "headers": [*others, (b"content-length", str(length).encode())]}


async def _respond(send: Any, status: int, headers: Any, body: bytes) -> None:
    pairs = [(name.lower().encode(), str(value).encode()) for name, value in headers.items()]
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"application/json")
    await send({"type": "http.response.start", "status": status, "headers": [*pairs, length, kind]})
    await send({"type": "http.response.body", "body": body})
