"""A server with replicas: one ref, one queue, one catalogue, and several connections."""

from __future__ import annotations

import logging
from typing import Literal

import pytest
import trio
from mcp.types import CallToolResult
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import (
    Backoff,
    ConnectFailed,
    ConnectionLost,
    HealthPolicy,
    LimitExceeded,
    RestartPolicy,
    ServerUnavailable,
)
from mcp_actors.config import CallNext, ToolRequest
from mcp_actors.kernel import Crashed, Started, Starting, Stopped, Stopping
from mcp_actors.servers import (
    Drained,
    Draining,
    ReplicaChanged,
    ToolsChanged,
    ToolsDiffer,
)

from .groups import AT_ONCE, FOR_A_WHILE, LATER, NEVER, Events
from .links import text_of
from .replicated import Shop, begin, open_servers, replica_states, server_states, who

ACTOR_EVENTS = (Starting, Started, Stopping, Stopped)
NAMES = ("shop:1", "shop:2", "shop:3")


async def test_replicas_share_a_ref_a_catalogue_and_the_calls(autojump_clock: MockClock) -> None:
    """S2-30: each call goes to the one with the fewest in flight. S2-33: total, active, idle."""
    shop, events = Shop(), Events()
    async with open_servers(shop.config(), observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        assert [(tool.server, tool.name) for tool in group.tools] == [("shop", "who"), ("shop", "hold")]
        assert len(events.of(ToolsChanged)) == 1
        counts = ref.statistics().replicas
        assert (counts.total, counts.active, counts.idle, counts.serving) == (3, 0, 3, 3)
        calls = begin(nursery, 2, ref.call_tool, "hold")
        await settle()
        assert sorted(shop.held) == [0, 1, 1]
        counts = ref.statistics().replicas
        assert (counts.total, counts.active, counts.idle) == (3, 2, 1)
        assert [each.name for each in counts.each] == list(NAMES)
        calls += begin(nursery, 4, ref.call_tool, "hold")
        await settle()
        assert shop.held == [2, 2, 2]
        assert (ref.statistics().in_flight, ref.statistics().replicas.idle) == (6, 0)
        shop.let_go()
        assert sorted([text_of(await call.result()) for call in calls]) == ["1", "1", "2", "2", "3", "3"]


async def test_a_call_that_middleware_sends_twice_is_in_flight_at_both_replicas(autojump_clock: MockClock) -> None:
    """So a replica that is renewed finishes it, whichever message is the later one."""

    async def send_two(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        async with trio.open_nursery() as both:
            both.start_soon(call_next, request)
            return await call_next(request)

    shop = Shop()
    async with open_servers(shop.config(2, middleware=(send_two,))) as group, trio.open_nursery() as nursery:
        await trio.sleep(1)
        [call] = begin(nursery, 1, group["shop"].call_tool, "hold")
        await settle()
        assert shop.held == [1, 1]
        assert [each.in_flight for each in group["shop"].statistics().replicas.each] == [1, 1]
        shop.let_go()
        await call.result()


async def test_calls_wait_while_all_replicas_are_busy(autojump_clock: MockClock) -> None:
    """S2-32: a full pool waits, in one queue, and takes the next call wherever a place becomes free."""
    shop = Shop()
    async with open_servers(shop.config(2, max_in_flight=2)) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 7, ref.call_tool, "hold")
        await settle()
        assert (shop.held, ref.statistics().queued, ref.statistics().in_flight) == ([2, 2], 3, 4)
        shop.sessions[1].let_go.set()
        await settle()
        assert (shop.held, ref.statistics().queued) == ([2, 0], 0)
        assert sum(call.over for call in calls) == 5
        shop.let_go()


@pytest.mark.parametrize("overflow", ["wait", "fail"])
async def test_the_queue_of_all_replicas_has_the_size_of_that_of_one_server(
    autojump_clock: MockClock, overflow: Literal["wait", "fail"]
) -> None:
    """S2-32: callers wait for a place in it, or are refused; never more are sent than the replicas may have."""
    shop = Shop()
    config = shop.config(2, max_in_flight=2, mailbox_size=3, overflow=overflow)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 9, ref.call_tool, "hold")
        await settle()
        refused = 2 if overflow == "fail" else 0
        assert (shop.held, ref.statistics().queued) == ([2, 2], 5 - refused)
        assert [type(call.error) for call in calls if call.over] == [LimitExceeded] * refused
        shop.let_go()
        await settle()
        assert [call.over for call in calls] == [True] * 9
        assert sum(call.error is None for call in calls) == 9 - refused


