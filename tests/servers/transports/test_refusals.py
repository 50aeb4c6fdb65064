"""Refusals of a forgotten session, and of single requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final

import httpx2
import pytest
import trio
from attrs import evolve
from mcp import MCPError
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    ConnectionLost,
    HealthPolicy,
    Http,
    HttpStatusError,
    RestartPolicy,
    ServerConfig,
    ServerUnavailable,
    Sse,
    open_servers,
)
from mcp_actors.transports.http._link import Refusals

from ...messages import Said
from ..answers import BY_SESSION
from ..faults.http_faults import Era, FaultyServer, Raw, faulty_server, response
from ..fleet import calls
from ..groups import AT_ONCE, BOUND
from ..links import text_of
from ..test_dispatch import PROTOCOLS

QUIET: Final = HealthPolicy(interval=None)

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
    "credentials": response(401, "Unauthorized: Session not found", kind="text/plain"),
    "a response": response(200, '{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null}'),
    "a response with the id": response(
        200, '{"jsonrpc":"2.0","error":{"code":-32002,"message":"Server not initialized"},"id":{id______}}'
    ),
    "a response in other words": response(
        200, '{"jsonrpc":"2.0","error":{"code":-32000,"message":"Keine Sitzung"},"id":null}'
    ),
}
"""How servers in the wild refuse a session."""

ABOUT_THE_REQUEST: Final = (
    '{"jsonrpc":"2.0","error":{"code":-32000,"message":"There is no chat session 42"},"id":{id______}}'
)


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_forgotten_session_is_started_again_whatever_status_the_server_uses(spelling: str) -> None:
    """B-03, A-06: the next calls share one handshake, and all succeed."""
    with faulty_server("legacy") as server:
        config = ServerConfig("web", Http(server.url()), protocol="legacy", restarts=AT_ONCE)
        async with open_servers(config) as servers:
            server.unknown = SPELLINGS[spelling]
            server.forget()
            with trio.fail_after(BOUND):
                async with calls(5, servers["web"].call_tool, "sleep", {"seconds": 0}) as asking:
                    pass
            assert [text_of(await call.result()) for call in asking] == ["slept 0"] * 5
            assert len(server.used) == 5
            asked = spelling == "credentials"  # whether the server accepts them for another session, which ends at once
            assert server.methods().count("initialize") == 2 + asked
            assert sum(each.method == "DELETE" for each in server.requests) == asked
            assert server.methods().count("ping") <= 1 + asked


@pytest.mark.parametrize("body", [WORDS, f'{{"jsonrpc":"2.0","error":{{"code":-32603,"message":"{WORDS}"}},"id":1}}'])
@pytest.mark.parametrize("status", [500, 503])
async def test_an_error_of_the_server_that_names_the_session_ends_it_if_all_requests_fail(
    status: int, body: str
) -> None:
    """B-03: the one call fails, because it may have had an effect, and the next one is served."""
    with faulty_server("legacy") as server:
        config = ServerConfig("web", Http(server.url()), protocol="legacy", restarts=AT_ONCE)
        async with open_servers(config) as servers:
            for text, incarnation in [("overloaded", 1), (body, 2)]:
                server.scripts["ping"] = refusal = Raw(response(status, text, kind="text/plain"), "keep")
                with pytest.raises(HttpStatusError, match=str(status)):
                    await servers["web"].call_tool("raw", refusal._asdict())
                with trio.fail_after(BOUND):
                    await servers["web"].call_tool("sleep", {"seconds": 0})
                assert servers["web"].statistics().incarnation == incarnation


@pytest.mark.parametrize("status", [406, 415])
async def test_a_refusal_of_headers_names_the_url_and_the_status(status: int) -> None:
    refusal = '{"jsonrpc":"2.0","error":{"code":-32600,"message":"Client must accept text/event-stream"},"id":null}'
    with faulty_server("legacy") as server:
        server.scripts["initialize"] = Raw(response(status, refusal), "keep")
        async with open_servers(ServerConfig("web", Http(server.url()), protocol="legacy")) as servers:
            said = str(servers.errors["web"])
    assert f"{server.url()} answered with {status} " in said
    assert said.endswith(
        "(Client must accept text/event-stream); check that this is the URL of an MCP endpoint, and that no proxy "
        "changes the headers of requests"
    )


@pytest.mark.parametrize("code", [-32600, -32002])
async def test_a_response_with_an_error_of_its_own_leaves_the_session(code: int) -> None:
    """B-03: the server answers a ping."""
    error = f'{{"jsonrpc":"2.0","error":{{"code":{code},"message":"Resource not found"}},"id":{{id______}}}}'
    with faulty_server("legacy") as server:
        async with open_servers(ServerConfig("web", Http(server.url()), protocol="legacy")) as servers:
            with pytest.raises(MCPError, match="Resource not found"):
                await servers["web"].call_tool("raw", Raw(response(200, error), "keep")._asdict())
            assert servers["web"].statistics().incarnation == 1
            assert server.methods().count("ping") == 1


async def test_no_answer_to_one_request_leaves_the_session_of_a_server_that_knows_no_ping() -> None:
    """B-03: a ping is refused in each session alike."""
    unknown = '{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":null}'
    with faulty_server("legacy") as server:
        server.scripts["ping"] = Raw(response(200, unknown), "keep")
        async with open_servers(ServerConfig("web", Http(server.url()), protocol="legacy", health=QUIET)) as servers:
            with pytest.raises(ConnectionLost, match=r"not an MCP message \({\"error\":\"odd\"}\);"):
                await servers["web"].call_tool("raw", Raw(response(200, '{"error":"odd"}'), "keep")._asdict())
            assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"
            assert (servers["web"].statistics().incarnation, server.methods().count("ping")) == (1, 2)


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
    ("status", "error"),
    [
        (404, MCPError(-32601, "Method not found")),
        (400, MCPError(-32601, "Method not found")),
        (200, None),
        (500, None),
    ],
)
async def test_other_refusals_need_no_ping(status: int, error: MCPError | None) -> None:
    """C-01: they are not about a session."""
    asked = httpx2.Request("POST", "http://127.0.0.1/mcp", headers={"mcp-session-id": "1"})
    async with httpx2.AsyncClient(transport=httpx2.AsyncBaseTransport()) as client:
        refusals = Refusals(client)
        assert not await refusals.is_forgotten(httpx2.Response(status, request=asked), error)
        assert not refusals.forgotten


async def test_requests_that_are_refused_together_share_one_ping() -> None:
    """C-01, B-03: also if the session turns out to be alive."""
    asked = httpx2.Request("POST", "http://127.0.0.1/mcp", headers={"mcp-session-id": "1"})
    pings, go = list[httpx2.Request](), trio.Event()

    async def handle(request: httpx2.Request) -> httpx2.Response:
        pings.append(request)
        await go.wait()
        return httpx2.Response(200)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handle)) as client, trio.open_nursery() as nursery:
        refusals = Refusals(client)
        for _ in range(20):
            nursery.start_soon(refusals.is_forgotten, httpx2.Response(404, request=asked), None)
        await wait_all_tasks_blocked()
        go.set()
    assert len(pings) == 1
    assert not refusals.forgotten


NOT_FOUND: Final = {
    "nothing": response(404),
    "page": response(404, "<h1>repository not found</h1>", kind="text/html"),
    "JSON": response(404, '{"message": "repository not found"}'),
}
"""How gateways refuse a request."""

GATEWAYS: Final[dict[str, tuple[Era, type[Http | Sse]]]] = {
    "legacy": ("legacy", Http),
    "modern": ("modern", Http),
    "sse": ("legacy", Sse),
}


def config_of(kind: str, server: FaultyServer, **options: Any) -> ServerConfig:
    """Configure a faulty server."""
    era, transport = GATEWAYS[kind]
    path = "/sse" if transport is Sse else "/mcp"
    return ServerConfig("web", transport(server.url(path)), protocol=PROTOCOLS[era], restarts=AT_ONCE, **options)


def sent(server: FaultyServer, name: str) -> int:
    """Return how often a call of a tool was sent."""
    return sum(request.message.get("params", {}).get("name") == name for request in server.requests)


async def hear(*_: object) -> None:
    """Take progress."""
    await trio.lowlevel.checkpoint()


OPTIONS: Final[dict[str, dict[str, Any]]] = {"plain": {}, "progress": {"progress": hear}, "meta": {"meta": BY_SESSION}}


def each_pair(kinds: Iterable[str], bodies: Iterable[str], options: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return every pair of two of these once: how a call is answered does not depend on all three together."""
    numbered = itertools.product(*map(enumerate, (kinds, bodies, options)))
    return [(kind, body, option) for (i, kind), (j, body), (k, option) in numbered if (i + j + k) % 3 == 0]


