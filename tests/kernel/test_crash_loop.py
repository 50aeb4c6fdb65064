"""A-11: a child that crashes as soon as it has started does not disturb its siblings."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from mcp_actors.kernel import Actor, Backoff, ChildSpec, GaveUp, Restarting, RestartLimitReached, open_supervisor

from .workers import Boom, Echo, Yard, door_raises

BUDGET = 200


class Flash(Actor):
    """Is ready, and crashes in the same step."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.crash)
            yield

    async def crash(self) -> None:
        self.fail(Boom("as soon as it was ready"))

    async def handle(self, message: object) -> None:
        raise NotImplementedError


async def test_a_crash_loop_spends_its_budget_and_does_not_delay_its_siblings(autojump_clock: MockClock) -> None:
    """A-11: calls and the whole loop take no virtual time, and a call is answered in the middle of it."""
    yard = Yard()
    answered_after: list[int] = []
    async with open_supervisor(
        yard.spec("healthy"),
        max_restarts=BUDGET,
        window=math.inf,
        reset_after=60,
        on_limit="park",
        observers=[yard.events.append],
    ) as supervisor:
        healthy = supervisor.child("healthy")
        broken = await supervisor.start_child(ChildSpec("broken", Flash))
        while broken.state != "failed":
            assert await healthy.call(Echo(1)) == 1
            answered_after.append(len(yard.of(Restarting)))
        assert trio.current_time() == 0
        assert len(yard.of(Restarting)) == BUDGET
        assert yard.of(GaveUp) == ["broken"]
        assert broken.statistics().incarnation == BUDGET + 1
        assert healthy.statistics().incarnation == 1
    # No call waited for the loop: it turned but a few times during each.
    assert max(later - earlier for earlier, later in zip([0, *answered_after], answered_after, strict=False)) < 20


async def test_with_a_back_off_siblings_are_served_in_between(autojump_clock: MockClock) -> None:
    """A-11: and the loop is as slow as its back-off makes it."""
    yard = Yard()
    async with open_supervisor(
        yard.spec("healthy"),
        ChildSpec("broken", Flash),
        backoff=Backoff(first=1, initial=1),
        max_restarts=5,
        window=math.inf,
        reset_after=60,
        on_limit="park",
        observers=[yard.events.append],
    ) as supervisor:
        for _ in range(100):
            before = trio.current_time()
            assert await supervisor.child("healthy").call(Echo(1)) == 1
            assert trio.current_time() == before
            await trio.sleep(1)
        assert [time for (time,) in yard.of(Restarting, "time")] == [0, 1, 2, 4, 8]
        assert supervisor.child("broken").state == "failed"


@pytest.mark.parametrize("reset_after", [None, 60.0])
async def test_a_crash_loop_ends_an_ordinary_supervisor_at_once(reset_after: float | None) -> None:
    yard = Yard()
    with door_raises(RestartLimitReached, match="gave up on child 'broken'"):
        async with open_supervisor(yard.spec("healthy"), ChildSpec("broken", Flash), reset_after=reset_after):
            await trio.sleep_forever()
    assert yard.running == []
