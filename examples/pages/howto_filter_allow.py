"""Offer one tool of a server, and hide all others.

Prints::

    mcp__time__get_current_time
    server 'time': tool 'convert_time' is hidden by its ToolFilter; ...
"""

from __future__ import annotations

import trio

from mcp_actors import ServerConfig, Stdio, ToolFilter, ToolNotFound, open_servers


async def main() -> None:
    time = ServerConfig(
        "time",
        Stdio("mcp-server-time"),
        tool_filter=ToolFilter(allow=["get_current_time"]),
    )
    async with open_servers(time) as servers:
        print(*(tool.public_name for tool in servers.tools))
        try:
            await servers["time"].call("convert_time")
        except ToolNotFound as refusal:
            print(refusal)


trio.run(main)
