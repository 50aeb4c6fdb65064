"""Call a server that dies during a call, with mcp_actors.

Logs::

    server 'mortal': connection lost: its process exited with code 1 while it was connected

Prints::

    first call: 3, after ... s
    dying call: ConnectionLost: server 'mortal': connection lost (its process exited with code 1 while it was connected) during tools/call 'die', which may have taken effect; send it again only if a second time does no harm, after ... s
    in flight: ConnectionLost: server 'mortal': connection lost (its process exited with code 1 while it was connected) during tools/call 'work', which may have taken effect; send it again only if a second time does no harm, after ... s
    next call: 3, after ... s
    process left after the block: no
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from time import monotonic

from mcp_actors import ServerConfig, Stdio
from mcp_actors.bridge import open_servers

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
    config = ServerConfig("mortal", Stdio(sys.executable, [str(SERVER)]))
    async with open_servers(config) as servers:
        call = servers["mortal"].call
        print(await outcome("first call", call("add", a=1, b=2)))
        lost = [outcome("dying call", call("die")), outcome("in flight", call("work"))]
        print(*await asyncio.gather(*lost), sep="\n")
        print(await outcome("next call", call("add", a=1, b=2)))
    print("process left after the block:", child_left())


asyncio.run(main())
