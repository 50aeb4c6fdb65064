"""Any task may do anything to a server, in any order and any number of times, even if servers are killed."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from mcp_actors import Backoff, ConnectionLost, RestartPolicy, ServerUnavailable, ToolNotFound, open_servers
from mcp_actors.servers import ServerGroup

from ..programs import FULL_SIZE
from .fleet import Outcome
from .groups import pids_in, server
from .links import text_of
from .processes import BOUND, state_of

RESTLESS = RestartPolicy(max_restarts=1000, backoff=Backoff(first=0.0, initial=0.01, maximum=0.05))
"""Restarts soon and never gives up."""

Step = Callable[[ServerGroup, str, random.Random], Awaitable[object]]


async def echo(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Call a tool, and look whether the answer belongs to the question."""
    text = f"{name} {rng.random()}"
    assert text_of(await servers[name].call_tool("echo", {"text": text})) == text


async def call_by_public_name(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Call a tool through the group."""
    assert text_of(await servers.call_tool(f"mcp__{name}__tool_0")) == "tool_0"


async def listing(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """List the tools."""
    assert "tool_0" in {tool.name for tool in await servers[name].list_tools()}


async def stop(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Stop a server."""
    await servers[name].stop()


async def start(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Start a server."""
    await servers[name].start()


async def restart(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Restart a server."""
    await servers[name].restart()


async def reconnect(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Reconnect one server, the failed ones, or all of them."""
    names, failed_only = rng.choice([((name,), True), ((), True), ((), False)])
    await servers.reconnect(*names, failed_only=failed_only)


async def wait_ready(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Wait for a server."""
    await servers.wait_ready(name)


async def kill(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Kill a server's process, if it has one."""
    pid = servers.status()[name].pid
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def look(servers: ServerGroup, name: str, rng: random.Random) -> None:
    """Look at everything there is to see: what is dead is never shown as alive."""
    assert [ref.name for ref in servers.configured] == list(servers)
    assert all(ref.state == "ready" for ref in servers.active)
    assert {ref.name for ref in servers.failed} <= set(servers.errors)
    assert repr(servers[name])
    assert repr(servers)


class Tally:
    """How the steps of many tasks ended: each in exactly one way."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: Counter[str] = Counter()

    async def take(self, step: Step, servers: ServerGroup, name: str, rng: random.Random, patience: float) -> None:
        """Take a step; what may come of it while others do as they like is counted, anything else is raised.

        A step that only time ends has been forgotten.
        """
        self.begun += 1
        how = "cancelled"
        with trio.move_on_after(patience):
            try:
                await step(servers, name, rng)
                how = "done"
            except (ConnectionLost, ServerUnavailable, ToolNotFound) as exc:
                how = type(exc).__name__
        assert how != "cancelled" or patience < BOUND, f"{step.__name__} of {name} has been forgotten"
        self.ended[how] += 1


async def wander(servers: ServerGroup, tally: Tally, rng: random.Random, steps: list[Step], number: int) -> None:
    """Take some steps at random, one after the other, some of them impatiently."""
    for _ in range(number):
        patience = rng.choice([0.0, 0.001, 0.02, BOUND, BOUND, BOUND])
        await tally.take(rng.choice(steps), servers, rng.choice(list(servers)), rng, patience)


@asynccontextmanager
async def open_outer(seconds: float) -> AsyncIterator[trio.Nursery]:
    """A nursery that outlives the group, and a bound on everything."""
    with trio.fail_after(seconds):
        async with trio.open_nursery() as nursery:
            yield nursery


@pytest.mark.parametrize("seed", range(4 if FULL_SIZE else 2))
async def test_any_task_may_do_anything_in_any_order(seed: int, tmp_path: Path) -> None:
    """A-01: open, close, call, start, stop and restart, from any task, any number of times."""
    rng, pids, tally = random.Random(seed), tmp_path / "pids", Tally()
    configs = [server(name, "--tools", "1", "--pid-file", str(pids), restarts=RESTLESS) for name in "abc"]
    steps: list[Step] = [echo, echo, call_by_public_name, listing, stop, start, start, restart, reconnect, look]
    async with open_outer(6 * BOUND) as outer, open_servers(*configs) as servers:
        async with trio.open_nursery() as inner:
            for _ in range(6):
                inner.start_soon(wander, servers, tally, random.Random(rng.random()), steps, 8)
        await servers.reconnect(failed_only=False)
        await servers.wait_ready()
        for name in servers:
            await echo(servers, name, rng)
        for _ in range(3):
            # These go on while the group ends, and after.
            outer.start_soon(wander, servers, tally, random.Random(rng.random()), steps, 8)
        await trio.lowlevel.checkpoint()
    assert tally.ended.total() == tally.begun == (6 + 3) * 8
    assert {state_of(pid) for pid in pids_in(pids)} == {"gone"}


async def test_groups_may_be_opened_and_closed_in_any_task(tmp_path: Path) -> None:
    """A-01: also while others are open, and a task may use a group that another one has opened."""
    pids = tmp_path / "pids"

    async def open_and_close(send: trio.MemorySendChannel[ServerGroup], used: trio.Event) -> None:
        async with open_servers(server("a", "--pid-file", str(pids))) as servers:
            await send.send(servers)
            await used.wait()

    send, receive = trio.open_memory_channel[ServerGroup](0)
    async with trio.open_nursery() as nursery:
        events = [trio.Event() for _ in range(4)]
        for event in events:
            nursery.start_soon(open_and_close, send, event)
        groups = [await receive.receive() for _ in events]
        for servers in groups:
            await echo(servers, "a", random.Random(0))
            nursery.start_soon(Outcome().of, servers["a"].restart)
        for event in random.Random(1).sample(events, len(events)):
            event.set()
    assert {state_of(pid) for pid in pids_in(pids)} == {"gone"}


@pytest.mark.parametrize("seed", range(2 if FULL_SIZE else 1))
async def test_five_flaky_servers_and_twenty_tasks_leave_nothing_behind(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1-16: five flaky servers, twenty tasks that call, cancel, reconnect and kill: one outcome each, nothing left."""
    print(f"chaos with seed {seed}")
    rng, pids, tally = random.Random(1000 + seed), tmp_path / "pids", Tally()
    flaky = [
        ("--fail-first", "2", str(tmp_path / "tries")),
        ("--start-delay", "0.1"),
        ("--garbage", "--stderr-flood", "100000"),
        ("--spawn-grandchild",),
        ("--ignore-eof",),
    ]
    configs = [
        server(f"s{number}", *flags, "--tools", "1", "--pid-file", str(pids), restarts=RESTLESS, stop_timeout=0.5)
        for number, flags in enumerate(flaky)
    ]
    steps: list[Step] = [call_by_public_name, listing, kill, kill, reconnect, wait_ready, restart, look]
    steps += [echo] * len(steps)
    began = trio.current_time()
    with trio.fail_after(6 * BOUND):
        async with open_servers(*configs) as servers:
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(wander, servers, tally, random.Random(rng.random()), steps, 10)
            await servers.reconnect(failed_only=False)
            await servers.wait_ready()
            for name in servers:
                await echo(servers, name, rng)
    print(f"{dict(tally.ended)}, {trio.current_time() - began:.1f} s")
    assert tally.ended.total() == tally.begun == 200
    assert tally.ended["done"] > 0
    assert {state_of(pid) for pid in pids_in(pids)} <= {"gone", "zombie"}
