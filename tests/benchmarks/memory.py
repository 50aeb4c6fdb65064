"""Measure the memory of an idle actor: a fresh process with many of them, compared with an empty one."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Final

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors.kernel import ChildSpec, open_supervisor

from .actors import Ask, Echo
from .figures import Figure
from .measuring import in_fresh_process, rss

KIB_PER_ACTOR: Final = 10.0
"""Bound. A task of Trio alone is about half of it."""

KIB_AFTER_A_MINUTE: Final = 8.0
"""Bound for an actor that has served a call a minute ago, and nothing since, of the memory that Python has allocated.
How much of the freed memory goes back to the system depends on the few objects that happen to lie between."""

MINUTE: Final = 60

ACTORS: Final = 10_000


async def weigh(actors: int, clock: MockClock, measure: Callable[[], float]) -> tuple[float, float, float]:
    """Return the bytes per actor: idle since ever, after one call each, and a minute later by this clock."""
    async with open_supervisor(ChildSpec("warm-up", Echo)) as supervisor:
        await supervisor.child("warm-up").call(Ask(0))
    gc.collect()
    before = measure()
    specs = [ChildSpec(f"echo-{number}", Echo) for number in range(actors)]
    async with open_supervisor(*specs) as supervisor:
        gc.collect()
        idle = measure() - before
        for spec in specs:
            await supervisor.child(spec.id).call(Ask(0))
        gc.collect()
        served = measure() - before
        for _ in range(MINUTE + 1):
            clock.jump(1)
            await wait_all_tasks_blocked()
        gc.collect()
        rested = measure() - before
    return idle / actors, served / actors, rested / actors


def figures() -> list[Figure]:
    """Measure the memory of an idle actor."""
    idle, served, rested = in_fresh_process(__name__, ACTORS, "resident")
    *_, allocated = in_fresh_process(__name__, ACTORS // 10, "allocated")
    each = f"of {ACTORS} supervised actors, each"
    return [
        Figure(f"memory {each}", idle / 1024, "KiB", bound=KIB_PER_ACTOR),
        Figure(f"memory {each}, once it has served a call", served / 1024, "KiB"),
        Figure(f"memory {each}, a minute later", rested / 1024, "KiB"),
        Figure("allocated memory of an actor a minute after a call", allocated / 1024, "KiB", bound=KIB_AFTER_A_MINUTE),
    ]


if __name__ == "__main__":
    measures: dict[str, Callable[[], float]] = {
        "resident": rss,
        "allocated": lambda: tracemalloc.get_traced_memory()[0],
    }
    if sys.argv[2] == "allocated":
        tracemalloc.start()
    mock_clock = MockClock()
    print(json.dumps(trio.run(weigh, int(sys.argv[1]), mock_clock, measures[sys.argv[2]], clock=mock_clock)))
