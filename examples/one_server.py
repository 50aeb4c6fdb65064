"""One server: connect, look, call a tool, disconnect.

The server is a program of its own, `servers/kitchen.py`, which is started and spoken to through its standard input and
output. `open_servers` yields when it is ready; at the end of the block its process is gone.

Prints::

    kitchen is ready: kitchen 1.0 speaks ...
    cook: Cook a dish, which takes some seconds.
    clean_up: Wait until the stove is free, then tell what was thrown away.
    one omelette
    kitchen is stopped
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio
from mcp.types import TextContent

from mcp_actors import ServerConfig, Stdio, open_servers

KITCHEN = Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")])


async def main() -> None:
    """Have an omelette."""
    async with open_servers(ServerConfig("kitchen", KITCHEN, required=True)) as servers:
        kitchen = servers["kitchen"]
        print(
            f"{kitchen.name} is {kitchen.state}:",
            kitchen.info.name,
            kitchen.info.version,
            end=" ",
        )
        print("speaks", kitchen.info.protocol_version)
        for tool in servers.tools:
            print(f"{tool.name}: {tool.description}")

        result = await kitchen.call_tool("cook", {"dish": "omelette"})
        for part in result.content:
            if isinstance(part, TextContent):
                print(part.text)
    print(f"{kitchen.name} is {kitchen.state}")


trio.run(main)