async def test_a_replica_that_crashes_takes_its_own_calls_and_no_others(autojump_clock: MockClock) -> None:
    """S2-30: the others serve, the server stays ready, and the replica comes back by the restart policy."""
    shop, events = Shop(), Events()
    config = shop.config(restarts=RestartPolicy(), max_in_flight=2)
    async with open_servers(config, observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 8, ref.call_tool, "hold")
        await settle()
        assert (shop.held, ref.statistics().queued) == ([2, 2, 2], 2)
        shop.sessions[0].break_down.set()
        await settle()
        assert (ref.state, group.errors, group.active) == ("ready", {}, (ref,))
        lost = [call.error for call in calls if call.over]
        assert [(type(each), each.outcome) for each in lost if isinstance(each, ConnectionLost)] == [
            (ConnectionLost, "unknown")
        ] * 2
        await trio.sleep(1)
        assert shop.held == [0, 2, 2, 2]
        status = ref.statistics()
        assert (status.queued, status.restarts, status.replicas.serving) == (0, 1, 3)
        shop.let_go()
        await settle()
        assert [call.error for call in calls if call.error is not None] == lost
        assert len(lost) == 2
    [crashed] = events.of(Crashed)
    assert crashed.actor in NAMES
    assert replica_states(events, crashed.actor)[:4] == ["connecting", "ready", "backoff", "connecting"]
    assert server_states(events) == ["connecting", "ready", "stopping", "stopped"]


async def test_each_lost_replica_is_logged_by_its_name(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """S2-30: each has outages of its own, so the same reason is a warning for each."""
    shop = Shop()
    async with open_servers(shop.config(2, restarts=LATER)) as group:
        await trio.sleep(1)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="mcp_actors.servers"):
            shop.sessions[0].break_down.set()
            await trio.sleep(1)
            [lost] = [each.name for each in group["shop"].statistics().replicas.each if each.state == "backoff"]
            shop.sessions[1].break_down.set()
            await trio.sleep(1)
        texts = [each.getMessage() for each in caplog.records if each.name == "mcp_actors.servers"]
        [other] = {"shop:1", "shop:2"} - {lost}
        assert [text.split(": ")[:3] for text in texts] == [
            ["server 'shop'", f"replica '{lost}'", "connection lost"],
            ["server 'shop'", f"replica '{other}'", "connection lost"],
            ["server 'shop'", "connection lost", texts[2].split(": ")[2]],
        ]


