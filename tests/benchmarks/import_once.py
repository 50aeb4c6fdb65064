"""One fresh process: import what the kernel needs, then the kernel; print how long each took, and what came with it.

The time is that of the processor, so that other load counts less.
"""

from __future__ import annotations

import importlib
import json
import sys
from time import process_time


def main() -> None:
    """Import and print."""
    started = process_time()
    for name in ("trio", "attrs", "outcome"):
        importlib.import_module(name)
    between, needed = process_time(), set(sys.modules)
    importlib.import_module("mcp_actors.kernel")
    ended = process_time()
    packages = sorted({name.partition(".")[0] for name in sys.modules.keys() - needed})
    print(json.dumps({"needed": between - started, "added": ended - between, "packages": packages}))


if __name__ == "__main__":
    main()
