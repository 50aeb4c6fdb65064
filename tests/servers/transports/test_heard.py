"""When a server was last heard: each byte is a sign of life."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
import trio
from trio.testing import MockClock

from mcp_actors.config import Http, ServerConfig, Sse
from mcp_actors.transports import open_link
from mcp_actors.transports._link import Lifeline
from mcp_actors.transports.http._bodies import HeardBody

from ..groups import server
from ..http_server import run_server
from ..links import never_lost, open_session


async def test_each_read_from_a_process_is_a_sign_of_life() -> None:
    """B-06: over stdio."""
    async with open_link(server("a"), on_lost=never_lost) as link, open_session(link) as client:
        before = link.lifeline.heard_at
        await client.call_tool("pid")
        assert before < link.lifeline.heard_at <= trio.current_time()


@pytest.mark.parametrize("flag", ["", "--sse"])
async def test_each_response_is_a_sign_of_life(flag: str) -> None:
    """B-06: over HTTP, and with SSE."""
    with run_server(*filter(None, [flag])) as running:
        transport = Sse(f"http://127.0.0.1:{running.port}/sse") if flag else Http(running.url)
        async with (
            open_link(ServerConfig("a", transport), on_lost=never_lost) as link,
            open_session(link, "legacy") as client,
        ):
            before = link.lifeline.heard_at
            await client.call_tool("pid")
            assert before < link.lifeline.heard_at <= trio.current_time()


async def test_each_piece_of_a_response_is_a_sign_of_life(mock_clock: MockClock) -> None:
    """B-06: a server is not silent while its stream goes on, even if the response began long ago."""

    class Drops(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(3):
                mock_clock.jump(10)
                yield b"."

    lifeline = Lifeline(never_lost)
    assert [lifeline.heard_at async for _ in HeardBody(Drops(), lifeline)] == [10, 20, 30]