async def test_a_server_is_lost_with_its_last_replica(autojump_clock: MockClock) -> None:
    """S2-30: only then is it in `errors`; calls wait, and the first replica that is back serves them."""
    shop, events = Shop(), Events()
    config = shop.config(2, restarts=RestartPolicy(), health=HealthPolicy(interval=None))
    async with open_servers(config, observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        shop.open = trio.Event()
        for session in shop.sessions:
            session.break_down.set()
        await settle()
        assert ref.state == "connecting"
        assert list(group.errors) == ["shop"]
        [call] = begin(nursery, 1, ref.call_tool, "who")
        await settle()
        assert (call.over, ref.statistics().queued) == (False, 1)
        shop.open.set()
        assert text_of(await call.result()) in ("3", "4")
        await ref.wait_state("ready")
        assert not group.errors
    states = server_states(events)
    assert states[:2] == ["connecting", "ready"]
    assert states[-3:] == ["ready", "stopping", "stopped"]
    assert set(states[2:-3]) <= {"backoff", "connecting"}


async def test_each_replica_has_the_whole_restart_budget(autojump_clock: MockClock) -> None:
    """S2-30: one that cannot be restarted any more is parked alone, and `start` tries it again."""
    shop = Shop()
    async with open_servers(shop.config(2, restarts=FOR_A_WHILE)) as group:
        ref = group["shop"]
        await trio.sleep(1)
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        shop.sessions[2].break_down.set()
        await trio.sleep(1)
        each = ref.statistics().replicas.each
        assert sorted(replica.state for replica in each) == ["failed", "ready"]
        assert (ref.state, group.errors) == ("ready", {})
        assert await who(group) == "2"
        shop.sessions[1].break_down.set()
        await trio.sleep(1)
        assert (ref.state, await who(group)) == ("ready", "4")
        shop.sessions[3].break_down.set()
        await trio.sleep(1)
        assert (ref.state, list(group.errors)) == ("failed", ["shop"])
        assert ref.statistics().retry_at is not None
        with pytest.raises(ServerUnavailable, match="has failed"):
            await who(group)
        await ref.start()
        await ref.wait_ready()
        await trio.sleep(1)
        assert ref.statistics().replicas.serving == 2


async def test_a_start_revives_the_parked_replica_of_a_server_that_serves(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with open_servers(shop.config(2, restarts=NEVER)) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        assert ref.statistics().replicas.serving == 1
        [call] = begin(nursery, 1, ref.call_tool, "hold")
        await settle()
        await ref.start()
        await trio.sleep(1)
        assert ref.statistics().replicas.serving == 2
        shop.let_go()
        assert text_of(await call.result()) == "2"


async def test_stop_and_start_concern_all_replicas(autojump_clock: MockClock) -> None:
    shop, events = Shop(), Events()
    async with open_servers(shop.config(), observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 3, ref.call_tool, "hold")
        await settle()
        await ref.stop()
        assert (ref.state, ref.statistics().replicas.serving) == ("stopped", 0)
        assert [type(call.error) for call in calls] == [ServerUnavailable] * 3
        with pytest.raises(ServerUnavailable, match="is stopped"):
            await who(group)
        await ref.start()
        await ref.wait_ready()
        await trio.sleep(1)
        assert (ref.state, ref.statistics().replicas.serving, len(shop.sessions)) == ("ready", 3, 6)
    assert server_states(events) == ["connecting", "ready", "stopping", "stopped"] * 2


async def test_a_restart_finishes_what_all_replicas_have_in_flight(autojump_clock: MockClock) -> None:
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2), observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 2, ref.call_tool, "hold")
        await settle()
        nursery.start_soon(ref.restart)
        await settle()
        [late] = begin(nursery, 1, ref.call_tool, "who")
        await settle()
        assert (ref.state, ref.statistics().queued, shop.held) == ("stopping", 1, [1, 1])
        shop.let_go()
        assert sorted([text_of(await call.result()) for call in calls]) == ["1", "2"]
        assert text_of(await late.result()) in ("3", "4")
        await ref.wait_ready()
    assert [(event.requests, event.server) for event in events.of(Draining)] == [(2, "shop")]
    assert [event.unfinished for event in events.of(Drained)] == [0]
    assert server_states(events)[:5] == ["connecting", "ready", "stopping", "stopped", "connecting"]


