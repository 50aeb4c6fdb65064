"""Tools as a model is offered them, and what it answers.

Prints::

    ['mcp__shop__find']
    ['apples on shelf 7']
    ordered: apples
"""

from __future__ import annotations

import trio
from mcp.server import MCPServer

from mcp_actors import (
    CatalogTool,
    InProcess,
    ServerConfig,
    ToolFilter,
    open_servers,
    result_value,
)
from mcp_actors.catalog import strict_schema
from mcp_actors.config import ToolContext

shop = MCPServer("shop")


@shop.tool()
def find(text: str, shelf: int = 0) -> list[str]:
    """Find goods by their name, on all shelves or on one."""
    return [f"{text} on shelf {shelf or 7}"]


@shop.tool()
def order(item: str) -> str:
    """Order something."""
    return f"ordered: {item}"


def may_order(tool: CatalogTool, context: ToolContext) -> bool:
    return tool.name != "order" or context.agent == "buyer"


async def main() -> None:
    async with open_servers(
        ServerConfig(
            "shop", InProcess(shop), tool_filter=ToolFilter(predicate=may_order)
        )
    ) as servers:
        tools = await servers.list_tools(ToolContext(agent="adviser"))
        strict = {
            tool.public_name: strict_schema(tool.input_schema, owner=tool.public_name)
            for tool in tools
        }
        offered = [
            {
                "name": tool.public_name,
                "description": tool.description,
                "parameters": strict[tool.public_name].schema,
                "strict": strict[tool.public_name].is_strict,
            }
            for tool in tools
        ]
        print([each["name"] for each in offered])

        # The model's answer. A strict schema requires all arguments, so it passes null.
        name, arguments = "mcp__shop__find", {"text": "apples", "shelf": None}
        result = await servers.call_tool(name, strict[name].restore(arguments))
        print(result_value(result))

        # A program that knows the name of a hidden tool can still call it.
        print(
            result_value(
                await servers.call_tool("mcp__shop__order", {"item": "apples"})
            )
        )


trio.run(main)
