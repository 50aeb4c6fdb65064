"""Measure the start and stop of supervisors below supervisors, and the growth with the number of levels.

The time is that of the processor, as in ``lifecycle``.
"""

from __future__ import annotations

import json
import statistics
import sys
from time import process_time
from typing import Final

import trio

from mcp_actors.kernel import ChildSpec, Supervisor, open_supervisor

from .actors import Echo
from .figures import Figure
from .lifecycle import exponent
from .measuring import in_fresh_process

LEVELS: Final = (250, 500, 1_000)
ROUNDS: Final = 5
"""Fresh processes per number; the median counts."""

GROWTH: Final = 1.3
"""The largest exponent, as for many actors side by side. With one that is 2, a thousand levels took 126 000 steps."""

STAGES: Final = ("start", "stop")


def chain(levels: int) -> ChildSpec:
    """Return an actor below so many supervisors."""
    spec = ChildSpec("bottom", Echo)
    for level in range(levels):
        spec = above(spec, level)
    return spec


def above(spec: ChildSpec, level: int) -> ChildSpec:
    """Return a supervisor with this one child."""
    return ChildSpec(f"level-{level}", lambda: Supervisor(spec))


async def live(levels: int) -> list[float]:
    """Start so many levels and stop them; return the seconds of both."""
    times = [process_time()]
    async with open_supervisor(chain(levels)):
        times.append(process_time())
    times.append(process_time())
    return [times[1] - times[0], times[2] - times[1]]


def figures() -> list[Figure]:
    """How long each stage takes for one level, and how it grows."""
    seconds = {levels: [in_fresh_process(__name__, levels) for _ in range(ROUNDS)] for levels in LEVELS}
    found = []
    for stage, name in enumerate(STAGES):
        medians = [statistics.median(each[stage] for each in seconds[levels]) for levels in LEVELS]
        found += [
            Figure(f"{name}, each of {LEVELS[-1]} levels of supervisors", medians[-1] / LEVELS[-1] * 1e6, "µs"),
            Figure(f"{name}, levels: growth exponent", exponent(LEVELS, medians), "", bound=GROWTH),
        ]
    return found


if __name__ == "__main__":
    print(json.dumps(trio.run(live, int(sys.argv[1]))))
