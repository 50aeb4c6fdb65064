"""llama-index-tools-mcp: https://developers.llamaindex.ai/python/framework/module_guides/mcp/llamaindex_mcp."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

from ..driver import Servers, text_of


class Specs:
    """The tools of each server. Every request has a connection of its own."""

    def __init__(self, specs: dict[str, McpToolSpec]) -> None:
        self._specs = specs
        self._tools: dict[tuple[str, str], Any] = {}

    async def list_tools(self, server: str) -> list[str]:
        """Ask for the tools."""
        tools = {(server, tool.metadata.name): tool for tool in await self._specs[server].to_tool_list_async()}
        self._tools |= tools
        return [name for _, name in tools]

    async def call_tool(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool that the agent was given."""
        output = await self._tools[server, tool].acall(**arguments)
        return text_of(output.raw_output)


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
