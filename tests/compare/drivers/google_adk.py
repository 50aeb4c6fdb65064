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

from ..driver import Report, Servers, ToolFailed, pass_on, report_to


class Tools:
    """The tools of an agent, whose toolsets connect when they are used."""

    def __init__(self, agent: LlmAgent, context: Any) -> None:
        self._agent = agent
        self._context = context
        self._tools: dict[str, Any] = {}

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools, as the agent does before each of its turns.

        The only toolset is asked itself, so that its error is seen; an agent logs the error and goes on without it.
        """
        toolsets: list[Any] = self._agent.tools
        tools = await (self._agent.canonical_tools() if len(toolsets) > 1 else toolsets[0].get_tools())
        self._tools = {tool.name: tool for tool in tools}
        return [tool.name for tool in tools]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool, which was asked for before."""
        if tool not in self._tools:
            await self.list_tools(server)
        result = await self._tools[tool].run_async(args=arguments, tool_context=self._context)
        if "error" in result or result.get("isError"):
            raise ToolFailed(str(result.get("error") or result["content"]))
        return "".join(each.get("text", "") for each in result["content"])

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress to the function of its toolset."""
        report_to(report)
        await self.call_tool(server, tool, {})


def make(each: dict[str, Any]) -> McpToolset:
    """Return the toolset of a server."""
    options = {} if each["timeout"] is None else {"timeout": float(each["timeout"])}
    params: Any
    if "url" in each:
        params = StreamableHTTPConnectionParams(url=each["url"], **options)
    else:
        command = StdioServerParameters(command=each["command"], args=each["args"])
        params = StdioConnectionParams(server_params=command, **options)
    return McpToolset(connection_params=params, progress_callback=pass_on)


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Tools]:
    """Give the toolsets to an agent, and close them at the end."""
    toolsets = [make(each) for each in servers.values()]
    agent = LlmAgent(name="agent", model="gemini-2.5-flash", tools=[*toolsets])
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="compare", user_id="user")
    context = InvocationContext(session_service=sessions, invocation_id="1", agent=agent, session=session)
    try:
        yield Tools(agent, ToolContext(context))
    finally:
        for toolset in toolsets:
            await toolset.close()
