"""Run the whole suite, print the outcome of each scenario, and exit with 1 if too few succeed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ..node.packages import NodeMissing
from .client import ON_ASYNCIO
from .suite import CLIENT, LEAST, run


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help=f"of the protocol: {', '.join(LEAST)}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all that the suite writes, in a new folder")
    parser.add_argument(ON_ASYNCIO, action="store_true", help="the client is a program on asyncio")
    flags = parser.parse_args()
    revisions = flags.revisions or list(LEAST)
    if unknown := set(revisions) - LEAST.keys():
        parser.error(f"no revision {', '.join(sorted(unknown))}; there are {', '.join(LEAST)}")
    if flags.keep is not None and flags.keep.exists():
        parser.error(f"{flags.keep} is there already; name a new folder")
    with tempfile.TemporaryDirectory() as temporary:
        try:
            folder = (flags.keep or Path(temporary)).resolve()
            client = f"{CLIENT} {ON_ASYNCIO}" if flags.asyncio else CLIENT
            fine = [judge(revision, folder / revision, client) for revision in revisions]
        except NodeMissing as error:
            print(error, file=sys.stderr)
            return 1
    return 0 if all(fine) else 1


def judge(revision: str, folder: Path, client: str) -> bool:
    """Run what a revision requires, print what came of it, and say whether that is enough."""
    report = run(revision, folder, client=client)
    print(report)
    return not report.problems


if __name__ == "__main__":
    sys.exit(main())
