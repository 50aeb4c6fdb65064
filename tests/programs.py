"""What the tests share that draw programs at random: how many, from which seed, and under which clock they run.

The seed is printed with every run, and ``PROGRAMS_SEED`` repeats one. If ``CI`` is set there are more programs.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import hypothesis
import pytest
import trio
from hypothesis.strategies import SearchStrategy
from trio.testing import MockClock

SEED: Final = int(os.environ.get("PROGRAMS_SEED") or random.SystemRandom().getrandbits(32))

P = TypeVar("P")


class Run(Protocol):
    """One program as it is run."""

    async def main(self) -> None:
        """Run it."""

    def check(self) -> None:
        """Fail if anything of what came of it is wrong."""


def run_programs(
    programs: SearchStrategy[P], run: Callable[[P], Run], capsys: pytest.CaptureFixture[str], *, here: int, in_ci: int
) -> None:
    """Run so many programs, one after the other, each under a clock of its own; without their logs."""
    number = in_ci if os.environ.get("CI") else here
    with capsys.disabled():
        print(f"\n{number} programs, PROGRAMS_SEED={SEED}")

    @hypothesis.seed(SEED)
    @hypothesis.settings(max_examples=number, print_blob=True, deadline=None)
    @hypothesis.given(programs)
    def run_and_check(program: P) -> None:
        each = run(program)
        trio.run(each.main, clock=MockClock(autojump_threshold=0))
        each.check()

    logging.disable(logging.CRITICAL)
    try:
        run_and_check()
    finally:
        logging.disable(logging.NOTSET)
