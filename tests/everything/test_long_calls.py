"""Calls that take their time: progress, many at once, and being cancelled."""

from __future__ import annotations

import pytest
import trio
from attrs import evolve

from mcp_actors import RequestTimedOut, ServerConfig, ServerRef, open_servers

from ..servers.processes import eventually
from .conftest import Asked
from .test_tools import text_of

LONG = "trigger-long-running-operation"
FOR_EVER = {"duration": 1000, "steps": 50_000}
"""It gives notice of progress fifty times a second."""


async def test_progress_arrives_in_order_and_before_the_result(everything: ServerConfig) -> None:
    notices: list[tuple[float, float | None]] = []

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        notices.append((progress, total))

    async with open_servers(everything, strict=True) as servers:
        result = await servers["everything"].call_tool(LONG, {"duration": 0.1, "steps": 5}, progress=notice)
        assert notices == [(step, 5) for step in (1, 2, 3, 4, 5)]
        assert text_of(result) == "Long running operation completed. Duration: 0.1 seconds, Steps: 5."


async def long_call(server: ServerRef, *, task_status: trio.TaskStatus[None]) -> None:
    """Make a call that takes for ever; it is started when the server works on it."""

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        if progress == 1:
            task_status.started()

    await server.call_tool(LONG, FOR_EVER, progress=notice)


async def test_calls_run_side_by_side_and_those_that_are_cancelled_leave_at_once(everything: ServerConfig) -> None:
    async with open_servers(evolve(everything, stop_timeout=0.5), strict=True) as servers:
        server = servers["everything"]
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                await nursery.start(long_call, server)  # it runs, and those before it still do
            assert text_of(await server.call_tool("echo", {"message": "meanwhile"})) == "Echo: meanwhile"
            assert server.statistics().in_flight == 10
            nursery.cancel_scope.cancel("enough")
        assert text_of(await server.call_tool("echo", {"message": "still here"})) == "Echo: still here"
        await eventually(lambda: server.statistics().in_flight == 0)


async def test_a_cancelled_call_is_cancelled_on_the_server(asked: Asked) -> None:
    async with open_servers(evolve(asked.config, stop_timeout=0.5), strict=True) as servers:
        async with trio.open_nursery() as nursery:
            await nursery.start(long_call, servers["everything"])
            assert asked.count("notifications/cancelled") == 0
            nursery.cancel_scope.cancel("enough")
        await eventually(lambda: asked.count("notifications/cancelled") == 1)


async def test_a_call_without_progress_times_out_and_one_with_progress_does_not(everything: ServerConfig) -> None:
    config = evolve(everything, progress_timeout=1.5, stop_timeout=0.5)
    async with open_servers(config, strict=True) as servers:
        server = servers["everything"]
        await server.call_tool(LONG, {"duration": 1.8, "steps": 72})
        with pytest.raises(RequestTimedOut, match="'trigger-long-running-operation'"):
            await server.call_tool(LONG, {"duration": 1000, "steps": 1})
        assert text_of(await server.call_tool("echo", {"message": "still here"})) == "Echo: still here"
