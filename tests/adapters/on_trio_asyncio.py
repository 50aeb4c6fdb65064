"""A program on Trio that runs an agent of each framework in its own thread.

Run it with ``python -m tests.adapters.on_trio_asyncio``.

That host changes asyncio for the whole process, so it is a process of its own.
"""

from __future__ import annotations

import trio

from mcp_actors import open_servers
from mcp_actors.bridge import open_asyncio_loop
from tests.servers.groups import server

from .frameworks import FRAMEWORKS, Call


async def think(turn: int, offered: list[str], heard: list[str]) -> Call | str:
    """Call one tool, and say what was heard."""
    return ("mcp__a__echo", {"text": "hi"}) if turn == 1 else " ".join(heard)


async def main() -> None:
    """Let each agent use the same server."""
    async with open_servers(server("a")) as servers, open_asyncio_loop() as loop:
        for name, framework in FRAMEWORKS.items():
            print(name, await loop.run(framework.run, loop.view(servers), think))


trio.run(main)
