"""HTTP with SSE, against the SDK's own server in a real process."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import httpx2
import pytest
import trio
from mcp import MCPError
from mcp.types import TextContent

from mcp_actors import ConnectionLost, ServerConfig, Sse, open_servers
from mcp_actors.transports import open_link
from mcp_actors.transports.http._sse import ACCEPT_WAIT

from ...idle_clock import IdleClock
from ..faults.http_faults import End, FaultyServer, Request, faulty_server, response
from ..fleet import PROMPT, calls
from ..groups import NEVER, existing
from ..http_server import TOOLS, Running, run_server
from ..links import never_lost, open_session, text_of

LONG: Final = {"seconds": 60}


@contextmanager
def configured(*flags: str) -> Iterator[tuple[ServerConfig, Running]]:
    with run_server("--sse", *flags) as server:
        url = f"http://127.0.0.1:{server.port}/sse"
        yield ServerConfig("old", Sse(url, auth="t0ken"), restarts=NEVER), server


@pytest.fixture(scope="module")
def config() -> Iterator[ServerConfig]:
    with configured("--require-header", "Authorization=Bearer t0ken") as (config, _):
        yield config


async def test_a_session_on_a_link_lists_and_calls_tools(config: ServerConfig) -> None:
    """S2-01."""
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert (link.pid, link.lifeline.lost, link.lifeline.failure) == (None, False, None)
        assert "open" in repr(link)
    assert "closed" in repr(link)


async def test_an_sse_server_is_not_asked_for_the_modern_era(config: ServerConfig) -> None:
    async with open_servers(config) as servers:
        assert servers["old"].info.protocol_version < "2026"
        assert servers["old"].statistics().tools == len(TOOLS)


async def test_many_calls_run_concurrently(config: ServerConfig) -> None:
    """A-26."""
    async with open_servers(config) as servers:
        async with calls(40, servers["old"].call_tool, "meet", {"number": 40}) as asking:
            pass
        assert [text_of(await call.result()) for call in asking] == ["all are here"] * 40


async def test_messages_are_posted_concurrently() -> None:
    """A-26."""
    with faulty_server("legacy") as server:
        config = ServerConfig("old", Sse(server.url("/sse")), restarts=NEVER)
        async with open_servers(config) as servers, calls(1, servers["old"].call_tool, "slowly") as [slow]:
            await server.held()
            with trio.fail_after(PROMPT):
                assert text_of(await servers["old"].call_tool("sleep")) == "slept None"
            assert not slow.over
            server.release()
            assert text_of(await slow.result()) == "slept None"


async def test_a_long_message_passes_both_ways(config: ServerConfig) -> None:
    text = "x" * 3_000_000
    async with open_servers(config) as servers:
        assert text_of(await servers["old"].call_tool("echo", {"text": text})) == text


async def test_an_error_for_an_unknown_tool_comes_from_the_server(config: ServerConfig) -> None:
    async with open_servers(config) as servers:
        result = await servers["old"].call_tool("nonsense")
        assert result.is_error
        assert isinstance(result.content[0], TextContent)  # behind it are the nearest listed names
        assert result.content[0].text == "Unknown tool: nonsense"


async def test_a_cancelled_caller_does_not_disturb_others(config: ServerConfig) -> None:
    async with open_servers(config) as servers:
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
            await servers["old"].call_tool("sleep", {"seconds": 60})
        assert text_of(await servers["old"].call_tool("echo", {"text": "fine"})) == "fine"


async def test_calls_are_lost_at_once_with_their_server() -> None:
    """A-03, A-07."""
    with configured() as (config, server):
        async with (
            open_servers(config) as servers,
            calls(3, servers["old"].call_tool, "sleep", {"seconds": 60}) as lost,
        ):
            await servers["old"].call_tool("echo", {"text": "so that the others are under way"})
            killed = trio.current_time()
            server.kill()
            with trio.fail_after(PROMPT):
                for call in lost:
                    with pytest.raises(ConnectionLost):
                        await call.result()
            assert trio.current_time() - killed < PROMPT
            await servers["old"].wait_state("failed")


async def test_the_streams_end_with_the_session(config: ServerConfig) -> None:
    async with open_link(config, on_lost=never_lost) as link:
        async with open_session(link) as client:
            pass
        with pytest.raises((MCPError, RuntimeError)):
            await client.call_tool("echo", {"text": "too late"})


class Redirecting(FaultyServer):
    """Redirects calls of ``sleep``, and answers them in its stream without a response to the second request."""

    def _over_events(self, connection: socket.socket, request: Request) -> End:
        if request.message.get("params", {}).get("name") != "sleep":
            return super()._over_events(connection, request)
        if not request.target.endswith("&moved"):
            return self._send(connection, response(307, "", f"Location: {request.target}&moved"), "keep")
        self._start(self._emit_answer, request.message)
        return "keep"


async def test_a_redirected_message_without_a_response_is_forgotten_after_its_answer(idle_clock: IdleClock) -> None:
    """Its body may be large."""
    with closing(Redirecting("legacy")) as server:
        async with open_servers(ServerConfig("old", Sse(server.url("/sse")), restarts=NEVER)) as servers:
            for _ in range(5):
                assert text_of(await servers["old"].call_tool("sleep")) == "slept None"
            await trio.sleep(2 * ACCEPT_WAIT)
            gc.collect()
            kept = [each for each in existing(httpx2.Request) if each.method == "POST"]
            assert [each.url for each in kept if str(each.url).endswith("moved")] == []
