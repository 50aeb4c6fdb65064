"""An hour in which nothing happens, in no time.

Prints::

    after 3600 s: tools/call 'ponder'
"""

from __future__ import annotations

import trio
import trio.testing
from mcp.server import MCPServer

from mcp_actors import InProcess, RequestTimedOut, ServerConfig, open_servers

oracle = MCPServer("oracle")


@oracle.tool()
async def ponder() -> str:
    """Never answer."""
    await trio.sleep_forever()


async def main() -> None:
    async with open_servers(
        ServerConfig("oracle", InProcess(oracle), request_timeout=3600)
    ) as servers:
        try:
            await servers["oracle"].call_tool("ponder")
        except RequestTimedOut as error:
            print(f"after {error.seconds:g} s:", error.operation)


trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
