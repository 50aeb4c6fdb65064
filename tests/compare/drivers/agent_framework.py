"""agent-framework: https://learn.microsoft.com/en-us/agent-framework/user-guide/model-context-protocol/using-mcp-tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from agent_framework import MCPStdioTool, MCPStreamableHTTPTool

from ..driver import Servers


class Tools:
    """The MCP tools by the name of their server."""

    def __init__(self, tools: dict[str, Any]) -> None:
        self._tools = tools

    async def list_tools(self, server: str) -> list[str]:
        """Return the functions, which are loaded again when the server says that they have changed."""
        return [function.name for function in self._tools[server].functions]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool."""
        result = await self._tools[server].call_tool(tool, **arguments)
        return result if isinstance(result, str) else "".join(each.text or "" for each in result)


def make(name: str, each: dict[str, Any]) -> Any:
    """Return the tool of a server, which is not connected yet."""
    options = {} if each["timeout"] is None else {"request_timeout": each["timeout"]}
    if "url" in each:
        return MCPStreamableHTTPTool(name, each["url"], **options)
    return MCPStdioTool(name, each["command"], args=each["args"], **options)


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Tools]:
    """Connect to one server after the other."""
    async with AsyncExitStack() as stack:
        yield Tools({name: await stack.enter_async_context(make(name, each)) for name, each in servers.items()})
