"""The SDK's group of sessions: the docstring of `mcp.ClientSessionGroup`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSessionGroup, StdioServerParameters
from mcp.client.session_group import ClientSessionParameters, StreamableHttpParameters

from ..driver import Report, Servers, text_of


class Group:
    """A group, whose tools are collected when a server is connected."""

    def __init__(self, group: ClientSessionGroup) -> None:
        self._group = group

    async def list_tools(self, server: str) -> list[str]:
        """Return the collected tools."""
        return list(self._group.tools)

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        return text_of(await self._group.call_tool(tool, arguments))

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress."""
        text_of(await self._group.call_tool(tool, {}, progress_callback=report))


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Group]:
    """Connect to one server after the other."""
    async with ClientSessionGroup() as group:
        for each in servers.values():
            parameters: Any = (
                StreamableHttpParameters(url=each["url"])
                if "url" in each
                else StdioServerParameters(command=each["command"], args=each["args"])
            )
            await group.connect_to_server(parameters, ClientSessionParameters(read_timeout_seconds=each["timeout"]))
        yield Group(group)
