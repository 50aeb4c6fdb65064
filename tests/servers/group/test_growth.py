"""A group that changes all the time keeps nothing of what it was."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any, Final

import pytest
import trio
from attrs import evolve
from mcp.server.mcpserver import MCPServer
from trio.testing import MockClock

from mcp_actors import Backoff, InProcess, RequestTimedOut, RestartPolicy, ServerConfig, ServerGroup, open_servers

from ..groups import Fault

ONCE: Final = RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=None)

ROUNDS: Final = 5
"""Rounds in which everything happens once. What grows by one object in each of them is kept for ever."""

OURS: Final = ("mcp", "mcp_actors", "trio", "anyio", "outcome", "builtins.coroutine")

KEPT_BY_TRIO: Final = ("trio.CancelScope", "trio._core._run.CancelReason")


def living() -> Counter[str]:
    """Count the objects of this package and of its libraries, and the coroutines of tasks, by type."""
    gc.collect()
    types = (type(each) for each in gc.get_objects())
    names = (f"{each.__module__}.{each.__qualname__}" for each in types)
    # Without those of which Trio keeps up to a thousand until their deadlines have passed: scopes that were left.
    return Counter(name for name in names if name.startswith(OURS) and name not in KEPT_BY_TRIO)


async def everything(group: ServerGroup, fault: Fault, configs: list[ServerConfig], number: int) -> None:
    """Crash, fail to start, restart, stop, reload, add, remove, time out, and leave a call."""
    extra = f"extra{number}"
    fault.on_enter = RuntimeError("not today")
    fault.now.set()
    await group["fault"].wait_state("failed")
    fault.on_enter, fault.now = None, trio.Event()
    await group["fault"].restart()
    await group["a"].restart()
    await group["a"].stop()
    await group["a"].start()
    await group.reload(*(evolve(each, mailbox_size=100 + number) for each in configs))
    await group.add(evolve(configs[0], name=extra))
    with pytest.raises(RequestTimedOut):
        await group[extra].call_tool("sleep", {"seconds": 60})
    with trio.move_on_after(1):
        await group["a"].call_tool("sleep", {"seconds": 60})
    await group["a"].call_tool("sleep", {"seconds": 0})
    await group.remove(extra)


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_group_does_not_grow_whatever_happens_to_its_servers(protocol: Any, autojump_clock: MockClock) -> None:
    """S2-39."""
    server, fault = MCPServer("a"), Fault()
    server.add_tool(trio.sleep, name="sleep", description="Sleep.")
    configs = [
        ServerConfig("a", InProcess(server), protocol=protocol, request_timeout=10),
        fault.config("fault", protocol=protocol, restarts=ONCE),
    ]
    async with open_servers(*configs) as group:
        for number in range(2):
            await everything(group, fault, configs, number)
        before = living()
        for number in range(ROUNDS):
            await everything(group, fault, configs, number + 2)
        after = living()
    assert {name: number for name, number in (after - before).items() if number >= ROUNDS} == {}
