"""Measure a call from asyncio, as a ratio to the same call from Trio in the same run, on each host.

Each host has a process of its own, because one of them changes asyncio for its process.
"""

from __future__ import annotations

import statistics
from typing import Final

from .figures import Figure
from .measuring import in_fresh_process

SEQUENTIAL: Final = {"trio-asyncio": 3.0, "guest": 9.0, "thread": 11.0}
"""Bounds. The cost is waking the other side, and being woken by it."""

CONCURRENT: Final = 4.0
"""Bound: side by side, many calls share one waking."""


def figures() -> list[Figure]:
    """Measure a call on each host."""
    found = []
    for host, bound in SEQUENTIAL.items():
        ratios = in_fresh_process("tests.benchmarks.bridge_host", host)
        for label, limit in (("1", bound), ("200", CONCURRENT)):
            ratio = statistics.median(ratios[label])
            found.append(Figure(f"a call from asyncio, {host}; callers: {label}", ratio, "to Trio", bound=limit))
    return found