@pytest.mark.own_way
@pytest.mark.parametrize(("kind", "body", "option"), each_pair(GATEWAYS, NOT_FOUND, OPTIONS))
async def test_a_call_that_is_always_answered_with_404_fails_alone(kind: str, body: str, option: str) -> None:
    """C-01: it is sent once, and calls at the same time and later notice nothing."""
    with faulty_server(GATEWAYS[kind][0]) as server:
        async with open_servers(config_of(kind, server)) as servers:
            ref = servers["web"]
            async with calls(3, ref.call_tool, "sleep", {"seconds": 0.01}) as others:
                with pytest.raises(HttpStatusError) as caught:
                    await ref.call_tool("raw", Raw(NOT_FOUND[body], "keep")._asdict(), **OPTIONS[option])
            assert [text_of(await each.result()) for each in others] == ["slept 0.01"] * 3
            assert text_of(await ref.call_tool("sleep", {"seconds": 0})) == "slept 0"
            assert (ref.state, ref.statistics().incarnation) == ("ready", 1)
        assert sent(server, "raw") == 1
    assert caught.value.status == 404
    said = ' ({"message": "repository not found"})' if body == "JSON" else ""
    assert str(caught.value).endswith(
        f"answered with 404 Not Found{said}; it has answered other requests, so check the arguments of this one, and "
        "the rules of any gateway before the server"
    )


