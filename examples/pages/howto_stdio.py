"""A server as a process: what it is given, and where it runs.

Prints::

    ... Use 'Asia/Tokyo' as local timezone ...
"""

from __future__ import annotations

import trio

from mcp_actors import ServerConfig, Stdio, open_servers

clock = ServerConfig(
    "clock",
    Stdio(
        "mcp-server-time",
        env={"TZ": "Asia/Tokyo"},
        env_from=["HTTPS_PROXY"],
        cwd="/",
    ),
    stop_timeout=3,
)


async def main() -> None:
    async with open_servers(clock, strict=True) as servers:
        now = servers.tools[0]
        print(now.input_schema["properties"]["timezone"]["description"])


trio.run(main)
