"""An HTTP server that misbehaves on request, made of sockets and threads.

It speaks MCP in three dialects: streamable HTTP in the legacy era (with sessions) or the modern one, at ``/mcp``; and
HTTP with SSE of 2024-11-05 at ``/sse``. Its tools: ``sleep`` does what it says; ``hold`` answers when the test lets it
(`FaultyServer.release`); ``slowly`` answers byte by byte when the test lets it, or, over SSE, accepts the call only
then; ``raw`` sends exactly the bytes that it was called with, with ``{id______}`` for the request's id, or
``{float_id__}`` for it as a float (in as many characters), and then does to the connection what ``end`` says:
``"keep"``, ``"close"`` or ``"reset"``.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ..processes import eventually

Era = Literal["modern", "legacy"]
End = Literal["keep", "close", "reset"]

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-06-18"
TOOLS: Final = [{"name": name, "inputSchema": {"type": "object"}} for name in ("sleep", "hold", "raw", "slowly")]

FORGOTTEN: Final = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "Session not found"}}'


class Raw(NamedTuple):
    """The bytes of an answer, and what becomes of the connection after them."""

    text: str
    end: End = "close"


class Request(NamedTuple):
    """One request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The message in it."""
        return json.loads(self.body) if self.body else {}


def response(status: int, body: str = "", *headers: str, kind: str = "application/json") -> str:
    """Write a whole HTTP response."""
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body.encode())}", f"Content-Type: {kind}", *headers]
    return "\r\n".join(lines) + "\r\n\r\n" + body


def with_id(text: str, number: object) -> str:
    """Put an id into a response."""
    head, _, body = text.partition("\r\n\r\n")
    body = body.replace("{id______}", json.dumps(number))
    return re.sub(r"Content-Length: \d+", f"Content-Length: {len(body.encode())}", head) + "\r\n\r\n" + body


def stream(events: str) -> str:
    """Write the beginning of a stream of events, which goes on until the connection ends."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{events}"


