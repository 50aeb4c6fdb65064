"""A server that is killed, and what events tell of it.

Logs::

    server 'time': connection lost: its process was killed by SIGKILL while it was connected

Prints::

    ready -> backoff
    backoff -> connecting
    connecting -> ready
    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
"""

from __future__ import annotations

import os
import signal

import trio

from mcp_actors import ServerConfig, StateChanged, Stdio, open_servers


async def main() -> None:
    async with open_servers(ServerConfig("time", Stdio("mcp-server-time"))) as servers:
        async with servers.watch_events() as events:
            pid = servers.status()["time"].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            async for event in events:
                if isinstance(event, StateChanged):
                    print(event.old, "->", event.new)
                    if event.new == "ready":
                        break
        result = await servers["time"].call_tool(
            "get_current_time", {"timezone": "Europe/Paris"}
        )
        print(result.structured_content)


trio.run(main)
