"""Restarting, one child by itself: which ends, how often, and what happens when it is too often."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorStartError,
    ActorStopped,
    ChildSpec,
    Crashed,
    GaveUp,
    Restarting,
    RestartLimitReached,
    Started,
    Starting,
    Stopped,
    Stopping,
    open_supervisor,
)

from ..messages import Said
from .workers import Boom, Echo, Hang, Yard, crash, door_raises, finish, state


async def test_children_start_in_order_and_stop_in_reverse() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), yard.spec("b"), yard.spec("c")):
        assert yard.take_log() == ["a up", "b up", "c up"]
    assert yard.log == ["c down", "b down", "a down"]
    assert yard.running == []


async def test_a_supervisor_may_have_no_children() -> None:
    async with open_supervisor() as supervisor:
        assert await supervisor.which_children() == ()
        assert state(supervisor) == "running"
    assert state(supervisor) == "stopped"


async def test_a_child_that_crashes_is_restarted_by_itself() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), yard.spec("b"), yard.spec("c"), name="top") as supervisor:
        b = supervisor.child("b")
        yard.take_log()
        await crash(b)
        assert yard.take_log() == ["b down", "b up"]
        assert await b.call(Echo(3)) == 3
        assert [child.incarnation for child in await supervisor.which_children()] == [1, 2, 1]


async def test_the_events_tell_the_life_of_a_child() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), observers=[yard.events.append]) as supervisor:
        a = supervisor.child("a")
        yard.events.clear()
        await crash(a)
    told = [
        (type(event), event.incarnation)
        for event in yard.events
        if event.actor == "a" and isinstance(event, (Crashed, Restarting, Starting, Started, Stopping, Stopped))
    ]
    assert told == [(Crashed, 1), (Restarting, 1), (Starting, 2), (Started, 2), (Stopping, 2), (Stopped, 2)]


@pytest.mark.parametrize("reason", ["normal", "shutdown"])
async def test_a_transient_child_that_ends_by_itself_stays_down_and_in_the_table(reason: str) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", restart="transient")) as supervisor:
        a = supervisor.child("a")
        await finish(a, "normal" if reason == "normal" else "shutdown")
        assert yard.log == ["a up", "a down"]
        assert state(a) == "stopped"
        assert [child.state for child in await supervisor.which_children()] == ["stopped"]
        with pytest.raises(ActorStopped, match=f"it ended: {reason}"):
            await a.call(Echo(1))
        await crash(await supervisor.restart_child("a"))
        assert state(a) == "running"


async def test_a_temporary_child_is_never_restarted_and_leaves_the_table_when_it_ends() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", restart="temporary"), yard.spec("b")) as supervisor:
        a = supervisor.child("a")
        await crash(a)
        assert [child.id for child in await supervisor.which_children()] == ["b"]
        assert state(a) == "stopped"
        with pytest.raises(ActorStopped):
            await a.call(Echo(1))
    assert yard.log == ["a up", "b up", "a down", "b down"]


async def test_messages_that_wait_are_served_by_the_next_incarnation() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor, trio.open_nursery() as nursery:
        a = supervisor.child("a")
        answers = []

        async def ask(number: int) -> None:
            answers.append(await a.call(Echo(number)))

        nursery.start_soon(crash, a)
        await settle()
        for number in range(3):
            nursery.start_soon(ask, number)
            await settle()
    assert answers == [0, 1, 2]
    assert yard.log == ["a up", "a down", "a up", "a down"]


# --- the budget -------------------------------------------------------------------------------------------------------


async def test_over_the_limit_the_other_children_stop_in_reverse_and_the_block_is_cancelled(said: Said) -> None:
    yard = Yard()
    ended = False
    with door_raises(RestartLimitReached) as limit:
        async with open_supervisor(
            yard.spec("a"), yard.spec("b"), yard.spec("c"), name="top", observers=[yard.events.append]
        ) as supervisor:
            await crash(supervisor.child("b"))
            yard.take_log()
            last = Boom("the last")
            try:
                await crash(supervisor.child("b"), last)
                await trio.sleep_forever()
            finally:
                ended = True
    assert ended
    assert yard.log == ["b down", "c down", "a down"]
    assert limit.value.actor == "top"
    assert limit.value.__cause__ is last
    said("restart limit reached", str(limit.value))
    assert yard.of(GaveUp) == ["b"]
    assert state(supervisor) == "failed"
    assert supervisor.child("b").state == "failed"
    with pytest.raises(ActorStopped, match="supervisor 'top' gave up on it: restart limit reached"):
        await supervisor.child("b").call(Echo(1))


async def test_the_limit_says_so_if_the_child_ended_without_a_failure() -> None:
    yard = Yard()
    with door_raises(RestartLimitReached, match=r"restart limit reached \(0 restarts\); last end: normal") as limit:
        async with open_supervisor(yard.spec("a"), max_restarts=0, window=math.inf) as supervisor:
            await finish(supervisor.child("a"))
            await trio.sleep_forever()
    assert limit.value.__cause__ is None


async def test_every_attempt_counts_also_those_that_fail() -> None:
    yard = Yard()
    with door_raises(RestartLimitReached) as limit:
        async with open_supervisor(
            yard.spec("a", None, Boom("1"), Boom("2"), Boom("3")), max_restarts=3, observers=[yard.events.append]
        ) as supervisor:
            await crash(supervisor.child("a"))
            await trio.sleep_forever()
    assert yard.log == ["a up", "a down", "a failed", "a failed", "a failed"]
    assert repr(limit.value.__cause__) == "Boom('3')"
    assert yard.of(Restarting, "attempt", "delay") == [(1, 0.0), (2, 0.0), (3, 0.0)]


async def test_the_budget_is_shared_by_all_children() -> None:
    yard = Yard()
    with door_raises(RestartLimitReached, match="child 'b'"):
        async with open_supervisor(yard.spec("a"), yard.spec("b")) as supervisor:
            await crash(supervisor.child("a"))
            await crash(supervisor.child("b"))
            await trio.sleep_forever()


async def test_attempts_that_are_older_than_the_window_do_not_count(autojump_clock: MockClock) -> None:
    yard = Yard()
    with door_raises(RestartLimitReached):
        async with open_supervisor(yard.spec("a"), max_restarts=1, window=5) as supervisor:
            a = supervisor.child("a")
            for _ in range(3):
                await crash(a)
                assert state(a) == "running"
                await trio.sleep(5.5)
            await crash(a)
            await trio.sleep(5)
            await crash(a)
            await trio.sleep_forever()


async def test_a_child_that_crashes_whenever_it_is_ready_spends_the_budget(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), max_restarts=5, window=math.inf, reset_after=60, on_limit="park"
    ) as supervisor:
        a = supervisor.child("a")
        for _ in range(6):
            assert state(a) == "running"
            await trio.sleep(59)
            await crash(a)
        assert state(a) == "failed"
        assert a.statistics().incarnation == 6


async def test_a_long_enough_run_clears_the_budget(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), max_restarts=1, window=math.inf, reset_after=60) as supervisor:
        for _ in range(5):
            await crash(supervisor.child("a"))
            await trio.sleep(60)
        assert supervisor.child("a").statistics().incarnation == 6


async def test_a_long_enough_run_clears_it_also_if_it_began_or_ended_explicitly(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), max_restarts=1, window=math.inf, reset_after=60) as supervisor:
        for before, after in ((0, 60), (60, 0)):
            await crash(supervisor.child("a"))
            await trio.sleep(before)
            await supervisor.stop_child("a")
            await supervisor.restart_child("a")
            await trio.sleep(after)
            await crash(supervisor.child("a"))
            await trio.sleep(60)
        assert supervisor.child("a").statistics().incarnation == 7


async def test_the_time_to_clean_up_is_not_a_part_of_a_run(autojump_clock: MockClock) -> None:
    yard = Yard()
    spec = yard.spec("a", stop=2.0)
    async with open_supervisor(spec, max_restarts=1, window=math.inf, reset_after=60, on_limit="park") as supervisor:
        await crash(supervisor.child("a"))
        await trio.sleep(2 + 59)
        await crash(supervisor.child("a"))
        await trio.sleep(3)
        assert supervisor.child("a").state == "failed"


async def test_a_long_enough_run_clears_it_also_if_another_child_crashes(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), yard.spec("b"), max_restarts=1, window=math.inf, reset_after=60
    ) as supervisor:
        await crash(supervisor.child("a"))
        await trio.sleep(30)
        await supervisor.start_child(yard.spec("c"))
        await trio.sleep(30)
        await crash(supervisor.child("c"))
        assert supervisor.child("c").state == "running"


async def test_a_long_run_of_one_child_does_not_clear_what_another_has_spent(autojump_clock: MockClock) -> None:
    yard = Yard()
    with door_raises(RestartLimitReached, match="child 'b'"):
        async with open_supervisor(
            yard.spec("a"), yard.spec("b"), max_restarts=2, window=math.inf, reset_after=60
        ) as supervisor:
            await trio.sleep(50)
            await crash(supervisor.child("b"))
            await trio.sleep(10)
            await crash(supervisor.child("a"))
            assert supervisor.child("a").state == "running"
            await crash(supervisor.child("b"))
            await trio.sleep_forever()


async def test_after_the_limit_nothing_is_done_any_more(autojump_clock: MockClock) -> None:
    yard = Yard()
    specs = (yard.spec("a"), yard.spec("b"), yard.spec("slow", stop=1.0))
    with door_raises(RestartLimitReached, match="child 'a'"):
        async with (
            open_supervisor(*specs, max_restarts=0, observers=[yard.events.append]) as supervisor,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(supervisor.stop_child, "slow")
            await settle()
            await crash(supervisor.child("a"))
            await crash(supervisor.child("b"))
            with pytest.raises(ActorStopped):
                await supervisor.start_child(yard.spec("c"))
            await trio.sleep_forever()
    assert yard.log == ["a up", "b up", "slow up", "a down", "b down", "slow down"]
    assert yard.of(GaveUp) == ["a"]


# --- the door ---------------------------------------------------------------------------------------------------------


async def test_an_exception_of_the_block_is_raised_after_the_children_have_stopped() -> None:
    yard = Yard()
    with door_raises(KeyError, match="mine"):
        async with open_supervisor(yard.spec("a")):
            raise KeyError("mine")
    assert yard.log == ["a up", "a down"]


async def test_a_shielded_clean_up_call_in_the_block_is_answered(autojump_clock: MockClock) -> None:
    yard = Yard()
    answer = 0
    with trio.move_on_after(1) as scope:
        async with open_supervisor(yard.spec("a")) as supervisor:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    answer = await supervisor.child("a").call(Echo(7))
    assert scope.cancelled_caught
    assert answer == 7
    assert yard.log == ["a up", "a down"]


async def test_every_call_is_refused_after_the_block() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        a = supervisor.child("a")
    for ref in (a, supervisor):
        assert state(ref) == "stopped"
        with pytest.raises(ActorStopped):
            await ref.call(Echo(1))
    with pytest.raises(ActorStopped):
        await supervisor.which_children()


async def test_calls_in_flight_are_answered_when_the_supervisor_stops(autojump_clock: MockClock) -> None:
    yard = Yard()
    outcomes: list[float] = []

    async def wait() -> None:
        with pytest.raises(ActorStopped):
            await a.call(Hang())
        outcomes.append(trio.current_time())

    async with trio.open_nursery() as nursery, open_supervisor(yard.spec("a", stop=3.0)) as supervisor:
        a = supervisor.child("a")
        for _ in range(2):
            nursery.start_soon(wait)
        await settle()
        began = trio.current_time()
    assert outcomes == [began, began]


async def test_a_factory_that_does_not_return_an_actor_is_a_failed_start() -> None:
    with pytest.raises(ActorStartError, match=r"child 'a' did not start: .* 5 is not an Actor; derive its class from"):
        async with open_supervisor(ChildSpec("a", lambda: 5)):  # type: ignore[arg-type,return-value]  # under test
            pass


async def test_a_crashed_child_that_hangs_in_its_clean_up_is_killed_after_its_bound_and_then_restarted(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", stop=math.inf, shutdown=3),
        yard.spec("b"),
        yard.spec("c", stop=1.0, shutdown="brutal_kill"),
        max_restarts=2,
    ) as supervisor:
        for id in "ac":
            await crash(supervisor.child(id))
        assert await supervisor.child("c").call(Echo(1)) == 1
        assert trio.current_time() == 1
        assert await supervisor.child("a").call(Echo(1)) == 1
        assert trio.current_time() == 3
        assert yard.log[3:] == ["c down", "c up", "a killed", "a up"]
