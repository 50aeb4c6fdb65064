"""A lane runs each function that is put in once and in order, or refuses it, however the other side is woken."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors.bridge import _bridge, open_supervisor
from mcp_actors.bridge._bridge import HAS_EVENTFD, Step, ThreadLane
from mcp_actors.kernel import ChildSpec

from .actors import Worker

BOUND = 20.0
STEPS = 2000

needs_bells = pytest.mark.skipif(not HAS_EVENTFD, reason="a lane has a bell on Linux only")


@pytest.fixture(params=["bell", "no bell"])
def bell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return True if lanes have a bell."""
    rings = bool(request.param == "bell")
    if rings and not HAS_EVENTFD:
        pytest.skip("a lane has a bell on Linux only")
    monkeypatch.setattr(_bridge, "HAS_EVENTFD", rings)
    return rings


@contextmanager
def trio_thread() -> Iterator[tuple[ThreadLane, Callable[[], None]]]:
    """Run Trio in a thread; yield a lane to it, and a function that ends it."""
    opened, found = threading.Event(), list[Any]()

    async def main() -> None:
        lane, left = ThreadLane(trio.lowlevel.current_trio_token().run_sync_soon), trio.Event()
        lane.listen_on_trio()
        found[:] = lane, partial(lane.put, left.set)
        opened.set()
        await left.wait()

    thread = threading.Thread(target=trio.run, args=[main])
    thread.start()
    assert opened.wait(BOUND)
    lane, leave = found
    try:
        yield lane, leave
    finally:
        with suppress(trio.RunFinishedError):
            leave()
        thread.join(BOUND)
        lane.close()


def test_functions_run_in_order_in_both_directions(bell: bool) -> None:
    async def main() -> None:
        loop, there, back, done = asyncio.get_running_loop(), list[int](), list[int](), asyncio.Event()
        to_loop = ThreadLane(loop.call_soon_threadsafe)
        to_loop.listen_on_loop(loop)

        def return_(number: int) -> None:
            back.append(number)
            if number == STEPS - 1:
                done.set()

        def arrive(number: int) -> None:
            there.append(number)
            to_loop.put(partial(return_, number))

        with trio_thread() as (to_trio, _):
            for number in range(STEPS):
                to_trio.put(partial(arrive, number))
                if number % 7 == 0:
                    await asyncio.sleep(0)
            await asyncio.wait_for(done.wait(), BOUND)
        to_loop.close()
        assert there == back == [*range(STEPS)]

    asyncio.run(main())


def test_every_function_that_is_accepted_as_trio_ends_is_run(bell: bool) -> None:
    for _ in range(10):
        accepted, ran = 0, list[int]()
        with trio_thread() as (lane, leave):
            leave()
            while True:
                try:
                    lane.put(partial(ran.append, accepted))
                except RuntimeError:
                    break
                accepted += 1
        assert ran == [*range(len(ran))]
        assert accepted <= len(ran) <= accepted + 1  # one that is refused may have run in the last moment


def test_a_closed_loop_refuses_functions(bell: bool) -> None:
    loop = asyncio.new_event_loop()
    lane = ThreadLane(loop.call_soon_threadsafe)
    lane.listen_on_loop(loop)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        lane.put(print)
    lane.close()


@needs_bells
def test_a_bell_wakes_both_sides() -> None:
    """It costs half of what their own ways cost."""
    woken = list[Step]()

    async def main() -> None:
        loop, called = asyncio.get_running_loop(), asyncio.Event()
        to_loop = ThreadLane(woken.append)
        to_loop.listen_on_loop(loop)
        with trio_thread() as (to_trio, _):
            for _ in range(2):  # the first perhaps before Trio's side listens
                heard = threading.Event()
                to_trio.put(heard.set)
                await asyncio.to_thread(heard.wait, BOUND)
            wake, to_trio._wake = to_trio._wake, woken.append
            to_trio.put(partial(to_loop.put, called.set))
            await asyncio.wait_for(called.wait(), BOUND)
            to_trio._wake = wake
        to_loop.close()

    asyncio.run(main())
    assert woken == []


@needs_bells
async def test_a_function_is_run_whose_bell_rings_as_the_listener_ends() -> None:
    ran = list[str]()
    lane = ThreadLane(print)
    assert lane._bell is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane._bell.listen, lane.run)
        await wait_all_tasks_blocked()
        lane.put(partial(ran.append, "ran"))
        nursery.cancel_scope.cancel()
    assert ran == ["ran"]
    lane.close()


@needs_bells
def test_a_loop_that_cannot_watch_files_is_woken_by_its_own_means(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    async def main() -> None:
        loop, called = asyncio.get_running_loop(), asyncio.Event()
        monkeypatch.setattr(type(loop), "add_reader", refuse)
        lane = ThreadLane(loop.call_soon_threadsafe)
        lane.listen_on_loop(loop)
        lane.put(called.set)
        await asyncio.wait_for(called.wait(), BOUND)
        lane.close()

    asyncio.run(main())


def open_files() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


@needs_bells
def test_a_block_that_is_left_and_a_lane_that_is_dropped_leave_no_open_file() -> None:
    async def main() -> None:
        for _ in range(2):  # the second with files of the same numbers
            async with open_supervisor(ChildSpec("a", Worker)):
                ThreadLane(print)

    asyncio.run(main())
    before = open_files()
    asyncio.run(main())
    assert open_files() == before
