"""Calls as with a client of one server, from any number of tasks.

Prints::

    tools: cook clean_up
    one omelette
    an error of the tool: True
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from mcp_actors import ServerConfig, Stdio, open_servers, result_value

PROGRAM = Path(__file__).parent.parent / "servers" / "kitchen.py"
KITCHEN = ServerConfig("kitchen", Stdio(sys.executable, [str(PROGRAM)]))


async def main() -> None:
    async with open_servers(KITCHEN) as servers:
        kitchen = servers["kitchen"]  # valid across restarts, in any task
        print("tools:", *(tool.name for tool in await kitchen.list_tools()))
        with trio.fail_after(10):
            result = await kitchen.call_tool("cook", {"dish": "omelette"})
        print(result_value(result))
        result = await kitchen.call_tool("cook", {"dish": "soup", "seconds": "many"})
        print("an error of the tool:", result.is_error)  # returned, not raised


trio.run(main)
