"""Waiting for servers that are being started. Against servers in this process."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerGroup, ServerUnavailable, open_servers

from ..fleet import Outcome
from ..groups import NEVER, Fault
from ..houses import House, absent, who
from ..replicated import replicated


async def wait_ready(group: ServerGroup, name: str) -> None:
    await group[name].wait_ready()
    assert group[name].state == "ready"


@pytest.mark.parametrize("change", ["start", "restart"])
@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_stopped_server_that_is_being_started_is_awaited(change: str, replicas: int) -> None:
    house = House("a")
    async with open_servers(replicated(house.config(), replicas)) as group:
        await group["a"].stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(getattr(group["a"], change))
            nursery.start_soon(wait_ready, group, "a")
        assert await who(group, "a") == "a"


async def test_a_server_that_is_started_before_it_has_stopped_is_awaited() -> None:
    house = House("a")
    async with open_servers(house.config(stop_timeout=3600.0)) as group, trio.open_nursery() as nursery:
        nursery.start_soon(group["a"].stop)
        await group["a"].wait_state("stopping")
        nursery.start_soon(group["a"].start)
        await wait_all_tasks_blocked()
        await wait_ready(group, "a")
    assert house.starts == 2


async def test_a_parked_server_that_is_being_started_is_awaited() -> None:
    fault = Fault()
    fault.on_enter = RuntimeError("not yet")
    async with open_servers(fault.config("a", restarts=NEVER)) as group:
        assert group["a"].state == "failed"
        fault.on_enter = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group["a"].start)
            nursery.start_soon(wait_ready, group, "a")


@pytest.mark.parametrize("delay", range(6))
async def test_a_start_is_awaited_whose_caller_was_cancelled(delay: int) -> None:
    house = House("a")
    async with open_servers(house.config()) as group, trio.open_nursery() as nursery:
        await group["a"].stop()
        scope = trio.CancelScope()

        async def start() -> None:
            with scope:
                await group["a"].start()

        nursery.start_soon(start)
        for _ in range(2 + delay):  # after the first, it may not have made its first step
            await trio.lowlevel.checkpoint()
        scope.cancel("the caller leaves")
        await wait_ready(group, "a")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_wait_ends_when_the_start_does(fails: bool) -> None:
    """It is stopped again, or fails again."""
    house = House("a")
    a = absent("a", restarts=NEVER) if fails else house.config()
    async with open_servers(a) as group, trio.open_nursery() as nursery:
        await group["a"].stop()
        start = Outcome()
        nursery.start_soon(start.of, group["a"].start)
        await trio.lowlevel.checkpoint()
        if not fails:
            nursery.start_soon(group["a"].stop)
        with pytest.raises(ServerUnavailable, match="has failed" if fails else "is (being )?stopped"):
            await group["a"].wait_ready()
    assert (start.error is None) == fails  # the failure of an optional server is its state
