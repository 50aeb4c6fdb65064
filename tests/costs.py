"""Compare what the slice has cost with its bound, in units: ``python -m tests.costs FOLDER SECONDS``.

The folder has one folder for each run, ``slice`` and ``rest``; `tests.durations` has written into them. The seconds are
what a unit took before the runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from .durations import read
from .unit import unit

BOUND: Final = 120.0
"""Units of the slice above which ``.ci/run`` fails. The aim is 90; a loaded machine needs more."""


def main(folder: str, before: str) -> int:
    """Print the sums and the ten dearest tests, and return the exit code."""
    seconds = (float(before) + unit()) / 2
    (tests, slice_), (others, rest) = (read(Path(folder) / run) for run in ("slice", "rest"))
    sums = {"slice": slice_ / seconds, "all": (slice_ + rest) / seconds}
    tests |= others
    print(f"What {len(tests)} tests cost, in units of {seconds:.2f} s of processor time:")
    for test in sorted(tests, key=lambda test: -tests[test])[:10]:
        print(f"{tests[test] / seconds:8.1f} {test}")
    print(f"{sums['slice']:8.1f} slice (at most {BOUND:g})")
    print(f"{sums['all']:8.1f} all")
    return int(sums["slice"] > BOUND)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
