"""Measure the start, first call, restart and stop of many supervised actors, and the growth with their number.

The time is that of the processor: nothing here waits, and other load must not look like growth.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import sys
from collections.abc import Sequence
from time import process_time
from typing import Final

import trio

from mcp_actors.kernel import ChildSpec, open_supervisor

from .actors import Ask, Echo
from .figures import Figure
from .measuring import in_fresh_process

NUMBERS: Final = (100, 1_000, 10_000)
ROUNDS: Final = 5
"""Fresh processes per number; the median counts."""

GROWTH: Final = 1.3
"""The largest exponent: at 1 ten times as many take ten times as long, at 2 a hundred times. It includes the garbage
collector, which traverses the actors more often the more there are."""

CROWDS: Final = (10_000, 100_000)
CROWD_ROUNDS: Final = 3
CROWD_GROWTH: Final = 1.1

STAGES: Final = ("start", "first call", "crash and restart", "stop")


async def live(number: int) -> list[float]:
    """Start so many actors, call each, crash each, stop them once all are back; return the seconds of each stage."""
    actors: list[Echo] = []

    def factory() -> Echo:
        actors.append(Echo())
        return actors[-1]

    # On a busy machine, the ends of many that crash in one step take longer than the time that one would have.
    specs = [ChildSpec(f"echo-{index}", factory, shutdown="infinity") for index in range(number)]
    seconds: list[float] = []
    gc.collect()
    began = process_time()

    def lap() -> None:
        nonlocal began
        seconds.append(process_time() - began)
        # A full collection takes longer than anything else, and comes when a quarter has been added since the last one.
        # Without this, it would depend on the stages before whether a stage has one or two.
        gc.collect()
        began = process_time()

    async with open_supervisor(*specs, max_restarts=number, window=math.inf) as supervisor:
        lap()
        for spec in specs:
            await supervisor.child(spec.id).call(Ask(0))
        lap()
        for actor in actors.copy():
            actor.fail(RuntimeError("told to"))
        for spec in specs:
            await supervisor.child(spec.id).wait_state("running")
        lap()
    lap()
    assert len(actors) == 2 * number
    return seconds


def exponent(numbers: Sequence[int], seconds: Sequence[float]) -> float:
    """The power of the number that the seconds grow with: the slope of a least-squares line through the logarithms."""
    return statistics.linear_regression([math.log(n) for n in numbers], [math.log(s) for s in seconds]).slope


def compare(numbers: Sequence[int], rounds: int, growth: float) -> list[Figure]:
    """How long each stage takes for one of so many actors, and how it grows with their number."""
    seconds = {number: [in_fresh_process(__name__, number) for _ in range(rounds)] for number in numbers}
    found = []
    for stage, name in enumerate(STAGES):
        medians = [statistics.median(each[stage] for each in seconds[number]) for number in numbers]
        found += [
            Figure(f"{name}, each of {number} supervised actors", median / number * 1e6, "µs")
            for number, median in zip(numbers, medians, strict=True)
        ]
        found.append(Figure(f"{name}: growth exponent", exponent(numbers, medians), "", bound=growth))
    return found


def figures() -> list[Figure]:
    """Measure up to ten thousand actors."""
    return compare(NUMBERS, ROUNDS, GROWTH)


def crowds() -> list[Figure]:
    """Measure a hundred thousand actors, which takes minutes."""
    return compare(CROWDS, CROWD_ROUNDS, CROWD_GROWTH)


if __name__ == "__main__":
    print(json.dumps(trio.run(live, int(sys.argv[1]))))
