"""A connect that is cancelled at any of its steps leaves nothing behind."""

from __future__ import annotations

import gc
import warnings

import pytest
import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig, open_servers
from mcp_actors.testing import run_seeded


class Cut(trio.abc.Instrument):
    """Cancels a scope after a number of steps of all tasks together."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.scope: trio.CancelScope | None = None
        self.cut = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.scope is not None:
            self.steps -= 1
            if self.steps == 0:
                self.scope.cancel("it is cut short")
                self.cut = True


async def connect(cut: Cut) -> None:
    server = MCPServer("a")
    server.add_tool(lambda: "pong", name="ping", description="Answer.")
    with trio.CancelScope() as cut.scope:
        async with open_servers(ServerConfig("a", InProcess(server))):
            cut.scope = None


@pytest.mark.parametrize("seed", range(2))
def test_a_modern_connect_that_is_cancelled_leaves_no_coroutine_behind(seed: int) -> None:
    """The SDK leaves one if it is asked for a stream after its session has ended."""
    steps, cut = 0, True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while cut:
            steps += 1
            instrument = Cut(steps)
            run_seeded(connect, instrument, seed=seed, instruments=[instrument])
            cut = instrument.cut
        gc.collect()
    assert steps > 20
    assert [str(each.message) for each in caught] == []
