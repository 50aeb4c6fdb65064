"""One server: started, called, stopped.

Prints::

    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
"""

from __future__ import annotations

import trio

from mcp_actors import ServerConfig, Stdio, open_servers


async def main() -> None:
    time = ServerConfig("time", Stdio("mcp-server-time"))
    async with open_servers(time) as servers:
        print(await servers["time"].call("get_current_time", timezone="Europe/Paris"))


trio.run(main)
