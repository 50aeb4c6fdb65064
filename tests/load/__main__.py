"""Let the storm rage, print the outcomes of all calls, and exit with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import trio

from .storm import Storm
from .test_storm import MAY_GROW


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as folder:
        report = trio.run(Storm(calls).run, Path(folder))
    print(report)
    kept = (
        sum(report.outcomes.values()) == calls and report.duplicates == report.unheard == 0 and report.grown < MAY_GROW
    )
    print("Every call had one outcome, none was carried out twice." if kept else "A promise was broken.")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
