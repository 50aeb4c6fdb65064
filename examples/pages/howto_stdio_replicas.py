"""Several processes of one server, behind one name.

Prints::

    3 processes serve 2 tools
    Asia/Tokyo +9.0h
    Europe/Paris ...
    America/Lima -5.0h
"""

from __future__ import annotations

import trio

from mcp_actors import ServerConfig, Stdio, open_servers

ZONES = ["Asia/Tokyo", "Europe/Paris", "America/Lima"]


async def main() -> None:
    clock = ServerConfig("clock", Stdio("mcp-server-time"), replicas=3, required=True)
    async with open_servers(clock) as servers:
        replicas = servers["clock"].statistics().replicas
        print(replicas.serving, "processes serve", len(servers.tools), "tools")
        offsets: dict[str, str] = {}

        async def ask(zone: str) -> None:
            between = {
                "source_timezone": "UTC",
                "time": "12:00",
                "target_timezone": zone,
            }
            found = await servers.call_tool("mcp__clock__convert_time", between)
            offsets[zone] = (found.structured_content or {})["time_difference"]

        async with trio.open_nursery() as nursery:
            for zone in ZONES:
                nursery.start_soon(ask, zone)
        for zone in ZONES:
            print(zone, offsets[zone])


trio.run(main)
