"""A kitchen: a small MCP server over stdio, for the examples.

With ``--gas FILE`` it opens only if that file exists.
"""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server import MCPServer

kitchen = MCPServer("kitchen", version="1.0", log_level="WARNING")
on_the_stove: list[anyio.Event] = []
thrown_away: list[str] = []


@kitchen.tool()
async def cook(dish: str, seconds: float = 0.0) -> str:
    """Cook a dish, which takes some seconds."""
    done = anyio.Event()
    on_the_stove.append(done)
    try:
        await anyio.sleep(seconds)
    except BaseException:
        thrown_away.append(dish)
        raise
    finally:
        done.set()
    return f"one {dish}"


@kitchen.tool()
async def clean_up() -> str:
    """Wait until the stove is free, then tell what was thrown away."""
    while on_the_stove:
        await on_the_stove.pop().wait()
    return ", ".join(sorted(thrown_away)) or "nothing"


def main() -> None:
    """Serve until standard input ends."""
    if sys.argv[1:2] == ["--gas"] and not os.path.exists(sys.argv[2]):
        sys.exit("the kitchen has no gas")
    kitchen.run("stdio")


if __name__ == "__main__":
    main()
