"""Retries of a parked child: when, how often, and what ends them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import _backoff
from mcp_actors.kernel import (
    ChildSpec,
    GaveUp,
    Restarting,
    Starting,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)

from ..test_suspend import Wall
from .workers import Boom, Echo, Hopeless, Yard, crash, nest, shielded, state

MINUTE = 60.0


def every_minute(error: BaseException | None) -> float | None:
    """Try again what may pass."""
    return None if isinstance(error, Hopeless) else MINUTE


@asynccontextmanager
async def open_parking(yard: Yard, *specs: ChildSpec, **options: Any) -> AsyncIterator[SupervisorRef]:
    """Open a supervisor that parks after two restarts, and tries again every minute."""
    given = {"max_restarts": 2, "window": math.inf, "strict": False} | options
    spec = nest("own", *specs, on_limit="park", park_retry=every_minute, **given)
    async with open_supervisor(spec, observers=[yard.events.append], max_restarts=0) as supervisor:
        own = supervisor.child("own")
        assert isinstance(own, SupervisorRef)
        yield own


def starts(yard: Yard) -> list[float]:
    """When the child ``a`` was tried."""
    return [time for actor, time in yard.of(Starting, "actor", "time") if actor == "a"]


async def test_a_parked_child_is_tried_once_a_minute_until_it_starts(autojump_clock: MockClock) -> None:
    """B-08: one attempt at a time, not the five of a fresh budget."""
    yard = Yard()
    async with open_parking(yard, yard.spec("a", *(6 * [Boom("away")]))) as own:
        await own.child("a").wait_state("failed")
        began = starts(yard)[2]
        assert await own.child("a").wait_state("running") == "running"
        assert starts(yard)[3:] == [began + minutes * MINUTE for minutes in (1, 2, 3, 4)]
        assert await own.child("a").call(Echo(1)) == 1
    assert yard.of(GaveUp, "retry_in") == 4 * [(MINUTE,)]
    assert len(yard.of(Restarting)) == 2


@pytest.mark.parametrize("window", [math.inf, 90.0])
async def test_a_parked_child_that_starts_and_crashes_soon_is_parked_again(
    window: float, autojump_clock: MockClock
) -> None:
    """B-08: no fresh budget before it has served for ``reset_after``, even if the old attempts have left the window."""
    yard = Yard()
    async with open_parking(yard, yard.spec("a", *(3 * [Boom("away")])), window=window, reset_after=100) as own:
        a = own.child("a")
        for _ in range(3):
            await a.wait_state("running")
            await trio.sleep(99)
            await crash(a)
            assert state(a) == "failed"
        await a.wait_state("running")
        await trio.sleep(101)
        for expected in ("running", "running", "failed"):
            await crash(a)
            assert state(a) == expected
    assert len(yard.of(Restarting)) == 4


async def test_a_hopeless_failure_ends_the_retries_of_a_parked_child(autojump_clock: MockClock) -> None:
    """B-08: nothing hopeless is retried."""
    yard = Yard()
    async with open_parking(yard, yard.spec("a", *(4 * [Boom("away")]), Hopeless("no such command"))) as own:
        await trio.sleep(100 * MINUTE)
        assert state(own.child("a")) == "failed"
    assert len(starts(yard)) == 5
    assert yard.of(GaveUp, "retry_in") == [(MINUTE,), (MINUTE,), (None,)]


@pytest.mark.parametrize("strict", [True, False])
async def test_restart_child_starts_a_parked_child_at_once_with_a_fresh_budget(
    strict: bool, autojump_clock: MockClock
) -> None:
    """B-08: an explicit start ends the wait, also if the child has started in the meantime."""
    yard = Yard()
    async with open_parking(yard, yard.spec("a"), strict=strict) as own:
        a = own.child("a")
        for _ in range(3):
            await crash(a)
        await own.restart_child("a")
        assert state(a) == "running"
        await trio.sleep(2 * MINUTE)
        assert len(starts(yard)) == 4
        for _ in range(3):
            await crash(a)
        await a.wait_state("running")  # by itself
        await own.stop_child("a")
        await own.restart_child("a")
        await crash(a)
        assert state(a) == "running"


async def test_an_earlier_restart_child_cancels_the_retry(autojump_clock: MockClock) -> None:
    """Both wait for a start that takes long; only one of them starts it."""
    yard = Yard()
    async with (
        open_parking(yard, yard.spec("a", *(3 * [Boom("away")]))) as own,
        trio.open_nursery() as nursery,
    ):
        await own.child("a").wait_state("failed")
        nursery.start_soon(own.start_child, yard.spec("b", 100))
        await trio.sleep(50)
        nursery.start_soon(own.restart_child, "a")
        await trio.sleep(150)
        assert state(own.child("a")) == "running"
    assert len(starts(yard)) == 4


@pytest.mark.parametrize("change", [SupervisorRef.stop_child, SupervisorRef.delete_child])
async def test_a_parked_child_that_is_stopped_or_deleted_is_not_retried(
    change: Callable[..., Any], autojump_clock: MockClock
) -> None:
    yard = Yard()
    async with open_parking(yard, yard.spec("a", *(100 * [Boom("away")]))) as own:
        await own.child("a").wait_state("failed")
        await change(own, "a")
        await trio.sleep(100 * MINUTE)
    assert len(starts(yard)) == 3


async def test_a_retry_counts_the_time_that_the_computer_was_suspended(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """B-08: Trio's clock stops during a suspend, the wall clock does not."""
    yard, wall = Yard(), Wall()
    monkeypatch.setattr(_backoff, "time", wall)
    async with open_parking(yard, yard.spec("a", *(3 * [Boom("away")]))) as own:
        await own.child("a").wait_state("failed")
        await settle()  # it sleeps
        wall.ahead += 3600
        with trio.fail_after(_backoff.GLANCE + 1):
            await own.child("a").wait_state("running")


async def test_the_retry_of_a_parked_child_does_not_restart_its_group(autojump_clock: MockClock) -> None:
    yard = Yard()
    specs = [yard.spec("a", *(5 * [Boom("away")])), yard.spec("b")]
    async with open_parking(yard, *specs, strategy="one_for_all") as own:
        await own.child("b").wait_state("running")
        b = own.child("b").statistics().incarnation
        await own.child("a").wait_state("running")
        assert own.child("b").statistics().incarnation == b


async def test_a_retry_waits_until_the_last_attempt_has_ended(autojump_clock: MockClock) -> None:
    """Nothing runs twice, however long a foreign shield holds it."""
    yard = Yard()
    stuck = partial(shielded, 2 * MINUTE)
    async with open_parking(yard, yard.spec("a", stuck, start_timeout=2, shutdown=1), max_restarts=0) as own:
        assert state(own.child("a")) == "failed"
        await own.child("a").wait_state("running")
    assert starts(yard) == [0, 2 * MINUTE]


async def test_park_retry_requires_on_limit_park() -> None:
    with pytest.raises(ValueError, match=r"park_retry .* on_limit='park'"):
        Supervisor(park_retry=every_minute)
