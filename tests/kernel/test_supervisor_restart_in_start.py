"""Restarts of a group that is still starting: for the first time, or again after an earlier failure."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import pytest
import trio
from trio.testing import MockClock

from mcp_actors.kernel import ChildSpec, Restarting, Supervisor, SupervisorRef, open_supervisor

from .actors import Host
from .workers import Boom, Echo, Yard, states

Group = Literal["one_for_all", "rest_for_one"]

STARTS: Final[dict[str, dict[str, Any]]] = {
    "strict": {},
    "retried": {"strict": False},
    "background": {"strict": False, "await_start": False},
}

RESTARTED: Final[dict[Group, list[str]]] = {
    "one_for_all": ["d down", "c down", "a down", "a up", "b up", "c up", "d up"],
    "rest_for_one": ["d down", "c down", "b up", "c up", "d up"],
}


def dying(yard: Yard, *lives: float) -> ChildSpec:
    """A child ``"b"`` whose successive incarnations live for so many seconds; later ones live on."""
    left = iter(lives)

    async def note(_: Host) -> None:
        yard.log.append("b up")

    async def die(host: Host) -> None:
        await trio.sleep(next(left, math.inf))
        host.fail(Boom("it died"))

    return ChildSpec("b", lambda: Host(start=note, background=die))


@asynccontextmanager
async def open_group(yard: Yard, *specs: ChildSpec, **options: Any) -> AsyncIterator[SupervisorRef]:
    """Run a supervisor of these children. One restart is allowed for each failure, and none for its own."""
    options = {"max_restarts": 2, "window": math.inf, **options}
    nested = ChildSpec("group", lambda: Supervisor(*specs, **options))
    async with open_supervisor(nested, max_restarts=0, observers=[yard.events.append]) as supervisor:
        yield supervisor.child("group", SupervisorRef)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("strategy", RESTARTED)
async def test_a_failure_during_the_first_start_restarts_the_group_after_it(
    autojump_clock: MockClock, strategy: Group, start: str
) -> None:
    """C-36: as in OTP, whose supervisor reads the exit of a child once all have started. The start has not failed."""
    yard = Yard()
    specs = yard.spec("a"), dying(yard, 1), yard.spec("c", 5.0), yard.spec("d")
    async with open_group(yard, *specs, strategy=strategy, **STARTS[start]) as group:
        await trio.sleep_until(10)
        assert yard.take_log() == ["a up", "b up", "c up", "d up", *RESTARTED[strategy]]
        assert yard.of(Restarting, "actor", "attempt", "time") == [("b", 1, 5)]
        assert await states(group) == ["running"] * 4


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("strategy", RESTARTED)
async def test_with_parallel_starts_a_failure_during_the_first_start_restarts_the_group_at_once(
    autojump_clock: MockClock, strategy: Group, start: str
) -> None:
    """C-36: a start that is under way is cut short and made again, and does not count as a failure."""
    yard = Yard()
    specs = yard.spec("a"), dying(yard, 1), yard.spec("c", 5.0), yard.spec("d")
    async with open_group(yard, *specs, strategy=strategy, start_order="parallel", **STARTS[start]) as group:
        await trio.sleep_until(10)
        log, again = yard.take_log(), RESTARTED[strategy]
        assert sorted(log[:3]) == ["a up", "b up", "d up"]
        stops = ["c failed" if stop == "c down" else stop for stop in again if not stop.endswith(" up")]
        assert log[3 : 3 + len(stops)] == stops
        assert sorted(log[3 + len(stops) :]) == [each for each in again if each.endswith(" up")]
        assert yard.of(Restarting, "actor", "attempt", "time") == [("b", 1, 1)]
        assert await states(group) == ["running"] * 4


@pytest.mark.parametrize("strategy", RESTARTED)
async def test_a_failure_while_its_group_starts_again_restarts_it_after_that(
    autojump_clock: MockClock, strategy: Group
) -> None:
    """C-36: as in OTP. It is another attempt, and a call that waits for the group is answered by the last one."""
    yard, answers = Yard(), []
    specs = yard.spec("a"), dying(yard, 1, 1), yard.spec("c", None, 5.0), yard.spec("d")

    async def ask() -> None:
        await trio.sleep_until(2)
        answers.append((await group.child("d").call(Echo(1)), trio.current_time()))

    async with open_group(yard, *specs, strategy=strategy) as group, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep_until(10)
        first, again = ["a up", "b up", "c up", "d up"], RESTARTED[strategy]
        assert yard.take_log() == [*first, *again, *again]
        assert yard.of(Restarting, "actor", "attempt", "time") == [("b", 1, 1), ("b", 2, 6)]
        assert await states(group) == ["running"] * 4
    assert answers == [(1, 6)]


@pytest.mark.parametrize("start", STARTS)
async def test_without_an_attempt_left_a_failure_during_the_first_start_ends_the_supervisor_after_it(
    autojump_clock: MockClock, start: str
) -> None:
    """C-36: its start succeeds all the same, as in OTP."""
    yard = Yard()
    specs = yard.spec("a"), dying(yard, 1), yard.spec("c", 5.0)
    options = {"strategy": "one_for_all", "max_restarts": 0, **STARTS[start]}
    async with open_supervisor(yard.spec("sibling")) as top:
        spec = ChildSpec("group", lambda: Supervisor(*specs, **options), restart="temporary")
        group = await top.start_child(spec)
        await group.wait_stopped()
        assert trio.current_time() == 5
        assert yard.log == ["sibling up", "a up", "b up", "c up", "c down", "a down"]
        assert await states(top) == ["running"]


async def test_a_group_that_restarts_while_it_starts_again_is_stopped_at_once(autojump_clock: MockClock) -> None:
    """C-36: neither the start that is under way nor the restart that waits for it is completed."""
    yard = Yard()
    specs = yard.spec("a"), dying(yard, 1, 1), yard.spec("c", None, math.inf)
    async with open_group(yard, *specs, strategy="one_for_all"):
        await trio.sleep_until(3)
        yard.take_log()
    assert trio.current_time() == 3
    assert yard.take_log() == ["c failed", "a down"]
    assert yard.running == []
