"""Servers that are disconnected when they are idle, and connected anew when they are old. In this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ConnectionLost, RestartPolicy, ServerConfig, ServerGroup, ServerUnavailable, open_servers
from mcp_actors.servers import Drained, Draining
from mcp_actors.servers.record import Retirement
from mcp_actors.testing import Hang, ScriptedServer

from ...messages import Said
from ..fleet import Outcome
from ..groups import FOR_A_WHILE, LATER, NEVER, Events, Fault, state
from ..houses import House, who
from ..library import Library
from ..links import text_of
from ..replicated import Shop, begin

LONG = 3600.0
"""Seconds in which nothing comes of itself."""


async def test_an_idle_server_is_disconnected_until_it_is_used(autojump_clock: MockClock) -> None:
    """S2-31: its tools stay, deferred; the next call connects it, whatever its configuration says about lazy ones."""
    a, b, events = House("a"), House("b"), Events()
    async with open_servers(a.config(idle_timeout=300), b.config(), observers=[events]) as group:
        assert await who(group, "a") == "a"
        await trio.sleep(299)
        assert state(group, "a") == "ready"
        await trio.sleep(32)
        assert (state(group, "a"), state(group, "b")) == ("pending", "ready")
        assert group["a"].statistics().reason == "not used for a while; the next request connects it again"
        assert [(tool.name, tool.available, tool.deferred) for tool in group.tools.of("a")] == [
            ("who", False, True),
            ("hold", False, True),
        ]
        assert not group.errors
        await trio.sleep(LONG)
        assert a.starts == 1
        assert text_of(await group.call_tool("mcp__a__who")) == "a"
        assert a.starts == 2
        assert [(tool.available, tool.deferred) for tool in group.tools.of("a")] == [(True, False)] * 2
    assert events.states("a") == [
        *("connecting", "ready", "stopping", "pending"),
        *("connecting", "ready", "stopping", "stopped"),
    ]


async def test_a_request_in_flight_is_use_however_long_it_takes(autojump_clock: MockClock) -> None:
    """S2-31: the time counts from its end."""
    a, call = House("a"), Outcome()
    async with open_servers(a.config(idle_timeout=10, request_timeout=None)) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await trio.sleep(95)
        a.let_go.set()
        await call.result()
        await trio.sleep(9)
        assert state(group, "a") == "ready"
        await trio.sleep(3)
        assert state(group, "a") == "pending"
    assert a.starts == 1


async def test_requests_one_after_the_other_keep_a_server(autojump_clock: MockClock) -> None:
    a = House("a")
    async with open_servers(a.config(idle_timeout=10)) as group:
        for _ in range(20):
            await who(group, "a")
            await trio.sleep(9)
        assert a.starts == 1


async def test_a_subscription_is_use(autojump_clock: MockClock) -> None:
    """S2-31: a server that rests could not announce a change."""
    library = Library()
    async with open_servers(library.config(idle_timeout=10)) as group:
        ref = group["library"]
        async with ref.subscribe("file:///a"):
            await trio.sleep(100)
        await trio.sleep(9)
        assert state(group, "library") == "ready"
        await trio.sleep(3)
        assert state(group, "library") == "pending"


@pytest.mark.parametrize("late", range(6))
async def test_no_request_is_lost_around_the_moment_of_the_stop(late: int, autojump_clock: MockClock) -> None:
    """A-09: it is answered once, by this connection or by the next."""
    a, calls = House("a"), [Outcome() for _ in range(3)]
    async with open_servers(a.config(idle_timeout=10)) as group, trio.open_nursery() as nursery:
        record = group._roster.records["a"]
        await who(group, "a")

        async def call(outcome: Outcome) -> None:
            for _ in range(late):
                await trio.lowlevel.checkpoint()
            await outcome.of(group["a"].call_tool, "who")

        record.connections[0].retire("idle")
        for outcome in calls:
            nursery.start_soon(call, outcome)
        with trio.fail_after(5):
            assert [text_of(await outcome.result()) for outcome in calls] == ["a"] * 3
        assert state(group, "a") == "ready"
    assert a.starts in (1, 2)


@asynccontextmanager
async def coming_to_rest(a: House, late: int) -> AsyncIterator[ServerGroup]:
    """Open a group whose server is disconnected as idle, so many steps before the block."""
    async with open_servers(a.config(idle_timeout=10)) as group:
        group._roster.records["a"].connections[0].retire("idle")
        for _ in range(late):
            await trio.lowlevel.checkpoint()
        with trio.fail_after(5):
            yield group


@pytest.mark.parametrize("late", range(15))
async def test_a_wait_for_a_server_that_comes_to_rest_connects_it(late: int, autojump_clock: MockClock) -> None:
    """C-60: it ends as it would a moment later, when the server rests."""
    a = House("a")
    async with coming_to_rest(a, late) as group:
        await group["a"].wait_ready()
        assert state(group, "a") == "ready"


@pytest.mark.parametrize("late", range(15))
async def test_a_call_by_public_name_to_a_server_that_comes_to_rest_is_answered(
    late: int, autojump_clock: MockClock
) -> None:
    """C-60: its tools are listed meanwhile."""
    a = House("a")
    async with coming_to_rest(a, late) as group:
        assert text_of(await group.call_tool("mcp__a__who")) == "a"


class Watch(trio.abc.Instrument):
    """Note which tools of a server are not listed after a step of any task."""

    def __init__(self, group: ServerGroup) -> None:
        self.group = group
        self.tools = group.tools.of("a")
        self.steps = 0
        self.missing: list[str] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if {tool.name for tool in self.group.tools.of("a")} != {tool.name for tool in self.tools}:
            self.missing.append(f"after step {self.steps}, of {task.name}: {self.group['a'].state}")


async def rest(group: ServerGroup, a: House) -> None:
    group._roster.records["a"].connections[0].retire("idle")
    await group["a"].wait_state("pending")


async def rest_and_start(group: ServerGroup, a: House) -> None:
    group._roster.records["a"].connections[0].retire("idle")
    await group["a"].wait_state("stopping")
    await group["a"].start()


async def renew(group: ServerGroup, a: House) -> None:
    group._roster.records["a"].connections[0].retire("old")
    await group["a"].wait_state("stopping")
    await group["a"].wait_ready()


async def restart(group: ServerGroup, a: House) -> None:
    await group["a"].restart()


async def reload_twice(group: ServerGroup, a: House) -> None:
    async with trio.open_nursery() as nursery:
        for seconds in (20, 30):
            nursery.start_soon(group.reload, a.config(request_timeout=seconds))
    await group.wait_ready()


async def reload_and_restart(group: ServerGroup, a: House) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.reload, a.config(request_timeout=20))
        nursery.start_soon(group["a"].restart)
        nursery.start_soon(partial(group.reconnect, failed_only=False))
    await group.wait_ready()


@pytest.mark.parametrize("change", [rest, rest_and_start, renew, restart, reload_twice, reload_and_restart])
@pytest.mark.parametrize("repeated", range(3))  # the order in which tasks run is random
async def test_the_tools_of_a_server_that_comes_back_are_listed_at_each_step(
    change: Callable[[ServerGroup, House], Awaitable[None]], repeated: int, autojump_clock: MockClock
) -> None:
    """C-61."""
    a = House("a")
    async with open_servers(a.config()) as group:
        watch = Watch(group)
        trio.lowlevel.add_instrument(watch)
        await change(group, a)
        trio.lowlevel.remove_instrument(watch)
        assert watch.missing == []
        assert watch.steps > 10
        assert state(group, "a") in ("ready", "pending")
    assert [tool.name for tool in watch.tools] == ["who", "hold"]


@asynccontextmanager
async def renewed_while_other_lost(shop: Shop, policy: RestartPolicy) -> AsyncIterator[tuple[ServerGroup, Watch]]:
    """Open a server whose old replica finishes its call, which the block lets go, after the other one was lost."""
    async with open_servers(shop.config(2, restarts=policy)) as group, trio.open_nursery() as nursery:
        await group["a"].wait_ready()
        await wait_all_tasks_blocked()
        calls = begin(nursery, 3, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        [old] = [each for each in group._roster.records["a"].connections if each.server.in_flight(each) == 1]
        trio.lowlevel.add_instrument(watch := Watch(group))
        old.retire("old")
        await wait_all_tasks_blocked()
        shop.sessions[shop.held.index(2)].break_down.set()
        await wait_all_tasks_blocked()
        assert state(group, "a") == "stopping"
        yield group, watch
        assert sorted(call.error is None for call in calls) == [False, False, True]


async def test_tools_stay_listed_while_a_replica_is_renewed_and_the_other_is_lost(autojump_clock: MockClock) -> None:
    """C-61: nothing serves while the old one finishes its call, but it is about to."""
    shop = Shop("a")
    async with renewed_while_other_lost(shop, LATER) as (group, watch):
        shop.let_go()
        await group["a"].wait_state("ready")
        trio.lowlevel.remove_instrument(watch)
        assert watch.missing == []
        assert watch.steps > 10


async def test_a_wait_outlasts_the_renewal_of_the_last_replica(autojump_clock: MockClock) -> None:
    """The server has failed for a moment, between the two connections of this one."""
    shop = Shop("a")
    async with renewed_while_other_lost(shop, NEVER) as (group, watch):
        trio.lowlevel.remove_instrument(watch)
        shop.let_go()
        await group["a"].wait_ready()
        assert state(group, "a") == "ready"


@pytest.mark.parametrize("policy", [LATER, NEVER])
async def test_tools_stay_listed_after_a_failed_renewal_only_if_it_is_tried_again(
    policy: RestartPolicy, autojump_clock: MockClock
) -> None:
    shop = Shop("a")
    async with renewed_while_other_lost(shop, policy) as (group, watch):
        trio.lowlevel.remove_instrument(watch)
        shop.refuses = 1
        shop.let_go()
        await wait_all_tasks_blocked()
        assert (state(group, "a"), len(group.tools)) == (("failed", 0) if policy is NEVER else ("backoff", 2))


async def test_a_stop_hides_the_tools_while_the_last_replica_is_renewed(autojump_clock: MockClock) -> None:
    shop = Shop("a")
    async with open_servers(shop.config(2, restarts=LATER)) as group, trio.open_nursery() as nursery:
        await group["a"].wait_ready()
        await wait_all_tasks_blocked()
        begin(nursery, 2, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        group._roster.records["a"].connections[0].retire("old")
        await wait_all_tasks_blocked()
        await group["a"].stop()
        assert (state(group, "a"), len(group.tools)) == ("stopped", 0)
        nursery.cancel_scope.cancel("the test is over")


async def reload(group: ServerGroup, a: House) -> None:
    before = group["a"].config.request_timeout
    assert before is not None
    await group.reload(a.config(request_timeout=before - 1))


async def reconnect(group: ServerGroup, a: House) -> None:
    await group.reconnect(failed_only=False)


@pytest.mark.parametrize("late", range(2, 62, 3))  # the change begins in the first two ticks
@pytest.mark.parametrize("change", [reload, restart, reconnect])
async def test_a_stop_during_a_change_hides_the_tools_before_it_returns(
    change: Callable[[ServerGroup, House], Awaitable[None]], late: int, autojump_clock: MockClock
) -> None:
    a = House("a")
    async with open_servers(a.config()) as group:
        for ticks in range(late, late + 3):
            await group["a"].start()
            await group["a"].wait_ready()
            async with trio.open_nursery() as nursery:
                changing = Outcome()
                nursery.start_soon(changing.of, change, group, a)
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                await group["a"].stop()
                assert (state(group, "a"), len(group.tools)) == ("stopped", 0)
            assert changing.error is None or "was stopped meanwhile" in str(changing.error)


@pytest.mark.parametrize("ticks", [1, 2, 3, 4] * 5)  # tasks run in any order
async def test_a_start_that_comes_while_a_stop_is_under_way_wins(ticks: int, autojump_clock: MockClock) -> None:
    """Also if the server is lost in this moment, so that the start finds a restart under way."""
    a = House("a")
    async with open_servers(a.config(restarts=LATER)) as group:
        async with trio.open_nursery() as nursery:
            a.break_down.set()
            nursery.start_soon(group["a"].stop)
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            nursery.start_soon(group["a"].start)
        await wait_all_tasks_blocked()
        assert state(group, "a") == "ready"


@pytest.mark.parametrize("late", range(15))
async def test_a_restart_during_a_reload_returns_when_the_server_serves(late: int, autojump_clock: MockClock) -> None:
    a = House("a")
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(group.reload, a.config(request_timeout=20))
        for _ in range(late):
            await trio.lowlevel.checkpoint()
        await group["a"].restart()
        assert state(group, "a") == "ready"


async def test_a_server_that_is_stopped_while_it_comes_to_rest_stays_stopped(autojump_clock: MockClock) -> None:
    a = House("a")
    async with open_servers(a.config(idle_timeout=10)) as group:
        group._roster.records["a"].connections[0].retire("idle")
        await trio.lowlevel.checkpoint()
        await group["a"].stop()
        assert state(group, "a") == "stopped"
        with pytest.raises(ServerUnavailable, match="is stopped"):
            await who(group, "a")
        await trio.sleep(LONG)
        assert state(group, "a") == "stopped"


@pytest.mark.parametrize("late", range(6))
async def test_a_stop_ends_the_requests_that_would_end_the_rest(late: int, autojump_clock: MockClock) -> None:
    a, call = House("a"), Outcome()
    async with open_servers(a.config(idle_timeout=10)) as group, trio.open_nursery() as nursery:
        group._roster.records["a"].connections[0].retire("idle")
        for _ in range(late):
            await trio.lowlevel.checkpoint()
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await trio.lowlevel.checkpoint()
        await group["a"].stop()
        await trio.sleep(LONG)
        assert isinstance(call.error, ServerUnavailable)
        assert state(group, "a") == "stopped"


@pytest.mark.parametrize("why", ["old", "idle"])
async def test_a_connection_that_has_been_replaced_already_is_left_alone(
    why: Retirement, autojump_clock: MockClock
) -> None:
    a, held = House("a"), Outcome()
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(held.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(group["a"].restart)
        await group["a"].wait_state("stopping")
        group._roster.records["a"].connections[0].retire(why)
        await wait_all_tasks_blocked()
        a.let_go.set()
        await trio.sleep(1)
        assert (a.starts, state(group, "a")) == (2, "ready")


@pytest.mark.parametrize("why", ["old", "idle"])
async def test_a_connection_that_is_lost_by_then_is_an_outage_and_nothing_else(
    why: Retirement, autojump_clock: MockClock
) -> None:
    """It is neither connected again before its time, nor shown as a server that only rests."""
    fault = Fault()
    async with open_servers(fault.config("a", restarts=LATER)) as group:
        record = group._roster.records["a"]
        fault.now.set()
        await group["a"].wait_state("backoff")
        record.connections[0].retire(why)
        await wait_all_tasks_blocked()
        status = group["a"].statistics()
        assert (status.state, status.restarts, list(group.errors)) == ("backoff", 0, ["a"])


@pytest.mark.parametrize("late", range(6))
async def test_an_explicit_start_counts_more_than_a_rest(late: int, autojump_clock: MockClock) -> None:
    a = House("a")
    async with open_servers(a.config()) as group:
        group._roster.records["a"].connections[0].retire("idle")
        for _ in range(late):
            await trio.lowlevel.checkpoint()
        await group["a"].restart()
        assert state(group, "a") == "ready"


@pytest.mark.parametrize("late", range(4))
async def test_a_crash_at_the_moment_of_the_stop_leaves_it_usable(late: int, autojump_clock: MockClock) -> None:
    a = House("a")
    async with open_servers(a.config(restarts=LATER)) as group:
        a.break_down.set()
        for _ in range(late):
            await trio.lowlevel.checkpoint()
        group._roster.records["a"].connections[0].retire("idle")
        await trio.sleep(1)
        assert state(group, "a") in ("pending", "backoff")
        if state(group, "a") == "pending":
            assert not group.errors
            assert await who(group, "a") == "a"


@pytest.mark.parametrize("used", [False, True])
async def test_stopping_a_lazy_server_leaves_it_stopped(used: bool, autojump_clock: MockClock, said: Said) -> None:
    """A call does not connect it, `start` does, also if it was used before."""
    a = House("a")
    async with open_servers(a.config(connect="lazy", idle_timeout=10)) as group:
        if used:
            await who(group, "a")
            await trio.sleep(20)
        assert state(group, "a") == "pending"
        await group["a"].stop()
        assert state(group, "a") == "stopped"
        with pytest.raises(ServerUnavailable) as caught:
            await who(group, "a")
        said("a lazy server was stopped", str(caught.value))
        assert a.starts == used
        await group["a"].start()
        assert await who(group, "a") == "a"


async def test_an_old_connection_is_replaced_once_its_requests_are_finished(autojump_clock: MockClock) -> None:
    """S2-31: in flight are finished, new ones wait for the new connection."""
    a, events, held, late = House("a"), Events(), Outcome(), Outcome()
    config = a.config(max_lifetime=100, request_timeout=None)
    async with open_servers(config, observers=[events]) as group, trio.open_nursery() as nursery:
        await trio.sleep(85)
        nursery.start_soon(held.of, group["a"].call_tool, "hold")
        await group["a"].wait_state("stopping")
        assert 90 <= trio.current_time() <= 100
        nursery.start_soon(late.of, group["a"].call_tool, "who")
        await trio.sleep(5)
        assert not held.over
        assert not late.over
        a.let_go.set()
        assert [text_of(await each.result()) for each in (held, late)] == ["a", "a"]
        assert a.starts == 2
        assert [tool.name for tool in group.tools] == ["who", "hold"]
    [draining], [drained] = events.of(Draining), events.of(Drained)
    assert (draining.requests, drained.unfinished) == (1, 0)


async def test_an_old_connection_is_not_kept_longer_than_the_drain_timeout(autojump_clock: MockClock) -> None:
    a, held = House("a"), Outcome()
    config = a.config(max_lifetime=100, request_timeout=None)
    async with open_servers(config, drain_timeout=7) as group, trio.open_nursery() as nursery:
        nursery.start_soon(held.of, group["a"].call_tool, "hold")
        with pytest.raises(ConnectionLost):
            await held.result()
        assert 97 <= trio.current_time() <= 107
        assert await who(group, "a") == "a"


@pytest.mark.parametrize("down", [False, True])
async def test_an_old_connection_that_ends_while_it_is_drained_is_not_renewed(
    down: bool, autojump_clock: MockClock
) -> None:
    """A connect after that is a restart, with the budget and the pauses of restarts."""
    a, held = ScriptedServer("a"), Outcome()
    config = ServerConfig("a", a.in_process(), max_lifetime=100, request_timeout=None, restarts=FOR_A_WHILE)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        await trio.sleep(85)
        a.inject(Hang())
        nursery.start_soon(held.of, group["a"].call_tool, "echo", {"text": ""})
        await group["a"].wait_state("stopping")
        (a.go_down if down else a.crash)()
        with pytest.raises(ConnectionLost):
            await held.result()
        await trio.sleep(50)
        assert (state(group, "a"), group["a"].statistics().restarts) == ("failed" if down else "ready", 1)


@pytest.mark.parametrize("required", [False, True])
async def test_a_renewal_that_fails_is_an_outage_like_any_other(required: bool, autojump_clock: MockClock) -> None:
    a = House("a")
    config = a.config(max_lifetime=100, required=required, connect_timeout=1, restarts=FOR_A_WHILE)
    async with open_servers(config) as group:
        a.entered = trio.Event()
        await group["a"].wait_state("failed")
        assert trio.current_time() < 110
        assert "a" in group.errors
        a.entered.set()
        await group["a"].wait_state("ready")
        assert await who(group, "a") == "a"


async def test_each_connection_lives_as_long(autojump_clock: MockClock) -> None:
    a = House("a")
    async with open_servers(a.config(max_lifetime=100, idle_timeout=250)) as group:
        await trio.sleep(1000)
        assert 10 <= a.starts <= 12
        assert state(group, "a") == "ready"


async def test_servers_that_start_together_are_not_renewed_together(autojump_clock: MockClock) -> None:
    """S2-31: with jitter."""
    houses, renewed = [House(f"s{number}") for number in range(20)], dict[str, float]()
    configs = [house.config(max_lifetime=100) for house in houses]
    async with open_servers(*configs) as group, trio.open_nursery() as nursery:

        async def wait(name: str) -> None:
            await group[name].wait_state("stopping", "connecting")
            renewed[name] = trio.current_time()

        for house in houses:
            nursery.start_soon(wait, house.name)
    assert all(90 <= time <= 100 for time in renewed.values())
    assert len({round(time, 3) for time in renewed.values()}) > 10


async def test_a_changed_time_counts_from_the_next_connection(autojump_clock: MockClock) -> None:
    """C-64: a reload of a server that rests leaves it resting."""
    a = House("a")
    async with open_servers(a.config()) as group:
        await group.reload(a.config(idle_timeout=10))
        await trio.sleep(12)
        assert state(group, "a") == "pending"
        await group.reload(a.config(idle_timeout=20))
        assert state(group, "a") == "pending"
        await group["a"].wait_ready()
        await trio.sleep(19)
        assert state(group, "a") == "ready"