def answer(text: str = "fine") -> str:
    """Write the right answer to a call of a tool."""
    result = {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
    return json.dumps({"jsonrpc": "2.0", "id": "{id______}", "result": result}).replace('"{id______}"', "{id______}")


UNAUTHORIZED: Final = response(401, '{"error": "invalid_token"}')


class FaultyServer:
    """A running server.

    Attributes:
        requests: everything that came, in order.
        used: what was carried out: the arguments of each call of ``sleep`` and ``hold``.
        scripts: what is sent instead of the right answer, by the name of the tool, the method of the message, or the
            method of the request (``"GET"``).
        mute: the methods of messages that it does not answer.
        frozen: whether it answers nothing any more.
        unknown: what it answers to a request of a session that it does not know.
        token: the bearer token that it wants, if it wants one; all else is answered with `UNAUTHORIZED`.
    """

    def __init__(self, era: Era, certificate: Path | None = None) -> None:
        self.era = era
        self.requests: list[Request] = []
        self.used: list[dict[str, Any]] = []
        self.scripts: dict[str, Raw] = {}
        self.mute: set[str] = set()
        self.frozen = False
        self.unknown = response(404, FORGOTTEN)
        self.token: str | None = None
        self.port = 0
        self._holding = threading.Semaphore(0)
        self._held = threading.Semaphore(0)
        self._generation = 1
        self._asking: object = None
        self._connections: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._starting = threading.Lock()
        self._events: socket.socket | None = None
        self._writing = threading.Lock()
        self._tls = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self._listener: socket.socket
        self._accepting: threading.Thread
        self.listen()

    def url(self, path: str = "/mcp") -> str:
        """Where it is."""
        return f"http{'s' if self._tls is not None else ''}://127.0.0.1:{self.port}{path}"

    def listen(self) -> None:
        """Take connections, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._accepting = self._start(self._accept, self._listener)

    def refuse(self) -> None:
        """Take no new connections; those that there are go on, and all of them are known afterwards."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up `accept`
        self._listener.close()
        self._accepting.join(5)

    def die(self) -> None:
        """End at once, and forget everything."""
        self.refuse()
        self.forget()
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def end_idle(self) -> None:
        """End all connections but the stream of HTTP with SSE."""
        for connection in self._connections - {self._events}:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Forget the session, as if another process answered from now on; what is under way goes on."""
        self._generation += 1

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def methods(self) -> list[str]:
        """The methods of the received messages in order, or those of the requests without a message."""
        return [request.message.get("method", request.method) for request in self.requests]

    def close(self) -> None:
        """End, and wait until nothing is left."""
        self.die()
        self.release(1000)
        with self._starting:
            started = tuple(self._threads)
        for thread in started:
            thread.join(5)

    def release(self, number: int = 1) -> None:
        """Let calls of ``hold``, or bytes of ``slowly``, go on."""
        self._holding.release(number)

    async def held(self) -> None:
        """Wait until a call of ``hold`` has come."""
        await eventually(lambda: self._held.acquire(blocking=False))

    def session(self) -> str:
        """The id of the session that it knows; another one after each start."""
        return f"s3ss10n-{self._generation}"

    # ----------------------------------------------------------------------------------------------------------------

    def _start(self, fn: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=fn, args=args, name=f"faulty:{fn.__name__}")
        with self._starting:
            self._threads.add(thread)
            thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections.add(connection)
                self._start(self._serve, connection)

    def _serve(self, raw: socket.socket) -> None:
        connection = raw
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(raw, server_side=True)
            with connection, connection.makefile("rb") as incoming:
                while (request := read_request(incoming)) is not None:
                    self.requests.append(request)
                    silent = self.frozen or request.message.get("method") in self.mute
                    if not silent and self._answer(connection, request) != "keep":
                        break
        except OSError:
            pass  # the client has gone
        finally:
            connection.close()
            self._connections.discard(raw)
            self._threads.discard(threading.current_thread())

    def _answer(self, connection: socket.socket, request: Request) -> End:
        if request.target == "/moved":
            place = "/sse" if request.method == "GET" else "/mcp"
            return self._send(connection, response(307, "", f"Location: {place}"))
        message = request.message
        params = message.get("params", {})
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return self._send(connection, UNAUTHORIZED)
        names = (params.get("name"), message.get("method"), request.method)
        scripted = next((self.scripts[name] for name in names if name in self.scripts), None)
        if params.get("name") == "raw":
            scripted = Raw(**params["arguments"])
        if scripted is not None:
            self._asking = message.get("id", self._asking)  # a stream that is resumed has no message
            text = scripted.text.replace("{id______}", f"{self._asking!s:10}")
            if "{float_id__}" in text:
                text = text.replace("{float_id__}", f"{float(str(self._asking))!s:12}")
            return self._send(connection, text, scripted.end)
        if request.target.startswith(("/sse", "/messages")):
            return self._over_events(connection, request)
        if params.get("name") == "slowly":
            for byte in self._right(request):
                self._holding.acquire()
                self._send(connection, byte)
            return "keep"
        return self._send(connection, self._right(request))

    def _right(self, request: Request) -> str:
        """The right response over streamable HTTP."""
        message = request.message
        if request.method == "GET":
            return response(405)
        if request.method == "DELETE":
            return response(200)
        named = request.headers.get("mcp-session-id")
        if named is not None and named != self.session():
            return with_id(self.unknown, message.get("id"))
        if "id" not in message or "method" not in message:
            return response(202)
        body = json.dumps(self._answer_to(message))
        session = [f"Mcp-Session-Id: {self.session()}"] if message["method"] == "initialize" else []
        return response(200, body, *session)

    def _answer_to(self, message: dict[str, Any]) -> dict[str, Any]:
        result = self._result(message)
        key, value = ("error", {"code": -32601, "message": "no"}) if result is None else ("result", result)
        return {"jsonrpc": "2.0", "id": message["id"], key: value}

    def _result(self, message: dict[str, Any]) -> dict[str, Any] | None:
        who = {"name": "faulty", "version": "1"}
        modern = {"resultType": "complete"} if self.era == "modern" else {}
        kept = {"ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {}
        match message["method"]:
            case "server/discover" if self.era == "modern":
                about = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "serverInfo": who}
                return {**modern, **kept, **about}
            case "initialize":
                return {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": who}
            case "tools/list":
                return {**modern, **kept, "tools": TOOLS}
            case "tools/call":
                text = self._use(message["params"]["name"], message["params"].get("arguments") or {})
                return {**modern, "content": [{"type": "text", "text": text}], "isError": False}
        return None

    def _use(self, tool: str, arguments: dict[str, Any]) -> str:
        self.used.append(arguments)
        if tool == "hold":
            self._held.release()
            self._holding.acquire()
            return "released"
        time.sleep(arguments.get("seconds", 0))
        return f"slept {arguments.get('seconds')}"

    def _over_events(self, connection: socket.socket, request: Request) -> End:
        """The right thing to do over HTTP with SSE."""
        if request.method == "GET":
            self._events = connection
            events = f": a comment\n\nevent: endpoint\ndata: /messages?session={self.session()}\n\n"
            return self._send(connection, stream(events))
        if request.message.get("params", {}).get("name") == "slowly":
            self._held.release()
            self._holding.acquire()
        if not request.target.endswith(self.session()):
            return self._send(connection, response(404, "no such session"))
        self._send(connection, response(202))
        if "id" in request.message:
            self._start(self._emit_answer, request.message)
        return "keep"

    def _emit_answer(self, message: dict[str, Any]) -> None:
        with suppress(OSError):
            self.emit(json.dumps(self._answer_to(message)))
        self._threads.discard(threading.current_thread())

    def emit(self, data: str, end: End = "keep") -> None:
        """Send an event over the stream of HTTP with SSE; if that is to be closed, without the end of the event."""
        assert self._events is not None
        with self._writing:
            self._send(self._events, f"event: message\ndata: {data}" + ("\n\n" if end == "keep" else ""))
            if end != "keep":
                self._events.shutdown(socket.SHUT_RDWR)

    def _send(self, connection: socket.socket, text: str, end: End = "keep") -> End:
        connection.sendall(text.encode("latin-1"))
        if end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return end


def read_request(incoming: Any) -> Request | None:
    """Read one HTTP request; None at the end of the connection."""
    words = incoming.readline().decode("latin-1").split()
    if len(words) != 3:
        return None
    headers = {}
    while line := incoming.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(words[0], words[1], headers, incoming.read(int(headers.get("content-length", 0))))


@contextmanager
def faulty_server(era: Era = "modern", *, certificate: Path | None = None) -> Iterator[FaultyServer]:
    """Run one; with a file that holds a key and a certificate, over TLS."""
    server = FaultyServer(era, certificate)
    try:
        yield server
    finally:
        server.close()
