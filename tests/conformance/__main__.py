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
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all that the suite writes, in a new folder")
    flags = parser.parse_args()
    revisions = flags.revisions or list(LEAST)
    if unknown := set(revisions) - LEAST.keys():
        parser.error(f"no revision {', '.join(sorted(unknown))}; there are {', '.join(LEAST)}")
    if flags.keep is not None and flags.keep.exists():
        parser.error(f"{flags.keep} is there already; name a new folder")
    with tempfile.TemporaryDirectory() as temporary:
        try:
            fine = [judge(revision, (flags.keep or Path(temporary)).resolve() / revision) for revision in revisions]
        except NodeMissing as error:
            print(error, file=sys.stderr)
            return 1
    return 0 if all(fine) else 1


def judge(revision: str, folder: Path) -> bool:
    """Run what a revision requires, print what came of it, and say whether that is enough."""
    report = run(revision, folder)
    print(report)
    return not report.problems


if __name__ == "__main__":
    sys.exit(main())
