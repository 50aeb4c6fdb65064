"""The SDK's client: https://py.sdk.modelcontextprotocol.io/client/. It connects to one server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from ..driver import Report, Servers, text_of


class One:
    """A client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools."""
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        return text_of(await self._client.call_tool(tool, arguments))

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress."""
        text_of(await self._client.call_tool(tool, {}, progress_callback=report))


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[One]:
    """Open a client."""
    [each] = servers.values()
    options = {} if each["timeout"] is None else {"read_timeout_seconds": each["timeout"]}
    server: Any = each.get("url")
    if server is None:
        server = stdio_client(StdioServerParameters(command=each["command"], args=each["args"]))
    async with Client(server, **options) as client:
        yield One(client)
