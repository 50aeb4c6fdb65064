"""A hostile MCP server over HTTP, in the standard library only.

It speaks the legacy era, over streamable HTTP at ``/mcp`` and HTTP with SSE at ``/sse``. Its tool ``answer`` answers
with what is hard to read; ``flood`` sends one thing after the other, as fast as it can, until the client hangs up.

Run as ``python hostile_http_server.py``; it prints its port. `hostile_http` configures it for a test.
"""

from __future__ import annotations

import json
import os
import socket
import zlib
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Semaphore
from time import sleep
from typing import Any

Json = dict[str, Any]

ASKED = {"messages": [], "maxTokens": 1, "message": "?", "requestedSchema": {"type": "object", "properties": {}}}

TOOLS = ("answer", "flood", "fine")


def junk(what: str, size: int) -> bytes:
    """Return JSON of about so many bytes."""
    match what:
        case "nested":
            unit = b"[" * 100 + b"]" * 100
            return b"[" + b",".join([unit] * (size // len(unit))) + b"]"
        case "numbers":
            return b"[" + b"1," * (size // 2) + b"1]"
        case "deep":
            return b"[" * (size // 2) + b"]" * (size // 2)
    return json.dumps("x" * size).encode()


def answered(request_id: object, data: bytes = b'"fine"') -> bytes:
    """Return the answer to a call, with something in it."""
    head = b'{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"fine"}],"structuredContent":{"x":'
    return head + data + b'}},"id":' + json.dumps(request_id).encode() + b"}"


def encoded(body: bytes, codings: str) -> bytes:
    """Apply content codings, one after the other."""
    for coding in filter(None, codings.split(", ")):
        packer = zlib.compressobj(1, wbits=31 if coding == "gzip" else 15)
        body = packer.compress(body) + packer.flush()
    return body


def flood(what: str, answers: Semaphore) -> Iterator[bytes]:
    """Make what is sent again and again; what is slow, only after an answer."""
    number = 0
    while True:
        number += 1
        match what:
            case "blank":
                yield b"\n" * 65536
            case "comments":
                yield b":\n" * 32768
            case "tiny":
                yield b"data:\n\n" * 8192
            case "unknown":
                yield b"event: x\ndata: y\n\n" * 4096
            case "malformed":
                yield b"data: {" + b"x" * (1 << 20) + b"\n\n"
            case "endless":
                yield b"data: " + b"x" * 65536 if number == 1 else b"x" * 65536
            case "slow":
                sleep(0.05)
                yield b'data: {"jsonrpc":"2.0","id":%d,"method":"ping"}\n\n' % number
                answers.acquire()
            case _:
                message = {"jsonrpc": "2.0", "id": f"q{number}", "method": what, "params": ASKED}
                yield b"data: " + json.dumps(message).encode() + b"\n\n"


class Server(ThreadingHTTPServer):
    """The state that all connections share."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.events: socket.socket | None = None
        self.flooding = ""
        self.begin = Event()
        self.answers = Semaphore(0)
        self.writing = Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: the client has gone."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Open the stream of events, and flood it when that is asked for."""
        self.start_stream()
        self.server.events = self.connection
        if self.path == "/sse":
            self.connection.sendall(b"event: endpoint\ndata: /messages\n\n")
        self.server.begin.wait()
        self.pour()

    def do_DELETE(self) -> None:
        """End the session."""
        self.respond(200)

    def do_POST(self) -> None:
        """Take a message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "result" in message:
            self.server.answers.release()
        if self.path == "/messages":
            self.respond(202)
        elif "method" not in message or "id" not in message:
            self.respond(202)
            return
        if "method" in message and "id" in message:
            self.answer(message["id"], message["method"], message.get("params") or {})

    def answer(self, request: object, method: str, params: Json) -> None:
        """Answer a request."""
        match method:
            case "initialize":
                about = {"serverInfo": {"name": "hostile", "version": "1"}, "capabilities": {"tools": {}}}
                self.reply(request, {"protocolVersion": params["protocolVersion"], **about})
            case "tools/list":
                self.reply(request, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
            case "tools/call" if params["name"] == "answer":
                self.junk(request, params["arguments"])
            case "tools/call" if params["name"] == "flood":
                self.flood(request, params["arguments"])
            case "tools/call":
                self.send(answered(request))
            case _:
                self.reply(request, {})

    def reply(self, request: object, result: Json) -> None:
        """Answer as is right."""
        self.send(json.dumps({"jsonrpc": "2.0", "id": request, "result": result}).encode())

    def send(self, message: bytes) -> None:
        """Send a message, over the transport that is spoken."""
        if self.path == "/messages":
            assert self.server.events is not None
            with self.server.writing:
                self.server.events.sendall(b"data: " + message + b"\n\n")
        else:
            self.respond(200, message, "Mcp-Session-Id: 1")

    def junk(self, request: object, arguments: Json) -> None:
        """Answer with what was asked for: how much of what, in which form and coding, in pieces of how many bytes."""
        body = answered(request, junk(arguments["what"], arguments["size"]))
        if self.path == "/messages":
            self.send(body)
            return
        kind, codings = arguments.get("kind", "application/json"), arguments.get("codings", "")
        if kind == "text/event-stream":
            body = b"data: " + body + b"\n\n"
        body = encoded(body, codings)
        coding = f"Content-Encoding: {codings}"
        if "piece" not in arguments:
            self.respond(200, body, coding, kind=kind)
            return
        head = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", coding, "Transfer-Encoding: chunked", "", ""]
        chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in cut(body, arguments["piece"])]
        with suppress(OSError):
            self.connection.sendall("\r\n".join(head).encode() + b"".join(chunks) + b"0\r\n\r\n")

    def flood(self, request: object, arguments: Json) -> None:
        """Flood the stream of events, or the one that answers this."""
        self.server.flooding = arguments["what"]
        if arguments.get("on") == "answer" and self.path != "/messages":
            self.start_stream()
            self.pour()
        else:
            self.send(answered(request))
            self.server.begin.set()

    def start_stream(self) -> None:
        """Begin a response that is a stream of events."""
        self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        self.close_connection = True

    def pour(self) -> None:
        """Send until the client has gone."""
        with suppress(OSError):
            for data in flood(self.server.flooding, self.server.answers):
                with self.server.writing:
                    self.connection.sendall(data)

    def respond(self, status: int, body: bytes = b"", *headers: str, kind: str = "application/json") -> None:
        """Send a whole response."""
        lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}", f"Content-Type: {kind}", *headers]
        with suppress(OSError):
            self.connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)


def cut(data: bytes, size: int) -> Iterator[bytes]:
    """Cut bytes into pieces."""
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


if __name__ == "__main__":
    server = Server()
    os.write(1, f"{server.server_address[1]}\n".encode())
    server.serve_forever()
