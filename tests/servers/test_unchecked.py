"""The result of a tool reaches its caller, whatever its output schema says."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from mcp_actors import InProcess, ServerConfig, open_servers

NUMBER: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = {
    "wrong": (NUMBER, CallToolResult(content=[], structured_content={"n": "secret words"})),
    "missing": (NUMBER, CallToolResult(content=[TextContent(text="seven")])),
    "broken schema": (
        {"type": "object", "properties": {"n": {"type": "nonsense"}}},
        CallToolResult(content=[], structured_content={"n": 7}),
    ),
    "unlisted": (None, CallToolResult(content=[TextContent(text="seven")])),
}


class Kitchen:
    """A server that does not check what its tools return, and counts how often it is asked for them."""

    def __init__(self) -> None:
        self.listings = 0
        self.server = Server("kitchen", on_list_tools=self.list_tools, on_call_tool=self.call_tool)

    async def list_tools(self, context: object, params: object) -> ListToolsResult:
        self.listings += 1
        tools = [
            Tool(name=name, input_schema={"type": "object"}, output_schema=schema)
            for name, (schema, _) in TOOLS.items()
            if name != "unlisted"
        ]
        return ListToolsResult(tools=tools)

    async def call_tool(self, context: object, params: CallToolRequestParams) -> CallToolResult:
        return TOOLS[params.name][1]


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("name", TOOLS)
async def test_a_result_is_returned_as_the_server_sent_it_and_nothing_else_is_asked(name: str, mode: Any) -> None:
    kitchen = Kitchen()
    async with open_servers(ServerConfig("a", InProcess(kitchen.server), protocol=mode)) as servers:
        result = await servers["a"].call_tool(name, {})
    sent = TOOLS[name][1]
    assert (result.content, result.structured_content) == (sent.content, sent.structured_content)
    assert kitchen.listings == 1


@pytest.mark.parametrize("name", ["wrong", "missing", "broken schema"])
async def test_the_sdk_throws_results_away(name: str) -> None:
    """If this fails, the SDK has learned to return results, and the session of an extension may be left to itself."""
    async with Client(Kitchen().server, mode="legacy") as client:
        await client.list_tools()
        with pytest.raises(RuntimeError):
            await client.call_tool(name, {})
