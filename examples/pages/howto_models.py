"""Tools as a model is offered them, and what it answers.

Prints::

    ['mcp__shop__find']
    ('apples on shelf 7', False)
    ('no such tool: mcp__shop__order', True)
    ordered: apples
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio
from mcp import MCPError
from mcp.server import MCPServer

from mcp_actors import (
    CatalogTool,
    InProcess,
    McpActorsError,
    ServerConfig,
    ServerGroup,
    ToolFilter,
    open_servers,
    result_value,
)
from mcp_actors.catalog import StrictSchema, strict_schema
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


async def answer(
    servers: ServerGroup,
    strict: Mapping[str, StrictSchema],
    name: str,
    arguments: dict[str, Any],
) -> tuple[str, bool]:
    """Call a tool for a model; return the text for it, and whether the call failed."""
    if name not in strict:  # invented, or not offered to this agent
        return f"no such tool: {name}", True
    try:
        # A strict schema requires all arguments, so the model has passed null for some.
        result = await servers.call_tool(name, strict[name].restore(arguments))
    except (McpActorsError, MCPError) as error:
        return str(error), True
    texts = [part.text for part in result.content if part.type == "text"]
    return "\n".join(texts), bool(result.is_error)


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
                "description": tool.description or "",
                "parameters": strict[tool.public_name].schema,
                "strict": strict[tool.public_name].is_strict,
            }
            for tool in tools
        ]
        print([each["name"] for each in offered])

        # What the model asks for, as the API returns it.
        call = ("mcp__shop__find", {"text": "apples", "shelf": None})
        print(await answer(servers, strict, *call))
        print(await answer(servers, strict, "mcp__shop__order", {"item": "apples"}))

        # A program that knows the name of a hidden tool can still call it.
        print(
            result_value(
                await servers.call_tool("mcp__shop__order", {"item": "apples"})
            )
        )


trio.run(main)
