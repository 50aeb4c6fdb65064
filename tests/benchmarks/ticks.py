"""Measure a tick of many timers, compared with as many tasks that sleep, send a message to themselves, and sleep again.

The clock is a mock, and jumps from tick to tick: what is measured is the work of a tick, without the waiting.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.kernel import Actor, Message, open_actor

from .figures import Figure
from .measuring import median_ratio

TIMERS: Final = 10_000
PERIOD: Final = 1.0
ROUNDS: Final = 7


@frozen
class Tick(Message):
    """The message of a timer."""


class Counter:
    """Counts ticks, and says when each timer had one."""

    def __init__(self) -> None:
        self._ticks = 0
        self._all = trio.Event()

    def tick(self) -> None:
        """Count one."""
        self._ticks += 1
        if self._ticks == TIMERS:
            self._all.set()

    async def wait(self) -> None:
        """Wait for the tick of the last timer, and begin anew."""
        await self._all.wait()
        self._ticks, self._all = 0, trio.Event()


class Clockwork(Actor):
    """Has many timers."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Set the timers."""
        for _ in range(TIMERS):
            self.every(PERIOD, Tick())
        yield

    async def handle(self, message: Tick) -> None:
        """Count it."""
        self._counter.tick()


async def sleep_and_send(mailbox: trio.MemorySendChannel[Tick]) -> None:
    """A timer as a task."""
    while True:
        await trio.sleep(PERIOD)
        await mailbox.send(Tick())


async def play(clock: MockClock, counter: Counter) -> float:
    """Let the time of a period pass, twice; return the seconds that the ticks of the second took."""
    seconds = math.nan
    for _ in range(2):
        await wait_all_tasks_blocked()
        started = perf_counter()
        clock.jump(PERIOD)
        await counter.wait()
        seconds = perf_counter() - started
    return seconds


async def measure_ours(clock: MockClock) -> float:
    """The timers of an actor."""
    counter = Counter()
    async with open_actor(Clockwork(counter), name="clockwork"):
        return await play(clock, counter)


async def measure_tasks(clock: MockClock) -> float:
    """A task for each timer, and one that handles their messages."""
    counter = Counter()
    mailbox, messages = trio.open_memory_channel[Tick](TIMERS)

    async def serve() -> None:
        async for _ in messages:
            counter.tick()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        for _ in range(TIMERS):
            nursery.start_soon(sleep_and_send, mailbox)
        seconds = await play(clock, counter)
        nursery.cancel_scope.cancel("measured")
    return seconds


def figures() -> list[Figure]:
    """Measure the ticks, in turns."""
    ours: list[float] = []
    tasks: list[float] = []
    for _ in range(ROUNDS):
        for seconds, measure in ((ours, measure_ours), (tasks, measure_tasks)):
            clock = MockClock()
            seconds.append(trio.run(measure, clock, clock=clock))
    label = f"a tick, each of {TIMERS} timers"
    return [
        Figure(label, statistics.median(ours) / TIMERS * 1e6, "µs"),
        Figure(f"{label}, to a task for each", median_ratio(ours, tasks), ""),
    ]
