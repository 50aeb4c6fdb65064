"""A reconnect that fails during a reload."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from trio.testing import MockClock

from mcp_actors import ConnectFailed, InProcess, ServerConfig, open_servers

from ..groups import NEVER


async def test_a_reload_that_waits_for_a_reconnect_is_carried_out_when_that_fails(autojump_clock: MockClock) -> None:
    """The reconnect stops servers in their turn, for which the reload waits."""
    broken = False

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[dict[str, Any]]:
        await trio.sleep(1)
        if broken:
            raise ValueError("broken")
        yield {}

    b = ServerConfig("b", InProcess(MCPServer("b", lifespan=lifespan)), protocol="legacy", required=True, restart=NEVER)

    def a(seconds: float) -> ServerConfig:
        return ServerConfig("a", InProcess(MCPServer("a")), protocol="legacy", request_timeout=seconds)

    async with open_servers(a(1), b) as servers, trio.open_nursery() as nursery:
        broken = True

        async def reload() -> None:
            await trio.sleep(0.5)
            assert (await servers.reload(a(2), b)).changed == ("a",)

        nursery.start_soon(reload)
        with trio.fail_after(100), pytest.raises(ConnectFailed, match="broken"):
            await servers.reconnect("a", "b")
