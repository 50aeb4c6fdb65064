"""Measure ``import mcp_actors.kernel`` without its dependencies, and find packages that it must not import.

It is measured as for an installed package, compiled: so the bytecode is kept, in a folder of its own. The time is that
of the processor: the bound is in milliseconds, and must not depend on other load.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from typing import Final

from .figures import Figure
from .measuring import in_fresh_process

MILLISECONDS: Final = 30.0
"""Bound for what the import of the kernel adds."""

PROCESSES: Final = 15

ONCE: Final = "tests.benchmarks.import_once"

UNWANTED: Final = {"anyio", "asyncio", "httpcore2", "httpx2", "mcp", "mcp_types", "pydantic", "trio_asyncio"}


def figures() -> list[Figure]:
    """Measure the import, and count the packages that it must not import."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # The first run is the one that compiles.
        _, *runs = [in_fresh_process(ONCE, environment=environment) for _ in range(1 + PROCESSES)]
    needed = statistics.median(run["needed"] for run in runs)
    added = statistics.median(run["added"] for run in runs)
    unwanted = sorted({name for run in runs for name in run["packages"]} & UNWANTED)
    return [
        Figure("import trio, attrs, outcome", needed * 1e3, "ms"),
        Figure("import mcp_actors.kernel after that", added * 1e3, "ms", bound=MILLISECONDS),
        Figure("packages of MCP or asyncio that come with it", len(unwanted), "", bound=0, remark=", ".join(unwanted)),
    ]
