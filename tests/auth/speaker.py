"""An authorization server and an MCP server over HTTP on this machine, which say what a table says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

TOKENS: Final = {"access_token": "new", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "next"}
"""What the token endpoint answers, if nothing else is said."""


class Speaker:
    """The two servers, which are one.

    Attributes:
        base: their URL, with no slash at its end.
        row: what they say; see `tests/auth/dialects.toml`.
        forms: the forms that the token endpoint got.
        visits: how many browsers have come to the page for a sign-in.
    """

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.row: dict[str, Any] = {}
        self.forms: list[dict[str, list[str]]] = []
        self.visits = 0

    def say(self, **row: Any) -> None:
        """Say what a row says from now on."""
        self.row, self.forms, self.visits = row, [], 0

    def read(self, text: str) -> str:
        """Return a text of the table with the URL of the servers."""
        return text.replace("BASE", self.base)

    def redirect(self, url: str) -> str:
        """Return where a person who has agreed at a page ends."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        said = self.row.get("redirect", {"code": "c"})
        state, iss = self.row.get("state", asked["state"]), self.row.get("iss")
        found = {**said, "state": state} | ({} if iss is None else {"iss": self.read(iss)})
        return f"{asked['redirect_uri']}?{urlencode(found)}"

    def answer(
        self, method: str, url: str, body: bytes, authorization: str | None, session: str | None = None
    ) -> tuple[int, bytes, str]:
        """Return the status, the body and the challenge or location of an answer."""
        path = urlsplit(url).path
        if path == "/authorization":
            self.visits += 1
            return 302, b"", self.redirect(url)
        if path == "/mcp":
            if method != "POST" and "streams" not in self.row:
                return 405, b"", ""
            return self._answer_mcp(body or b'{"method":"a stream"}', authorization, session)
        if path == "/token":
            self.forms.append(parse_qs(body.decode()))
            again = self.row.get("once") and len(self.forms) > 1
            return self._written("nothing" if again else "token", TOKENS)
        named = {"authorization_servers": [self.read(self.row.get("resource_names", "BASE"))]}
        answers: dict[str, tuple[str, dict[str, object]]] = {
            "oauth-protected-resource": ("resource", {"resource": f"{self.base}/mcp", **named}),
            "well-known": ("metadata", self._metadata()),
            "register": ("registration", {"client_id": "me", "redirect_uris": ["http://127.0.0.1/callback"]}),
        }
        found = next((answer for part, answer in answers.items() if part in path), None)
        return (404, b"", "") if found is None else self._written(*found)

    def _metadata(self) -> dict[str, object]:
        return {
            "issuer": self.read(self.row.get("metadata_issuer", "BASE")),
            **{f"{name}_endpoint": f"{self.base}/{name}" for name in ("token", "authorization")},
            "registration_endpoint": f"{self.base}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }

    def _written(self, name: str, usual: dict[str, object]) -> tuple[int, bytes, str]:
        """Return an answer, with what the row says of it: a whole text, or changes of members."""
        said = self.row.get(name, {})
        changed = {**usual, **said.get("changes", {})}
        kept = {key: value for key, value in changed.items() if key not in said.get("without", ())}
        content = self.read(said.get("body", json.dumps(kept))).encode()
        return said.get("status", 200), bytes.fromhex(said.get("prefix_hex", "")) + content, said.get("location", "")

    def _answer_mcp(self, body: bytes, authorization: str | None, session: str | None) -> tuple[int, bytes, str]:
        asked = json.loads(body)
        is_open = asked["method"] in self.row.get("open", ())
        accepted = is_open or authorization == f"Bearer {self.row.get('accepts', 'new')}"
        if not accepted or session not in (self.row.get("session"), None if asked["method"] == "initialize" else ""):
            challenge = 'Bearer resource_metadata="BASE/.well-known/oauth-protected-resource/mcp"'
            return 401, b"", self.read(self.row.get("challenge", challenge))
        if "id" not in asked:
            return (202, b"", "") if asked["method"] != "a stream" else (200, b"retry: 1\n\n", "")
        results: dict[str, object] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "speaker", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "now", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "noon"}]},
        }
        if asked["method"] not in results:
            found: dict[str, object] = {"error": {"code": -32601, "message": "unknown"}}
        else:
            found = {"result": results[asked["method"]]}
        return 200, json.dumps({"jsonrpc": "2.0", "id": asked["id"], **found}).encode(), ""


@contextmanager
def speaking() -> Iterator[Speaker]:
    """Run the servers while a block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answer a request."""
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path = urlsplit(self.path).path
            credentials = self.headers.get("authorization"), self.headers.get("mcp-session-id")
            status, content, header = speaker.answer(self.command, self.path, body, *credentials)
            self.send_response(status)
            if "session" in speaker.row:
                self.send_header("mcp-session-id", speaker.row["session"])
            stream = status == 200 and (self.command, path) == ("GET", "/mcp")
            self.send_header("content-type", "text/event-stream" if stream else "application/json")
            self.send_header("content-length", str(len(content)))
            if header:
                self.send_header("www-authenticate" if status == 401 else "location", header)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the names of the library

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the library
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        speaker = Speaker(server.server_address[1])
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield speaker
        finally:
            server.shutdown()
            thread.join()
