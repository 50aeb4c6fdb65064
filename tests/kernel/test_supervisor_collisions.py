"""Changes, failures and interrupts of one child or supervisor at the same time."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import NoReturn

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorError,
    ActorStartError,
    ActorStopped,
    Backoff,
    ChildSpec,
    Event,
    Overdue,
    Started,
    Starting,
    Stopping,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from .workers import Boom, Echo, Hang, Yard, crash, door_raises, nest, shielded, state, states


def below(supervisor: SupervisorRef, id: str = "s") -> SupervisorRef:
    found = supervisor.child(id)
    assert isinstance(found, SupervisorRef)
    return found


# --- groups -----------------------------------------------------------------------------------------------------------


async def test_a_group_restart_does_not_start_an_added_child_whose_start_failed(autojump_clock: MockClock) -> None:
    yard = Yard()
    async with open_supervisor(yard.spec("a"), strategy="one_for_all", max_restarts=9) as supervisor:
        with pytest.raises(ActorStartError):
            await supervisor.start_child(yard.spec("b", partial(shielded, 20), start_timeout=1, shutdown=1))
        await crash(supervisor.child("a"))
        await trio.sleep(50)
        assert [child.id for child in await supervisor.which_children()] == ["a"]
        assert yard.running == ["a"]


async def test_stop_child_prevails_over_the_restart_of_its_group(autojump_clock: MockClock) -> None:
    """It cleans up after a crash of its own while the group, on its way to it, still stops another."""
    yard = Yard()
    specs = yard.spec("a"), yard.spec("b", stop=2.0), yard.spec("c", stop=1.0)
    async with open_supervisor(*specs, strategy="one_for_all", max_restarts=9) as supervisor:
        await crash(supervisor.child("b"))
        await crash(supervisor.child("a"))
        await supervisor.stop_child("b")
        await trio.sleep(100)
        assert await states(supervisor) == ["running", "stopped", "running"]


async def test_a_group_is_started_although_its_revived_child_fails_again(
    autojump_clock: MockClock,
) -> None:
    """K4: the group is not forgotten, and its cause keeps its back-off."""
    yard = Yard()
    async with (
        open_supervisor(
            yard.spec("x", None, Boom("again")),
            yard.spec("b", stop=1.0),
            strategy="one_for_all",
            strict=False,
            max_restarts=9,
            window=math.inf,
            backoff=Backoff(first=5.0, initial=5.0),
        ) as supervisor,
        trio.open_nursery() as nursery,
    ):

        async def revive() -> None:
            with suppress(ActorError):
                await supervisor.restart_child("x")

        await crash(supervisor.child("x"))
        nursery.start_soon(revive)
        await settle()
        await supervisor.stop_child("x")
        assert await supervisor.child("b").call(Echo(1)) == 1
        await supervisor.child("x").wait_state("running")
        assert trio.current_time() == 6


# --- the end of a start -----------------------------------------------------------------------------------------------


async def test_an_interrupt_that_meets_a_cancelled_start_is_not_lost(autojump_clock: MockClock) -> None:
    """K5: it leaves, and the cancellation need not."""

    async def interrupted() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), trio.move_on_after(1):
        async with open_actor(Yard().spec("a", interrupted).factory(), name="a"):
            pytest.fail("it started")


@pytest.mark.parametrize("kind", [Starting, Started])
@pytest.mark.parametrize("actor", ["c", "supervisor"])
async def test_an_observer_that_exits_ends_the_tree_without_a_hang(kind: type[Event], actor: str) -> None:
    """K5: `SystemExit` leaves bare, wherever it comes from."""

    def observe(event: Event) -> None:
        if isinstance(event, kind) and event.actor == actor:
            raise SystemExit(3)

    yard = Yard()
    with pytest.raises(SystemExit), trio.fail_after(60):
        async with open_supervisor(yard.spec("c"), observers=[observe]):
            await trio.sleep_forever()
    assert yard.running == []


async def test_an_exit_out_of_is_hopeless_ends_the_tree() -> None:
    """K5: in a crash."""

    class Exits(Actor):
        async def handle(self, message: object) -> None:
            raise Boom("boom")

        def is_fatal(self, exc: Exception) -> bool:
            return True

        def is_hopeless(self, exc: BaseException) -> bool:
            raise SystemExit(3)

    with door_raises(SystemExit), trio.fail_after(60):
        async with open_actor(Exits(), name="a") as ref:
            with suppress(Boom, ActorError):
                await ref.call(Echo(1))
            await trio.sleep_forever()


async def test_a_transient_supervisor_that_gives_up_while_restarting_keeps_the_messages_below(
    autojump_clock: MockClock,
) -> None:
    """K2, K4: to its parent that is a start that failed, which is tried again."""
    yard = Yard()
    nested = nest(
        "s", yard.spec("c", None, Boom("first")), child={"restart": "transient"}, strict=False, max_restarts=0
    )
    async with (
        open_supervisor(yard.spec("a"), nested, strategy="one_for_all", max_restarts=9) as supervisor,
        trio.open_nursery() as nursery,
    ):
        c = below(supervisor).child("c")
        answers: list[int] = []

        async def hang() -> None:
            with pytest.raises(ActorError):
                await c.call(Hang())

        async def ask() -> None:
            answers.append(await c.call(Echo(1)))

        nursery.start_soon(hang)
        await settle()
        nursery.start_soon(ask)
        await settle()
        await crash(supervisor.child("a"))
        await trio.sleep(10)
        assert (state(c), answers) == ("running", [1])


# --- nested supervisors that stop -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shutdown", "seconds"), [("brutal_kill", 0), (2.0, 2)])
async def test_a_supervisor_that_is_starting_is_killed_with_its_children_too(
    shutdown: object, seconds: float, autojump_clock: MockClock
) -> None:
    yard = Yard()
    slow = nest("s", yard.spec("g1", stop=1e4, shutdown="infinity"), yard.spec("g2", 1e9), child={"shutdown": shutdown})
    async with open_supervisor() as supervisor, trio.open_nursery() as nursery:

        async def start() -> None:
            with pytest.raises(ActorStartError):
                await supervisor.start_child(slow)

        nursery.start_soon(start)
        await settle()
        await supervisor.stop_child("s")
        assert trio.current_time() == seconds
        assert yard.running == []


async def test_a_stuck_grandchild_does_not_delay_other_stops(autojump_clock: MockClock) -> None:
    """Nor does its supervisor, which has all the time in the world."""
    yard = Yard()
    nested = nest("s", yard.spec("g", stop=partial(shielded, 1000), shutdown=1))
    async with open_supervisor(yard.spec("a"), nested, observers=[yard.events.append]):
        pass
    assert yard.of(Overdue, "actor", "time") == [("g", 2)]
    assert ("a", 2) in yard.of(Stopping, "actor", "time")
    assert yard.running == []
    assert trio.current_time() == 1000


async def test_a_grandchild_stuck_in_its_start_does_not_delay_restarts(autojump_clock: MockClock) -> None:
    yard = Yard()
    stuck = yard.spec("g", None, partial(shielded, 1000), start_timeout=2, shutdown=1)
    async with open_supervisor(
        yard.spec("a"), nest("s", stuck, max_restarts=0), max_restarts=5, observers=[yard.events.append]
    ) as supervisor:
        await crash(below(supervisor).child("g"))
        await trio.sleep(20)
        await crash(supervisor.child("a"))
        assert await supervisor.child("a").call(Echo(1)) == 1
        assert trio.current_time() == 20
        await supervisor.child("s").wait_state("running")
        assert trio.current_time() == 1000
        assert await below(supervisor).child("g").call(Echo(2)) == 2


async def test_a_caller_of_a_grandchild_that_is_not_restarted_is_answered(autojump_clock: MockClock) -> None:
    """K2: and does not wait for what its supervisor still has to clean up."""
    yard = Yard()
    nested = nest(
        "s",
        yard.spec("g"),
        yard.spec("h", stop=partial(shielded, 500)),
        max_restarts=0,
        stop_order="concurrent",
    )
    async with open_supervisor(nested, max_restarts=5) as supervisor, trio.open_nursery() as nursery:
        g = below(supervisor).child("g")
        await crash(g)
        told: list[float] = []

        async def ask() -> None:
            with pytest.raises(ActorStopped):
                await g.call(Echo(1))
            told.append(trio.current_time())

        nursery.start_soon(ask)
        await settle()
        nursery.start_soon(supervisor.stop_child, "s")
        await trio.sleep(1)
        assert told == [0]


# --- many -------------------------------------------------------------------------------------------------------------


async def test_of_many_that_fail_to_start_at_once_each_is_given_up_once(autojump_clock: MockClock) -> None:
    yard = Yard()

    async def fail() -> None:
        await trio.sleep(1)
        raise Boom("all at once")

    steps = 0

    class Count(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    count = Count()
    trio.lowlevel.add_instrument(count)
    try:
        with pytest.raises(ActorStartError, match="child '0' did not start"):
            async with open_supervisor(*(yard.spec(str(n), fail) for n in range(300)), start_order="parallel"):
                pytest.fail("it started")
    finally:
        trio.lowlevel.remove_instrument(count)
    assert steps < 300 * 40


@pytest.mark.parametrize("shutdown", [math.nan, 0, -1, None, "brutal_kill", True, "5"])
async def test_a_shutdown_time_that_cannot_work_is_refused(shutdown: object) -> None:
    class Odd(Actor):
        default_shutdown = shutdown  # type: ignore[assignment]  # a mistake

        async def handle(self, message: object) -> None:
            raise AssertionError

    with pytest.raises(ValueError, match="actor 'a': default_shutdown must be positive seconds or 'infinity', not"):
        async with open_actor(Odd(), name="a"):
            pytest.fail("it started")


async def test_an_exit_out_of_park_retry_ends_the_tree() -> None:
    """K5: where a child is parked."""

    def park_retry(_: object) -> NoReturn:
        raise SystemExit(3)

    spec = ChildSpec("a", lambda: 1 / 0)  # type: ignore[arg-type,return-value]  # it fails before
    with door_raises(SystemExit), trio.fail_after(60):
        async with open_supervisor(spec, max_restarts=0, on_limit="park", strict=False, park_retry=park_retry):
            await trio.sleep_forever()
