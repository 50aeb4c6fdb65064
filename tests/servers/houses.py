"""Servers in this process that hold calls until a test lets them go, for the tests of changes and of leaving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig, ServerGroup, Stdio

from .links import text_of


class House:
    """A server in this process: it says who it is, and holds calls until a test lets them go."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.starts = 0
        self.held = 0
        self.let_go = trio.Event()
        self.break_down = trio.Event()
        self.entered = trio.Event()
        self.entered.set()
        self.server = MCPServer(name, lifespan=self._lifespan)
        self.server.add_tool(self.who, description="Say who answers.")
        self.server.add_tool(self.hold, description="Answer when the test says so.")

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        self.starts += 1
        await self.entered.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fail)
            yield
            nursery.cancel_scope.cancel("the server is left")

    async def _fail(self) -> None:
        await self.break_down.wait()
        self.break_down = trio.Event()
        raise RuntimeError("it broke down")

    async def who(self) -> str:
        return self.name

    async def hold(self) -> str:
        self.held += 1
        await self.let_go.wait()
        return self.name

    def config(self, name: str | None = None, **options: Any) -> ServerConfig:
        """Configure it; `options` are those of `ServerConfig`.

        Legacy, so that it has no stream of changes: its steps would be among those that tests count.
        """
        return ServerConfig(name or self.name, InProcess(self.server), protocol="legacy", **options)


def absent(name: str, **options: Any) -> ServerConfig:
    """Configure a server whose program is not there."""
    return ServerConfig(name, Stdio("/nowhere/at-all"), **options)


async def who(group: ServerGroup, name: str) -> str:
    """Ask a server who answers."""
    return text_of(await group[name].call_tool("who"))
