"""Changes of the child table that meet each other, or whose callers leave; and mailboxes that are kept."""

from __future__ import annotations

import math
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    ActorCrashed,
    ActorStartError,
    ActorStopped,
    Backoff,
    Call,
    RestartLimitReached,
    Stopped,
    SupervisorRef,
    open_supervisor,
)

from ..messages import Said
from .workers import Boom, Echo, Hang, Yard, crash, state, states

# --- stops that cut in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", ["permanent", "temporary"])
async def test_stop_child_ends_a_start_at_once(autojump_clock: MockClock, restart: str, said: Said) -> None:
    yard = Yard()
    errors: list[str] = []

    async def start() -> None:
        with pytest.raises(ActorStartError) as failed:
            await supervisor.start_child(yard.spec("a", math.inf, restart=restart))
        errors.append(str(failed.value))

    async with open_supervisor() as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await settle()
        assert await states(supervisor) == ["starting"]
        await supervisor.stop_child("a")
        assert trio.current_time() == 0
        assert await states(supervisor) == (["stopped"] if restart == "permanent" else [])
    [refusal] = errors
    said("child stopped while starting", refusal)
    assert yard.log == ["a failed"]


async def test_stop_child_ends_a_restart_at_once(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", None, math.inf), observers=[yard.events.append]) as supervisor:
        await crash(supervisor.child("a"))
        assert await states(supervisor) == ["starting"]
        await supervisor.stop_child("a")
        assert trio.current_time() == 0
        assert await states(supervisor) == ["stopped"]
        assert yard.of(Stopped) == ["a"]


async def test_stop_child_ends_a_restart_child_at_once(autojump_clock: MockClock) -> None:
    yard = Yard()

    async def restart() -> None:
        with pytest.raises(ActorStartError, match="was stopped while starting"):
            await supervisor.restart_child("a")

    async with open_supervisor(yard.spec("a", None, math.inf)) as supervisor, trio.open_nursery() as nursery:
        await supervisor.stop_child("a")
        nursery.start_soon(restart)
        await settle()
        await supervisor.stop_child("a")
        assert await states(supervisor) == ["stopped"]


@pytest.mark.parametrize("_", range(10))  # for Trio's random order
async def test_a_change_is_answered_even_if_the_supervisor_gives_up_in_its_next_step(
    autojump_clock: MockClock, _: int
) -> None:
    yard = Yard()
    answers: list[str] = []

    async def start(supervisor: SupervisorRef) -> None:
        answers.append((await supervisor.start_child(yard.spec("b", 1))).name)

    async def give_up() -> None:
        async with open_supervisor(yard.spec("a"), max_restarts=0) as supervisor:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(start, supervisor)
                    await settle()
                    await crash(supervisor.child("a"))

    with pytest.raises(RestartLimitReached):
        await give_up()
    assert answers == ["b"]


async def test_a_start_that_was_cut_short_is_stopped_even_if_its_caller_has_left(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", None, partial(stubborn, 5), None)) as supervisor:
        await crash(supervisor.child("a"))
        with trio.move_on_after(1) as scope:
            await supervisor.stop_child("a")
        assert scope.cancelled_caught
        await trio.sleep(10)
        assert await states(supervisor) == ["stopped"]
        await supervisor.restart_child("a")
        assert await states(supervisor) == ["running"]


async def stubborn(seconds: float) -> None:
    """A start that takes a while to notice that it was cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)


# --- callers who leave ------------------------------------------------------------------------------------------------


async def test_a_change_whose_caller_leaves_before_its_turn_is_not_made(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor() as supervisor, trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.start_child, yard.spec("slow", 10))
        await settle()
        with trio.move_on_after(5) as scope:
            await supervisor.start_child(yard.spec("b"))
        assert scope.cancelled_caught
        assert trio.current_time() == 5
        await trio.sleep(20)
        assert [child.id for child in await supervisor.which_children()] == ["slow"]


async def test_a_change_whose_caller_leaves_in_the_middle_goes_on(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor() as supervisor:
        with trio.move_on_after(5):
            await supervisor.start_child(yard.spec("slow", 10))
        assert await states(supervisor) == ["starting"]
        await trio.sleep(5.1)
        assert await states(supervisor) == ["running"]


async def test_changes_are_made_in_the_order_in_which_they_came(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor() as supervisor, trio.open_nursery() as nursery:
        for id, seconds in [("a", 3.0), ("b", 1.0), ("c", 2.0)]:
            nursery.start_soon(supervisor.start_child, yard.spec(id, seconds))
            await settle()
        assert trio.current_time() == 0
    assert yard.log[:3] == ["a up", "b up", "c up"]
    assert trio.current_time() == 6


async def test_a_restart_is_made_before_what_was_asked_for_after_the_crash(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(yard.spec("a"), yard.spec("slow", stop=1.0)) as supervisor,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(supervisor.stop_child, "slow")
        await settle()
        await crash(supervisor.child("a"))
        await supervisor.start_child(yard.spec("b"))
    assert yard.log[2:6] == ["a down", "slow down", "a up", "b up"]


async def test_a_change_that_is_under_way_when_the_supervisor_stops_is_answered_at_once(
    autojump_clock: MockClock,
) -> None:
    yard = Yard()
    answered: list[float] = []

    async def start() -> None:
        with pytest.raises(ActorStopped):
            await supervisor.start_child(yard.spec("slow", 10, stop=3.0))
        answered.append(trio.current_time())

    async with (
        trio.open_nursery() as nursery,
        open_supervisor(yard.spec("a", stop=3.0)) as supervisor,
    ):
        nursery.start_soon(start)
        await trio.sleep(1)
    assert answered == [1]
    assert trio.current_time() == 4
    assert yard.log == ["a up", "slow failed", "a down"]


# --- keeping the mailbox ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shutdown", [5, "brutal_kill"])
async def test_with_keep_mailbox_waiting_messages_are_served_by_the_next_incarnation(
    autojump_clock: MockClock, shutdown: object
) -> None:
    yard = Yard()
    outcomes: list[object] = []

    async def ask(message: Call[object]) -> None:
        try:
            outcomes.append(await a.call(message))
        except Exception as exc:
            outcomes.append(type(exc))

    async with open_supervisor(yard.spec("a", shutdown=shutdown)) as supervisor, trio.open_nursery() as nursery:
        a = supervisor.child("a")
        for message in (Hang(), Echo(1), Echo(2)):
            nursery.start_soon(ask, message)
            await settle()
        await supervisor.stop_child("a", keep_mailbox=True)
        await settle()
        assert outcomes == [ActorCrashed]
        assert a.statistics().queued == 2
        assert state(a) == "stopped"
        nursery.start_soon(ask, Echo(3))
        await trio.sleep(100)
        await supervisor.restart_child("a")
        await settle()
        assert outcomes == [ActorCrashed, 1, 2, 3]


async def test_a_kept_mailbox_is_answered_when_the_child_is_deleted_or_the_supervisor_stops() -> None:
    yard = Yard()
    outcomes: list[str] = []

    async def ask(id: str) -> None:
        with pytest.raises(ActorStopped):
            await supervisor.child(id).call(Echo(1))
        outcomes.append(id)

    async with trio.open_nursery() as nursery, open_supervisor(yard.spec("a"), yard.spec("b")) as supervisor:
        for id in "ab":
            await supervisor.stop_child(id, keep_mailbox=True)
            nursery.start_soon(ask, id)
        await settle()
        assert outcomes == []
        await supervisor.delete_child("a")
        await settle()
        assert outcomes == ["a"]
    assert outcomes == ["a", "b"]


async def test_a_second_stop_without_keep_mailbox_closes_it() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a")) as supervisor:
        await supervisor.stop_child("a", keep_mailbox=True)
        await supervisor.stop_child("a")
        with pytest.raises(ActorStopped):
            await supervisor.child("a").call(Echo(1))


async def test_stop_child_can_keep_the_mailbox_of_a_child_that_is_being_restarted(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", None, math.inf)) as supervisor, trio.open_nursery() as nursery:
        await crash(supervisor.child("a"))
        nursery.start_soon(supervisor.child("a").call, Echo(1))
        await settle()
        await supervisor.stop_child("a", keep_mailbox=True)
        assert supervisor.child("a").statistics().queued == 1
        await supervisor.restart_child("a")


async def test_stop_child_can_keep_the_mailbox_of_a_child_in_back_off(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with (
        open_supervisor(yard.spec("a"), backoff=Backoff(first=10), window=100) as supervisor,
        trio.open_nursery() as nursery,
    ):
        await crash(supervisor.child("a"))
        nursery.start_soon(supervisor.child("a").call, Echo(1))
        await settle()
        await supervisor.stop_child("a", keep_mailbox=True)
        assert supervisor.child("a").statistics().queued == 1
        await supervisor.restart_child("a")
    assert trio.current_time() == 0


async def test_a_child_whose_clean_up_failed_is_started_afresh() -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a", stop=Boom("no clean-up today"))) as supervisor:
        await supervisor.stop_child("a")
        await supervisor.restart_child("a")
        assert await supervisor.child("a").call(Echo(1)) == 1
        assert yard.log == ["a up", "a up"]
