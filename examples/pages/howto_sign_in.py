"""A server that requires OAuth: how it is configured, and its state without a sign-in.

The server that is called answers every request with 401, on the loopback interface.

Logs::

    server 'linear': needs_auth: not signed in; run 'mcp-actors login linear', ...

Prints::

    needs_auth
    server 'linear': not signed in; run 'mcp-actors login linear', or await servers['linear'].sign_in()
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import trio

from mcp_actors import Http, ServerConfig, open_servers
from mcp_actors.auth import FileTokenStore, OAuth

linear = ServerConfig("linear", Http("https://mcp.example.com/mcp", auth=OAuth()))
robot = OAuth(
    grant="client_credentials",
    client_id="my-robot",
    client_secret="${ROBOT_SECRET}",
    issuer="https://login.example.com",
)

entra = OAuth(
    client_id="my-client",
    issuer="https://login.microsoftonline.com/my-tenant/v2.0",
    assume_pkce=True,
    scopes="api://my-server/access",
    send_resource=False,
)


async def ask(url: str) -> str | None:
    print("open", url)
    answer: str = await trio.to_thread.run_sync(input, "paste the URL it ends at: ")
    return answer


class Refusal(BaseHTTPRequestHandler):
    """Requires a token."""

    def do_POST(self) -> None:
        """Answer 401."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # so it is called
        """Log nothing."""


@contextmanager
def refusing_server() -> Generator[str]:
    """Run the server while a block runs; give its URL."""
    with HTTPServer(("127.0.0.1", 0), Refusal) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


async def show(linear: ServerConfig) -> None:
    async with open_servers(linear) as servers:
        print(servers["linear"].state)
        print(servers.errors["linear"])


if __name__ == "__main__":
    with refusing_server() as url, tempfile.TemporaryDirectory() as folder:
        auth = OAuth(store=FileTokenStore(folder))
        trio.run(show, ServerConfig("linear", Http(url, auth=auth)))
