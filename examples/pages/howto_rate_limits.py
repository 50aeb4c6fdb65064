"""A server with a rate limit: calls that begin at intervals, and never too many at once.

Prints::

    answers: 6
    at intervals: True
"""

from __future__ import annotations

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


async def main() -> None:
    async with open_servers(limited) as servers, trio.open_nursery() as nursery:
        for word in ("a", "b", "c", "d", "e", "f"):
            nursery.start_soon(servers["search"].call_tool, "find", {"word": word})
    print("answers:", len(began))
    print("at intervals:", max(began) - min(began) > 0.09)


trio.run(main)
