"""A server in a program on asyncio.

Prints::

    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
"""

from __future__ import annotations

import asyncio

from mcp_actors import ServerConfig, Stdio
from mcp_actors.bridge import open_servers


async def main() -> None:
    async with open_servers(ServerConfig("time", Stdio("mcp-server-time"))) as servers:
        result = await servers["time"].call_tool(
            "get_current_time", {"timezone": "Europe/Paris"}
        )
        print(result.structured_content)


asyncio.run(main())
