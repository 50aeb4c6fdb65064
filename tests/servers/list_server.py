"""A real server whose answers are given byte by byte; run as a process.

``python -m tests.servers.list_server OVER FILE`` reads from a JSON file the text of each ``result``, by method. OVER is
``stdio``, ``body`` (HTTP, JSON), ``events`` (HTTP, an event stream for each answer) or ``sse``. Over HTTP it prints its
port as the first line on stdout. Only the standard library is used.
"""

from __future__ import annotations

import json
import queue
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

RESULTS: Final[dict[str, str]] = {}

OUT: Final[queue.Queue[bytes]] = queue.Queue()
"""What goes to the one event stream of SSE."""


def answer_to(text: bytes | str) -> bytes:
    """Return the answer to a message; empty bytes for a notification."""
    message = json.loads(text)
    if "id" not in message:
        return b""
    result = RESULTS.get(message["method"], "{}")
    # Not UTF-8, so that a result may hold any byte.
    return f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{result}}}'.encode("latin-1")


class Handler(BaseHTTPRequestHandler):
    """Answers each POST."""

    def do_POST(self) -> None:
        answer = answer_to(self.rfile.read(int(self.headers["content-length"])))
        if self.server.over == "sse":  # type: ignore[attr-defined]  # set below
            OUT.put(answer)
            answer = b""
        self.send_response(200 if answer else 202)
        events = self.server.over == "events"  # type: ignore[attr-defined]  # set below
        body = b"data: " + answer + b"\n\n" if answer and events else answer
        self.send_header("content-type", "text/event-stream" if events else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.server.over != "sse":  # type: ignore[attr-defined]  # set below
            self.send_error(405)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: endpoint\ndata: /posts\n\n")
        while True:
            if answer := OUT.get():
                self.wfile.write(b"event: message\ndata: " + answer + b"\n\n")

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def main() -> None:
    """Serve until the end of stdin, or until killed."""
    over, file = sys.argv[1:]
    RESULTS.update(json.loads(Path(file).read_text()))
    if over == "stdio":
        for line in sys.stdin:
            if answer := answer_to(line):
                sys.stdout.buffer.write(answer + b"\n")
                sys.stdout.buffer.flush()
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.over = over  # type: ignore[attr-defined]  # for the handler
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
