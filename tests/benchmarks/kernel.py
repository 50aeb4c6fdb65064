"""Compare twelve programs of actors with the same on Trio, asyncio, Pykka and Erlang, and measure births and crashes.

What is compared is processor time: the programs take turns, one after the other in one process, and wait for nothing
but each other. Before each, garbage is collected, so that none pays for the one before it; then the collector is on.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from time import perf_counter, process_time
from typing import Any, Final, Never

import trio

from mcp_actors.kernel import Actor, ChildSpec, open_supervisor

from .figures import Figure
from .measuring import in_fresh_process, median_ratio, rss
from .programs import EXPECTED, actors, channels, erlang

ROUNDS: Final = 7
SIZE: Final = 12_000
SIZES: Final = {"short lives": 3_000, "queens": 7, "radix sort": 1_500}

STREAM: Final = 1.6
"""Bound for a stream with back-pressure through handlers that are tasks, compared with Trio's channels."""

SEARCH: Final = 1.8
BIRTH: Final = 2.2
"""Bound for a child, compared with a task that has the same parts; see `birth_by_hand`."""

BOUNDS: Final = {"radix sort": STREAM, "queens": SEARCH}

BIRTHS: Final = 1_000
IDLE: Final = 10_000
CRASHES: Final = 10_000

OURS: Final = "actors"
TASKS: Final = "with async def"
TRIO: Final = "Trio"

Program = Callable[[int], int]


# --- Programs ---------------------------------------------------------------------------------------------------------


def peers() -> dict[str, dict[str, Program]]:
    """Return the programs of each peer that is installed."""
    found: dict[str, dict[str, Program]] = {
        OURS: {name: partial(on_trio, program) for name, program in actors.PROGRAMS.items()},
        TASKS: {name: partial(on_trio, program) for name, program in actors.IN_TASKS.items()},
        TRIO: {
            name: partial(on_trio, partial(program, channels.OnTrio())) for name, program in channels.PROGRAMS.items()
        },
        "asyncio": {
            name: partial(on_asyncio, partial(program, channels.OnAsyncio()))
            for name, program in channels.PROGRAMS.items()
        },
    }
    if find_spec("pykka") is not None:
        from .programs import threads

        found["Pykka"] = dict(threads.PROGRAMS)
    return found


def on_trio(program: Callable[[int], Awaitable[int]], size: int) -> int:
    """Run one with Trio."""
    return trio.run(program, size)


def on_asyncio(program: Callable[[int], Any], size: int) -> int:
    """Run one with asyncio."""
    result: int = asyncio.run(program(size))
    return result


def run_and_check(name: str, program: Program, size: int) -> float:
    """Run a program, and return the seconds of the processor. Raise an error if it has not done all of its work."""
    gc.collect()
    began = process_time()
    result = program(size)
    seconds = process_time() - began
    if result != EXPECTED[name](size):
        raise ValueError(f"{name}: returned {result} for the size {size}, not {EXPECTED[name](size)}")
    return seconds


def compare(rounds: int, sizes: dict[str, int]) -> list[Figure]:
    """Run all programs of all peers, in turns."""
    found = []
    everybody = peers()
    in_erlang = erlang.seconds(sizes) if erlang.installed() else {}
    for name, size in sizes.items():
        programs = {peer: its[name] for peer, its in everybody.items() if name in its}
        for program in programs.values():
            run_and_check(name, program, size)  # so that no round pays for what happens only once
        seconds: dict[str, list[float]] = {peer: [] for peer in programs}
        for _ in range(rounds):
            for peer, program in programs.items():
                seconds[peer].append(run_and_check(name, program, size))
        ours = statistics.median(seconds[OURS])
        found.append(Figure(f"{name}, {size}", ours * 1e3, "ms"))
        for peer, its in seconds.items():
            if peer == OURS:
                continue
            label, above, below = f"{name}, to {peer}", seconds[OURS], its
            if peer == TASKS:
                label, above, below = f"{name}, {peer}, to {TRIO}", its, seconds[TRIO]
            bound = BOUNDS.get(name) if peer == TRIO else None
            found.append(Figure(label, median_ratio(above, below), "", bound=bound))
        if name in in_erlang:
            found.append(Figure(f"{name}, to Erlang", ours / max(in_erlang[name], 1e-5), ""))
    return found


# --- Births -----------------------------------------------------------------------------------------------------------


class Idle(Actor[Never]):
    """Does nothing."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold nothing."""
        yield


Lives = dict[int, tuple[trio.Event, trio.Event]]


async def birth_by_hand(lives: Lives, number: int, *, task_status: Any) -> None:
    """Live like an actor: with a handshake, a nursery, a scope, a resource, and an end that others wait for."""
    over, ended = lives[number] = trio.Event(), trio.Event()
    try:
        async with trio.open_nursery() as requests:
            with trio.CancelScope():
                async with Idle().running():
                    task_status.started()
                    await over.wait()
            requests.cancel_scope.cancel("it is over")
    finally:
        del lives[number]
        ended.set()


