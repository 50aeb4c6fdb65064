"""Fetch the npm packages now, so that the tests need no network later."""

from __future__ import annotations

import sys

from .packages import FETCHED, NodeMissing, fetch


def main() -> int:
    """Fetch; return the exit code."""
    try:
        news = fetch()
    except NodeMissing as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{'fetched into' if news else 'there already:'} {FETCHED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
