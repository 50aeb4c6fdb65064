"""Run the whole suite, print what came of each scenario, and exit with 1 if it is less than it must be."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ..node.packages import NodeMissing
from .suite import LEAST, run


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help=f"of the protocol: {', '.join(LEAST)}")
    revisions = parser.parse_args().revisions or list(LEAST)
    if unknown := set(revisions) - LEAST.keys():
        parser.error(f"no revision {', '.join(sorted(unknown))}; there are {', '.join(LEAST)}")
    fine = True
    for revision in revisions:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try:
                with (folder / "log.txt").open("w") as log:
                    report = run(revision, folder, log)
            except NodeMissing as error:
                print(error, file=sys.stderr)
                return 1
            if report.problems:
                print((folder / "log.txt").read_text(), file=sys.stderr)
            print(report)
            fine = fine and not report.problems
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