@pytest.mark.own_way
@pytest.mark.parametrize("status", [404, 400])
@pytest.mark.parametrize("kind", ["legacy", "sse"])
async def test_a_call_that_is_refused_with_its_session_twice_fails_alone(kind: str, status: int, said: Said) -> None:
    """C-01: two sessions in a row, and no third, however often it is tried."""
    with faulty_server("legacy") as server:
        server.scripts["ping"] = Raw(response(status), "keep")
        async with open_servers(config_of(kind, server)) as servers:
            ref = servers["web"]
            async with calls(3, ref.call_tool, "sleep", {"seconds": 0.01}) as others:
                with pytest.raises(HttpStatusError) as caught:
                    await ref.call_tool("raw", Raw(response(status), "keep")._asdict())
            assert [text_of(await each.result()) for each in others] == ["slept 0.01"] * 3
            assert text_of(await ref.call_tool("sleep", {"seconds": 0})) == "slept 0"
            assert (ref.state, ref.statistics().incarnation) == ("ready", 2)
        assert sent(server, "raw") == 2
        assert server.methods().count("initialize") == 2
    assert caught.value.status == status
    if status == 404:
        said(
            "http status 404 on two sessions in a row",
            str(caught.value).replace(server.url(""), "https://example.com").replace("/sse", "/mcp"),
        )


@pytest.mark.parametrize("kind", ["legacy", "modern"])
async def test_an_endpoint_that_is_not_found_for_a_while_comes_back(kind: str) -> None:
    """C-01, B-08: 404 for everything, the ping included."""
    restart = RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=0.1)
    with faulty_server(GATEWAYS[kind][0]) as server:
        config = evolve(config_of(kind, server), restarts=restart)
        async with open_servers(config) as servers:
            ref = servers["web"]
            server.scripts |= dict.fromkeys(
                ("tools/call", "ping", "initialize", "server/discover"), Raw(response(404), "keep")
            )
            with pytest.raises(HttpStatusError if kind == "modern" else ServerUnavailable):
                await ref.call_tool("sleep")
            assert (await ref.check_health()).status == "unhealthy"
            assert ref.state == ("ready" if kind == "modern" else "failed")
            server.scripts.clear()
            with trio.fail_after(BOUND):
                await ref.wait_state("ready")
            assert text_of(await ref.call_tool("sleep", {"seconds": 0})) == "slept 0"
            assert (await ref.check_health()).status == "healthy"


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
