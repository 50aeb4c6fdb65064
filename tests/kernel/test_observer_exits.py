"""Observers that raise ``SystemExit`` or ``KeyboardInterrupt`` end the tree, once the current step is complete."""

from __future__ import annotations

from typing import Literal

import pytest
import trio
from trio.testing import MockClock

from mcp_actors.kernel import (
    ChildSpec,
    Crashed,
    Event,
    Observer,
    Restarting,
    Started,
    StartFailed,
    Starting,
    Stopped,
    Stopping,
    open_actor,
    open_supervisor,
)

from .actors import Boom, Host, leaving
from .workers import Worker, Yard, crash, nest

Order = Literal["sequential", "concurrent"]


def exits_on(kind: type[Event], actor: str, error: BaseException) -> Observer:
    """An observer that raises an exit at the first event of a kind about an actor."""
    raised = False

    def observe(event: Event) -> None:
        nonlocal raised
        if isinstance(event, kind) and event.actor == actor and not raised:
            raised = True
            raise error

    return observe


@pytest.mark.parametrize("order", ["sequential", "concurrent"])
@pytest.mark.parametrize("kind", [Stopping, Stopped])
@pytest.mark.parametrize("actor", ["a", "b", "c", "n", "supervisor"])
async def test_an_observer_that_exits_while_a_child_stops_leaves_no_sibling_running(
    kind: type[Event], actor: str, order: Order
) -> None:
    """B-31: the stop is carried through, then the exit leaves bare."""
    yard, error = Yard(), SystemExit(3)
    below = nest("n", yard.spec("x"), stop_order=order)
    with leaving(SystemExit) as caught, trio.fail_after(60):
        async with open_supervisor(
            yard.spec("a"),
            yard.spec("b"),
            below,
            yard.spec("c"),
            stop_order=order,
            observers=[exits_on(kind, actor, error), yard.events.append],
        ):
            pass
    assert caught.value is error
    assert yard.running == []
    assert sorted(yard.of(Stopping)) == ["a", "b", "c", "n", "supervisor", "x"]
    assert sorted(yard.log[4:]) == ["a down", "b down", "c down", "x down"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("kind", [Crashed, Stopped, Restarting, Starting, Started])
async def test_an_observer_that_exits_while_the_block_runs_cancels_it(
    kind: type[Event], error: BaseException, autojump_clock: MockClock
) -> None:
    """B-31: in each step in which an observer is called: at a crash, a stop, a restart."""
    yard = Yard()
    armed: list[Observer] = []

    def observe(event: Event) -> None:
        for observer in armed:
            observer(event)

    with leaving(type(error)) as caught, trio.fail_after(5):
        async with open_supervisor(yard.spec("a"), yard.spec("b"), observers=[observe]) as supervisor:
            armed.append(exits_on(kind, "b", error))
            if kind is Stopped:
                await supervisor.stop_child("b")
            else:
                await crash(supervisor.child("b"))
            await trio.sleep_forever()
    assert caught.value is error
    assert yard.running == []
    assert yard.log[-1] == "a down"


async def test_an_exit_at_a_failed_start_is_raised_instead_of_the_failure() -> None:
    """B-31: and not the failure of the start."""
    yard, error = Yard(), SystemExit(3)
    with pytest.raises(SystemExit) as caught:
        async with open_supervisor(
            yard.spec("a"), yard.spec("b", Boom()), observers=[exits_on(StartFailed, "b", error)]
        ):
            pytest.fail("it started")
    assert caught.value is error
    assert yard.log == ["a up", "b failed", "a down"]


async def test_an_observer_that_exits_does_not_hide_the_event_from_others() -> None:
    """B-31: another observer sees all events."""
    events: list[Event] = []
    with leaving(SystemExit):
        async with open_actor(Host(), name="host", observers=[exits_on(Started, "host", SystemExit()), events.append]):
            await trio.sleep_forever()
    assert [type(event) for event in events] == [Starting, Started, Crashed, Stopped]


async def test_the_first_of_two_exits_is_raised() -> None:
    """B-31: a second one, on the way out, changes nothing."""
    first, second = SystemExit(1), SystemExit(2)
    observers = [exits_on(Started, "host", first), exits_on(Stopped, "host", second)]
    with leaving(SystemExit) as caught:
        async with open_actor(Host(), name="host", observers=observers):
            await trio.sleep_forever()
    assert caught.value is first


async def test_a_concurrent_stop_of_a_group_is_completed_before_an_exit_ends_the_tree() -> None:
    """B-31: the exit is raised between the stops of two siblings, which are a single step."""
    yard, error = Yard(), SystemExit(3)
    with leaving(SystemExit) as caught, trio.fail_after(60):
        async with open_supervisor(
            *(yard.spec(id) for id in "abc"),
            strategy="one_for_all",
            stop_order="concurrent",
            observers=[exits_on(Stopping, "b", error), yard.events.append],
        ) as supervisor:
            await crash(supervisor.child("c"))
            await trio.sleep_forever()
    assert caught.value is error
    ends = [(type(event), event.actor) for event in yard.events if isinstance(event, Crashed | Stopping)]
    assert ends == [(Crashed, "c"), (Stopping, "b"), (Stopping, "a"), (Crashed, "supervisor")]
    assert yard.running == []


async def test_an_exit_out_of_is_hopeless_of_the_root_replaces_its_failure() -> None:
    """B-31: asked in the middle of deciding the root's end, which happens once."""
    yard, error = Yard(), SystemExit(3)

    class Exits(Worker):
        def is_hopeless(self, exc: BaseException) -> bool:
            raise error

    with leaving(SystemExit) as caught, trio.fail_after(60):
        async with open_actor(Exits(yard, "a"), name="a", observers=[yard.events.append]) as a:
            await crash(a)
            await trio.sleep_forever()
    assert caught.value is error
    assert yard.of(Crashed) == ["a"]


async def test_an_exit_out_of_is_hopeless_leaves_no_sibling_running(autojump_clock: MockClock) -> None:
    """B-31: asked about a start that took too long, which is a step of the supervisor's own."""
    yard, error = Yard(), SystemExit(3)

    class Exits(Worker):
        def is_hopeless(self, exc: BaseException) -> bool:
            raise error

    slow = ChildSpec("b", lambda: Exits(yard, "b", 9.0), start_timeout=1)
    with leaving(SystemExit) as caught, trio.fail_after(5):
        async with open_supervisor(yard.spec("a")) as supervisor:
            await supervisor.start_child(slow)
    assert caught.value is error
    assert yard.log == ["a up", "b failed", "a down"]
