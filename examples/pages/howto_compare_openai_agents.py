"""Call a server that dies during a call, with openai-agents.

Prints::

    first call: 3, after ... s
    dying call: MCPError: Connection closed, after ... s
    in flight: MCPError: Connection closed, after ... s
    next call: MCPError: Connection closed, after ... s
    after a reconnect: 3, after ... s
    process left after the block: no
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from time import monotonic

from agents.mcp import MCPServerManager, MCPServerStdio

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
    server = MCPServerStdio({"command": sys.executable, "args": [str(SERVER)]})
    async with MCPServerManager([server]) as manager:

        async def call(tool: str, **arguments: object) -> object:
            return (await server.call_tool(tool, arguments)).content[0].text

        async def reconnect_and_call() -> object:
            await manager.reconnect(failed_only=False)
            return await call("add", a=1, b=2)

        print(await outcome("first call", call("add", a=1, b=2)))
        lost = [outcome("dying call", call("die")), outcome("in flight", call("work"))]
        print(*await asyncio.gather(*lost), sep="\n")
        print(await outcome("next call", call("add", a=1, b=2)))
        print(await outcome("after a reconnect", reconnect_and_call()))
    print("process left after the block:", child_left())


asyncio.run(main())