async def test_a_restart_that_failures_have_finished_leaves_the_server_ready(autojump_clock: MockClock) -> None:
    """C-62: all old connections were lost while the server drained, so nothing is left to disconnect."""
    shop, events = Shop(), Events()
    async with open_servers(shop.config(restarts=AT_ONCE), observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        [held] = begin(nursery, 1, ref.call_tool, "hold")
        await settle()
        replaced = shop.held.index(1)
        lost, last = {0, 1, 2} - {replaced}
        [old] = [each for each in group._roster.records["shop"].connections if each.server.in_flight(each)]
        old.retire("old")
        await settle()
        [restarted] = begin(nursery, 1, ref.restart)  # it waits until that replica is renewed
        await settle()
        shop.sessions[lost].break_down.set()
        await trio.sleep(1)
        calls = begin(nursery, 2, ref.call_tool, "hold")
        await trio.sleep(1)
        assert shop.held[last] == shop.held[3] == 1
        shop.sessions[replaced].let_go.set()
        await trio.sleep(1)
        assert (ref.state, restarted.over) == ("stopping", False)
        shop.sessions[last].break_down.set()
        await trio.sleep(1)
        shop.let_go()
        await trio.sleep(1)
        assert (ref.state, restarted.over, restarted.error) == ("ready", True, None)
        assert sorted(str(type(call.error)) for call in calls) == sorted(map(str, (ConnectionLost, type(None))))
        assert (held.error, ref.statistics().replicas.serving, len(shop.sessions)) == (None, 3, 6)
        await ref.check_health()
    assert [event.unfinished for event in events.of(Drained)] == [0]


async def test_an_old_replica_is_replaced_while_the_others_serve(autojump_clock: MockClock) -> None:
    """S2-31: one after the other, each after what it has in flight; the server is ready all the time."""
    shop, events = Shop(), Events()
    config = shop.config(2, max_lifetime=1000, request_timeout=None, health=HealthPolicy(interval=None))
    async with open_servers(config, observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 2, ref.call_tool, "hold")
        await settle()
        # Between 900 s and 1 000 s, for each of them; they have 30 s for what is in flight.
        await trio.sleep(895)
        while len(shop.sessions) < 4:
            assert ref.state == "ready" or all(each.state != "ready" for each in ref.statistics().replicas.each)
            await trio.sleep(1)
        await trio.sleep(5)
        assert ref.statistics().replicas.serving == 2
        assert [type(call.error) for call in calls] == [ConnectionLost] * 2
        await who(group)
    assert not events.of(Draining)
    for name in NAMES[:2]:
        assert replica_states(events, name)[:5] == ["connecting", "ready", "stopping", "stopped", "connecting"]


async def test_a_replica_that_is_replaced_takes_no_call_and_finishes_its_own(autojump_clock: MockClock) -> None:
    """S2-31: the others serve meanwhile, though they have more in flight."""
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2), observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 3, ref.call_tool, "hold")
        await settle()
        [old] = [each for each in group._roster.records["shop"].connections if each.server.in_flight(each) == 1]
        [other] = {"shop:1", "shop:2"} - {old.name}
        old.retire("old")
        await settle()
        states = {each.name: each.state for each in ref.statistics().replicas.each}
        assert (states, ref.state) == ({old.name: "stopping", other: "ready"}, "ready")
        busy = shop.held.index(2)
        assert {await who(group) for _ in range(5)} == {str(busy + 1)}
        shop.sessions[1 - busy].let_go.set()
        await trio.sleep(1)
        assert ref.statistics().replicas.serving == 2
        assert sorted(call.over for call in calls) == [False, False, True]
        assert (len(shop.sessions), len(events.of(Draining))) == (3, 0)
        shop.let_go()
        answers = [int(text_of(await call.result())) for call in calls]
        assert sorted(answers) == sorted([busy + 1, busy + 1, 2 - busy])
    assert server_states(events) == ["connecting", "ready", "stopping", "stopped"]


async def test_an_old_replica_is_kept_until_all_others_serve(autojump_clock: MockClock) -> None:
    """S2-31: if the first new connection fails, the lifetime does not take down the others, one after the other."""
    shop = Shop()
    async with open_servers(shop.config(3, max_lifetime=1000, restarts=LATER)) as group:
        ref = group["shop"]
        await trio.sleep(800)
        shop.refuses = 1
        await trio.sleep(3000)
        assert sorted(each.state for each in ref.statistics().replicas.each) == ["backoff", "ready", "ready"]
        assert len(shop.sessions) == 3
        await trio.sleep(1500)
        assert ref.statistics().replicas.serving == 3
        assert len(shop.sessions) == 6


async def test_an_idle_server_disconnects_all_replicas_until_it_is_used(autojump_clock: MockClock) -> None:
    """S2-31: all of them rest, and all come back."""
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2, idle_timeout=100), observers=[events]) as group:
        ref = group["shop"]
        await trio.sleep(120)
        assert (ref.state, ref.statistics().replicas.serving) == ("pending", 0)
        assert [tool.deferred for tool in group.tools] == [True, True]
        assert await who(group) in ("3", "4")
        assert ref.state == "ready"
    assert server_states(events)[:5] == ["connecting", "ready", "stopping", "pending", "connecting"]


