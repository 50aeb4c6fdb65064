"""Shared by the tests that draw programs at random: how many, from which seed, and under which clock they run.

The suite draws the same programs in each run, so that a change fails for what it did and not for what was drawn. With
``FULL_SIZE`` in the environment (``nox -s programs``) there are some thousands, from a new seed each time, and the
storms are longer. A run prints its seed at its end; ``PROGRAMS_SEED`` repeats one, or tries another.
"""

from __future__ import annotations

import logging
import math
import os
import random
import re
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import hypothesis
import trio
from hypothesis.strategies import SearchStrategy
from trio.testing import MockClock

FULL_SIZE: Final = bool(os.environ.get("FULL_SIZE"))
SEED: Final = int(os.environ.get("PROGRAMS_SEED") or (random.SystemRandom().getrandbits(32) if FULL_SIZE else 1))

PART: Final = 4
"""Of the cases that hypothesis draws for a test each run has one in so many; the nightly one has all of them."""

SHRINKING: Final = 60.0
"""Seconds in which a program that fails is made smaller. Without a limit that takes longer than any test may, and the
run would end there as one that hangs, without the program and its error."""

P = TypeVar("P")


def number_of(cases: int) -> int:
    """Return how many of so many cases this run draws."""
    return cases if FULL_SIZE else cases // PART


class Run(Protocol):
    """One program as it is run."""

    async def main(self) -> None:
        """Run it."""

    def check(self) -> None:
        """Fail if anything of what came of it is wrong."""


def run_programs(
    programs: SearchStrategy[P], run: Callable[[P], Run], note: Callable[[str, object], None], *, number: int, full: int
) -> None:
    """Run so many programs, one after the other, each under a clock of its own; without their logs.

    Args:
        programs: where to draw them from.
        run: what runs one.
        note: pytest's fixture ``record_property``.
        number: how many.
        full: how many at full size.
    """
    number = full if FULL_SIZE else number
    note("note", f"{number} programs, PROGRAMS_SEED={SEED}")
    failed: set[str] = set()
    until = math.inf

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=number,
        print_blob=True,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    @hypothesis.given(programs)
    def run_and_check(program: P) -> None:
        nonlocal until
        text = re.sub(" at 0x[0-9a-f]+", "", repr(program))  # functions in it are new each time that it is drawn
        if time.monotonic() > until and text not in failed:
            return  # so the smallest program up to now stays the one that is reported
        try:
            each = run(program)
            trio.run(each.main, clock=MockClock(autojump_threshold=0))
            each.check()
        except Exception:
            failed.add(text)
            until = min(until, time.monotonic() + SHRINKING)
            raise

    logging.disable(logging.CRITICAL)
    try:
        run_and_check()
    finally:
        logging.disable(logging.NOTSET)
