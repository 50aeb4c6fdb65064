"""Run many seeds: ``python -m tests.simulate --seeds 10000 --first 0``; ``--seed N`` runs and draws one.

``--defects`` puts each known defect into the library, and counts the seeds until it is found. ``--programs`` disturbs
programs of actors instead of groups of servers: ``python -m tests.simulate --programs --minutes 60``.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import random
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Final

from .defects import DEFECTS
from .programs import program_failure, run_program
from .run import failure, picture, run, search

BATCH: Final = 512
"""Seeds between two looks at the clock."""


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and draw it")
    parser.add_argument("--seeds", type=int, help="how many to run (default: 10000; for each defect at most 2000)")
    parser.add_argument("--minutes", type=float, help="run seeds for so long, whatever their number")
    parser.add_argument("--programs", action="store_true", help="disturb programs of actors")
    parser.add_argument("--first", type=int, help="the first of them (default: a random one)")
    parser.add_argument("--defect", choices=DEFECTS, help="put this defect into the library first")
    parser.add_argument("--defects", action="store_true", help="count the seeds until each defect is found")
    flags = parser.parse_args()
    if flags.defect and flags.seed is None:
        parser.error("--defect needs --seed; --defects looks for a seed for each")
    if flags.programs and (flags.defect or flags.defects):
        parser.error("--programs has no defects")
    if flags.seed is not None and flags.programs:
        ledger = run_program(flags.seed)
        print(ledger.name, *ledger.story, *ledger.problems, sep="\n")
        return bool(ledger.problems)
    if flags.seed is not None:
        with DEFECTS[flags.defect]() if flags.defect else DEFECTS["none"]():
            world, problems = run(flags.seed)
        print(picture(world), *problems, sep="\n")
        return bool(problems)
    first = random.SystemRandom().getrandbits(31) if flags.first is None else flags.first
    if flags.defects:
        return find_defects(first, flags.seeds or 2_000)
    check = program_failure if flags.programs else failure
    return run_all(check, first, None if flags.minutes else flags.seeds or 10_000, 60 * (flags.minutes or math.inf))


def run_all(check: Callable[[int], str | None], first: int, number: int | None, seconds: float) -> int:
    """Run so many seeds on all cores, or for so long, and collect garbage only after each. Return 1 if one fails."""
    began, failures, done = time.monotonic(), 0, 0
    with get_context("fork").Pool(os.cpu_count(), gc.disable) as pool:
        while not done or ((number is None or done < number) and time.monotonic() < began + seconds):
            some = BATCH if number is None else min(number - done, BATCH)
            for found in pool.imap_unordered(check, range(first + done, first + done + some), chunksize=16):
                if found is not None:
                    failures += 1
                    print(found, flush=True)
            done += some
    print(f"{done} seeds from {first} in {time.monotonic() - began:.0f} s: {failures} failed")
    return bool(failures)


def find_defects(first: int, number: int) -> int:
    """Print the first seed that finds each defect. Return 1 if one is not found."""
    missed = 0
    with get_context("fork").Pool(os.cpu_count()) as pool:
        names = [name for name in DEFECTS if name != "none"]
        for name, seed, problem in pool.imap_unordered(search, [(name, first, number) for name in names]):
            missed += seed is None
            print(f"{name}: {'not found' if seed is None else f'found by seed {seed}, {problem}'}", flush=True)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
