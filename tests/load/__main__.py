"""Let the storms rage, print the outcomes of all calls, and exit with 1 if a promise is broken.

The first one has one server, the second one four hosts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import trio

from .storm import SECONDS, Storm
from .test_storm import MAY_GROW


def main() -> int:
    """Run them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000, help="calls of each storm")
    parser.add_argument("--hosts", type=int, nargs="+", default=[0, 4], help="hosts of each storm; 0 is one server")
    arguments = parser.parse_args()
    kept = [rage(arguments.calls, hosts) for hosts in arguments.hosts]
    print("Every call had one outcome, none was carried out twice." if all(kept) else "A promise was broken.")
    return 0 if all(kept) else 1


def rage(calls: int, hosts: int) -> bool:
    """Let one storm rage; return True if every promise was kept."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = trio.run(Storm(calls, hosts=hosts, seconds=SECONDS if hosts else None).run, Path(folder))
    print(f"{hosts or 'no'} hosts, {time.monotonic() - began:.0f} s: {report}", flush=True)
    return report.kept() and report.grown < MAY_GROW


if __name__ == "__main__":
    sys.exit(main())
