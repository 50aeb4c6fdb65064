"""fastmcp: https://gofastmcp.com/clients/client, …/clients/transports, …/clients/client-groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client, ClientGroup
from fastmcp.client.transports import StdioTransport

from ..driver import Report, Servers, text_of


class Clients:
    """Clients by name."""

    def __init__(self, clients: Any) -> None:
        self._clients = clients

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools."""
        return [tool.name for tool in await self._clients[server].list_tools()]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        return text_of(await self._clients[server].call_tool(tool, arguments))

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress."""
        text_of(await self._clients[server].call_tool(tool, {}, progress_handler=report))


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Clients]:
    """Open a client, or a group of clients."""
    clients = {
        name: Client(each.get("url") or StdioTransport(each["command"], each["args"]), timeout=each["timeout"])
        for name, each in servers.items()
    }
    async with ClientGroup(clients) if len(clients) > 1 else clients[next(iter(clients))]:
        yield Clients(clients)
