"""llama-index-tools-mcp: https://developers.llamaindex.ai/python/framework/module_guides/mcp/llamaindex_mcp."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

from ..driver import Report, Servers, text_of


class Specs:
    """The tools of each server. Every request has a connection of its own."""

    def __init__(self, specs: dict[str, McpToolSpec]) -> None:
        self._specs = specs
        self._tools: dict[tuple[str, str], Any] = {}

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools."""
        tools = await self._specs[server].to_tool_list_async()
        self._tools |= {(server, tool.metadata.get_name()): tool for tool in tools}
        return [tool.metadata.get_name() for tool in tools]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool that the agent was given."""
        output = await self._tools[server, tool].acall(**arguments)
        return text_of(output.raw_output)

    async def follow_tool(self, server: str, tool: str, report: Report) -> None:
        """Call a tool that reports its progress."""
        text_of(await self._specs[server].client.call_tool(tool, {}, progress_callback=report))


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Specs]:
    """Get the tools of one server after the other, as it is done before an agent is made."""
    specs = {}
    for name, each in servers.items():
        options = {} if each["timeout"] is None else {"timeout": each["timeout"]}
        client = BasicMCPClient(each.get("url") or each["command"], args=each.get("args"), **options)
        specs[name] = McpToolSpec(client=client)
    tools = Specs(specs)
    for name in specs:
        await tools.list_tools(name)
    yield tools
