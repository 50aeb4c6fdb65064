"""The sign-in ends between two rounds of one call, the first of which was carried out. Behind HTTP in this process."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import httpx2
import pytest
import trio
from mcp.types import ElicitResult

from mcp_actors import Callbacks, Http, ServerConfig, ServerError, open_servers
from mcp_actors.auth import OAuth, SignInRequired

from ..simulate.http import URL, Tokens

MODERN: Final = "2026-07-28"
QUESTION: Final = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}},
}


class Server(httpx2.AsyncBaseTransport):
    """Asks a question in the first round of a call, and accepts no credentials in the second.

    Attributes:
        rounds: the number of rounds that it has carried out.
        signed_in: False once the sign-in has ended.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self.signed_in = True

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        await trio.lowlevel.checkpoint()
        body = b"".join([part async for part in request.stream])  # type: ignore[union-attr]  # an AsyncClient's are async
        if request.url.path != "/mcp":
            return httpx2.Response(400, json={"error": "invalid_grant"})
        if not self.signed_in:
            return httpx2.Response(401)
        message = json.loads(body)
        result = self._result(message["method"])
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _result(self, method: str) -> dict[str, Any]:
        complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        match method:
            case "server/discover":
                return complete | {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            case "tools/list":
                return complete | {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
        self.rounds += 1
        self.signed_in = False
        return {"resultType": "input_required", "inputRequests": {"q": QUESTION}, "requestState": "halfway"}


async def answer(context: object, params: object) -> ElicitResult:
    """Answer the question."""
    return ElicitResult(action="accept", content={})


async def refuse(url: str) -> str | None:
    """Do not sign in."""
    raise RuntimeError("not today")


@pytest.mark.parametrize("asks", [False, True])
async def test_a_call_whose_sign_in_ends_between_two_rounds_is_not_sent_again(asks: bool) -> None:
    """S1-18, B-09: its first round may have taken effect."""
    server, tokens = Server(), Tokens()
    tokens.note("token")
    auth = OAuth(store=tokens, on_sign_in=refuse if asks else None)
    transport = Http(URL, auth=auth, http_client=lambda: httpx2.AsyncClient(transport=server, trust_env=False))
    config = ServerConfig("docs", transport, protocol=MODERN, callbacks=Callbacks(elicitation=answer))
    async with open_servers(config) as group:
        with pytest.raises(SignInRequired) as caught:
            await group["docs"].call_tool("work")
        await group["docs"].wait_state("needs_auth")
    assert server.rounds == 1
    assert caught.value.outcome == "unknown"
    assert "; tools/call 'work' may have taken effect, because an earlier round of it was sent" in str(caught.value)


class Failing(httpx2.Auth):
    """Credentials that fail once a round was carried out."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request as it is."""
        if self._server.rounds:
            raise RuntimeError("not today")
        yield request


async def test_a_round_that_was_not_sent_does_not_undo_an_earlier_one() -> None:
    """B-09: the error of the second round alone would say that there was no effect."""
    server = Server()
    transport = Http(
        URL, auth=Failing(server), http_client=lambda: httpx2.AsyncClient(transport=server, trust_env=False)
    )
    config = ServerConfig("docs", transport, protocol=MODERN, callbacks=Callbacks(elicitation=answer))
    async with open_servers(config) as group:
        with pytest.raises(ServerError) as caught:
            await group["docs"].call_tool("work")
    assert server.rounds == 1
    assert (type(caught.value), vars(caught.value)["outcome"]) == (ServerError, "unknown")
    assert "; tools/call 'work' may have taken effect, because an earlier round of it was sent" in str(caught.value)
