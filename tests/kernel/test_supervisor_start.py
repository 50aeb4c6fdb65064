"""First starts: strict or not, one after the other or side by side, and cut short."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorStartError,
    ActorStopped,
    Backoff,
    ChildSpec,
    IgnoreStart,
    Restarting,
    RestartLimitReached,
    Started,
    StartFailed,
    StopFailed,
    Stopped,
    open_supervisor,
)

from ..messages import Said
from .workers import Boom, Echo, Yard, crash, door_raises, nest, state, states, wait_and_raise


async def test_a_failed_strict_start_stops_the_started_children_and_starts_no_more(said: Said) -> None:
    yard = Yard()
    broken = Boom("no database")
    with door_raises(ActorStartError) as failed:
        async with open_supervisor(yard.spec("a"), yard.spec("b", broken), yard.spec("c"), name="top"):
            raise AssertionError("not reached")
    assert yard.log == ["a up", "b failed", "a down"]
    assert failed.value.actor == "b"
    assert failed.value.__cause__ is broken
    said("child did not start", str(failed.value))


async def test_children_that_start_side_by_side_take_as_long_as_the_slowest(autojump_clock: MockClock) -> None:
    yard = Yard()
    began = trio.current_time()
    async with open_supervisor(
        yard.spec("a", 3), yard.spec("b", 1), yard.spec("c", 2), start_order="parallel"
    ) as supervisor:
        assert trio.current_time() == began + 3
        assert yard.take_log() == ["b up", "c up", "a up"]
        assert [child.id for child in await supervisor.which_children()] == ["a", "b", "c"]
    assert yard.log == ["c down", "b down", "a down"]


async def test_a_failed_parallel_start_gives_up_later_children_and_awaits_earlier_ones(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    began = trio.current_time()
    with door_raises(ActorStartError, match="child 'c'") as failed:
        async with open_supervisor(
            yard.spec("a", 5),
            yard.spec("b", 1),
            yard.spec("c", wait_and_raise(2)),
            yard.spec("d", 100),
            yard.spec("e", 1),
            start_order="parallel",
        ):
            raise AssertionError("not reached")
    assert trio.current_time() == began + 5
    assert sorted(yard.log[:2]) == ["b up", "e up"]
    assert yard.log[2:] == ["c failed", "d failed", "a up", "e down", "b down", "a down"]
    assert not hasattr(failed.value, "__notes__")


async def test_of_several_failed_parallel_starts_the_first_configured_is_raised_and_the_others_are_notes(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    with door_raises(ActorStartError) as failed:
        async with open_supervisor(
            yard.spec("a", wait_and_raise(3, "a")),
            yard.spec("b", wait_and_raise(2, "b")),
            yard.spec("c", 1),
            yard.spec("d", wait_and_raise(1, "d")),
            start_order="parallel",
        ):
            raise AssertionError("not reached")
    assert failed.value.actor == "a"
    assert str(failed.value.__cause__) == "a"
    assert failed.value.__notes__ == [
        "also: supervisor 'supervisor': child 'b' did not start: Boom('b')",
        "also: supervisor 'supervisor': child 'd' did not start: Boom('d')",
    ]


async def test_an_earlier_child_that_is_awaited_is_bounded_by_its_start_timeout(autojump_clock: MockClock) -> None:
    yard = Yard()
    began = trio.current_time()
    with door_raises(ActorStartError, match=r"child 'a' did not start: .*start_timeout") as failed:
        async with open_supervisor(
            yard.spec("a", math.inf, start_timeout=10), yard.spec("b", Boom()), start_order="parallel"
        ):
            raise AssertionError("not reached")
    assert trio.current_time() == began + 10
    assert len(failed.value.__notes__) == 1


async def test_a_start_timeout_does_not_bound_what_comes_after_the_start(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", 9, start_timeout=10)) as supervisor:
        await trio.sleep(100)
        assert supervisor.child("a").state == "running"


# --- not strict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_order", ["sequential", "parallel"])
async def test_a_failed_start_that_is_not_strict_is_retried_in_the_background_while_the_others_serve(
    autojump_clock: MockClock, start_order: str
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", Boom("1"), Boom("2")),
        yard.spec("b"),
        strict=False,
        start_order="parallel" if start_order == "parallel" else "sequential",
        backoff=Backoff(first=10, initial=20),
        max_restarts=2,
        window=100,
        observers=[yard.events.append],
    ) as supervisor:
        began = trio.current_time()
        assert [child.state for child in await supervisor.which_children()] == ["backoff", "running"]
        assert await supervisor.child("b").call(Echo(1)) == 1
        assert await supervisor.child("a").call(Echo(2)) == 2
        assert trio.current_time() == began + 30
    assert [str(error) for (error,) in yard.of(StartFailed, "error")] == ["1", "2"]
    assert yard.of(Restarting, "actor", "delay") == [("a", 10), ("a", 20)]


async def test_a_retry_without_delay_happens_as_soon_as_all_were_tried() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", Boom()), yard.spec("b"), strict=False) as supervisor:
        assert await supervisor.child("a").call(Echo(1)) == 1
    assert yard.log[:3] == ["a failed", "b up", "a up"]


async def test_in_a_parallel_start_a_failed_child_is_tried_again_while_a_sibling_still_starts(
    autojump_clock: MockClock,
) -> None:
    """B-33."""
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", Boom()),
        yard.spec("b", 30),
        strict=False,
        start_order="parallel",
        backoff=Backoff(first=10),
        window=100,
        observers=[yard.events.append],
    ) as supervisor:
        assert trio.current_time() == 30
        assert yard.of(Started, "actor", "time")[0] == ("a", 10)
        assert await states(supervisor) == ["running", "running"]


async def test_a_temporary_child_that_does_not_start_is_dropped() -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a", Boom("broken"), restart="temporary"),
        yard.spec("b"),
        strict=False,
        observers=[yard.events.append],
    ) as supervisor:
        assert [child.id for child in await supervisor.which_children()] == ["b"]
    assert yard.of(StartFailed) == ["a"]
    assert yard.log == ["a failed", "b up", "b down"]


async def test_a_budget_that_is_spent_while_the_others_start_fails_the_start() -> None:
    yard = Yard()
    with door_raises(ActorStartError) as failed:
        async with open_supervisor(
            yard.spec("a"), yard.spec("b", Boom("broken")), yard.spec("c"), strict=False, max_restarts=0
        ):
            raise AssertionError("not reached")
    limit = failed.value.__cause__
    assert isinstance(limit, RestartLimitReached)
    assert str(limit.__cause__) == "broken"
    assert yard.log == ["a up", "b failed", "a down"]


async def test_a_nested_supervisor_that_gives_up_while_it_starts_has_failed_to_start() -> None:
    yard = Yard()
    nested = nest("nested", yard.spec("b", Boom("broken")), strict=False, max_restarts=0)
    with door_raises(ActorStartError, match="child 'nested' did not start: .* gave up on child 'b'"):
        async with open_supervisor(yard.spec("a"), nested):
            raise AssertionError("not reached")
    assert yard.log == ["a up", "b failed", "a down"]


# --- nothing to run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("start_order", ["sequential", "parallel"])
async def test_a_child_that_has_nothing_to_run_keeps_its_place_and_is_not_restarted(
    start_order: str, strict: bool
) -> None:
    yard = Yard()
    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", IgnoreStart()),
        yard.spec("c", IgnoreStart(), restart="temporary"),
        strict=strict,
        start_order="parallel" if start_order == "parallel" else "sequential",
    ) as supervisor:
        rows = await supervisor.which_children()
        assert [(child.id, child.state) for child in rows] == [("a", "running"), ("b", "stopped")]
        with pytest.raises(ActorStopped, match="it had nothing to run"):
            await supervisor.child("b").call(Echo(1))
        await supervisor.restart_child("b")
        assert await supervisor.child("b").call(Echo(1)) == 1


async def test_a_restarted_child_that_has_nothing_to_run_any_more_stays_down() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", None, IgnoreStart())) as supervisor:
        await crash(supervisor.child("a"))
        assert supervisor.child("a").state == "stopped"
    assert yard.log == ["a up", "a down", "a failed"]


async def test_a_child_that_stops_itself_before_it_has_started_has_nothing_to_run() -> None:
    class Quitter(Actor):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            self.stop("shutdown")
            await trio.lowlevel.checkpoint()
            yield

        async def handle(self, message: object) -> None: ...

    async with open_supervisor(ChildSpec("a", Quitter)) as supervisor:
        assert supervisor.child("a").state == "stopped"


# --- cut short --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_order", ["sequential", "parallel"])
async def test_a_deadline_around_the_start_fires_at_once_and_started_children_clean_up(
    autojump_clock: MockClock, start_order: str
) -> None:
    yard = Yard()
    began = trio.current_time()
    with trio.move_on_after(7) as scope:
        async with open_supervisor(
            yard.spec("a", stop=2.0),
            yard.spec("b", math.inf),
            yard.spec("c", math.inf),
            start_order="parallel" if start_order == "parallel" else "sequential",
        ):
            raise AssertionError("not reached")
    assert scope.cancelled_caught
    assert trio.current_time() == began + 7 + 2
    begun = ["b failed", "c failed"] if start_order == "parallel" else ["b failed"]
    assert yard.log[0] == "a up"
    assert sorted(yard.log[1:-1]) == begun
    assert yard.log[-1] == "a down"


async def test_started_children_stop_within_their_shutdown_time_when_the_start_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    with trio.move_on_after(7):
        async with open_supervisor(yard.spec("a", stop=math.inf, shutdown=3), yard.spec("b", math.inf)):
            raise AssertionError("not reached")
    assert trio.current_time() == 7 + 3
    assert yard.log == ["a up", "b failed", "a killed"]


async def test_a_nested_supervisor_whose_start_is_cancelled_lets_its_children_clean_up(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    nested = nest("nested", yard.spec("b", stop=2.0), yard.spec("c", math.inf))
    with trio.move_on_after(7):
        async with open_supervisor(yard.spec("a"), nested):
            raise AssertionError("not reached")
    assert trio.current_time() == 9
    assert yard.log == ["a up", "b up", "c failed", "b down", "a down"]


async def test_a_nested_supervisor_whose_start_times_out_lets_its_children_clean_up(autojump_clock: MockClock) -> None:
    yard = Yard()
    nested = nest("nested", yard.spec("b", stop=2.0), yard.spec("c", math.inf), child={"start_timeout": 7})
    with door_raises(ActorStartError, match="start timed out"):
        async with open_supervisor(yard.spec("a"), nested):
            raise AssertionError("not reached")
    assert trio.current_time() == 9
    assert yard.log == ["a up", "b up", "c failed", "b down", "a down"]


async def test_with_keep_mailbox_messages_wait_until_the_child_is_started() -> None:
    """There is nothing to run yet."""
    yard = Yard()
    spec = yard.spec("a", IgnoreStart(keep_mailbox=True))
    async with open_supervisor(spec) as supervisor, trio.open_nursery() as nursery:
        a = supervisor.child("a")
        answers: list[int] = []

        async def ask(number: int) -> None:
            answers.append(await a.call(Echo(number)))

        for number in range(3):
            nursery.start_soon(ask, number)
            await settle()
        assert (state(a), a.statistics().queued, answers) == ("stopped", 3, [])
        await supervisor.restart_child("a")
        await settle()
        assert answers == [0, 1, 2]


async def test_a_child_that_is_stopped_and_then_finds_nothing_to_run_has_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its stop has not failed."""
    yard = Yard()

    async def find_nothing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise IgnoreStart

    spec = yard.spec("a", find_nothing)
    async with open_supervisor(spec, strict=False, await_start=False, observers=[yard.events.append]) as supervisor:
        await settle()
        await supervisor.stop_child("a")
        assert state(supervisor.child("a")) == "stopped"
    assert yard.of(Stopped)[0] == "a"
    assert not yard.of(StopFailed)
    assert not caplog.records


