"""strands-agents: https://strandsagents.com/docs/user-guide/concepts/tools/mcp-tools/."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from strands.tools.mcp import MCPClient

from ..driver import Report, Servers, ToolFailed


class Clients:
    """Clients by name, each with a thread of its own."""

    def __init__(self, clients: dict[str, MCPClient], servers: Servers) -> None:
        self._clients = clients
        self._servers = servers

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools."""
        return [tool.tool_name for tool in await asyncio.to_thread(self._clients[server].list_tools_sync)]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        seconds = self._servers[server]["timeout"]
        timeout = None if seconds is None else timedelta(seconds=seconds)
        result = await self._clients[server].call_tool_async("1", tool, arguments, read_timeout_seconds=timeout)
        text = "".join(each.get("text", "") for each in result["content"])
        if result["status"] != "success":
            raise ToolFailed(text)
        return text

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress."""
        await self._clients[server].call_tool_async("1", tool, {}, progress_callback=report)


def transport_of(each: dict[str, Any]) -> Any:
    """Return a function that makes the transport of a server."""
    if "url" in each:
        return partial(streamable_http_client, each["url"])
    return partial(stdio_client, StdioServerParameters(command=each["command"], args=each["args"]))


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Clients]:
    """Start one client after the other, in a thread, as their ``with`` blocks a thread."""
    clients = {name: MCPClient(transport_of(each)) for name, each in servers.items()}
    stack = ExitStack()
    try:
        for client in clients.values():
            await asyncio.to_thread(stack.enter_context, client)
        yield Clients(clients, servers)
    finally:
        await asyncio.to_thread(stack.close)