async def test_an_idle_server_with_replicas_that_is_stopped_stays_stopped(autojump_clock: MockClock) -> None:
    """A call is refused, and does not connect it again, as for a server without replicas."""
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2, idle_timeout=100), observers=[events]) as group:
        ref = group["shop"]
        await trio.sleep(120)
        await ref.stop()
        assert ref.state == "stopped"
        with pytest.raises(ServerUnavailable, match=r"is stopped"):
            await who(group)
        await settle()
        assert (ref.state, len(shop.sessions)) == ("stopped", 2)
        await ref.start()
        assert await who(group) in ("3", "4")
    assert server_states(events)[3:6] == ["pending", "stopped", "connecting"]


async def test_a_lazy_server_starts_its_replicas_at_the_first_call(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with open_servers(shop.config(2, connect="lazy")) as group:
        await trio.sleep(10)
        assert (group["shop"].state, shop.sessions) == ("pending", [])
        assert await who(group) in ("1", "2")
        await trio.sleep(1)
        assert group["shop"].statistics().replicas.serving == 2


async def test_a_lazy_server_that_is_stopped_stops_its_replicas_too(autojump_clock: MockClock) -> None:
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2, connect="lazy"), observers=[events]) as group:
        ref = group["shop"]
        await ref.stop()
        assert (ref.state, {each.state for each in ref.statistics().replicas.each}) == ("stopped", {"stopped"})
    assert (server_states(events), replica_states(events, "shop:2")) == (["stopped"], ["stopped"])


async def test_a_stop_leaves_the_numbers_of_the_incarnations_of_replicas_as_they_are(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with open_servers(shop.config(2, restarts=AT_ONCE)) as group:
        await trio.sleep(1)
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        await group["shop"].stop()
        assert sorted(each.incarnation for each in group["shop"].statistics().replicas.each) == [1, 2]


async def test_a_required_server_has_failed_if_a_replica_cannot_be_started(autojump_clock: MockClock) -> None:
    """S2-30: with the error of that replica, as without replicas."""
    shop = Shop()
    async with open_servers(shop.config(2, required=True, restarts=NEVER)) as group:
        ref = group["shop"]
        await ref.stop()
        shop.refuses = 1
        with pytest.raises(ConnectFailed, match="it refuses"):
            await ref.start()
        await trio.sleep(1)
        assert (ref.state, list(group.errors)) == ("failed", ["shop"])


async def test_tools_are_shown_while_a_replica_serves_and_hidden_while_all_are_retried(
    autojump_clock: MockClock,
) -> None:
    """S2-30: parked is a server whose replicas are all parked, until it is started explicitly."""
    shop = Shop()
    config = shop.config(
        2, restarts=RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=60), connect_timeout=600
    )
    async with open_servers(config) as group:
        ref = group["shop"]
        await trio.sleep(1)
        for session in list(shop.sessions):
            assert (ref.state, len(group.tools)) == ("ready", 2)
            shop.refuses = 1
            session.break_down.set()
            await trio.sleep(1)
        assert (ref.state, len(group.tools)) == ("failed", 0)
        shop.open = trio.Event()
        await ref.wait_state("connecting")
        assert not group.tools
        await ref.stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.start)
            await settle()
            assert (ref.state, len(group.tools)) == ("connecting", 2)
            shop.open.set()
        await ref.wait_ready()


async def test_a_required_server_needs_all_its_replicas_at_the_start() -> None:
    shop = Shop()
    shop.refuses = 1
    with pytest.raises(ConnectFailed):
        async with open_servers(shop.config(2, required=True)):
            raise AssertionError("unreachable")


async def test_an_optional_server_begins_with_the_replicas_that_start(autojump_clock: MockClock) -> None:
    shop = Shop()
    shop.refuses = 1
    async with open_servers(shop.config(2, restarts=LATER)) as group:
        ref = group["shop"]
        await ref.wait_ready()
        await trio.sleep(1)
        assert (ref.state, ref.statistics().replicas.serving, group.errors) == ("ready", 1, {})
        assert await who(group) == "1"


