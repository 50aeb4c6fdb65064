"""The connection of an isolated retry: its health, and its place in the limits of the group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
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
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    ConnectFailed,
    HealthPolicy,
    InProcess,
    RequestTimedOut,
    RetryPolicy,
    ServerConfig,
    ToolRequest,
    open_servers,
)
from mcp_actors.config import CallNext
from mcp_actors.servers import ServerGroup

from .fleet import calls
from .groups import Events, pids_in, server
from .houses import House, who
from .links import text_of

ISOLATED: Final = RetryPolicy(attempts=2, backoff=Backoff(), isolated=True)
FAST: Final = HealthPolicy(interval=10, timeout=1, silence=30)


class Single:
    """A server that does one thing at a time: on the connection of a call it is deaf while that takes.

    Attributes:
        seconds: how long a call takes.
        connections: all its connections, in order. The first one is that of the group.
        deaf: the connections on which it does not answer.
        events: the events of the group.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.connections: list[object] = []
        self.deaf: list[object] = []
        self.events = Events()
        self._attempts = 0
        self.server: Server[Any] = Server(
            "single",
            lifespan=self._connection,
            on_ping=self._ping,
            on_list_tools=self._list_tools,
            on_call_tool=self._call,
        )

    def config(self, **options: Any) -> ServerConfig:
        """Configure it; legacy, where the SDK leaves the answer to a ping to us."""
        middleware = (self._refuse_first,)
        defaults = {"protocol": "legacy", "health": FAST, "retry": ISOLATED, "middleware": middleware}
        return ServerConfig("a", InProcess(self.server), **{**defaults, **options})

    @asynccontextmanager
    async def group(self, **options: Any) -> AsyncIterator[ServerGroup]:
        """Open a group of it."""
        with trio.fail_after(5_000):  # of virtual time, as there is always another check to come
            async with open_servers(self.config(**options), observers=[self.events]) as servers:
                self.events.clear()
                yield servers

    @asynccontextmanager
    async def _connection(self, _: object) -> AsyncIterator[object]:
        self.connections.append(connection := object())
        yield connection

    async def _listen(self, context: Any) -> None:
        if context.lifespan_context in self.deaf:
            await trio.sleep_forever()

    async def _ping(self, context: Any, params: object) -> EmptyResult:
        await self._listen(context)
        return EmptyResult()

    async def _list_tools(self, context: Any, params: object) -> ListToolsResult:
        await self._listen(context)
        return ListToolsResult(tools=[Tool(name="work", input_schema={"type": "object"})])

    async def _call(self, context: Any, params: CallToolRequestParams) -> CallToolResult:
        self.deaf.append(context.lifespan_context)
        await trio.sleep(self.seconds)
        self.deaf.remove(context.lifespan_context)
        return CallToolResult(content=[TextContent(type="text", text="done")])

    async def _refuse_first(self, request: ToolRequest, call_next: CallNext) -> CallToolResult:
        """Let the first attempt of each call fail, before the server hears of it."""
        self._attempts += 1
        if self._attempts % 2:
            raise MCPError(INTERNAL_ERROR, "try again")
        return await call_next(request)


async def test_an_isolated_connection_is_not_ended_while_its_request_has_time(autojump_clock: MockClock) -> None:
    """B-07: a server that does one thing at a time is silent meanwhile, as on the connection that all share."""
    single = Single(600)
    async with single.group(request_timeout=None) as servers:
        assert text_of(await servers["a"].call_tool("work", idempotent=True)) == "done"
    assert len(single.connections) == 2


async def test_the_timeout_of_an_isolated_request_does_not_count_against_the_shared_connection(
    autojump_clock: MockClock,
) -> None:
    """A-13: the server was asked over another connection, perhaps another process."""
    single, policy = Single(600), HealthPolicy(interval=3600, warn_after=1)
    async with single.group(request_timeout=5, health=policy) as servers:
        with pytest.raises(RequestTimedOut):
            await servers["a"].call_tool("work", idempotent=True)
        assert servers.status()["a"].health.failures == 0
        await servers["a"].check_health()
    assert single.events.states("a")[:1] == ["stopping"]


async def test_the_answer_to_an_isolated_request_does_not_reset_the_health_of_the_shared_connection(
    autojump_clock: MockClock,
) -> None:
    """S2-25: that stays silent."""
    single = Single()
    async with single.group() as servers:
        single.deaf += single.connections
        await servers["a"].wait_state("unhealthy")
        assert text_of(await servers["a"].call_tool("work", idempotent=True)) == "done"
        assert servers["a"].state == "unhealthy"


async def test_an_isolated_attempt_waits_for_its_turn_to_connect(autojump_clock: MockClock) -> None:
    """S1-04: ``max_starting`` counts it."""
    single, other = Single(), House("b")
    other.entered = trio.Event()
    configs = [single.config(), other.config(connect="lazy")]
    async with open_servers(*configs, max_starting=1) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(who, servers, "b")
        await servers["b"].wait_state("connecting")
        async with calls(1, partial(servers["a"].call_tool, idempotent=True), "work") as [outcome]:
            await wait_all_tasks_blocked()
            assert len(single.connections) == 1
            other.entered.set()
    assert text_of(outcome.value) == "done"


async def test_the_process_of_an_isolated_retry_counts(tmp_path: Path) -> None:
    """S2-44: as for any connect, one too many is refused; that is not evidence against the server."""
    pids, busy = tmp_path / "pids", ("--error-on-call", str(INTERNAL_ERROR), "busy")
    breaker = BreakerPolicy(failures=1)
    config = server("a", "--pid-file", str(pids), *busy, retry=ISOLATED, breaker=breaker)
    async with open_servers(config, max_processes=1) as servers:
        for _ in range(2):
            with pytest.raises(ConnectFailed, match="max_processes=1"):
                await servers["a"].call_tool("add", {"a": 1, "b": 2}, idempotent=True)
        assert servers["a"].state == "ready"
    assert len(pids_in(pids)) == 1