async def test_a_kept_mailbox_is_answered_when_its_supervisor_stops() -> None:
    yard = Yard()
    async with (
        trio.open_nursery() as nursery,
        open_supervisor(yard.spec("a", IgnoreStart(keep_mailbox=True))) as supervisor,
    ):
        a = supervisor.child("a")

        async def ask() -> None:
            with pytest.raises(ActorStopped):
                await a.call(Echo(1))

        nursery.start_soon(ask)
        await settle()


tag: ContextVar[str] = ContextVar("tag", default="none")


class Tagged(Actor):
    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tags.append(tag.get())
        yield


tags: list[str] = []


class Spawned(trio.abc.Instrument):
    """Counts the tasks that are started."""

    number = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.number += 1


@pytest.mark.parametrize("order", ["sequential", "parallel"])
async def test_a_start_needs_no_task_but_the_one_of_its_child(order: Literal["sequential", "parallel"]) -> None:
    """The manager is idle, so the change begins in the step of its caller."""
    spawned = Spawned()
    async with open_supervisor(start_order=order) as supervisor:
        await settle()
        tag.set("the caller")
        tags.clear()
        trio.lowlevel.add_instrument(spawned)
        try:
            await supervisor.start_child(ChildSpec("a", Tagged))
            assert spawned.number == 1
            await supervisor.which_children()
            assert spawned.number == 1
        finally:
            trio.lowlevel.remove_instrument(spawned)
        assert tags == ["none"]
        assert await states(supervisor) == ["running"]
