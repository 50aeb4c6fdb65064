"""Calls that take their time: progress, many at once, and being cancelled."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import HealthPolicy, RequestTimedOut, ServerConfig, ServerRef, open_servers

from ..servers.processes import BOUND, eventually
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


async def test_a_call_without_progress_times_out_and_one_with_progress_does_not(
    everything: ServerConfig, mock_clock: MockClock
) -> None:
    """Time passes as always, but for two jumps: a notice comes between those of one call, and none in the other."""
    patient: Any = {"request_timeout": None, "connect_timeout": 100 * BOUND, "health": HealthPolicy(interval=None)}
    config = evolve(everything, progress_timeout=3 * BOUND, stop_timeout=0.5, **patient)
    mock_clock.rate, jump = 1.0, 2 * BOUND
    notices: list[float] = []

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        notices.append(progress)

    async def call(server: ServerRef) -> None:
        with pytest.raises(RequestTimedOut, match="'trigger-long-running-operation'"):
            await server.call_tool(LONG, {"duration": 1000, "steps": 1})

    async with open_servers(config, strict=True) as servers:
        server = servers["everything"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(server.call_tool, LONG, FOR_EVER, progress=notice))
            for _ in range(3):
                await wait_all_tasks_blocked()
                notices.clear()
                await eventually(lambda: notices != [])
                mock_clock.jump(jump)
            nursery.cancel_scope.cancel("it has not timed out")
        await eventually(lambda: server.statistics().in_flight == 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, server)
            await eventually(lambda: server.statistics().in_flight == 1)
            for _ in range(2):
                await wait_all_tasks_blocked()
                mock_clock.jump(jump)
        assert text_of(await server.call_tool("echo", {"message": "still here"})) == "Echo: still here"
