"""Refusals of a forgotten session, and of single requests."""

from __future__ import annotations

from typing import Final

import httpx2
import pytest
import trio
from mcp import MCPError

from mcp_actors import Http, HttpStatusError, ServerConfig, open_servers
from mcp_actors.servers.transports.http._refusals import Refusals

from ..faults.http_faults import Raw, faulty_server, response
from ..fleet import calls
from ..groups import AT_ONCE, BOUND
from ..links import text_of

WORDS: Final = "Bad Request: No valid session ID provided"

SPELLINGS: Final = {
    "reference server": response(400, f'{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"{WORDS}"}}}}'),
    "template": response(400, f'{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"{WORDS}"}},"id":null}}'),
    "with the id": response(
        400, f'{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"{WORDS}"}},"id":{{id______}}}}'
    ),
    "SDK of TypeScript": response(
        404, '{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}'
    ),
    "older SDK of Python": response(400, WORDS, kind="text/plain"),
    "other JSON": response(400, '{"error": "Invalid or missing session ID"}'),
    "other words": response(400, '{"jsonrpc":"2.0","error":{"code":-32602,"message":"Keine Sitzung"},"id":null}'),
    "nothing": response(400),
    "specification": response(404),
}
"""How servers in the wild refuse a session."""

ABOUT_THE_REQUEST: Final = (
    '{"jsonrpc":"2.0","error":{"code":-32000,"message":"There is no chat session 42"},"id":{id______}}'
)


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_forgotten_session_is_started_again_whatever_status_the_server_uses(spelling: str) -> None:
    """B-03, A-06: the next calls share one handshake, and all succeed."""
    with faulty_server("legacy") as server:
        config = ServerConfig("web", Http(server.url()), protocol="legacy", restart=AT_ONCE)
        async with open_servers(config) as servers:
            server.unknown = SPELLINGS[spelling]
            server.forget()
            with trio.fail_after(BOUND):
                async with calls(20, servers["web"].call_tool, "sleep", {"seconds": 0}) as asking:
                    pass
            assert [text_of(await call.result()) for call in asking] == ["slept 0"] * 20
            assert len(server.used) == 20
            assert server.methods().count("initialize") == 2
            assert server.methods().count("ping") <= 1


@pytest.mark.parametrize("body", [ABOUT_THE_REQUEST, ABOUT_THE_REQUEST.replace("{id______}", "null"), ""])
async def test_a_refusal_of_one_request_is_not_mistaken_for_a_refusal_of_the_session(body: str) -> None:
    """B-03: not the status or the text decides, but that the session still answers a ping."""
    with faulty_server("legacy") as server:
        async with open_servers(ServerConfig("web", Http(server.url()), protocol="legacy")) as servers:
            with pytest.raises(MCPError if body else HttpStatusError):
                await servers["web"].call_tool("raw", Raw(response(400, body), "keep")._asdict())
            assert servers["web"].statistics().incarnation == 1
            assert server.methods().count("initialize") == 1


@pytest.mark.parametrize(
    ("status", "ping", "forgotten"),
    [
        (404, None, True),
        (404, MCPError(-32601, "Method not found"), False),
        (401, None, False),
        (500, None, False),
    ],
)
async def test_other_statuses_need_no_ping(status: int, ping: MCPError | None, forgotten: bool) -> None:
    """A-06."""
    asked = httpx2.Request("POST", "http://127.0.0.1/mcp", headers={"mcp-session-id": "1"})
    async with httpx2.AsyncClient(transport=httpx2.AsyncBaseTransport()) as client:
        refusals = Refusals(client)
        assert await refusals.is_forgotten(httpx2.Response(status, request=asked), ping) is forgotten
        assert refusals.forgotten is forgotten


@pytest.mark.parametrize(
    ("answer", "all_of_them"),
    [
        (httpx2.Response(400, json={"jsonrpc": "2.0", "error": {"code": -32000, "message": "Which session?"}}), True),
        (httpx2.Response(400, json={"jsonrpc": "2.0", "error": {"code": -32601, "message": "What?"}, "id": 1}), False),
        (httpx2.Response(400, text="what?"), False),
        (httpx2.Response(200, json={"jsonrpc": "2.0", "result": {}, "id": 1}), False),
        (httpx2.Response(404), False),
        (httpx2.ReadError("broken"), False),
    ],
    ids=repr,
)
async def test_a_ping_that_is_refused_in_the_same_way_ends_the_session(
    answer: httpx2.Response | Exception, all_of_them: bool
) -> None:
    """B-03: in the session of the refused request."""
    asked = httpx2.Request("POST", "http://127.0.0.1/mcp", headers={"mcp-session-id": "1"})
    seen = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handle)) as client:
        refused = httpx2.Response(400, request=asked)
        assert await Refusals(client).is_forgotten(refused, MCPError(-32000, "Which session?")) is all_of_them
    assert [request.headers["mcp-session-id"] for request in seen] == ["1"]
