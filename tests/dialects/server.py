"""A server that writes byte for byte what a row of the table says, over each transport; run as a process.

``python server.py TABLE ERA ROW`` speaks over stdio. ``python server.py TABLE`` serves HTTP, prints its port as the
first line, and takes the way, the era and the row from the path: ``/body/ERA/ROW`` (JSON), ``/events/ERA/ROW`` (an
event stream for each answer) and ``/sse/ERA/ROW``. ROW is the row of the connect, ``-`` without one. Later its client
chooses a row with the tool ``use``, and then sends what the row is about. Only the standard library is used.
"""

from __future__ import annotations

import json
import queue
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-06-18"
PAGE: Final = {"ttlMs": 0, "cacheScope": "private"}
CAN: Final[Json] = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
PLACES: Final = {
    "tools/call": "call",
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/read": "read",
    "prompts/list": "prompts",
    "prompts/get": "get",
    "initialize": "connect",
    "server/discover": "connect",
}
"""The method of a request → the place of a row that it is answered with."""


class Speaker:
    """Answers the messages of one connection.

    Args:
        rows: the table.
        era: the protocol version of this connection.
        row: the number of the row that it begins with; ``-`` for none.
    """

    def __init__(self, rows: list[Json], era: str, row: str) -> None:
        self.rows = rows
        self.modern = era == MODERN
        self.status = 200
        self.row: Json = rows[int(row)] if row.isdigit() else {}
        self.sessions = self.forgotten = 0

    def answer_in(self, session: str | None, text: bytes) -> list[bytes]:
        """Return what `answer` does, unless the session is forgotten."""
        if session is None or int(session) > self.forgotten:
            return self.answer(text)
        self.status = 200
        return self._lines(json.dumps(json.loads(text).get("id")).encode(), ["line"])

    def answer(self, text: bytes | str) -> list[bytes]:
        """Return the lines that answer a message, or the data of as many events."""
        self.status = 200
        message = json.loads(text)
        method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
        self.sessions += method == "initialize"
        if params.get("name") == "use":
            self.row = self.rows[params["arguments"]["row"]]
            self.forgotten = self.sessions
            return [self._right(method, number)]
        if method == "notifications/initialized" and self.row.get("at") == "initialized":
            return self._lines(b"null", ["line"])
        if number is None or method is None:
            return []
        if self.row.get("at") in ("stream", "line") and method == "tools/call":
            return [*self._lines(json.dumps(number).encode(), ["before", "line"]), self._right(method, number)]
        other = (method == "initialize" and self.modern) or params.get("protocolVersion", "") == self.row.get("accepts")
        if self.row.get("at", "-") != PLACES.get(method) or other:
            return [self._right(method, number)]
        which = ["before", "line"]
        if (cursor := params.get("cursor")) is not None:
            self.row = {"second": self.row.get("line"), **self.row, "at": self.row["at"]}
            self.row["page"] = self.row.get("pages", {}).get(cursor, self.row["second"])
            which = ["page"]
        return self._lines(json.dumps(number).encode(), which)

    def _lines(self, number: bytes, which: list[str]) -> list[bytes]:
        """Return the bytes of a row, with the id of the request."""
        found = b""
        self.status = self.row.get("status", 200)
        for each in which:
            if f"{each}_hex" in self.row:
                found += bytes.fromhex(self.row[f"{each}_hex"])
            found += self.row.get(each, "").encode("utf-8", "surrogatepass")
        page = json.dumps(PAGE)[1:-1].encode() if self.modern else b'"x":0'
        return [found.replace(b"$ID", number).replace(b"$PAGE", page)]

    def _right(self, method: str, number: object) -> bytes:
        """Return the right answer."""
        result: Json = {}
        if method == "tools/call":
            result = {"content": [{"type": "text", "text": "right"}]}
        elif method.endswith("/list"):
            result = {method.split("/")[0]: [], **(PAGE if self.modern else {})}
        elif method == "initialize" and not self.modern:
            result = {"protocolVersion": LEGACY, "capabilities": CAN, "serverInfo": {"name": "x", "version": "1"}}
        elif method == "server/discover" and self.modern:
            result = {"supportedVersions": [MODERN], "capabilities": CAN, **PAGE}
        elif method not in ("ping", "logging/setLevel"):
            return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}}).encode()
        if self.modern:
            result["resultType"] = "complete"
        return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers over HTTP. The server keeps the connections, by their paths."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"]))
        way, _, rest = self.path[1:].partition("/")
        if way == "elsewhere":
            self.send_error(404)
            return
        speaker, out = self.server.speaker(rest)  # type: ignore[attr-defined]  # of the class below
        answers = speaker.answer_in(self.headers["mcp-session-id"], text)
        kind, body = "application/json", answers[0] if answers else b""
        if way == "sse":
            for each in answers:
                out.put(each)
            body = b""
        elif way == "events":
            kind, body = "text/event-stream", b"".join(map(event, answers))
            body = body[:-1] if speaker.row.get("ends") == "in an event" else body
        elif speaker.row.get("at") != "call" or b"right" not in body:
            kind = speaker.row.get("kind", kind)
        self.send_response(speaker.status if body else 202)
        if speaker.row.get("at") == "session":
            self.send_header("mcp-session-id", str(speaker.sessions))
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        way, _, rest = self.path[1:].partition("/")
        if way != "sse":
            self.send_error(405)
            return
        speaker, out = self.server.speaker(rest)  # type: ignore[attr-defined]  # of the class below
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        opened = speaker.row.get("opened", "event: endpoint\ndata: $PATH\n\n")
        self.wfile.write(opened.replace("$PATH", self.path).encode())
        while speaker.row.get("ends") != "at once":
            self.wfile.write(event(out.get()))

    def do_DELETE(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def event(data: bytes) -> bytes:
    """Return an event with some data."""
    return b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"


class Server(ThreadingHTTPServer):
    """The connections of all tests of a module, by era and row."""

    daemon_threads = True

    def __init__(self, rows: list[Json]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rows = rows
        self.speakers: dict[str, tuple[Speaker, queue.Queue[bytes]]] = {}

    def speaker(self, path: str) -> tuple[Speaker, queue.Queue[bytes]]:
        """Return what answers, and what is still to be written to its event stream."""
        if path not in self.speakers:
            era, row = path.split("/")[:2]
            self.speakers[path] = Speaker(self.rows, era, row), queue.Queue()
        return self.speakers[path]


def main() -> None:
    """Serve until stdin ends, or until killed."""
    rows = tomllib.loads(Path(sys.argv[1]).read_text())["input"]
    if len(sys.argv) > 2:
        speaker = Speaker(rows, sys.argv[2], sys.argv[3])
        for line in sys.stdin.buffer:
            for each in speaker.answer(line):
                sys.stdout.buffer.write(each + b"\n")
            sys.stdout.buffer.flush()
        return
    with Server(rows) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
