"""A reconnect that fails, during a reload and with servers that did not run before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from mcp.server.mcpserver import MCPServer
from trio.testing import MockClock

from mcp_actors import ConnectFailed, InProcess, ServerConfig, open_servers

from ..groups import NEVER, Fault
from ..houses import House


async def test_a_reload_that_waits_for_a_reconnect_is_carried_out_when_that_fails(autojump_clock: MockClock) -> None:
    """The reconnect stops servers in their turn, for which the reload waits."""
    broken = False

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[dict[str, Any]]:
        await trio.sleep(1)
        if broken:
            raise ValueError("broken")
        yield {}

    b = ServerConfig(
        "b", InProcess(MCPServer("b", lifespan=lifespan)), protocol="legacy", required=True, restarts=NEVER
    )

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


async def test_a_reconnect_that_fails_returns_when_the_others_are_as_before_and_does_not_blame_them() -> None:
    for _ in range(20):  # it is a matter of chance whether its caller or the group stops the other one again
        fault = Fault()
        async with open_servers(fault.config("a", required=True, restarts=NEVER), House("b").config()) as group:
            await group["b"].stop()
            fault.on_enter = ValueError("broken")
            with pytest.raises(ConnectFailed) as caught:
                await group.reconnect("a", "b")
            assert group["b"].state == "stopped"
            assert not hasattr(caught.value, "__notes__")


async def test_an_optional_server_that_was_stopped_is_stopped_again_also_if_it_fails_in_the_same_reconnect() -> None:
    faults = Fault(), Fault()
    required, optional = (fault.config(name, restarts=NEVER) for fault, name in zip(faults, "ab", strict=True))
    async with open_servers(attrs.evolve(required, required=True), optional) as group:
        await group["b"].stop()
        for fault in faults:
            fault.on_enter = ValueError("broken")
        with pytest.raises(ConnectFailed, match="server 'a'"):
            await group.reconnect("a", "b")
        assert group["b"].state == "stopped"
        assert "b" not in group.errors
