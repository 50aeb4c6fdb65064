"""A program on Trio whose agents are written for asyncio, in one thread. It needs Python 3.13 or older.

Most agent frameworks run on asyncio only. `open_asyncio_loop` gives them an event loop inside the Trio program, and
`loop.view` what they may call there. Here the "agents" are plain asyncio functions.

Prints::

    anna had one omelette
    ben had one soup
    kitchen is ready
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import trio

from mcp_actors import ServerConfig, Stdio, open_servers, result_value
from mcp_actors.bridge import AsyncioServerGroup, open_asyncio_loop

KITCHEN = Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")])


async def agent(name: str, dish: str, servers: AsyncioServerGroup) -> str:
    """An agent, written for asyncio: it thinks, and calls a tool."""
    await asyncio.sleep(0.01)
    result = await servers.call_tool("mcp__kitchen__cook", {"dish": dish})
    return f"{name} had {result_value(result)}"


async def main() -> None:
    """Run two agents side by side."""
    results: dict[str, str] = {}
    async with (
        open_servers(ServerConfig("kitchen", KITCHEN, required=True)) as servers,
        open_asyncio_loop() as loop,
    ):

        async def run(name: str, dish: str) -> None:
            results[name] = await loop.run(agent, name, dish, loop.view(servers))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "ben", "soup")
            nursery.start_soon(run, "anna", "omelette")
        for name in sorted(results):
            print(results[name])
        print(f"kitchen is {servers['kitchen'].state}")


trio.run(main)
