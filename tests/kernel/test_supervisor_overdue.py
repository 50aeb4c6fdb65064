"""Starts that no cancellation reaches delay no other child."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import ActorStartError, ActorStopped, ChildError, Overdue, StartFailed, Stopped, open_supervisor

from .workers import Deed, Yard, crash, door_raises, shielded, state, states

STUCK: Deed = partial(shielded, 20)
"""A start that takes 20 seconds whatever anybody wants."""


async def test_start_child_gives_up_on_a_start_that_no_cancellation_reaches(autojump_clock: MockClock) -> None:
    """Its time-out, the second that a killed actor has, and then its siblings have their supervisor back."""
    yard = Yard()
    async with open_supervisor(yard.spec("a"), observers=[yard.events.append]) as supervisor:
        with pytest.raises(ActorStartError, match=r"child 'b' did not start: .*start timed out"):
            await supervisor.start_child(yard.spec("b", STUCK, start_timeout=2, shutdown=3))
        assert trio.current_time() == 6
        assert yard.of(Overdue, "actor", "seconds") == [("b", 4)]
        await crash(supervisor.child("a"))
        await supervisor.stop_child("a")
        assert trio.current_time() == 6


async def test_the_row_of_a_start_that_is_overdue_stays_until_nothing_of_it_is_left(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(observers=[yard.events.append]) as supervisor:
        with pytest.raises(ActorStartError):
            await supervisor.start_child(yard.spec("b", STUCK, start_timeout=1, shutdown=1))
        with pytest.raises(ChildError, match="already"):
            await supervisor.start_child(yard.spec("b"))
        assert trio.current_time() == 3
        await supervisor.stop_child("b")
        assert trio.current_time() == 20
        assert await supervisor.which_children() == ()
        await supervisor.start_child(yard.spec("b"))
    assert yard.of(Overdue) == ["b"]
    assert yard.of(StartFailed, "actor", "time") == [("b", 20)]


async def test_a_reference_to_a_child_that_did_not_start_in_time_says_that_it_has_stopped(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    async with open_supervisor() as supervisor, trio.open_nursery() as nursery:

        async def start() -> None:
            with pytest.raises(ActorStartError):
                await supervisor.start_child(yard.spec("a", 9.0, start_timeout=1))

        nursery.start_soon(start)
        await settle()
        a = supervisor.child("a")
        assert state(a) == "starting"
        await a.wait_stopped()
        assert trio.current_time() == 1


async def test_a_restart_that_is_overdue_keeps_no_sibling_waiting_and_is_awaited(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", None, STUCK, start_timeout=2, shutdown=1),
        yard.spec("b"),
        max_restarts=3,
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        await trio.sleep(5)
        assert yard.of(Overdue, "actor", "time") == [("a", 4)]
        await crash(supervisor.child("b"))
        assert await states(supervisor) == ["backoff", "running"]
        await supervisor.child("a").wait_state("running")
        assert trio.current_time() == 20
        assert yard.running == ["b", "a"]


async def test_a_restart_that_is_overdue_can_be_stopped_for_good(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", None, STUCK, start_timeout=2, shutdown=1), yard.spec("b"), max_restarts=2
    ) as supervisor:
        await crash(supervisor.child("a"))
        await trio.sleep(5)
        await supervisor.stop_child("a")
        assert trio.current_time() == 20
        await settle()
        assert await states(supervisor) == ["stopped", "running"]
        assert yard.running == ["b"]


async def test_stop_child_of_a_start_in_a_shield_waits_alone(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(yard.spec("a"), observers=[yard.events.append]) as supervisor,
        trio.open_nursery() as nursery,
    ):
        failed: list[str] = []

        async def start() -> None:
            with pytest.raises(ActorStartError, match="was stopped while starting"):
                await supervisor.start_child(yard.spec("b", STUCK, shutdown=3))
            failed.append(f"{trio.current_time():g}")

        nursery.start_soon(start)
        await trio.sleep(1)
        nursery.start_soon(supervisor.stop_child, "b")
        await trio.sleep(4.5)
        assert failed == ["5"]
        assert yard.of(Overdue, "actor", "seconds") == [("b", 4)]
        await crash(supervisor.child("a"))
        assert await states(supervisor) == ["running", "stopping"]
        await supervisor.child("b").wait_stopped()
        assert trio.current_time() == 20


async def test_a_stop_goes_on_and_is_bounded_without_its_caller(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", None, STUCK, shutdown=3), yard.spec("b"), observers=[yard.events.append]
    ) as supervisor:
        await crash(supervisor.child("a"))
        with trio.move_on_after(1):
            await supervisor.stop_child("a")
        await trio.sleep(4)
        assert yard.of(Overdue, "actor", "time") == [("a", 4)]
        await supervisor.child("a").wait_stopped()
        assert trio.current_time() == 20


async def test_a_strict_start_that_is_overdue_fails_with_its_own_error_once_nothing_is_left(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    with door_raises(ActorStartError, match=r"'b' did not start: .*start timed out"):
        async with open_supervisor(
            yard.spec("a"), yard.spec("b", STUCK, start_timeout=2, shutdown=1), observers=[yard.events.append]
        ):
            pytest.fail("it started")
    assert yard.of(Overdue, "actor", "time") == [("b", 4)]
    assert trio.current_time() == 20
    assert yard.running == []


async def test_of_parallel_starts_one_that_fails_gives_up_later_ones_within_their_bound(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    with door_raises(ActorStartError, match="'a' did not start"):
        async with open_supervisor(
            yard.spec("a", partial(trio.sleep, 9), start_timeout=1),
            yard.spec("b", STUCK, shutdown=3),
            start_order="parallel",
            observers=[yard.events.append],
        ):
            pytest.fail("it started")
    assert yard.of(Overdue, "actor", "time") == [("b", 5)]
    assert yard.of(Stopped, "actor", "time") == [("a", 5), ("b", 20), ("supervisor", 20)]


async def test_a_first_start_that_is_overdue_is_retried_when_nothing_of_it_is_left(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", STUCK, start_timeout=2, shutdown=1), yard.spec("b"), strict=False
    ) as supervisor:
        assert trio.current_time() == 4
        assert await states(supervisor) == ["backoff", "running"]
        await supervisor.child("a").wait_state("running")
        assert trio.current_time() == 20


async def test_a_temporary_child_whose_first_start_is_overdue_is_dropped_when_nothing_of_it_is_left(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", STUCK, start_timeout=2, shutdown=1, restart="temporary"), strict=False
    ) as supervisor:
        assert trio.current_time() == 4
        assert await states(supervisor) == ["stopping"]
        await supervisor.stop_child("a")
        assert trio.current_time() == 20
        assert await supervisor.which_children() == ()


async def test_a_restart_child_that_is_overdue_leaves_a_child_that_can_be_revived(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", None, STUCK, start_timeout=2, shutdown=1)) as supervisor:
        a = supervisor.child("a")
        await supervisor.stop_child("a")
        with pytest.raises(ActorStartError, match="start timed out"):
            await supervisor.restart_child("a")
        assert trio.current_time() == 4
        assert state(a) == "failed"
        with pytest.raises(ChildError, match=r"stop_child\(\) first"):
            await supervisor.restart_child("a")
        await supervisor.stop_child("a")
        assert trio.current_time() == 20
        await supervisor.restart_child("a")
        assert state(a) == "running"


async def test_an_overdue_child_with_two_waiting_callers_is_reported_once(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(yard.spec("a", stop=STUCK, shutdown=3), observers=[yard.events.append]) as supervisor,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(supervisor.stop_child, "a")
        await settle()
        await supervisor.stop_child("a")
    assert yard.of(Overdue, "actor", "time") == [("a", 4)]
    assert trio.current_time() == 20


async def test_a_temporary_child_that_goes_while_its_supervisor_stops_another_does_not_disturb_that(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()

    async def stop() -> None:
        with pytest.raises(ActorStopped, match="while it handled StopChild"):
            await supervisor.stop_child("b")

    async with (
        trio.open_nursery() as nursery,
        open_supervisor(
            yard.spec("a"), yard.spec("b", stop=1.0, restart="temporary"), yard.spec("c", stop=2.0)
        ) as supervisor,
    ):
        await crash(supervisor.child("b"))
        nursery.start_soon(stop)
        await settle()
    assert yard.log[3:] == ["b down", "c down", "a down"]
    assert trio.current_time() == 2


async def test_stop_child_of_a_child_whose_crash_was_not_answered_yet_waits_for_no_start(
    autojump_clock: MockClock,
) -> None:
    """The manager is busy, so the crash still waits for its turn; what the stop wants is clear all the same."""
    yard = Yard()
    async with (
        open_supervisor(yard.spec("a", None, 50.0), yard.spec("b", stop=3.0)) as supervisor,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(supervisor.stop_child, "b")
        await settle()
        await crash(supervisor.child("a"))
        await supervisor.stop_child("a")
        assert trio.current_time() == 0
        await supervisor.delete_child("b")
        assert trio.current_time() == 3
        assert await states(supervisor) == ["stopped"]
