"""Run the cells and write the page: ``python -m tests.compare --clients fastmcp --faults dies-idle flood``.

Without arguments all cells are run, one at a time, which takes about an hour. ``--page`` runs none.
"""

from __future__ import annotations

import argparse
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import environments, page
from .engine import Verdict
from .scenarios import play
from .tables import CLIENTS, FAULTS, mark, read_results, write_results


def run(fault: str, name: str, python: str) -> dict[str, Any]:
    """Run one cell, unless the client has no such feature."""
    reason = CLIENTS[name].get("not_offered", {}).get(fault)
    verdict = Verdict("not offered", None, reason) if reason else play(fault, python, name)
    seconds = None if verdict.seconds is None else round(verdict.seconds, 1)
    return {"verdict": verdict.word, "seconds": seconds, "detail": page.shorten(verdict.detail)}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="*", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--cache", type=Path, default=Path(".nox/compare-environments"))
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    results = read_results()
    for name in [] if options.page else options.clients:
        python = environments.interpreter(CLIENTS[name], options.cache)
        results["versions"][name] = environments.versions(CLIENTS[name], python)
        results |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version()}
        print(f"{CLIENTS[name]['title']}: {results['versions'][name]}, {results['date']}")
        for fault in options.faults:
            cell = run(fault, name, python)
            results["cells"].setdefault(fault, {})[name] = cell
            print(f"  {mark(fault, cell['verdict'])} {fault}: {cell['verdict']}, {cell['seconds']} s {cell['detail']}")
            write_results(results)
    page.write(results)
    print(f"the page is {page.PAGE}")


if __name__ == "__main__":
    main()
