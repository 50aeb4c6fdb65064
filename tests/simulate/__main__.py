"""Run many seeds: ``python -m tests.simulate --seeds 10000 --first 0``; ``--seed N`` runs and draws one.

``--defects`` puts each known defect into the library, and counts the seeds until it is found.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from multiprocessing import get_context

from .defects import DEFECTS
from .run import failure, picture, run, search


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and draw it")
    parser.add_argument("--seeds", type=int, help="how many to run (default: 10000; for each defect at most 2000)")
    parser.add_argument("--first", type=int, help="the first of them (default: a random one)")
    parser.add_argument("--defect", choices=DEFECTS, help="put this defect into the library first")
    parser.add_argument("--defects", action="store_true", help="count the seeds until each defect is found")
    flags = parser.parse_args()
    if flags.defect and flags.seed is None:
        parser.error("--defect needs --seed; --defects looks for a seed for each")
    if flags.seed is not None:
        with DEFECTS[flags.defect]() if flags.defect else DEFECTS["none"]():
            world, problems = run(flags.seed)
        print(picture(world), *problems, sep="\n")
        return bool(problems)
    first = random.SystemRandom().getrandbits(31) if flags.first is None else flags.first
    if flags.defects:
        return find_defects(first, flags.seeds or 2_000)
    return run_all(first, flags.seeds or 10_000)


def run_all(first: int, number: int) -> int:
    """Run so many seeds on all cores, and collect garbage only after each. Return 1 if one fails."""
    began, failures = time.monotonic(), 0
    with get_context("fork").Pool(os.cpu_count(), gc.disable) as pool:
        for found in pool.imap_unordered(failure, range(first, first + number), chunksize=16):
            if found is not None:
                failures += 1
                print(found, flush=True)
    print(f"{number} seeds from {first} in {time.monotonic() - began:.0f} s: {failures} failed")
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
