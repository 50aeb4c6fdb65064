"""google-adk: https://google.github.io/adk-docs/tools/mcp-tools/ and the docstring of `McpToolset`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.adk.tools.tool_context import ToolContext
from mcp import StdioServerParameters

from ..driver import Servers, ToolFailed


class Toolsets:
    """The toolsets of an agent, which connect when they are used."""

    def __init__(self, toolsets: dict[str, McpToolset], context: Any) -> None:
        self._toolsets = toolsets
        self._context = context
        self._tools: dict[tuple[str, str], Any] = {}

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools, as an agent does before each of its turns."""
        tools = {(server, tool.name): tool for tool in await self._toolsets[server].get_tools()}
        self._tools |= tools
        return [name for _, name in tools]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool, which was asked for before."""
        if (server, tool) not in self._tools:
            await self.list_tools(server)
        result = await self._tools[server, tool].run_async(args=arguments, tool_context=self._context)
        if "error" in result or result.get("isError"):
            raise ToolFailed(str(result.get("error") or result["content"]))
        return "".join(each.get("text", "") for each in result["content"])


def make(each: dict[str, Any]) -> McpToolset:
    """Return the toolset of a server."""
    options = {} if each["timeout"] is None else {"timeout": float(each["timeout"])}
    if "url" in each:
        return McpToolset(connection_params=StreamableHTTPConnectionParams(url=each["url"], **options))
    command = StdioServerParameters(command=each["command"], args=each["args"])
    return McpToolset(connection_params=StdioConnectionParams(server_params=command, **options))


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Toolsets]:
    """Give the toolsets to an agent, and close them at the end."""
    toolsets = {name: make(each) for name, each in servers.items()}
    agent = LlmAgent(name="agent", model="gemini-2.5-flash", tools=list(toolsets.values()))
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="compare", user_id="user")
    context = InvocationContext(session_service=sessions, invocation_id="1", agent=agent, session=session)
    try:
        yield Toolsets(toolsets, ToolContext(context))
    finally:
        for toolset in toolsets.values():
            await toolset.close()
