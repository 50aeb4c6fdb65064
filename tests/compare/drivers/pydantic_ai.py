"""pydantic-ai: https://ai.pydantic.dev/mcp/client and https://gofastmcp.com/docs/integrations/pydantic-ai."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

from ..driver import Report, Servers, pass_on, report_to


class Toolsets:
    """Toolsets by the name of their server."""

    def __init__(self, toolsets: dict[str, Any]) -> None:
        self._toolsets = toolsets

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools; the toolset keeps them until the server says that they have changed."""
        return [tool.name for tool in await self._toolsets[server].list_tools()]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        return str(await self._toolsets[server].direct_call_tool(tool, arguments))

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress to the function of its toolset."""
        report_to(report)
        await self._toolsets[server].direct_call_tool(tool, {})


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Toolsets]:
    """Enter the agent that has the toolsets."""
    toolsets = {}
    for name, each in servers.items():
        options = {} if each["timeout"] is None else {"read_timeout": each["timeout"]}
        server = each.get("url") or StdioTransport(each["command"], each["args"])
        toolsets[name] = MCPToolset(server, progress_handler=pass_on, **options)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Agent("test", toolsets=list(toolsets.values())))
        yield Toolsets(toolsets)
