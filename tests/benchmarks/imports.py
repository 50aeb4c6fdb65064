"""Measure what our imports add to those of their dependencies, and find packages that the kernel must not import.

It is measured as for an installed package, compiled: so the bytecode is kept, in a folder of its own. The time is that
of the processor: the bounds must not depend on other load.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from typing import Any, Final

from .figures import Figure
from .measuring import in_fresh_process

MILLISECONDS: Final = 30.0
"""Bound for what the import of the kernel adds."""

SERVERS_BOUND: Final = 1.25
"""For the import of `mcp_actors.open_servers`, compared with that of Trio and the SDK, which is a part of it."""

PROCESSES: Final = 15

ONCE: Final = "tests.benchmarks.import_once"

UNWANTED: Final = {"anyio", "asyncio", "httpcore2", "httpx2", "mcp", "mcp_types", "pydantic", "trio_asyncio"}


def imported(needed: str, module: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Import in fresh processes. Another one before them compiles."""
    _, *runs = [in_fresh_process(ONCE, needed, module, environment=environment) for _ in range(1 + PROCESSES)]
    return runs


def figures() -> list[Figure]:
    """Measure the imports, and count the packages that the kernel must not import."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        kernel = imported("trio,attrs,outcome", "mcp_actors.kernel", environment)
        servers = imported("trio,mcp", "mcp_actors.servers", environment)
    unwanted = sorted({name for run in kernel for name in run["packages"]} & UNWANTED)
    ratio = statistics.median(1 + run["added"] / run["needed"] for run in servers)
    return [
        Figure("import trio, attrs, outcome", statistics.median(run["needed"] for run in kernel) * 1e3, "ms"),
        Figure(
            "import mcp_actors.kernel after that",
            statistics.median(run["added"] for run in kernel) * 1e3,
            "ms",
            bound=MILLISECONDS,
        ),
        Figure("packages of MCP or asyncio that come with it", len(unwanted), "", bound=0, remark=", ".join(unwanted)),
        Figure("import mcp_actors.open_servers, to trio and mcp.Client", ratio, "", bound=SERVERS_BOUND),
    ]