async def births(rounds: int, number: int) -> list[Figure]:
    """Start and stop children one by one, and compare them with tasks that have the same parts."""
    seconds: dict[str, list[tuple[float, float]]] = {"by hand": [], "actors": []}
    lives: Lives = {}
    async with open_supervisor() as top, trio.open_nursery() as nursery:

        async def start_by_hand(index: int) -> None:
            await nursery.start(birth_by_hand, lives, index)

        async def stop_by_hand(index: int) -> None:
            over, ended = lives[index]
            over.set()
            with trio.move_on_after(5) as patience:
                await ended.wait()
            if patience.cancelled_caught:
                raise TimeoutError("it would be cancelled now")

        async def start(index: int) -> None:
            await top.start_child(ChildSpec(str(index), Idle, restart="temporary"))

        async def stop(index: int) -> None:
            await top.stop_child(str(index))

        for _ in range(rounds + 1):
            for name, begin, end in (("by hand", start_by_hand, stop_by_hand), ("actors", start, stop)):
                gc.collect()
                times = [process_time()]
                for step in (begin, end):
                    for index in range(number):
                        await step(index)
                    times.append(process_time())
                seconds[name].append((times[1] - times[0], times[2] - times[1]))
    ours, theirs = seconds["actors"][1:], seconds["by hand"][1:]
    return [
        Figure("a child, start and stop", statistics.median(map(sum, ours)) / number * 1e6, "µs"),
        *(
            Figure(f"a child, {what}, to the same by hand", median_ratio(above, below), "", bound=bound)
            for what, above, below, bound in (
                ("start", [each[0] for each in ours], [each[0] for each in theirs], None),
                ("stop", [each[1] for each in ours], [each[1] for each in theirs], None),
                ("start and stop", [*map(sum, ours)], [*map(sum, theirs)], BIRTH),
            )
        ),
    ]


# --- Memory, and many crashes at once ---------------------------------------------------------------------------------


async def weigh(kind: str, number: int) -> float:
    """Return the bytes for each of so many idle actors, or of tasks with the same parts."""
    lives: Lives = {}
    async with open_supervisor() as top, trio.open_nursery() as nursery:
        gc.collect()
        before = rss()
        for index in range(number):
            if kind == OURS:
                await top.start_child(ChildSpec(str(index), Idle))
            else:
                await nursery.start(birth_by_hand, lives, index)
        gc.collect()
        each = (rss() - before) / number
        for over, _ in lives.values():
            over.set()
    return each


async def storm(number: int, collects: bool) -> tuple[float, float]:
    """Let so many actors crash in one step. Return the processor time until all serve again, and the longest step."""
    crashed: list[Idle] = []

    def make() -> Idle:
        crashed.append(Idle())
        return crashed[-1]

    longest, over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        last = perf_counter()
        while not over:
            await trio.lowlevel.checkpoint()
            now = perf_counter()
            longest, last = max(longest, now - last), now

    specs = [ChildSpec(str(index), make, shutdown="infinity") for index in range(number)]
    async with open_supervisor(*specs, max_restarts=number, window=math.inf) as top, trio.open_nursery() as nursery:
        gc.collect()
        if not collects:
            gc.disable()
        nursery.start_soon(watch)
        await trio.lowlevel.checkpoint()
        began = process_time()
        for actor in crashed.copy():
            actor.fail(RuntimeError("told to"))
        for spec in specs:
            await top.child(spec.id).wait_state("running")
        seconds = process_time() - began
        over = True
        gc.enable()
    return seconds, longest


def figures() -> list[Figure]:
    """Compare the programs and the births, weigh idle actors, and let many crash."""
    sizes = {name: SIZES.get(name, SIZE) for name in EXPECTED}
    found = [*compare(ROUNDS, sizes), *trio.run(births, ROUNDS, BIRTHS)]
    ours, theirs = (in_fresh_process(__name__, "weigh", kind, IDLE) for kind in (OURS, "by hand"))
    found += [
        Figure("memory of an idle child", ours / 1024, "KiB"),
        Figure("memory of an idle task with the same parts", theirs / 1024, "KiB"),
    ]
    for collects in ("on", "off"):
        seconds, longest = in_fresh_process(__name__, "storm", collects, CRASHES)
        label = f"{CRASHES} crashes at once, garbage collector {collects}"
        found += [Figure(label, seconds, "s"), Figure(f"{label}, longest step", longest, "s")]
    return found


if __name__ == "__main__":
    _, what, which, how_many = sys.argv
    if what == "weigh":
        print(json.dumps(trio.run(weigh, which, int(how_many))))
    else:
        print(json.dumps(trio.run(storm, int(how_many), which == "on")))
