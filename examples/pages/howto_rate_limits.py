"""A server with a rate limit: calls that begin at intervals, and never too many at once.

Prints::

    answers: 6
    at intervals: True
    of each user: ['ann', 'bob']
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import trio
from mcp.server import MCPServer
from mcp.types import CallToolResult

from mcp_actors import InProcess, ServerConfig, open_servers
from mcp_actors.config import CallNext, ToolRequest

search = MCPServer("search", log_level="WARNING")
began = list[float]()


@search.tool()
async def find(word: str) -> int:
    """Return the number of entries for a word."""
    began.append(trio.current_time())
    return len(word)


class AtMost:
    """Let calls begin in the order in which they come, so many in each second."""

    def __init__(self, per_second: float) -> None:
        self.interval = 1 / per_second
        self.next = 0.0

    async def __call__(
        self, request: ToolRequest, call_next: CallNext
    ) -> CallToolResult:
        begin = max(trio.current_time(), self.next)
        self.next = begin + self.interval
        await trio.sleep_until(begin)
        return await call_next(request)


limited = ServerConfig(
    "search",
    InProcess(search),
    middleware=[AtMost(per_second=50)],
    max_in_flight=4,
)


class ForEachUser:
    """Let the calls of each user begin at intervals of their own."""

    def __init__(self, per_second: float) -> None:
        new = partial(AtMost, per_second)
        self.limits: defaultdict[str, AtMost] = defaultdict(new)

    async def __call__(
        self, request: ToolRequest, call_next: CallNext
    ) -> CallToolResult:
        limit = self.limits[str((request.meta or {}).get("user", ""))]
        return await limit(request, call_next)


per_user = ForEachUser(per_second=50)
shared = ServerConfig("shared", InProcess(search), middleware=[per_user])


async def main() -> None:
    async with open_servers(limited, shared) as servers:
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for word in ("a", "b", "c", "d", "e", "f"):
                nursery.start_soon(servers["search"].call_tool, "find", {"word": word})
        print("answers:", len(began))
        print("at intervals:", max(began) - start > 0.09)
        for user in ("ann", "bob"):
            query = {"word": f"one for {user}"}
            await servers["shared"].call_tool("find", query, meta={"user": user})
        print("of each user:", [*per_user.limits])


trio.run(main)
