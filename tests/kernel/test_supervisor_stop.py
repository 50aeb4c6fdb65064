"""Stops of a supervisor's children: order, time limits, and children that do not stop in time."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorStopped,
    IgnoreStart,
    Overdue,
    StopFailed,
    Stopped,
    Stopping,
    open_actor,
    open_supervisor,
)

from .workers import Boom, Hang, Yard, crash, nest, shielded, state, states

# --- order ------------------------------------------------------------------------------------------------------------


async def test_a_sequential_stop_stops_one_child_at_a_time_newest_first(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", stop=1.0), yard.spec("b", stop=2.0), yard.spec("c", stop=3.0), observers=[yard.events.append]
    ):
        yard.events.clear()
    assert yard.of(Stopping, "actor", "time") == [("supervisor", 0), ("c", 0), ("b", 3), ("a", 5)]
    assert yard.of(Stopped, "actor", "time") == [("c", 3), ("b", 5), ("a", 6), ("supervisor", 6)]


async def test_a_concurrent_stop_asks_all_children_newest_first_and_waits_for_them_together(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    kinds: list[str] = []
    async with open_supervisor(
        *(yard.spec(id, stop=seconds) for id, seconds in [("a", 3.0), ("b", 1.0), ("c", 2.0)]),
        stop_order="concurrent",
        observers=[yard.events.append, lambda event: kinds.append(f"{type(event).__name__} {event.actor}")],
    ):
        kinds.clear()
        yard.events.clear()
    assert kinds[1:4] == ["Stopping c", "Stopping b", "Stopping a"]
    assert yard.of(Stopped, "actor", "time") == [("b", 1), ("c", 2), ("a", 3), ("supervisor", 3)]


async def test_a_concurrent_stop_asks_all_children_without_a_checkpoint_in_between(autojump_clock: MockClock) -> None:
    yard = Yard()
    steps: list[int] = []
    step = 0

    async def count_steps() -> None:
        nonlocal step
        while True:
            await trio.lowlevel.checkpoint()
            step += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_steps)
        async with open_supervisor(
            *(yard.spec(id) for id in "abcde"),
            stop_order="concurrent",
            observers=[lambda event: steps.append(step) if isinstance(event, Stopping) else None],
        ):
            pass
        nursery.cancel_scope.cancel("counted")
    assert len(set(steps[1:])) == 1


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "duration"), [("sequential", 6.0), ("concurrent", 3.0)])
async def test_a_child_that_hangs_while_stopping_is_killed_after_its_own_shutdown_time(
    autojump_clock: MockClock, order: str, duration: float
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", stop=1.0),
        yard.spec("b", stop=math.inf, shutdown=3),
        yard.spec("c", stop=2.0),
        stop_order="concurrent" if order == "concurrent" else "sequential",
        observers=[yard.events.append],
    ):
        pass
    assert trio.current_time() == duration
    assert "b killed" in yard.log
    times = dict(yard.of(Stopped, "actor", "time"))
    del times["supervisor"]
    assert times == ({"c": 2, "b": 5, "a": 6} if order == "sequential" else {"a": 1, "c": 2, "b": 3})
    assert yard.of(Overdue) == []


async def test_the_default_shutdown_time_is_five_seconds(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", stop=math.inf)):
        pass
    assert trio.current_time() == 5


async def test_brutal_kill_leaves_no_time_to_clean_up(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", stop=math.inf, shutdown="brutal_kill")):
        pass
    assert trio.current_time() == 0
    assert yard.log == ["a up", "a killed"]
    assert yard.running == []


async def test_shutdown_infinity_waits_without_a_limit(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", stop=1e6, shutdown="infinity")):
        pass
    assert trio.current_time() == 1e6
    assert yard.log == ["a up", "a down"]


async def test_a_stop_in_progress_keeps_its_deadline_when_the_supervisor_stops(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        trio.open_nursery() as nursery,
        open_supervisor(yard.spec("a", stop=math.inf, shutdown=10)) as supervisor,
    ):
        nursery.start_soon(ignore_end, partial(supervisor.stop_child, "a"))
        await trio.sleep(7)
    assert trio.current_time() == 10


async def ignore_end(call: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(ActorStopped):
        await call()


@pytest.mark.parametrize("order", ["sequential", "concurrent"])
async def test_an_exception_while_one_child_stops_does_not_affect_its_siblings(
    order: str, caplog: pytest.LogCaptureFixture
) -> None:
    yard = Yard()
    broken = Boom("no clean-up today")
    with caplog.at_level(logging.CRITICAL):
        async with open_supervisor(
            yard.spec("a"),
            yard.spec("b", stop=broken),
            yard.spec("c"),
            stop_order="concurrent" if order == "concurrent" else "sequential",
            observers=[yard.events.append],
        ):
            pass
    assert yard.of(StopFailed, "actor", "error") == [("b", broken)]
    assert sorted(yard.log[3:]) == ["a down", "c down"]
    assert sorted(yard.of(Stopped)) == ["a", "b", "c", "supervisor"]


# --- foreign shields --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shutdown", "seconds"), [(3, 4), ("brutal_kill", 1)])
async def test_a_child_stuck_in_a_shield_is_reported_and_awaited_while_its_siblings_stop(
    autojump_clock: MockClock, shutdown: object, seconds: float
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", stop=partial(shielded, 100), shutdown=shutdown),
        observers=[yard.events.append],
    ):
        pass
    assert yard.of(Overdue, "actor", "seconds") == [("b", seconds)]
    assert yard.of(Stopped, "actor", "time") == [("a", seconds), ("b", 100), ("supervisor", 100)]
    assert yard.running == []


async def test_stop_child_waits_for_an_overdue_child_without_delaying_others(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(
            yard.spec("a", stop=partial(shielded, 100), shutdown=3),
            yard.spec("b"),
            observers=[yard.events.append],
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(supervisor.stop_child, "a")
        await trio.sleep(5)
        assert yard.of(Overdue, "actor", "seconds") == [("a", 4)]
        assert await states(supervisor) == ["stopping", "running"]
        await crash(supervisor.child("b"))
        assert trio.current_time() == 5
        assert await states(supervisor) == ["stopping", "running"]
        await supervisor.stop_child("a")
        assert trio.current_time() == 100
        assert await states(supervisor) == ["stopped", "running"]
        await supervisor.restart_child("a")
        assert await states(supervisor) == ["running", "running"]


async def test_an_overdue_actor_without_a_supervisor_is_reported_and_awaited(autojump_clock: MockClock) -> None:
    yard = Yard()
    worker = yard.spec("a", stop=partial(shielded, 100)).factory()
    async with open_actor(worker, name="a", observers=[yard.events.append]):
        pass
    assert yard.of(Overdue, "actor", "seconds") == [("a", 6)]
    assert trio.current_time() == 100


# --- killing a supervisor ---------------------------------------------------------------------------------------------


async def test_a_killed_supervisor_kills_its_children(autojump_clock: MockClock) -> None:
    yard = Yard()
    nested = nest(
        "nested",
        *(yard.spec(id, stop=math.inf, shutdown="infinity") for id in "abc"),
        child={"shutdown": 4},
    )
    async with open_supervisor(nested, yard.spec("d")):
        pass
    assert trio.current_time() == 4
    assert yard.log[4] == "d down"
    assert sorted(yard.log[5:]) == ["a killed", "b killed", "c killed"]
    assert yard.running == []


async def test_brutal_kill_of_a_supervisor_kills_its_children_without_asking_them(autojump_clock: MockClock) -> None:
    yard = Yard()
    nested = nest(
        "nested", yard.spec("a"), yard.spec("b"), yard.spec("c", IgnoreStart()), child={"shutdown": "brutal_kill"}
    )
    async with open_supervisor(nested):
        pass
    assert sorted(yard.log[3:]) == ["a killed", "b killed"]
    assert yard.running == []


# --- in flight --------------------------------------------------------------------------------------------------------


async def test_calls_in_flight_are_answered_before_a_slow_stop_ends(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", stop=4.0)) as supervisor, trio.open_nursery() as nursery:
        a = supervisor.child("a")
        times: list[float] = []

        async def wait() -> None:
            with pytest.raises(ActorStopped):
                await a.call(Hang())
            times.append(trio.current_time())

        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await settle()
        await supervisor.stop_child("a")
        assert times == [0, 0]
        assert trio.current_time() == 4
        assert state(a) == "stopped"
