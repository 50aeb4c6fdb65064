"""Open a group of a thousand lazy servers whose tools are remembered; exit with 1 if that takes too much.

``python -m tests.soak.thousand`` does so in a new process, because memory is measured.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio

from mcp_actors import ServerConfig, Stdio, open_servers
from mcp_actors.catalog.store import CatalogStore, RememberedCatalog
from mcp_actors.servers.tools import fingerprint

from .census import census, memory

SERVERS = 1000
TOOLS = 5
SECONDS = 1.0
BYTES = 150 * 10**6


def main() -> int:
    """Open it; return the exit code."""
    configs = [
        ServerConfig(f"s{number}", Stdio("/nowhere", [str(number)]), connect="lazy") for number in range(SERVERS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        remember(configs, Path(folder))
        shown, seconds, size, children = trio.run(show, configs, folder)
    print(f"{shown} tools of {SERVERS} lazy servers after {seconds:.2f} s of a core, in {size / 1e6:.0f} MB")
    complete = shown == SERVERS * TOOLS and children == 0
    return 0 if complete and seconds < SECONDS and size < BYTES else 1


def remember(configs: list[ServerConfig], folder: Path) -> None:
    """Store the tools of an earlier run."""
    store = CatalogStore(folder)
    for config in configs:
        key = fingerprint(config)
        assert key is not None
        store.save(key, RememberedCatalog(server=config.name, tools=tuple(map(tool, range(TOOLS)))))


def tool(number: int) -> dict[str, Any]:
    """Return a tool, as servers list them."""
    properties = {"a": {"type": "string"}, "b": {"type": "integer", "description": "how often"}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    return {"name": f"tool_{number}", "description": "Do one thing well, and nothing else.", "inputSchema": schema}


async def show(configs: list[ServerConfig], folder: str) -> tuple[int, float, int, int]:
    """Open the group; return the number of its tools, the processor time, the memory, and the number of processes."""
    began = time.process_time()
    async with open_servers(*configs, catalog_store=folder, max_servers=SERVERS) as group:
        shown = len(group.tools)
        return shown, time.process_time() - began, memory(), census()["children"]


if __name__ == "__main__":
    sys.exit(main())
