"""A sleep for which the time counts that the machine was suspended."""

from __future__ import annotations

import time

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints

from mcp_actors import _backoff
from mcp_actors._backoff import sleep_through_suspend


class Wall:
    """A wall clock that goes as Trio's does, unless it is set."""

    def __init__(self) -> None:
        self.ahead = 1e9

    def time(self) -> float:
        return trio.current_time() + self.ahead


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall()
    monkeypatch.setattr(_backoff, "time", wall)
    return wall


@pytest.mark.parametrize("seconds", [0.0, 1.0, 9.5, 60.0])
async def test_without_a_suspend_it_takes_as_long_as_it_should(
    seconds: float, wall: Wall, autojump_clock: MockClock
) -> None:
    with assert_checkpoints():
        await sleep_through_suspend(seconds)
    assert trio.current_time() == pytest.approx(seconds)


@pytest.mark.parametrize(("jump", "at_most"), [(3600.0, 30.0), (45.0, 30.0), (-3600.0, 60.0)])
async def test_a_jump_of_the_wall_clock_shortens_it_only(
    jump: float, at_most: float, wall: Wall, autojump_clock: MockClock
) -> None:
    """B-08: a sleep that ended during a suspend ends seconds after it; a clock set back has no effect."""

    async def suspend() -> None:
        await trio.sleep(15)
        wall.ahead += jump

    async with trio.open_nursery() as nursery:
        nursery.start_soon(suspend)
        await sleep_through_suspend(60.0)
        assert trio.current_time() <= at_most + 1e-6


async def test_all_sleepers_wake_at_the_same_moments(
    wall: Wall, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a thousand idle servers wake the process once in ten seconds, and not a hundred times a second."""
    looks, read = list[float](), wall.time

    def look() -> float:
        looks.append(trio.current_time())
        return read()

    monkeypatch.setattr(wall, "time", look)
    async with trio.open_nursery() as nursery:
        for seconds in (63.0, 62.0, 61.0):
            nursery.start_soon(sleep_through_suspend, seconds)
            await trio.sleep(1.0)
    assert sorted({round(look, 6) for look in looks if look > 2.0}) == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 63.0]


async def test_the_time_of_a_test_is_that_of_its_mock_clock(autojump_clock: MockClock) -> None:
    began = time.monotonic()
    await sleep_through_suspend(3600.0)
    assert trio.current_time() == pytest.approx(3600.0)
    assert time.monotonic() - began < 60.0
