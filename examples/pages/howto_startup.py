"""A group that begins with the tools that it remembers.

Prints::

    mcp__time__get_current_time is there
    mcp__time__convert_time is there
    mcp__git__git_status is there
    ...
    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
"""

from __future__ import annotations

import trio

from mcp_actors import ServerConfig, Stdio, open_servers


async def main() -> None:
    async with open_servers(
        ServerConfig("time", Stdio("mcp-server-time")),
        ServerConfig("git", Stdio("mcp-server-git")),
        catalog_store=True,
        start_gate=0.25,
    ) as servers:
        for tool in servers.tools:
            print(tool.public_name, "is deferred" if tool.deferred else "is there")
        result = await servers.call_tool(
            "mcp__time__get_current_time", {"timezone": "Europe/Paris"}
        )
        print(result.structured_content)


trio.run(main)
