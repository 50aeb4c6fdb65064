"""The program that everybody writes first: a connection that one task enters and another leaves.

Prints::

    The event loop broke: internal error in Trio - please file a bug!
"""

from __future__ import annotations

import trio
from mcp import Client, StdioServerParameters


class Clock:
    async def connect(self) -> None:
        self.client = Client(StdioServerParameters(command="mcp-server-time"))
        await self.client.__aenter__()

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)


async def main() -> None:
    clock = Clock()
    async with trio.open_nursery() as startup:
        startup.start_soon(clock.connect)  # in parallel with other start-up work
    print(
        await clock.client.call_tool("get_current_time", {"timezone": "Europe/Paris"})
    )
    await clock.close()


try:
    trio.run(main)
except trio.TrioInternalError as error:
    print("The event loop broke:", error)
