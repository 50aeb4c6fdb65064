"""A-11: a child that crashes as soon as it has started does not disturb its siblings."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

import mcp_actors
from mcp_actors.kernel import (
    Actor,
    Backoff,
    ChildSpec,
    GaveUp,
    Pool,
    Restarting,
    RestartLimitReached,
    SupervisorRef,
    open_actor,
    open_supervisor,
)
from mcp_actors.testing import run_seeded

from .actors import Do, Fatal, Host, Put, raising
from .workers import Boom, Echo, Yard, door_raises

BUDGET = 200

PACKAGE = str(Path(mcp_actors.__file__).parent)


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


# --- the cost of many -------------------------------------------------------------------------------------------------


def steps_of(main: Callable[[int], Coroutine[Any, Any, None]], size: int) -> int:
    """Return the number of lines of the package that a program runs, which does not depend on the machine.

    A line counts again each time a loop or a comprehension returns to it.
    """
    count = 0

    def trace_lines(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return trace_lines

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        return trace_lines if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run_seeded(main, size, seed=1)
    finally:
        sys.settrace(before)
    return count


async def starts_and_stops(size: int) -> None:
    async with open_supervisor(*(ChildSpec(str(number), Host) for number in range(size))):
        pass


async def starts_and_stops_at_once(size: int) -> None:
    specs = (ChildSpec(str(number), Host) for number in range(size))
    async with open_supervisor(*specs, start_order="parallel", stop_order="concurrent"):
        pass


async def changes(size: int) -> None:
    async with open_supervisor() as top:
        for number in range(size):
            await top.start_child(ChildSpec(str(number), Host))
        for number in range(size):
            await top.stop_child(str(number))
            await top.delete_child(str(number))


async def crashes_with_a_queue(size: int, make: Callable[[], Actor] = Host) -> None:
    spec = ChildSpec("child", make, mailbox_size=size)
    async with open_supervisor(spec, max_restarts=2 * size, window=math.inf) as top, trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(Fatal):
                await top.child("child").call(Do(raising(Fatal())))

        for _ in range(size):
            nursery.start_soon(ask)


class Ticks(Host):
    """Has a message of its own in the mailbox, or could have one."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.every(100, Put("tick"))
        yield


async def crashes_with_a_queue_and_a_timer(size: int) -> None:
    await crashes_with_a_queue(size, Ticks)


async def crashes_of_all(size: int) -> None:
    specs = (ChildSpec(str(number), Host) for number in range(size))
    async with open_supervisor(*specs, max_restarts=2 * size, window=math.inf) as top:
        for number in range(size):
            await top.child(str(number)).tell(Do(raising(Fatal())))
        await settle()


async def idle_members_stop_together(size: int) -> None:
    async with open_actor(Pool(Host, (1, size), shrink_after=10), name="pool") as pool:
        async with trio.open_nursery() as nursery:
            for _ in range(size):
                nursery.start_soon(pool.call, Do(partial(trio.sleep, 1)))
        await trio.sleep(20)
        assert len(await SupervisorRef(pool._record).which_children()) == 1


async def members_come_and_go_one_by_one(size: int) -> None:
    async with open_actor(Pool(Host, (1, size), shrink_after=10), name="pool") as pool:
        async with trio.open_nursery() as nursery:
            for number in range(size):
                nursery.start_soon(pool.call, Do(partial(trio.sleep, 1 + number / size)))
                await settle()
        await trio.sleep(20)
        assert len(await SupervisorRef(pool._record).which_children()) == 1


async def members_are_parked(size: int) -> None:
    async def crash() -> None:
        await trio.sleep(1)
        raise Fatal

    async def ask() -> None:
        with pytest.raises(Fatal):
            await pool.call(Do(crash))

    options: dict[str, Any] = {"max_restarts": 0, "on_limit": "park"}
    async with open_actor(Pool(Host, size, **options), name="pool") as pool:
        async with trio.open_nursery() as nursery:
            for _ in range(size):
                nursery.start_soon(ask)
        await settle()


async def added_members_do_not_start(size: int) -> None:
    starts = iter([None])

    async def start(_: Host) -> None:
        if next(starts, Fatal) is Fatal:
            raise Fatal

    pool = Pool(lambda: Host(start=start), (1, size))
    async with open_actor(pool, name="pool") as ref, trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(ref.call, Do(partial(trio.sleep, 0.5 / size)))


@pytest.mark.parametrize(
    "main",
    [
        starts_and_stops,
        starts_and_stops_at_once,
        changes,
        crashes_with_a_queue,
        crashes_with_a_queue_and_a_timer,
        crashes_of_all,
        idle_members_stop_together,
        members_come_and_go_one_by_one,
        members_are_parked,
        added_members_do_not_start,
    ],
)
def test_twice_as_many_take_twice_the_steps(main: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """C-34: of children, of messages in the queue, of restarts, of members of a pool; counted in lines that run."""
    logging.disable()
    try:
        steps_of(main, 2)  # what is done once in a process
        few, more, most = (steps_of(main, size) for size in (13, 26, 52))
    finally:
        logging.disable(logging.NOTSET)
    assert most - more < 1.025 * 2 * (more - few)
