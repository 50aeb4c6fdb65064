"""Measure the start, restart and stop of many supervised actors, and the growth with their number."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter
from typing import Final

import trio

from mcp_actors.kernel import ChildSpec, open_supervisor

from .actors import Echo
from .figures import Figure
from .measuring import in_fresh_process

NUMBERS: Final = (100, 1_000, 10_000)
ROUNDS: Final = 5
"""Fresh processes per number; the median counts."""

GROWTH: Final = 1.1
"""The largest exponent: at 1 ten times as many take ten times as long, at 2 a hundred times."""

STAGES: Final = ("start", "crash and restart", "stop")


async def live(number: int) -> list[float]:
    """Start so many actors, crash each once, and stop them when all are back; return the seconds of each stage."""
    actors: list[Echo] = []

    def factory() -> Echo:
        actors.append(Echo())
        return actors[-1]

    specs = [ChildSpec(f"echo-{index}", factory) for index in range(number)]
    times = [perf_counter()]
    async with open_supervisor(*specs, max_restarts=number, window=math.inf) as supervisor:
        times.append(perf_counter())
        for actor in actors.copy():
            actor.fail(RuntimeError("told to"))
        for spec in specs:
            await supervisor.child(spec.id).wait_state("running")
        times.append(perf_counter())
    times.append(perf_counter())
    assert len(actors) == 2 * number
    return [later - earlier for earlier, later in pairwise(times)]


def exponent(numbers: Sequence[int], seconds: Sequence[float]) -> float:
    """The power of the number that the seconds grow with: the slope of a least-squares line through the logarithms."""
    return statistics.linear_regression([math.log(n) for n in numbers], [math.log(s) for s in seconds]).slope


def figures() -> list[Figure]:
    """How long each stage takes for one actor, and how it grows."""
    rounds = {number: [in_fresh_process(__name__, number) for _ in range(ROUNDS)] for number in NUMBERS}
    found = []
    for stage, name in enumerate(STAGES):
        medians = [statistics.median(seconds[stage] for seconds in rounds[number]) for number in NUMBERS]
        found += [
            Figure(f"{name}, each of {number} supervised actors", median / number * 1e6, "µs")
            for number, median in zip(NUMBERS, medians, strict=True)
        ]
        found.append(Figure(f"{name}: growth exponent", exponent(NUMBERS, medians), "", bound=GROWTH))
    return found


if __name__ == "__main__":
    print(json.dumps(trio.run(live, int(sys.argv[1]))))
