"""One fresh process: import what a module needs, then the module; print how long each took, and what came with it.

Run as ``python -m tests.benchmarks.import_once NEEDED,NEEDED MODULE``. The time is that of the processor, so that other
load counts less.
"""

from __future__ import annotations

import importlib
import json
import sys
from time import process_time


def main(needed: str, module: str) -> None:
    """Import and print."""
    started = process_time()
    for name in needed.split(","):
        importlib.import_module(name)
    between, before = process_time(), set(sys.modules)
    importlib.import_module(module)
    ended = process_time()
    packages = sorted({name.partition(".")[0] for name in sys.modules.keys() - before})
    print(json.dumps({"needed": between - started, "added": ended - between, "packages": packages}))


if __name__ == "__main__":
    main(*sys.argv[1:])
