"""Changes of a server with replicas that overlap, or that concern each of its connections."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import ConnectFailed, ServerUnavailable, open_servers
from mcp_actors.kernel import Unhandled
from mcp_actors.servers import NotSupported

from .groups import NEVER, Events
from .links import text_of
from .replicated import Shop, begin, server_states, who


@pytest.mark.parametrize("replicas", [1, 2, 3])
async def test_a_start_during_a_reload_does_not_wait_for_the_pool_that_the_reload_stops(
    autojump_clock: MockClock, replicas: int
) -> None:
    shop = Shop()
    async with open_servers(shop.config(3, max_in_flight=4), drain_timeout=0) as group:
        await trio.sleep(1)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.reload, shop.config(replicas))
                for _ in range(5):
                    nursery.start_soon(group["shop"].start)
            await group["shop"].stop()
            await group["shop"].start()
            await trio.sleep(1)
        assert group["shop"].statistics().replicas.serving == replicas


@pytest.mark.parametrize("change", ["stop", "reload"])
async def test_the_start_of_a_replica_ends_quietly_when_its_server_is_changed(
    autojump_clock: MockClock, change: str
) -> None:
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2, restarts=NEVER, required=True), observers=[events]) as group:
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        shop.open = trio.Event()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                starts = begin(nursery, 1, group["shop"].start)
                await settle()
                assert [each.over for each in starts] == [False]
                begin(nursery, 1, *([group["shop"].stop] if change == "stop" else [group.reload, shop.config(3)]))
                await settle()
                shop.open.set()
                await settle()
                [start] = starts
                assert start.over
                assert (start.error is None) == (change == "reload")  # else it says that it was stopped meanwhile
            await group["shop"].start()
            await trio.sleep(1)
        assert group["shop"].statistics().replicas.serving == (2 if change == "stop" else 3)
    assert not events.of(Unhandled)


async def test_a_replica_that_is_no_longer_configured_does_not_change_the_state(autojump_clock: MockClock) -> None:
    shop, events = Shop(), Events()
    async with open_servers(shop.config(3), observers=[events]) as group:
        await trio.sleep(1)
        await group.reload(shop.config(2))
        await trio.sleep(1)
        assert await who(group) in ("4", "5")
    assert server_states(events) == ["connecting", "ready", "stopping", "stopped"] * 2


async def test_a_request_to_each_replica_raises_one_error(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with open_servers(shop.config(3)) as group:
        await trio.sleep(1)
        with pytest.raises(NotSupported, match="logging"):
            await group["shop"].set_log_level("info")


async def test_a_request_to_a_replica_that_is_no_longer_configured_is_refused(autojump_clock: MockClock) -> None:
    shop = Shop()
    config = shop.config(3, max_in_flight=2)
    async with open_servers(config, drain_timeout=0) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        begin(nursery, 6, ref.call_tool, "hold")
        await settle()
        [level] = begin(nursery, 1, ref.set_log_level, "info")
        await settle()
        assert not level.over
        await group.reload(shop.config(2, max_in_flight=2))
        await trio.sleep(1)
        assert isinstance(level.error, ServerUnavailable)


async def test_a_start_connects_all_replicas_at_the_same_time(autojump_clock: MockClock) -> None:
    """The first one does not hold up the others, and one that fails does not keep the others from being tried."""
    shop = Shop()
    config = shop.config(3, restarts=NEVER, required=True, connect_timeout=30)
    async with open_servers(config) as group:
        for session in shop.sessions[:2]:
            session.break_down.set()
        await trio.sleep(1)
        shop.refuses, begun = 1, trio.current_time()
        with pytest.raises(ConnectFailed, match="it refuses"):
            await group["shop"].start()
        assert (trio.current_time(), len(shop.sessions)) == (begun, 4)
        shop.open = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.reload, shop.config(3, required=True))
            await settle()
            assert [each.state for each in group["shop"].statistics().replicas.each] == ["connecting"] * 3
            shop.open.set()
        assert group["shop"].statistics().replicas.serving == 3


async def test_a_server_that_leaves_while_its_last_replica_is_replaced_finishes_all(autojump_clock: MockClock) -> None:
    """S2-37: no other connection follows, so this one takes what waits for it."""
    shop = Shop()
    config = shop.config(2, restarts=NEVER, max_in_flight=2, request_timeout=None)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 3, ref.call_tool, "hold")
        await settle()
        busy = shop.held.index(2)
        [old] = [each for each in group._roster.records["shop"].connections if each.server.in_flight(each) == 2]
        old.retire("old")
        await settle()
        shop.sessions[1 - busy].break_down.set()
        await settle()
        assert ref.state == "stopping"
        calls = [call for call in calls if not call.over] + begin(nursery, 1, ref.call_tool, "hold")
        begin(nursery, 1, group.remove, "shop")
        await trio.sleep(10)
        assert (shop.held[busy], [call.over for call in calls]) == (2, [False] * 3)
        shop.let_go()
        assert [text_of(await call.result()) for call in calls] == [str(busy + 1)] * 3
        assert len(shop.sessions) == 2
