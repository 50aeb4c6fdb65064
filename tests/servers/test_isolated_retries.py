"""The connection of an isolated retry: its health, and its place in the limits of the group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from mcp import MCPError
from mcp.server import Server
from mcp.types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    ListToolsResult,
    TextContent,
    Tool,
)
from trio.testing import MockClock

from mcp_actors import Backoff, HealthPolicy, InProcess, RetryPolicy, ServerConfig, open_servers
from mcp_actors.servers import ServerGroup

from .links import text_of

ISOLATED: Final = RetryPolicy(backoff=Backoff(), isolated=True)
FAST: Final = HealthPolicy(interval=10, timeout=1, silence=30)


class Single:
    """A server that refuses the first call, and is deaf on the connection of the second one while that takes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0
        self.at_work: list[object] = []
        self.server: Server[Any] = Server(
            "single",
            lifespan=self._connection,
            on_ping=self._ping,
            on_list_tools=self._list_tools,
            on_call_tool=self._call,
        )

    @asynccontextmanager
    async def group(self, **options: Any) -> AsyncIterator[ServerGroup]:
        """Open a group of it; legacy, where the SDK leaves the answer to a ping to us."""
        config = ServerConfig(
            "a", InProcess(self.server), **{"protocol": "legacy", "health": FAST, "retry": ISOLATED, **options}
        )
        with trio.fail_after(5_000):  # of virtual time, as there is always another check to come
            async with open_servers(config) as servers:
                yield servers

    @asynccontextmanager
    async def _connection(self, _: object) -> AsyncIterator[object]:
        yield object()

    async def _listen(self, context: Any) -> None:
        if context.lifespan_context in self.at_work:
            await trio.sleep_forever()

    async def _ping(self, context: Any, params: object) -> EmptyResult:
        await self._listen(context)
        return EmptyResult()

    async def _list_tools(self, context: Any, params: object) -> ListToolsResult:
        await self._listen(context)
        return ListToolsResult(tools=[Tool(name="work", input_schema={"type": "object"})])

    async def _call(self, context: Any, params: CallToolRequestParams) -> CallToolResult:
        self.calls += 1
        if self.calls == 1:
            raise MCPError(INTERNAL_ERROR, "try again")
        self.at_work.append(context.lifespan_context)
        await trio.sleep(self.seconds)
        return CallToolResult(content=[TextContent(type="text", text="done")])


async def test_an_isolated_connection_is_not_ended_while_its_request_has_time(autojump_clock: MockClock) -> None:
    """B-07: a server that does one thing at a time is silent meanwhile, as on the connection that all share."""
    single = Single(600)
    async with single.group(request_timeout=None) as servers:
        assert text_of(await servers["a"].call_tool("work", idempotent=True)) == "done"
        assert servers["a"].state == "ready"
    assert single.calls == 2
