"""openai-agents: https://openai.github.io/openai-agents-python/mcp/ (stdio, streamable HTTP, MCPServerManager)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.mcp import MCPServerManager, MCPServerStdio, MCPServerStreamableHttp

from ..driver import Servers, text_of


class Active:
    """The servers that are connected."""

    def __init__(self, servers: list[Any]) -> None:
        self._servers = {server.name: server for server in servers}

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools."""
        return [tool.name for tool in await self._servers[server].list_tools()]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        return text_of(await self._servers[server].call_tool(tool, arguments))


def make(name: str, each: dict[str, Any]) -> Any:
    """Return the server, which is not connected yet."""
    options = {} if each["timeout"] is None else {"client_session_timeout_seconds": each["timeout"]}
    if "url" in each:
        return MCPServerStreamableHttp({"url": each["url"]}, name=name, **options)
    return MCPServerStdio({"command": each["command"], "args": each["args"]}, name=name, **options)


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Active]:
    """Connect to one server by itself, and to several by their manager."""
    made = [make(name, each) for name, each in servers.items()]
    if len(made) == 1:
        async with made[0]:
            yield Active(made)
    else:
        async with MCPServerManager(made) as manager:
            yield Active(manager.active_servers)
