"""Draw random programs for a test: how many, from which seed, on which clock.

The seed is printed with every run, and ``PROGRAMS_SEED`` repeats one. If ``CI`` is set there are more programs, and a
second process runs half of them: ``python -m tests.programs MODULE NUMBER SEED``, for a module that has the strategy
``programs`` and the class ``Run``.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Final, Protocol, TypeVar

import hypothesis
import pytest
import trio
from hypothesis.strategies import SearchStrategy
from trio.testing import MockClock

from .source import ROOT

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
    in_halves = bool(os.environ.get("CI"))
    number = in_ci // 2 if in_halves else here
    with capsys.disabled():
        print(f"\n{number} programs, PROGRAMS_SEED={SEED}" + in_halves * ", and as many with the next seed")
    with running_beside(run.__module__, number, SEED + 1) if in_halves else nullcontext():
        run_one_by_one(programs, run, number, SEED)


def run_one_by_one(programs: SearchStrategy[P], run: Callable[[P], Run], number: int, seed: int) -> None:
    """Run so many programs that follow from a seed."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        print_blob=True,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
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


@contextmanager
def running_beside(module: str, number: int, seed: int) -> Iterator[None]:
    """Run so many programs of a module in a process of their own meanwhile. It has nothing to say unless one fails."""
    command = [sys.executable, "-W", "error", "-m", __name__, module, str(number), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as other:
        try:
            yield
            said, _ = other.communicate()
        finally:
            other.kill()
    assert (other.returncode, said) == (0, ""), f"with PROGRAMS_SEED={seed}:\n{said}"


def main(module: str, number: str, seed: str) -> None:
    """Run the programs of a module."""
    it = import_module(module)
    run_one_by_one(it.programs(), it.Run, int(number), int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
