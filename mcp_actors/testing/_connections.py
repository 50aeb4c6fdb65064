"""Connections to a scripted server, in-process, over stdio or over HTTP.

An in-process or stdio connection has its own SDK server. Requests to an HTTP port share an SDK server until a crash.
A test may run outside the Trio run of a connection, so `crash` and `notify` pass their work to that run.

Owns: SDK servers; tasks of connections; sockets.
Writes: the script's lists of connections and received requests; messages to clients.
Calls: transports, _behavior, _signal.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import anyio
import h11
import trio
from mcp.server.sse import SseServerTransport
from mcp.shared.message import SessionMessage
from mcp.types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from ..transports import MessageWriter
from ._behavior import CONNECTION, Behavior, Connected, Duplicate, Garble, HttpError, Noise, Received, Script
from ._signal import Signal, post


class ServedConnection(Connected, ABC):
    behavior: Behavior

    def __init__(self, script: Script) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._marks: dict[object, Garble | Duplicate | Noise] = {}
        self._thawed = Signal()
        self._thawed.set()
        self.number: int = script.connect(self)

    def mark(self, request_id: object, fault: Garble | Duplicate | Noise) -> None:
        self._marks[request_id] = fault

    def freeze(self) -> None:
        if self._thawed.is_set():  # or tasks that wait for the former signal would wait for ever
            self._thawed = Signal()

    def thaw(self) -> None:
        self._thawed.set()

    def crash(self) -> None:
        post(self._token, self.cut)

    def notify(self) -> None:
        post(self._token, lambda: self.start_soon(self.behavior.notify))

    @abstractmethod
    def cut(self) -> None:
        """End at once, in the run of the connection."""

    @abstractmethod
    def start_soon(self, fn: Any) -> None:
        """Start a task that ends with the connection."""


class StreamConnection(ServedConnection):
    """A connection through two streams of messages, with its own SDK server."""

    def __init__(self, script: Script, reader: Any) -> None:
        super().__init__(script)
        self.behavior: Behavior = Behavior(script)
        self._script = script
        self._reader = reader
        self._tasks: trio.Nursery | None = None
        self._scope = trio.CancelScope()

    async def serve(self) -> None:
        CONNECTION.set(self)
        try:
            with self._scope:
                async with trio.open_nursery() as self._tasks:
                    options = self.behavior.server.create_initialization_options()
                    await self.behavior.server.run(self._reader, _ServerMessages(self), options)
                    self._tasks.cancel_scope.cancel("the client has left")
        finally:
            self._tasks = None
            self._script.disconnect(self)

    def cut(self) -> None:
        self._scope.cancel("the scripted server crashes")
        self._thawed.set()

    def start_soon(self, fn: Any) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(fn)

    async def answers(self, item: SessionMessage) -> bool:
        """Return True if a client's message is answered here, and not by the SDK.

        A legacy server does not know ``server/discover``. If the SDK answered it, ``initialize`` would be refused.
        """
        message = item.message
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.behavior.note_cancelled(message.params or {})
        if not isinstance(message, JSONRPCRequest) or message.method != "server/discover":
            return False
        if self._script.era != "legacy":
            return False
        self._script.receive(Received(message.method, connection=self.number))
        error = ErrorData(code=METHOD_NOT_FOUND, message="Method not found", data=message.method)
        await self.pass_on(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))
        return True

    async def pass_on(self, item: SessionMessage) -> None:
        """Send a message, with the fault marked on it, once thawed."""
        await self._thawed.wait()
        message = item.message
        answered = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        match self._marks.pop(answered, None) if answered is not None else None:
            case Garble(line):
                await self.deliver_raw(line)
            case Noise(line):
                await self.deliver_raw(line)
                await self.deliver(item)
            case Duplicate():
                await self.deliver(item)
                await self.deliver(item)
            case None:
                await self.deliver(item)

    @abstractmethod
    async def deliver(self, item: SessionMessage) -> None:
        """Send a message to the client."""

    @abstractmethod
    async def deliver_raw(self, line: bytes) -> None:
        """Send a line to the client, perhaps not a message."""


class _ServerMessages(MessageWriter):
    def __init__(self, connection: StreamConnection) -> None:
        self._connection = connection

    async def send(self, item: SessionMessage, /) -> None:
        await anyio.lowlevel.checkpoint()
        await self._connection.pass_on(item)

    async def aclose(self) -> None:
        """Do nothing: the connection ends with `StreamConnection.serve`."""


# --- Serve a script over bytes, one message per line ------------------------------------------------------------------


class LineConnection(StreamConnection):
    """A connection over bytes, as stdio has. The other side of `stream` may be killed at any time."""

    def __init__(self, script: Script, stream: trio.SocketStream) -> None:
        self._incoming, reader = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        super().__init__(script, reader)
        self._stream = stream
        self._writing = trio.Lock()

    async def serve(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive)
            try:
                await super().serve()
            finally:
                nursery.cancel_scope.cancel("the connection is over")

    async def _receive(self) -> None:
        rest = b""
        with self._incoming:
            while data := await _receive(self._stream):
                await self._thawed.wait()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    item = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                    if not await self.answers(item):
                        self._incoming.send_nowait(item)

    async def deliver(self, item: SessionMessage) -> None:
        await self.deliver_raw(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def deliver_raw(self, line: bytes) -> None:
        with suppress(trio.BrokenResourceError):
            async with self._writing:
                await self._stream.send_all(line + b"\n")


# --- Serve a script over HTTP -----------------------------------------------------------------------------------------

SESSION_HEADER: Final = b"mcp-session-id"


class Endpoint:
    """A port whose server can go away, and comes back like a new process: without sessions."""

    port: int

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listening: trio.CancelScope | None = None
        self._streams: set[trio.SocketStream] = set()
        self.process: _HttpProcess | None = None
        self.started = trio.Event()
        self._fewer = trio.Event()

    async def run(self, host: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._host = host
        self.port = 0
        async with trio.open_nursery() as self._nursery:
            await self.set_listening(True)
            if self._script.refusing:  # the port is known now, so refuse there
                await self.set_listening(False)
            task_status.started()
            while True:
                await _HttpProcess(self._script, self).run()

    async def set_listening(self, listening: bool) -> None:
        """Refuse connections, or accept again on the same port."""
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
            pass  # a session was closed while the SDK answered
        finally:
            self._streams.discard(stream)
            self._fewer.set()

    async def close(self) -> None:
        """Reset all connections, and give their tasks a moment to end."""
        self.reset()
        with trio.move_on_after(1.0):
            while self._streams:
                self._fewer = trio.Event()
                await self._fewer.wait()

    async def _answer(self, *args: Any) -> None:
        while self.process is None:
            await self.started.wait()
        await self.process(*args)

    def reset(self) -> None:
        for stream in list(self._streams):
            with suppress(OSError):
                # Linger on, for 0 s: close() resets the connection.
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.socket.close()


class _HttpProcess(ServedConnection):
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
        self._app = self.behavior.server.streamable_http_app()  # at ``/mcp``
        self._sse = SseServerTransport("/messages/")

    async def run(self) -> None:
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
        """Answer all requests of open sessions with 404, as specified for unknown sessions."""
        self._forgotten |= self._sessions

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        CONNECTION.set(self)
        if scope["path"] == "/sse":  # ends with its socket; if cancelled, the SDK leaves streams open
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
        if dict(scope["headers"]).get(SESSION_HEADER) in self._forgotten:
            gone = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}'
            await _respond(send, 404, {}, gone)
        elif scope["path"] == "/sse":
            server = self.behavior.server
            async with self._sse.connect_sse(scope, receive, self._watching(send)) as (reader, writer):
                await server.run(reader, writer, server.create_initialization_options())
        else:
            await self._post(scope, receive, send)

    async def _post(self, scope: Any, receive: Any, send: Any) -> None:
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
        """Return a `send` that notes session ids, and garbles or doubles answers."""
        start: Any = None

        async def watch(event: Any) -> None:
            nonlocal start
            await self._thawed.wait()
            if event["type"] == "http.response.start":
                start = event
                self._sessions |= {value for name, value in event["headers"] if name.lower() == SESSION_HEADER}
                if _is_json(event):  # the length may change
                    return
            else:
                event = {**event, "body": self._faulty(event.get("body", b""), once=_is_json(start))}
                if _is_json(start):
                    await send(_with_length(start, len(event["body"])))
            await send(event)

        return watch

    def _faulty(self, body: bytes, *, once: bool) -> bytes:
        """Return a body, or a part, with its fault applied."""
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


# --- Run an ASGI application on one HTTP connection, in Trio ----------------------------------------------------------

# Small, because its only client is a test: no pipelining, no upgrade, no limits.


async def serve_asgi(stream: trio.SocketStream, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
    """Answer the requests of a connection in order until the client closes it, even within a request."""
    http = h11.Connection(h11.SERVER)
    async with stream:
        with suppress(h11.RemoteProtocolError, OSError):  # also if the socket is closed before its address is read
            while True:
                event = await _next_event(http, stream)
                if not isinstance(event, h11.Request):
                    return
                body = b""
                while isinstance(part := await _next_event(http, stream), h11.Data):
                    body += part.data
                await _RequestResponse(http, stream, event, body).run(app)
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
    """Return the next bytes; empty after any end, including a reset of this side."""
    try:
        return bytes(await stream.receive_some())
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""


class _RequestResponse:
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
            await self._write(h11.Response(status_code=event["status"], headers=list(event.get("headers", []))))
        else:
            if event.get("body"):
                await self._write(h11.Data(event["body"]))
            if not event.get("more_body"):
                await self._write(h11.EndOfMessage())

    async def _write(self, part: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        if self._http.our_state is h11.DONE:  # the SDK answers twice if a session ends while answering
            return
        # An application may go on sending after the client has left.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_all(self._http.send(part) or b"")
