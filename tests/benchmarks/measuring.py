"""Measure in turns, with medians, and in fresh processes where memory or imports count.

The garbage collector runs as it does for users: what a call leaves behind is a part of what it costs.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
TIMEOUT: Final = 900.0
"""Seconds for one fresh process."""


def in_fresh_process(module: str, *arguments: object, environment: Mapping[str, str] | None = None) -> Any:
    """Run ``python -m module arguments…`` and return what it prints, which is JSON."""
    finished = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    return json.loads(finished.stdout)


async def in_turns(
    contestants: Mapping[str, Callable[[], Awaitable[None]]],
    *,
    rounds: int,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, list[float]]:
    """Run each contestant once per round, one after the other; return the seconds of each by a clock, by round.

    What the machine does besides changes slowly compared to a round, so it meets all contestants of a round alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        await run()  # so that no round pays for what happens only once
    for _ in range(rounds):
        for name, run in contestants.items():
            started = clock()
            await run()
            seconds[name].append(clock() - started)
    return seconds


def median_ratio(numerators: list[float], denominators: list[float]) -> float:
    """The median of the ratios of each round."""
    return statistics.median(above / below for above, below in zip(numerators, denominators, strict=True))


def rss() -> int:
    """The resident memory of this process, in bytes."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    else:
        # The largest it ever was; as these measurements only grow, that is what it is now.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
