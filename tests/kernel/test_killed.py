"""A stop that had to kill is reported, with a remedy."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from mcp_actors.kernel import Event, Stopped, open_actor, open_supervisor

from .actors import Host, hook
from .workers import Yard, crash, nest, shielded


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    """The killed actors and the seconds before that, by the warnings, each of which has a remedy."""
    found = [record for record in caplog.records if "was killed" in record.getMessage()]
    assert all(record.levelno == logging.WARNING and "raise its shutdown" in record.getMessage() for record in found)
    return [record.args for record in found if isinstance(record.args, tuple)]


async def test_a_child_that_does_not_stop_in_time_is_reported_as_killed(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """B-38: by its last event and by a warning; its siblings are not."""
    yard = Yard()
    async with open_supervisor(
        yard.spec("quick", stop=1.0), yard.spec("slow", stop=9.0, shutdown=2), observers=[yard.events.append]
    ):
        pass
    assert yard.of(Stopped, "actor", "killed") == [("slow", True), ("quick", False), ("supervisor", False)]
    assert logged(caplog) == [("slow", 2)]


async def test_an_unsupervised_actor_that_does_not_stop_in_time_is_reported_as_killed(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """B-38: where there is no supervisor, too."""
    events: list[Event] = []
    host = Host(stop=hook(partial(trio.sleep, 60)), shutdown=3)
    async with open_actor(host, name="host", observers=[events.append]):
        pass
    assert [event.killed for event in events if isinstance(event, Stopped)] == [True]
    assert logged(caplog) == [("host", 3)]


async def test_a_requested_kill_is_not_logged_as_a_warning(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """B-38: the event tells it all the same."""
    yard = Yard()
    async with open_supervisor(yard.spec("a", shutdown="brutal_kill"), observers=[yard.events.append]):
        pass
    assert yard.of(Stopped, "actor", "killed") == [("a", True), ("supervisor", False)]
    assert logged(caplog) == []


async def test_a_killed_supervisor_kills_its_descendants(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """B-38: whose time is over is who is warned of, once, also if something sits in a shield then."""
    yard = Yard()
    below = nest("n", yard.spec("x", stop=partial(shielded, 20)), yard.spec("y", stop=9.0), child={"shutdown": 3})
    async with open_supervisor(below, observers=[yard.events.append]) as supervisor:
        await supervisor.stop_child("n")
    assert sorted(yard.of(Stopped, "actor", "killed")) == [
        ("n", True),
        ("supervisor", False),
        ("x", True),
        ("y", True),
    ]
    assert logged(caplog) == [("n", 3)]


async def test_a_kill_for_a_restart_is_a_warning_and_forgotten_by_the_next_incarnation(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """B-38: there is no last event yet, and the end of the next incarnation is its own."""
    yard = Yard()
    stops = iter([9.0])

    async def slow_once() -> None:
        await trio.sleep(next(stops, 0))

    async with open_supervisor(
        yard.spec("a"),
        yard.spec("b", stop=slow_once, shutdown=2),
        strategy="one_for_all",
        observers=[yard.events.append],
    ) as supervisor:
        await crash(supervisor.child("a"))
        await supervisor.child("b").wait_state("running")
    assert yard.of(Stopped, "actor", "killed") == [("b", False), ("a", False), ("supervisor", False)]
    assert logged(caplog) == [("b", 2)]


async def test_an_actor_that_ended_before_its_kill_is_not_reported_as_killed(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """B-38: a crash, a stop, and a start that was given up in the same step as it began."""
    yard = Yard()
    with trio.CancelScope() as scope:
        scope.cancel("at once")
        async with open_supervisor(yard.spec("a"), observers=[yard.events.append]):
            pytest.fail("it started")
    async with open_supervisor(
        yard.spec("b", restart="temporary", shutdown="brutal_kill"), observers=[yard.events.append]
    ) as supervisor:
        await crash(supervisor.child("b"))
    assert {killed for _, killed in yard.of(Stopped, "actor", "killed")} == {False}
    assert logged(caplog) == []
