"""Measure a call from asyncio and from threads, as ratios in the same run.

From asyncio: to the same call from Trio, on each host. Each has a process of its own, because one of them changes
asyncio for its process. From threads: to the call from asyncio, and to a blocking portal of AnyIO around the call from
Trio, in processor time.
"""

from __future__ import annotations

import statistics
from typing import Final

from .figures import Figure
from .measuring import in_fresh_process, median_ratio

SEQUENTIAL: Final = {"trio-asyncio": 3.0, "guest": 9.0, "thread": 11.0}
"""Bounds. The cost is waking the other side, and being woken by it."""

CONCURRENT: Final = 4.0
"""Bound: side by side, many calls share one waking."""

SYNC: Final = (
    (1, "sync, 1", "asyncio, 1", "to asyncio", 1.3),
    (1, "sync, 1", "portal, 1", "to a portal", 1.0),
    (8, "sync, 8", "portal, 8", "to a portal", 1.0),
)
"""What is compared, and bounds."""


def figures() -> list[Figure]:
    """Measure a call on each host."""
    found = []
    for host, bound in SEQUENTIAL.items():
        ratios = in_fresh_process("tests.benchmarks.bridge_host", host)
        for label, limit in (("1", bound), ("200", CONCURRENT)):
            ratio = statistics.median(ratios[label])
            found.append(Figure(f"a call from asyncio, {host}; callers: {label}", ratio, "to Trio", bound=limit))
    return [*found, *from_threads()]


def from_threads() -> list[Figure]:
    """Measure a call of a tool without an event loop."""
    rounds = in_fresh_process("tests.benchmarks.sync_host")
    seconds = {name: [each[name] for each in rounds] for name in rounds[0]}
    return [
        Figure(
            f"a call of a tool from threads: {threads}", median_ratio(seconds[ours], seconds[other]), to, bound=bound
        )
        for threads, ours, other, to, bound in SYNC
    ]
