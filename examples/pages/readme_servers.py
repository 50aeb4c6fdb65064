"""The README's group: one server that is there, and one that lacks a variable.

Prints::

    mcp__time__get_current_time - Get current time in a specific timezone
    mcp__time__convert_time - Convert time between timezones
    not there: server 'docs': ... environment variable 'DOCS_TOKEN' is not set; set it, or ...
    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
"""

from __future__ import annotations

import trio

from mcp_actors import Http, ServerConfig, Stdio, open_servers


async def main() -> None:
    time = ServerConfig("time", Stdio("mcp-server-time"))
    docs = ServerConfig(
        "docs",
        Http(
            "https://example.com/mcp", headers={"Authorization": "Bearer ${DOCS_TOKEN}"}
        ),
    )
    async with open_servers(time, docs) as servers:
        for tool in servers.tools:
            print(tool.public_name, "-", tool.description)
        for error in servers.errors.values():
            print("not there:", error)
        result = await servers["time"].call_tool(
            "get_current_time", {"timezone": "Europe/Paris"}
        )
        print(result.structured_content)


trio.run(main)
