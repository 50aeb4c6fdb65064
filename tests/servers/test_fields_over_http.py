"""Headers and event fields of an HTTP server, of any length."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from mcp_actors import Http, ServerConfig, ServerError, open_servers

from .groups import NEVER, state

RESULTS: Final[dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": []},
}

LONG: Final = b"x" * 60_000
FORGED: Final = b"a\x1b[31m\x1b]0;t\x07b"


class Handler(BaseHTTPRequestHandler):
    """Answers a tool call with the fields of its server, and everything else as it should."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, headers = message["method"], {b"content-type": b"application/json"}
        body, status = b"", 202
        if "id" in message:
            status = 200
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[method]}).encode()
        fields = self.server.fields  # type: ignore[attr-defined]  # set below
        if method == "initialize":
            headers[b"mcp-session-id"] = self.server.session  # type: ignore[attr-defined]  # set below
        if method == "tools/call":
            body, status = fields.get("body", b"ANSWER").replace(b"ANSWER", body), fields.get("status", 200)
            headers |= fields["headers"]
        headers[b"content-length"] = b"%d" % len(body)
        lines = b"".join(b"%b: %b\r\n" % each for each in headers.items())
        self.wfile.write(b"HTTP/1.1 %d x\r\n%b\r\n%b" % (status, lines, body))

    def do_GET(self) -> None:
        self.wfile.write(b"HTTP/1.1 405 x\r\ncontent-length: 0\r\n\r\n")

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def answering(fields: dict[str, Any], session: bytes = b"s") -> Iterator[ServerConfig]:
    """Run such a server, and say how to connect to it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.fields, server.session = fields, session  # type: ignore[attr-defined]  # for the handler
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        http = Http(f"http://127.0.0.1:{server.server_port}/mcp")
        try:
            yield ServerConfig("web", http, protocol="legacy", restarts=NEVER)
        finally:
            server.shutdown()
            thread.join()


EVENTS: Final = {b"content-type": b"text/event-stream"}

FIELDS: Final[dict[str, dict[str, Any]]] = {
    "long content type": {"headers": {b"content-type": LONG}},
    "forged content type": {"headers": {b"content-type": FORGED}},
    "foreign content type": {"headers": {b"content-type": "\u0442\u0438\u043f".encode()}},
    "invalid content type": {"headers": {b"content-type": b"\xff\x80"}},
    "many encodings": {"headers": {b"content-encoding": b", ".join([b"y" * 10] * 5000)}},
    "long redirect": {"headers": {b"location": b"http://x/" + LONG}, "status": 307},
    "invalid redirect": {"headers": {b"location": b"http://[\xff"}, "status": 307},
    "long wait": {"headers": {b"retry-after": b"9" * 6000}, "status": 503},
    "long event id": {"headers": EVENTS, "body": b"retry: 1\nid: " + LONG + b"\ndata:\n\n"},
    "forged event id": {"headers": EVENTS, "body": b"retry: 1\nid: " + FORGED + b"\ndata:\n\n"},
    "foreign event id": {"headers": EVENTS, "body": "retry: 1\nid: \u0442\u0438\u043f\ndata:\n\n".encode()},
    "invalid event id": {"headers": EVENTS, "body": b"retry: 1\nid: \xff\x80\ndata:\n\n"},
    "long event": {"headers": EVENTS, "body": b"event: " + LONG + b"\ndata: ANSWER\n\n"},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
async def test_a_field_of_a_response_costs_its_call_and_bounded_lines(
    fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """C-09."""
    caplog.set_level(logging.INFO)
    with answering(fields) as config:
        async with open_servers(config) as servers:
            with pytest.raises(ServerError) as caught:
                await servers["web"].call_tool("x")
            assert state(servers, "web") == "ready"
            assert len(await servers["web"].list_tools()) == 1
    assert len(str(caught.value)) < 1500
    assert str(caught.value).isprintable()
    for record in caplog.records:
        assert record.exc_info is None
        assert len(record.getMessage()) < 1500
        assert record.getMessage().isprintable()


@pytest.mark.parametrize("session", [LONG, "\u0442\u0438\u043f".encode()], ids=["long", "foreign"])
async def test_a_session_id_of_any_alphabet_is_sent_back(session: bytes) -> None:
    """C-09: it should be ASCII, but that is for the server to check."""
    with answering({"headers": {}}, session) as config:
        async with open_servers(config) as servers:
            assert (await servers["web"].call_tool("x")).content == []
