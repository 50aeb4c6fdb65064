"""Compare what the slice and all tests have cost with their bounds: ``python -m tests.costs FOLDER``.

The folder has one folder for each run, ``slice`` and ``rest``; `tests.durations` has written into them. Its file
``units`` has the seconds that a unit of cost took from before the runs until their end; `tests.unit` has written them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Final

from .durations import read
from .unit import unit

BOUNDS: Final = {"slice": 120.0, "all": 600.0}
"""Units above which ``.ci/run`` fails. The aims are 90 and 500, which a busy machine exceeds."""


def main(folder: Path) -> int:
    """Print the sums and the ten dearest tests, and return the exit code."""
    seconds = fmean([*map(float, (folder / "units").read_text().split()), unit()])
    (tests, slice_), (others, rest) = (read(folder / run) for run in ("slice", "rest"))
    sums = {"slice": slice_ / seconds, "all": (slice_ + rest) / seconds}
    tests |= others
    print(f"What {len(tests)} tests cost, in units of {seconds:.2f} s of processor time:")
    for test in sorted(tests, key=lambda test: -tests[test])[:10]:
        print(f"{tests[test] / seconds:8.1f} {test}")
    for run, bound in BOUNDS.items():
        print(f"{sums[run]:8.1f} {run} (at most {bound:g})")
    return int(any(sums[run] > bound for run, bound in BOUNDS.items()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
