"""Restarts of a group, together with back-off, park, parallel starts and concurrent stops."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorStopped,
    Backoff,
    ChildError,
    GaveUp,
    Overdue,
    Restarting,
    Starting,
    Stopped,
    Stopping,
    open_supervisor,
)

from .workers import Boom, Echo, Hang, Hopeless, Yard, crash, door_raises, finish, nest, shielded, state, states

LATER: dict[str, Any] = {"backoff": Backoff(first=10), "window": 1000, "max_restarts": 1}
"""One attempt, 10 seconds after the failure."""


# --- back-off ---------------------------------------------------------------------------------------------------------


async def test_siblings_are_stopped_at_once_and_started_when_the_back_off_is_over(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(*map(yard.spec, "abc"), strategy="one_for_all", **LATER) as supervisor:
        yard.take_log()
        await crash(supervisor.child("b"))
        assert yard.take_log() == ["b down", "c down", "a down"]
        assert trio.current_time() == 0
        assert await states(supervisor) == ["backoff"] * 3
        await supervisor.child("c").wait_state("running")
        assert trio.current_time() == 10
        assert yard.take_log() == ["a up", "b up", "c up"]


async def test_a_siblings_queue_is_kept_and_what_it_handles_is_answered_at_once(autojump_clock: MockClock) -> None:
    yard = Yard()
    outcomes: list[tuple[str, float]] = []

    async def ask(message: Echo | Hang) -> None:
        try:
            outcomes.append((f"{await supervisor.child('b').call(message)}", trio.current_time()))
        except ActorCrashed:
            outcomes.append(("crashed", trio.current_time()))

    async with (
        open_supervisor(yard.spec("a"), yard.spec("b", stop=2.0), strategy="one_for_all", **LATER) as supervisor,
        trio.open_nursery() as nursery,
    ):
        for message in (Hang(), Echo(1), Echo(2)):
            nursery.start_soon(ask, message)
            await settle()
        await crash(supervisor.child("a"))
    assert outcomes == [("crashed", 0), ("1", 10), ("2", 10)]


@pytest.mark.parametrize(("stop", "started"), [(3.0, 10), (30.0, 30)])
async def test_the_back_off_begins_at_the_failure_and_the_group_has_stopped_before_it_starts(
    autojump_clock: MockClock, stop: float, started: float
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), yard.spec("b", stop=stop, shutdown=60), strategy="one_for_all", **LATER
    ) as supervisor:
        await crash(supervisor.child("a"))
        for id in "ab":
            await supervisor.child(id).wait_state("running")
        assert trio.current_time() == started


@pytest.mark.parametrize("change", ["stop", "stop and delete"])
async def test_if_the_child_that_failed_is_stopped_the_rest_is_started_without_it(
    autojump_clock: MockClock, change: str
) -> None:
    yard = Yard()
    async with open_supervisor(*map(yard.spec, "abc"), strategy="rest_for_one", **LATER) as supervisor:
        await crash(supervisor.child("b"))
        yard.take_log()
        await supervisor.stop_child("b")
        if change != "stop":
            await supervisor.delete_child("b")
        await settle()
        assert trio.current_time() == 0
        assert yard.take_log() == ["c up"]
        assert await states(supervisor) == (["running", "stopped", "running"] if change == "stop" else ["running"] * 2)
        await trio.sleep(100)
        assert yard.take_log() == []


async def test_a_sibling_that_waits_can_be_stopped_and_is_not_started_then(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(
            *map(yard.spec, "abc"), strategy="one_for_all", observers=[yard.events.append], **LATER
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        await crash(supervisor.child("a"))
        for refused in (supervisor.restart_child, supervisor.delete_child):
            with pytest.raises(ChildError) as refusal:
                await refused("b")
            assert refusal.value.reason == "restarting"
        nursery.start_soon(supervisor.start_child, yard.spec("slow", 5))
        await settle()
        await supervisor.stop_child("b")  # although the manager is busy
        assert trio.current_time() == 0
        assert yard.of(Stopped) == ["b"]
        with pytest.raises(ActorStopped):
            await supervisor.child("b").call(Echo(1))
        await trio.sleep(20)
        assert await states(supervisor) == ["running", "stopped", "running", "running"]
        await supervisor.restart_child("b")
        assert await supervisor.child("b").call(Echo(1)) == 1


async def test_a_second_failure_takes_the_first_into_its_group(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        *map(yard.spec, "abcd"), strategy="rest_for_one", backoff=Backoff(first=10), window=1000, max_restarts=2
    ) as supervisor:
        await crash(supervisor.child("c"))
        await trio.sleep(5)
        yard.take_log()
        await crash(supervisor.child("b"))
        assert await states(supervisor) == ["running", "backoff", "backoff", "backoff"]
        await trio.sleep(9)
        assert yard.take_log() == ["b down"]
        await trio.sleep(2)
        assert yard.take_log() == ["b up", "c up", "d up"]
        await trio.sleep(100)
        assert yard.take_log() == []


async def test_an_attempt_of_a_group_that_fails_backs_off_again_with_the_whole_group(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", None, Boom("1")),
        yard.spec("c"),
        strategy="one_for_all",
        backoff=Backoff(first=10),
        window=1000,
        max_restarts=2,
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        yard.take_log()
        await trio.sleep(10.5)
        assert yard.take_log() == ["a up", "b failed", "a down"]
        assert await states(supervisor) == ["backoff"] * 3
        await trio.sleep(10)
        assert yard.take_log() == ["a up", "b up", "c up"]
        assert yard.of(Restarting, "actor", "attempt", "time") == [("a", 1, 0), ("b", 1, 10)]


async def test_a_back_off_that_is_replaced_leaves_no_task(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        *map(yard.spec, "ab"), strategy="one_for_all", max_restarts=9, window=math.inf, backoff=Backoff(first=99)
    ) as supervisor:

        def alarms() -> int:
            tasks = [trio.lowlevel.current_task()]
            for task in tasks:  # which grows
                tasks += [each for nursery in task.child_nurseries for each in nursery.child_tasks]
            return sum(task.name.endswith(":backoff") for task in tasks)

        await crash(supervisor.child("a"))
        await supervisor.start_child(yard.spec("c"))
        await crash(supervisor.child("c"))
        assert alarms() == 1
        await supervisor.stop_child("c")
        await settle()
        assert await states(supervisor) == ["running", "running", "stopped"]
        assert alarms() == 0


# --- the limit --------------------------------------------------------------------------------------------------------


async def test_a_child_that_is_parked_leaves_its_siblings_alone() -> None:
    yard = Yard()
    async with open_supervisor(
        *map(yard.spec, "ab"), strategy="one_for_all", max_restarts=0, on_limit="park"
    ) as supervisor:
        await crash(supervisor.child("a"))
        assert yard.log == ["a up", "b up", "a down"]
        assert await states(supervisor) == ["failed", "running"]


@pytest.mark.parametrize("order", ["sequential", "parallel"])
@pytest.mark.parametrize("why", ["the budget is spent", "it is hopeless"])
async def test_if_a_member_is_parked_the_rest_of_the_group_is_started(
    why: str, order: Literal["sequential", "parallel"]
) -> None:
    yard = Yard()
    error = Hopeless("never") if why == "it is hopeless" else Boom("not again")
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", None, error),
        yard.spec("c"),
        strategy="one_for_all",
        on_limit="park",
        start_order=order,
        max_restarts=3 if why == "it is hopeless" else 1,
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        assert await states(supervisor) == ["running", "failed", "running"]
        assert yard.of(GaveUp, "actor", "error") == [("b", error)]
        assert sorted(yard.log[6:]) == ["a up", "b failed", "c up"]
        if why == "it is hopeless":
            await crash(supervisor.child("c"))
            assert await states(supervisor) == ["running", "failed", "running"]


async def test_at_the_limit_nothing_of_the_group_is_started(autojump_clock: MockClock) -> None:
    yard = Yard()
    with door_raises(Exception, match="gave up on child 'b'"):
        async with open_supervisor(*map(yard.spec, "ab"), strategy="one_for_all", max_restarts=0) as supervisor:
            await crash(supervisor.child("b"))
            await trio.sleep_forever()
    assert yard.log == ["a up", "b up", "b down", "a down"]


async def test_a_stopped_supervisor_starts_nothing_of_a_group_that_it_was_stopping(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(*map(yard.spec, "a"), yard.spec("b", stop=3.0), strategy="one_for_all") as supervisor:
        await crash(supervisor.child("a"))
    assert yard.log == ["a up", "b up", "a down", "b down"]
    assert trio.current_time() == 3


async def test_a_supervisor_that_is_killed_in_the_middle_of_a_group_restart_has_no_children(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    inner = nest(
        "inner",
        yard.spec("a"),
        yard.spec("b", stop=math.inf, shutdown="infinity"),
        strategy="one_for_all",
        child={"shutdown": "brutal_kill"},
    )
    async with open_supervisor(inner) as supervisor:
        await crash(supervisor.child("inner").child("a"))  # type: ignore[attr-defined]  # it is a supervisor
        await supervisor.stop_child("inner")
        assert yard.running == []
    assert yard.log == ["a up", "b up", "a down", "b killed"]


# --- first starts -----------------------------------------------------------------------------------------------------


async def test_a_failed_first_start_concerns_the_child_alone_until_it_has_served(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("x", Boom("1"), Boom("2"), None),
        yard.spec("c"),
        strategy="one_for_all",
        strict=False,
        backoff=Backoff(first=1, initial=1),
        max_restarts=9,
        window=1000,
    ) as supervisor:
        await supervisor.child("x").wait_state("running")
        assert yard.take_log() == ["a up", "x failed", "c up", "x failed", "x up"]
        await crash(supervisor.child("x"))
        assert yard.take_log() == ["x down", "c down", "a down"]


@pytest.mark.parametrize("order", ["sequential", "parallel"])
async def test_a_child_that_has_never_served_does_not_hold_up_the_group(
    autojump_clock: MockClock, order: Literal["sequential", "parallel"]
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("x", Boom("1"), Boom("2"), None),
        yard.spec("b"),
        yard.spec("c"),
        strategy="one_for_all",
        strict=False,
        start_order=order,
        backoff=Backoff(first=10, initial=10),
        max_restarts=9,
        window=1000,
    ) as supervisor:
        await trio.sleep(5)
        yard.take_log()
        await crash(supervisor.child("b"))
        assert yard.take_log() == ["b down", "c down"]
        await trio.sleep(10.5)
        assert await states(supervisor) == ["backoff", "running", "running"]
        await trio.sleep(10)
        assert await states(supervisor) == ["running"] * 3
        assert sorted(yard.log) == ["b up", "c up", "x failed", "x up"]


# --- side by side -----------------------------------------------------------------------------------------------------


async def test_a_group_starts_in_parallel_and_stops_concurrently(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        *(yard.spec(id, 4.0, 4.0, stop=3.0) for id in "abc"),
        strategy="one_for_all",
        start_order="parallel",
        stop_order="concurrent",
        observers=[yard.events.append],
    ) as supervisor:
        assert trio.current_time() == 4
        await crash(supervisor.child("a"))
        await supervisor.child("c").wait_state("backoff")
        assert yard.of(Stopping, "actor", "time") == [("c", 4 + 3), ("b", 4 + 3)]
        await supervisor.child("c").wait_state("running")
        assert trio.current_time() == 4 + 3 + 3 + 4


async def test_if_several_restarts_fail_the_group_of_the_first_in_the_table_is_restarted(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", None, Boom("b")),
        yard.spec("c", None, Boom("c")),
        strategy="rest_for_one",
        start_order="parallel",
        max_restarts=2,
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        assert await states(supervisor) == ["running"] * 3
        assert yard.of(Restarting) == ["a", "b"]
        assert yard.of(Stopping, "actor")[:2] == [("c",), ("b",)]


# --- stops that take long ---------------------------------------------------------------------------------------------


async def test_a_sibling_that_is_overdue_is_awaited_before_anything_of_the_group_starts(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", stop=lambda: shielded(20), shutdown=1),
        yard.spec("c"),
        strategy="one_for_all",
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("c"))
        await trio.sleep(5)
        assert yard.of(Overdue, "actor", "time") == [("b", 2)]
        assert yard.take_log() == ["a up", "b up", "c up", "c down", "a down"]
        assert await states(supervisor) == ["backoff", "backoff", "backoff"]
        await supervisor.child("c").wait_state("running")
        assert trio.current_time() == 20
        assert yard.take_log() == ["b killed", "a up", "b up", "c up"]


async def test_an_overdue_sibling_does_not_cut_a_later_back_off_short(autojump_clock: MockClock) -> None:
    """The child is restarted while the sibling is overdue, and fails again: its new back-off counts."""
    yard = Yard()
    overdue = yard.spec("b", stop=lambda: shielded(100), shutdown=1)
    async with open_supervisor(
        yard.spec("a"),
        overdue,
        strategy="one_for_all",
        max_restarts=9,
        window=math.inf,
        backoff=Backoff(first=60, initial=60, maximum=600),
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        await trio.sleep(65)
        await supervisor.stop_child("a")
        await supervisor.restart_child("a")
        await trio.sleep_until(70)
        await crash(supervisor.child("a"))
        await trio.sleep_until(200)
    [restart] = [event for event in yard.events if isinstance(event, Restarting) and event.time == 70]
    assert ("b", 100.0) not in yard.of(Starting, "actor", "time")
    assert ("a", 70 + restart.delay) in yard.of(Starting, "actor", "time")


async def test_a_sibling_that_is_overdue_can_be_stopped_for_good(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", stop=lambda: shielded(20), shutdown=1),
        yard.spec("c"),
        strategy="one_for_all",
    ) as supervisor:
        await crash(supervisor.child("c"))
        await trio.sleep(5)
        await supervisor.stop_child("b")
        assert trio.current_time() == 20
        await settle()
        assert await states(supervisor) == ["running", "stopped", "running"]
        assert yard.log[3:] == ["c down", "a down", "b killed", "a up", "c up"]


async def test_a_sibling_can_be_stopped_for_good_while_the_group_stops_it(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), yard.spec("b", stop=3.0), strategy="one_for_all") as supervisor:
        await crash(supervisor.child("a"))
        await supervisor.stop_child("b")
        assert trio.current_time() == 3
        await settle()
        assert await states(supervisor) == ["running", "stopped"]


async def test_if_the_child_that_failed_is_stopped_while_its_group_stops_the_rest_comes_back(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), yard.spec("b", stop=3.0), strategy="one_for_all") as supervisor:
        await crash(supervisor.child("a"))
        await supervisor.stop_child("a")
        assert trio.current_time() == 0
        await supervisor.child("b").wait_state("running")
        assert await states(supervisor) == ["stopped", "running"]
        assert trio.current_time() == 3


async def test_an_overdue_temporary_sibling_leaves_the_table_when_it_is_over(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", stop=lambda: shielded(20), shutdown=1, restart="temporary"),
        strategy="one_for_all",
    ) as supervisor:
        await crash(supervisor.child("a"))
        await supervisor.child("a").wait_state("running")
        assert trio.current_time() == 2
        assert await states(supervisor) == ["running", "stopping"]
        await trio.sleep(20)
        assert await states(supervisor) == ["running"]


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["sequential", "parallel"])
@pytest.mark.parametrize("when", ["start", "stop"])
async def test_an_interrupt_in_a_group_restart_is_raised_ungrouped_and_starts_nothing_more(
    when: str, order: Literal["sequential", "parallel"]
) -> None:
    yard = Yard()
    error = KeyboardInterrupt()
    b = yard.spec("b", None, error) if when == "start" else yard.spec("b", stop=error)
    with door_raises(KeyboardInterrupt) as raised:
        async with open_supervisor(
            yard.spec("a"), b, yard.spec("c"), strategy="one_for_all", start_order=order
        ) as supervisor:
            await crash(supervisor.child("a"))
            await trio.sleep_forever()
    assert raised.value is error
    if when == "stop":
        assert yard.log[3:] == ["a down", "c down"]
    elif order == "sequential":
        assert yard.log[3:] == ["a down", "c down", "b down", "a up", "b failed", "a down"]
    assert yard.running == []


# --- auto_shutdown ----------------------------------------------------------------------------------------------------


async def test_auto_shutdown_does_not_cancel_the_block() -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"), yard.spec("b", restart="transient", significant=True), auto_shutdown="any_significant"
    ) as supervisor:
        await finish(supervisor.child("b"))
        assert yard.log == ["a up", "b up", "b down", "a down"]
        assert state(supervisor) == "stopped"
        with pytest.raises(ActorStopped):
            await supervisor.which_children()
        await trio.lowlevel.checkpoint()


async def test_a_significant_child_in_back_off_is_active(autojump_clock: MockClock) -> None:
    yard = Yard()
    specs = [yard.spec(id, restart="transient", significant=True) for id in "ab"]
    async with open_supervisor(*specs, auto_shutdown="all_significant", **LATER) as supervisor:
        await crash(supervisor.child("a"))
        await finish(supervisor.child("b"))
        assert state(supervisor) == "running"
        await trio.sleep(20)
        await finish(supervisor.child("a"))
        assert state(supervisor) == "stopped"


@pytest.mark.parametrize(
    ("restart", "log"), [("permanent", ["a down", "a up"]), ("transient", ["a down"]), ("temporary", ["a down"])]
)
async def test_a_nested_supervisor_that_shuts_down_is_restarted_only_if_it_is_permanent(
    restart: str, log: list[str]
) -> None:
    yard = Yard()
    inner = nest(
        "inner",
        yard.spec("a", restart="transient", significant=True),
        auto_shutdown="any_significant",
        child={"restart": restart},
    )
    async with open_supervisor(inner, yard.spec("z")) as supervisor:
        yard.take_log()
        await finish(supervisor.child("inner").child("a"))  # type: ignore[attr-defined]  # it is a supervisor
        assert yard.take_log() == log
        assert await supervisor.child("z").call(Echo(1)) == 1


async def test_the_end_of_a_significant_supervisor_is_the_end_of_the_one_above() -> None:
    yard = Yard()
    inner = nest("inner", yard.spec("a"), max_restarts=0, child={"restart": "transient", "significant": True})
    async with open_supervisor(yard.spec("z"), inner, auto_shutdown="any_significant") as supervisor:
        await crash(supervisor.child("inner").child("a"))  # type: ignore[attr-defined]  # it is a supervisor
        assert state(supervisor) == "stopped"
        assert yard.log == ["z up", "a up", "a down", "z down"]


async def test_a_significant_child_without_auto_shutdown_is_refused_by_start_child_too() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        with pytest.raises(ValueError, match=r"'b'.*significant.*auto_shutdown"):
            await supervisor.start_child(yard.spec("b", restart="transient", significant=True))
        assert await states(supervisor) == ["running"]
    assert yard.log == ["a up", "a down"]
