"""A server that is an object of the test.

Prints::

    {'result': 5}
"""

from __future__ import annotations

import trio
from mcp.server import MCPServer

from mcp_actors import InProcess, ServerConfig, open_servers

calculator = MCPServer("calculator")


@calculator.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    async with open_servers(
        ServerConfig("calculator", InProcess(calculator))
    ) as servers:
        result = await servers["calculator"].call_tool("add", {"a": 2, "b": 3})
        print(result.structured_content)


trio.run(main)
