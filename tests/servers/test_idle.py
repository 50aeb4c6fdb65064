"""Idle servers cost next to nothing, and closed ones leave nothing behind."""

from __future__ import annotations

import gc
import math
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerGroup, open_servers
from mcp_actors.servers.connection._actor import ServerActor
from mcp_actors.testing import Snapshot
from mcp_actors.transports.stdio._link import StdioLink
from mcp_actors.transports.stdio._pipes import PipeReader

from .fleet import http_config, http_server
from .groups import AT_ONCE, LATER, crash, existing, pids_in, server
from .links import text_of
from .processes import group_members, wait_ended

IDLE_SHARE = 0.01
"""How much of a core may be used while nothing is asked of anybody."""


async def idle_share(group: ServerGroup, name: str) -> float:
    """Let a server sleep for half a second, which costs us one call, and return how much of a core we have used.

    What spins does so all the time; what is done only once, like a collection of garbage, is over by the third look.
    """
    shares = [math.inf]
    while len(shares) < 4 and shares[-1] >= IDLE_SHARE:
        await wait_all_tasks_blocked()
        cpu, clock = time.process_time(), time.perf_counter()
        assert text_of(await group[name].call_tool("sleep", {"seconds": 0.5})) == "slept 0.5"
        shares.append((time.process_time() - cpu) / (time.perf_counter() - clock))
    return shares[-1]


async def test_an_idle_group_costs_nothing(tmp_path: Path) -> None:
    """A-02: over pipes and over HTTP, connected or in back-off, with a flooded log and with a full pipe."""
    configs = [
        server("used"),
        *(server(f"idle{number}") for number in range(8)),
        server("broken", "--exit-at-start", "3", restarts=LATER),
        server("noisy", "--stderr-flood", "100000"),
        server("deaf", stop_timeout=0.5),
    ]
    with http_server() as (port, _):
        async with open_servers(*configs, http_config(port)) as group, trio.open_nursery() as nursery:
            await group["deaf"].call_tool("deaf")
            nursery.start_soon(group["deaf"].call_tool, "echo", {"text": "x" * 2_000_000})
            assert await idle_share(group, "used") < IDLE_SHARE
            nursery.cancel_scope.cancel("it will not be answered")


async def test_nothing_spins_after_a_close_that_was_cancelled_half_way() -> None:
    """A-02: of a whole group, and of one server whose restart or stop has no caller any more."""
    stubborn = ("--ignore-eof", "--ignore-sigterm")
    async with open_servers(server("used"), server("a", *stubborn, stop_timeout=0.5)) as group:
        with trio.CancelScope() as cut:
            async with open_servers(server("b", *stubborn, stop_timeout=0.5)):
                cut.deadline = trio.current_time() + 0.1
        with trio.move_on_after(0.1) as impatience:
            await group["a"].restart()
        assert impatience.cancelled_caught
        await group["a"].wait_ready()
        with trio.move_on_after(0.1) as impatience:
            await group["a"].stop()
        assert impatience.cancelled_caught
        await group["a"].wait_state("stopped")
        assert await idle_share(group, "used") < IDLE_SHARE


def names_of_tasks(task: trio.lowlevel.Task) -> set[str]:
    """Return the names of a task and of all tasks below it."""
    below = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return {task.name}.union(*map(names_of_tasks, below))


@pytest.mark.parametrize("era", ["legacy", "modern"])  # the first is watched twice, as it is sent two requests
async def test_a_connected_process_is_no_longer_watched_like_one_that_starts(era: str) -> None:
    """A-02."""
    async with open_servers(evolve(server("a", "--era", era), protocol="auto")) as group:
        await group.wait_ready()
        await wait_all_tasks_blocked()
        names = names_of_tasks(trio.lowlevel.current_task())
        assert "a:stdin" in names
        assert not {"a:startup", "a:exited", "a:overdue"} & names


def alive(*kinds: type[Any]) -> int:
    """Count the objects of some classes."""
    gc.collect()
    return len(existing(*kinds))


async def come_and_go(port: int, *flags: str) -> None:
    """Connect, crash, reconnect, call and leave."""
    async with open_servers(server("a", *flags, restarts=AT_ONCE), http_config(port)) as group:
        await crash(group, "a")
        await group.wait_ready()
        await group.reconnect("a", "web")
        await group["web"].call_tool("echo", {"text": "x"})


async def test_nothing_is_left_of_servers_that_came_and_went(tmp_path: Path) -> None:
    """S2-39: no process, no descriptor, no thread, no task, and no object of any of their connections."""
    pids, ours = tmp_path / "pids", (ServerActor, StdioLink, PipeReader)
    with http_server() as (port, _):
        before, tasks, objects = Snapshot.take(), trio.lowlevel.current_statistics().tasks_living, alive(*ours)
        for _ in range(3):
            await come_and_go(port, "--spawn-grandchild", "--pid-file", str(pids))
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert before.leftovers() == []
        assert alive(*ours) == objects
    started = pids_in(pids)
    assert len(started) == 2 * 3 * 3  # servers and grandchildren
    await wait_ended(started)
    assert [member for pid in started for member in group_members(pid)] == []
