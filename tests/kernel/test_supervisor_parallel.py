"""B-33: with ``start_order="parallel"`` a child that takes long to start, or never does, delays no other child."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from functools import partial
from typing import Final, Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorRef,
    ActorStartError,
    ActorStopped,
    Backoff,
    ChildError,
    ChildSpec,
    IgnoreStart,
    Restarting,
    RestartLimitReached,
    Started,
    open_supervisor,
)

from .actors import Host
from .workers import Boom, Echo, Yard, crash, door_raises, nest, shielded, state, states, wait_and_raise

Order = Literal["sequential", "parallel"]
Group = Literal["one_for_all", "rest_for_one"]

GROUPS: Final[tuple[Group, ...]] = ("one_for_all", "rest_for_one")

open_parallel = partial(open_supervisor, start_order="parallel", max_restarts=9, window=math.inf)


class Outcomes(list[tuple[str, float]]):
    """The outcomes of changes, and their times."""

    async def of(self, id: str, change: Awaitable[ActorRef]) -> None:
        try:
            ref = await change
        except (ActorStartError, ActorStopped, ChildError) as exc:
            self.append((f"{id} {type(exc).__name__}", trio.current_time()))
        else:
            self.append((f"{id} {ref.state}", trio.current_time()))


def dying(*lives: float) -> ChildSpec:
    """A child ``"d"`` whose successive incarnations live for so many seconds; later ones live on."""
    left = iter(lives)

    async def die(host: Host) -> None:
        await trio.sleep(next(left, math.inf))
        host.fail(Boom("it died"))

    return ChildSpec("d", lambda: Host(background=die))


# --- children do not wait for each other -----------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "seconds"), [("sequential", 10), ("parallel", 1)])
async def test_ten_children_that_take_a_second_to_start_take_one_together(
    autojump_clock: MockClock, order: Order, seconds: float
) -> None:
    """B-33: with the default they take ten, as in OTP."""
    yard = Yard()
    async with open_supervisor(start_order=order) as supervisor:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(supervisor.start_child, yard.spec(f"c{number}", 1))
        assert trio.current_time() == seconds
        assert await states(supervisor) == ["running"] * 10


@pytest.mark.parametrize("hangs", ["start", "restart"])
async def test_a_child_that_never_starts_delays_no_other_child(autojump_clock: MockClock, hangs: str) -> None:
    """B-33: neither the restart of a sibling nor any change of the child table."""
    yard, outcomes = Yard(), Outcomes()
    async with (
        open_parallel(yard.spec("a"), yard.spec("b"), yard.spec("c")) as supervisor,
        trio.open_nursery() as nursery,
    ):
        if hangs == "start":
            nursery.start_soon(outcomes.of, "x", supervisor.start_child(yard.spec("x", math.inf)))
        else:
            await supervisor.start_child(yard.spec("x", None, math.inf))
            await crash(supervisor.child("x"))
        await settle()
        await crash(supervisor.child("a"))
        assert await supervisor.child("a").call(Echo(1)) == 1
        await supervisor.stop_child("b")
        await supervisor.restart_child("b")
        await supervisor.stop_child("c")
        await supervisor.delete_child("c")
        await supervisor.start_child(yard.spec("y"))
        assert await states(supervisor) == ["running", "running", "starting", "running"]
        await supervisor.stop_child("x")
        assert trio.current_time() == 0
    assert outcomes == ([("x ActorStartError", 0)] if hangs == "start" else [])


async def test_a_child_that_takes_long_to_stop_delays_no_other_child(autojump_clock: MockClock) -> None:
    """B-33."""
    yard = Yard()
    async with open_parallel(yard.spec("a"), yard.spec("x", stop=4.0)) as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.stop_child, "x")
        await settle()
        await crash(supervisor.child("a"))
        assert await supervisor.child("a").call(Echo(1)) == 1
        assert trio.current_time() == 0
        await supervisor.stop_child("x")
        assert trio.current_time() == 4
        assert await states(supervisor) == ["running", "stopped"]


async def test_a_nested_supervisor_that_never_starts_delays_no_other_child(autojump_clock: MockClock) -> None:
    """B-33: and it is stopped with what it had started."""
    yard, outcomes = Yard(), Outcomes()
    nested = nest("n", yard.spec("g"), yard.spec("h", math.inf), start_order="parallel")
    async with open_parallel(yard.spec("a")) as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(outcomes.of, "n", supervisor.start_child(nested))
        await settle()
        await crash(supervisor.child("a"))
        assert await supervisor.child("a").call(Echo(1)) == 1
        await supervisor.stop_child("n")
        assert yard.running == ["a"]
    assert outcomes == [("n ActorStartError", 0)]


# --- while the supervisor itself starts -------------------------------------------------------------------------------


async def test_a_child_recovers_while_a_sibling_is_in_its_first_start(autojump_clock: MockClock) -> None:
    """B-33: the supervisor has not started, but looks after those that have."""
    yard = Yard()
    async with open_parallel(dying(1.0), yard.spec("b", 30), observers=[yard.events.append]):
        assert trio.current_time() == 30
    assert yard.of(Started, "actor", "time")[:2] == [("d", 0), ("d", 1)]


async def test_a_first_start_that_hangs_delays_nothing_if_it_is_not_awaited(autojump_clock: MockClock) -> None:
    """B-33: the supervisor serves at once, restarts what fails and starts what is added."""
    yard = Yard()
    with trio.fail_after(1):
        async with open_parallel(
            yard.spec("x", math.inf), yard.spec("a"), strict=False, await_start=False
        ) as supervisor:
            await supervisor.child("a").wait_state("running")
            await crash(supervisor.child("a"))
            assert await supervisor.child("a").call(Echo(1)) == 1
            await supervisor.start_child(yard.spec("b"))
            await supervisor.stop_child("a")
            assert await states(supervisor) == ["starting", "stopped", "running"]
            assert trio.current_time() == 0


async def test_a_budget_that_is_spent_ends_a_start_though_a_child_hangs_in_it(autojump_clock: MockClock) -> None:
    """B-33."""
    yard = Yard()
    with door_raises(ActorStartError) as failed:
        async with open_parallel(dying(1.0, 1.0), yard.spec("b", math.inf), max_restarts=1):
            pytest.fail("it started")
    assert isinstance(failed.value.__cause__, RestartLimitReached)
    assert trio.current_time() == 2
    assert yard.running == []


async def test_a_significant_child_that_ends_before_its_siblings_have_started_fails_no_start(
    autojump_clock: MockClock,
) -> None:
    """B-33: the supervisor starts, and ends."""
    yard = Yard()

    async def finish(host: Host) -> None:
        host.stop()

    quick = ChildSpec("q", lambda: Host(background=finish), restart="transient", significant=True)
    async with open_parallel(quick, yard.spec("b", 5), auto_shutdown="any_significant") as supervisor:
        await supervisor.wait_stopped()
        assert trio.current_time() == 5


# --- one child --------------------------------------------------------------------------------------------------------


async def test_changes_of_one_child_are_made_in_their_order(autojump_clock: MockClock) -> None:
    """B-33: of one child there is never more than one change; what does not fit is refused at once."""
    yard, outcomes = Yard(), Outcomes()
    async with open_parallel() as supervisor, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(outcomes.of, "x", supervisor.start_child(yard.spec("x", 2.0)))
        await settle()
        for change in (supervisor.restart_child, supervisor.delete_child):
            with pytest.raises(ChildError) as refused:
                await change("x")
            assert refused.value.reason == "running"
        await trio.sleep(3)
        await supervisor.stop_child("x")
        for _ in range(2):
            nursery.start_soon(outcomes.of, "x", supervisor.restart_child("x"))
        await settle()
        assert yard.take_log() == ["x up", "x down", "x up"]
    # The two callers at 3 s are answered in one step of the clock, in any order.
    assert sorted(outcomes, key=lambda outcome: (outcome[1], outcome[0])) == [
        ("x ChildError", 0),
        ("x running", 2),
        ("x ChildError", 3),
        ("x running", 3),
    ]


async def test_a_child_that_crashes_as_soon_as_it_has_started_has_started(autojump_clock: MockClock) -> None:
    async with open_parallel(backoff=Backoff(first=1.0)) as supervisor:
        ref = await supervisor.start_child(dying(0.0))
        await ref.wait_state("backoff")
        await ref.wait_state("running")
        assert trio.current_time() == 1


async def test_a_failed_start_does_not_affect_other_children(autojump_clock: MockClock) -> None:
    """B-33: a strict failure takes its own row, and a revived child is given up."""
    yard, outcomes = Yard(), Outcomes()
    async with open_parallel(yard.spec("a", None, wait_and_raise(1))) as supervisor, trio.open_nursery() as nursery:
        await supervisor.stop_child("a")
        nursery.start_soon(outcomes.of, "a", supervisor.restart_child("a"))
        nursery.start_soon(outcomes.of, "b", supervisor.start_child(yard.spec("b", wait_and_raise(2))))
        nursery.start_soon(outcomes.of, "c", supervisor.start_child(yard.spec("c", 3)))
        await trio.sleep(4)
        assert [(row.id, row.state) for row in await supervisor.which_children()] == [
            ("a", "failed"),
            ("c", "running"),
        ]
    assert outcomes == [("a ActorStartError", 1), ("b ActorStartError", 2), ("c running", 3)]


async def test_a_start_whose_caller_leaves_goes_on(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_parallel() as supervisor:
        with trio.move_on_after(1):
            await supervisor.start_child(yard.spec("x", 2.0))
        await supervisor.child("x").wait_state("running")
        assert trio.current_time() == 2


async def test_a_start_that_hangs_is_bounded_by_its_start_timeout(autojump_clock: MockClock) -> None:
    """B-33: after a kill that a foreign shield holds up, too."""
    yard, outcomes = Yard(), Outcomes()
    async with open_parallel(yard.spec("a")) as supervisor, trio.open_nursery() as nursery:
        for id, deed in (("x", math.inf), ("y", partial(shielded, 60))):
            spec = yard.spec(id, deed, start_timeout=3, shutdown=1.0)
            nursery.start_soon(outcomes.of, id, supervisor.start_child(spec))
        await trio.sleep(10)
        assert outcomes == [("x ActorStartError", 3), ("y ActorStartError", 5)]
        await supervisor.child("a").call(Echo(1))
    assert trio.current_time() == 60


async def test_a_supervisor_stops_while_its_children_start(autojump_clock: MockClock) -> None:
    """B-33: their callers are answered, and nothing is left."""
    yard, outcomes = Yard(), Outcomes()
    async with trio.open_nursery() as nursery, open_parallel(yard.spec("a", None, math.inf)) as supervisor:
        await crash(supervisor.child("a"))
        for number in range(3):
            start = supervisor.start_child(yard.spec(f"x{number}", math.inf))
            nursery.start_soon(outcomes.of, f"x{number}", start)
        await settle()
    assert sorted(outcomes) == [(f"x{number} ActorStopped", 0) for number in range(3)]
    assert yard.running == []
    assert trio.current_time() == 0


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", GROUPS)
async def test_a_failed_child_restarts_siblings_of_its_group_that_are_still_starting(
    autojump_clock: MockClock, strategy: Group
) -> None:
    """B-33: it does not wait for them, and the group starts together."""
    yard = Yard()
    async with open_parallel(
        yard.spec("a"), yard.spec("b", None, math.inf), strategy=strategy, observers=[yard.events.append]
    ) as supervisor:
        a, b = supervisor.child("a"), supervisor.child("b")
        await crash(a)
        assert (state(a), state(b)) == ("running", "starting")
        await crash(a)
        assert (await a.call(Echo(1)), await b.call(Echo(2))) == (1, 2)
        assert trio.current_time() == 0
    assert yard.of(Restarting) == ["a", "a"]


async def test_rest_for_one_does_not_restart_earlier_children_that_are_still_starting(
    autojump_clock: MockClock,
) -> None:
    """B-33: those before it are independent of it, and start concurrently."""
    yard = Yard()
    async with open_parallel(
        yard.spec("a", None, 5.0), yard.spec("b"), strategy="rest_for_one", observers=[yard.events.append]
    ) as supervisor:
        a, b = supervisor.child("a"), supervisor.child("b")
        await crash(a)
        await crash(b)
        assert (state(a), state(b)) == ("starting", "running")
        await a.wait_state("running")
        assert trio.current_time() == 5


async def test_a_new_child_that_is_still_starting_is_restarted_with_its_group(autojump_clock: MockClock) -> None:
    """B-33: its start does not count as a failure, so the caller gets the reference."""
    yard, outcomes = Yard(), Outcomes()
    async with (
        open_parallel(yard.spec("a"), strategy="one_for_all") as supervisor,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(outcomes.of, "x", supervisor.start_child(yard.spec("x", 7.0, 1.0)))
        await settle()
        await crash(supervisor.child("a"))
        await supervisor.child("x").wait_state("running")
        assert trio.current_time() == 1
    assert [outcome.split()[0] for outcome, _ in outcomes] == ["x"]
    assert outcomes[0][0] != "x ActorStartError"


async def test_a_new_child_waits_until_a_group_has_stopped(autojump_clock: MockClock) -> None:
    """B-33: it never meets what is left of those that the group replaces."""
    yard, outcomes = Yard(), Outcomes()
    async with (
        open_parallel(yard.spec("a"), yard.spec("b", None, math.inf, stop=3.0), strategy="one_for_all") as supervisor,
        trio.open_nursery() as nursery,
    ):
        await crash(supervisor.child("a"))
        nursery.start_soon(outcomes.of, "x", supervisor.start_child(yard.spec("x", 1.0)))
        await trio.sleep(5)
        assert outcomes == [("x running", 4)]
        assert await states(supervisor) == ["running", "starting", "running"]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("deed", [Boom("no"), IgnoreStart()])
@pytest.mark.parametrize("attempt", ["start_child", "restart_child", "restart"])
async def test_a_start_that_fails_while_its_group_stops_is_made_again_with_that(
    autojump_clock: MockClock, attempt: str, deed: BaseException, strict: bool
) -> None:
    """B-33: the group restart that is under way answers it. "z" stops first, and takes longer than the attempt."""
    yard, outcomes = Yard(), Outcomes()

    async def fail() -> None:
        await trio.sleep(1)
        raise deed

    x = yard.spec("x", *([] if attempt == "start_child" else [None]), fail)
    async with (
        open_parallel(
            yard.spec("a"), strategy="one_for_all", strict=strict, observers=[yard.events.append]
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):
        if attempt == "start_child":
            nursery.start_soon(outcomes.of, "x", supervisor.start_child(x))
            await settle()
        else:
            await supervisor.start_child(x)
        await supervisor.start_child(yard.spec("z", stop=3.0))
        if attempt == "restart_child":
            await supervisor.stop_child("x")
            nursery.start_soon(outcomes.of, "x", supervisor.restart_child("x"))
            await settle()
        elif attempt == "restart":
            await crash(supervisor.child("x"))
            await trio.sleep(3.5)
        began = trio.current_time()
        await crash(supervisor.child("a"))
        await trio.sleep(10)
        assert await states(supervisor) == ["running"] * 3
        assert sorted(yard.of(Started, "actor", "time")[-3:]) == [(id, began + 3) for id in ("a", "x", "z")]
    assert yard.of(Restarting) == (["x", "a"] if attempt == "restart" else ["a"])
    assert [outcome.split()[1] in ("backoff", "running") for outcome, _ in outcomes] == [True] * len(outcomes)


async def test_of_several_restarts_that_fail_together_the_first_child_in_the_table_is_the_cause() -> None:
    """Their tasks may run in any order. The restart counts as one attempt."""
    yard = Yard()
    specs = [yard.spec(f"c{number}", None, Boom("once"), None) for number in range(20)]
    async with open_supervisor(
        *specs, strategy="one_for_all", start_order="parallel", max_restarts=5, observers=[yard.events.append]
    ) as supervisor:
        await crash(supervisor.child("c7"))
        await supervisor.child("c19").wait_state("running")
        await settle()
        assert yard.of(Restarting, "actor") == [("c7",), ("c0",)]
