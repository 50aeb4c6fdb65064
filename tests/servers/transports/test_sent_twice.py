"""An auth flow or a client of the user's sends a request twice, and the second time the server is gone."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx2
import pytest
import trio

from mcp_actors import ConnectionLost, Http, ServerConfig, open_servers

MODERN: Final = "2026-07-28"


class Server(httpx2.AsyncBaseTransport):
    """Carries a call out, but its proxy answers 503 or breaks the connection; then it is gone for a moment.

    Attributes:
        calls: how many calls it has carried out.
        breaks: True if the connection breaks.
        gone: how many connects are refused.
    """

    def __init__(self, *, breaks: bool) -> None:
        self.calls = 0
        self.breaks = breaks
        self.gone = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        await trio.lowlevel.checkpoint()
        if self.gone:
            self.gone -= 1
            raise httpx2.ConnectError("refused")
        message = json.loads(b"".join([part async for part in request.stream]))  # type: ignore[union-attr]  # an AsyncClient's are async
        if message["method"] == "tools/call":
            self.calls += 1
            self.gone = 1
            if self.breaks:
                raise httpx2.ReadError("broken")
            return httpx2.Response(503)
        complete: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if message["method"] == "server/discover":
            complete |= {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
        else:
            complete |= {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": complete})


class Stubborn(httpx2.Auth):
    """Sends a request again that was answered with 503."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        response = yield request
        if response.status_code == 503:
            yield request


class Again(httpx2.AsyncBaseTransport):
    """Sends a request again whose connection broke."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request once or twice."""
        try:
            return await self.server.handle_async_request(request)
        except httpx2.ReadError:
            return await self.server.handle_async_request(request)


@pytest.mark.parametrize("breaks", [False, True], ids=["auth", "client"])
async def test_a_call_that_was_sent_before_the_server_was_gone_is_not_sent_again(breaks: bool) -> None:
    """A-09."""
    server = Server(breaks=breaks)
    client = Again(server) if breaks else server
    transport = Http(
        "http://127.0.0.1/mcp",
        auth=None if breaks else Stubborn(),
        http_client=lambda: httpx2.AsyncClient(transport=client, trust_env=False),
    )
    async with open_servers(ServerConfig("docs", transport, protocol=MODERN)) as group:
        with pytest.raises(ConnectionLost) as caught:
            await group["docs"].call_tool("work")
        assert server.calls == 1
        assert caught.value.outcome == "unknown"
        await group["docs"].wait_ready()