async def test_the_number_of_replicas_can_be_changed_while_calls_wait(autojump_clock: MockClock) -> None:
    """S2-44: the ref and its queue stay."""
    shop = Shop()
    async with open_servers(shop.config(1)) as group, trio.open_nursery() as nursery:
        ref, number = group["shop"], 1
        for replicas in (3, 2, 1, 2):
            await trio.sleep(1)
            shop.open = trio.Event()
            await group.reload(shop.config(replicas))
            [call] = begin(nursery, 1, ref.call_tool, "who")
            await settle()
            assert not call.over
            shop.open.set()
            assert int(text_of(await call.result())) > number
            await trio.sleep(1)
            number = len(shop.sessions)
            status = ref.statistics()
            assert (status.replicas.total, status.replicas.serving, ref.state) == (replicas, replicas, "ready")
            assert (status.queued, status.in_flight) == (0, 0)
            assert str(group._supervisor.tree()).count("shop:1") == (replicas > 1)


async def test_a_check_asks_every_replica(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with open_servers(shop.config(2, restarts=LATER)) as group:
        ref = group["shop"]
        await trio.sleep(1)
        assert (await ref.check_health()).status == "healthy"
        records = group._roster.records["shop"].connections
        assert all(record.health.last_check is not None for record in records)
        for session in shop.sessions:
            session.break_down.set()
        await trio.sleep(1)
        assert (await ref.check_health()).status == "unhealthy"


async def test_a_timeout_counts_for_the_replica_that_had_the_request(autojump_clock: MockClock) -> None:
    """Only such a one is checked at once."""
    shop = Shop()
    config = shop.config(3, request_timeout=10, health=HealthPolicy(interval=3600))
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        begin(nursery, 2, ref.call_tool, "hold")
        await settle()
        busy = [each.name for each in ref.statistics().replicas.each if each.in_flight]
        await trio.sleep(20)
        records = group._roster.records["shop"].connections
        assert [each.name for each in records if each.health.last_check is not None] == busy
        assert len(busy) == 2
        assert ref.statistics().health.failures == 0


async def test_an_answer_counts_for_the_replica_that_had_the_request(autojump_clock: MockClock) -> None:
    """A replica without requests is not busy either, whatever the others have in flight."""
    shop = Shop()
    async with open_servers(shop.config(3)) as group, trio.open_nursery() as nursery:
        await trio.sleep(1)
        begin(nursery, 2, group["shop"].call_tool, "hold")
        await trio.sleep(1)
        replicas = group._roster.records["shop"].connections
        for each in replicas:
            each.health._climb(each.health.ladder.failed(trio.current_time(), trio.current_time()))
        idle = [each.name for each in replicas if not each.server.in_flight(each)]
        assert [each.name for each in replicas if not each.health._is_busy()] == idle
        shop.let_go()
        await settle()
        assert [each.name for each in replicas if each.health.failing] == idle
        assert len(idle) == 1


async def test_all_replicas_are_drained_when_the_block_ends(autojump_clock: MockClock) -> None:
    shop, events, calls = Shop(), Events(), []
    async with trio.open_nursery() as nursery:
        async with open_servers(shop.config(2, max_in_flight=2), observers=[events]) as group:
            await trio.sleep(1)
            calls = begin(nursery, 5, group["shop"].call_tool, "hold")
            await settle()
            nursery.start_soon(_later, shop)
        assert [text_of(await call.result()) for call in calls] != []
    assert [event.requests for event in events.of(Draining)] == [5]
    assert [event.unfinished for event in events.of(Drained)] == [0]


async def _later(shop: Shop) -> None:
    await trio.sleep(1)
    shop.let_go()


async def test_a_crash_of_a_replica_is_named_in_the_kernels_events(autojump_clock: MockClock) -> None:
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2, restarts=AT_ONCE), observers=[events]):
        await trio.sleep(1)
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
    assert {event.actor for event in events.of(Started) if event.actor.startswith("shop:")} >= {"shop:1", "shop:2"}
    assert {event.server for event in events.of(ReplicaChanged)} == {"shop"}
    assert not events.of(ToolsDiffer)


async def test_the_pool_of_replicas_starts_and_stops_in_the_kernels_events(autojump_clock: MockClock) -> None:
    shop, events = Shop(), Events()
    async with open_servers(shop.config(2), observers=[events]):
        await trio.sleep(1)
    steps = [event for event in events if event.actor == "shop" and isinstance(event, ACTOR_EVENTS)]
    assert [(type(event), event.incarnation) for event in steps] == [(kind, 1) for kind in ACTOR_EVENTS]
    assert server_states(events)[-1] == "stopped"
