"""A synchronous program that uses servers, which run in a thread of their own.

Prints::

    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
    ['Asia/Tokyo', 'Europe/Paris']
"""

from __future__ import annotations

import trio
from anyio.from_thread import start_blocking_portal

from mcp_actors import ServerConfig, ServerGroup, Stdio, open_servers, result_value

TIME = ServerConfig("time", Stdio("mcp-server-time"))


def main() -> None:
    with (
        start_blocking_portal(backend="trio") as portal,
        portal.wrap_async_context_manager(open_servers(TIME)) as servers,
    ):
        paris = {"timezone": "Europe/Paris"}
        result = portal.call(servers["time"].call_tool, "get_current_time", paris)
        print(result_value(result))
        print(portal.call(ask_two, servers))


async def ask_two(servers: ServerGroup) -> list[str]:
    """Call two tools at the same time, for at most ten seconds."""
    zones: list[str] = []

    async def ask(zone: str) -> None:
        result = await servers["time"].call_tool("get_current_time", {"timezone": zone})
        zones.append(result_value(result)["timezone"])

    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "Asia/Tokyo")
            nursery.start_soon(ask, "Europe/Paris")
    return sorted(zones)


main()
