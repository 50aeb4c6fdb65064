"""Soak a group of servers, print what came of it, and exit with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import logging
import sys

import trio

from ..programs import SEED
from .soak import Size, Soak

MAY_GROW = 0.05
MAY_USE = 0.01


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    logging.getLogger("mcp_actors").addHandler(logging.NullHandler())
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    report = trio.run(Soak(Size(seconds=60.0 * options.minutes), options.seed).run)
    print(report)
    defects = [
        *report.defects,
        *([f"memory has grown by {report.grown:.1%}"] if report.grown > MAY_GROW else []),
        *([f"an idle group uses {report.idle:.2%} of a core"] if report.idle > MAY_USE else []),
    ]
    for defect in defects[:20]:
        print("broken:", defect)
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
