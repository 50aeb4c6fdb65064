"""Results of tools as plain values.

Prints::

    7
    {'result': [3, 4]} [3, 4]
    tool 'stock' of server 'shop' failed: 'Error executing tool stock: there is no pear; ask for an apple'
"""

from __future__ import annotations

import trio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from mcp_actors import InProcess, ServerConfig, ToolFailed, open_servers, result_value

shop = MCPServer("shop", log_level="WARNING")


@shop.tool()
def stock(item: str) -> list[int]:
    """Say how many there are, per shelf."""
    if item != "apple":
        raise ToolError(f"there is no {item}; ask for an apple")
    return [3, 4]


async def main() -> None:
    async with open_servers(ServerConfig("shop", InProcess(shop))) as servers:
        print(sum(await servers["shop"].call("stock", item="apple")))
        result = await servers["shop"].call_tool("stock", {"item": "apple"})
        print(result.structured_content, result_value(result))
        try:
            await servers["shop"].call("stock", item="pear")
        except ToolFailed as failed:
            print(failed)


trio.run(main)
