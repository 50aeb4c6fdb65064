"""Call a server that dies during a call, with pydantic-ai.

Prints::

    first call: 3, after ... s
    dying call: ModelRetry: Connection closed, after ... s
    in flight: ModelRetry: Connection closed, after ... s
    next call: ModelRetry: Connection closed, after ... s
    after a reconnect: 3, after ... s
    process left after the block: yes
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from time import monotonic

from pydantic_ai.mcp import MCPToolset

SERVER = Path(__file__).parents[1] / "servers" / "mortal.py"


async def outcome(step: str, call: Awaitable[object]) -> str:
    begun = monotonic()
    try:
        got = str(await asyncio.wait_for(call, 10))
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
    return f"{step}: {got}, after {monotonic() - begun:.1f} s"


def child_left() -> str:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return "no"
    return "yes"


async def main() -> None:
    toolset: MCPToolset[None] = MCPToolset(SERVER)

    async def call(tool: str, **arguments: object) -> object:
        return await toolset.direct_call_tool(tool, arguments)

    async with toolset:
        print(await outcome("first call", call("add", a=1, b=2)))
        lost = [outcome("dying call", call("die")), outcome("in flight", call("work"))]
        print(*await asyncio.gather(*lost), sep="\n")
        print(await outcome("next call", call("add", a=1, b=2)))
    print(await outcome("after a reconnect", call("add", a=1, b=2)))
    print("process left after the block:", child_left())


asyncio.run(main())
