"""Measure the unit of processor time in which the costs of tests are written down: ``python -m tests.unit [SECONDS]``.

A unit is about a second. Machines differ by a factor of two, and so does one machine on two days, or from one minute to
the next. What tests cost is therefore divided by what a fixed piece of Python costs, measured before, during and after
them.
"""

from __future__ import annotations

import os
import sys
from time import sleep
from typing import Final

from .processor_time import least_time

UNITS: Final = 0.5
"""What the piece costs. With this a unit was one second where the bounds of the tests were set."""


def piece() -> int:
    """Compute the fixed piece, which uses integers, texts and a dictionary."""
    found = 0
    names: dict[str, int] = {}
    for number in range(3_370_000):
        names[str(number % 5_000)] = number
        found += len(names) * number % 7
    return found


def unit() -> float:
    """Return the seconds of processor time in a unit, from the least of five runs."""
    return least_time(piece, of=5) / UNITS


def main(seconds: float | None = None) -> None:
    """Print the unit, and so many seconds later again, until the process that has started this one has ended."""
    parent = os.getppid()
    while True:
        print(f"{unit():.3f}", flush=True)
        if seconds is None or os.getppid() != parent:
            return
        sleep(seconds)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
