"""Open a group of a thousand lazy servers whose tools are remembered; exit with 1 if that takes too much.

``python -m tests.soak.thousand`` does so in a new process, because memory is measured.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import trio

from mcp_actors import ServerConfig, Stdio, open_servers
from mcp_actors.catalog._pins import CatalogStore, RememberedCatalog
from mcp_actors.servers._admission import fingerprint, launch_pin

from .census import census, memory

SERVERS = 1000
TOOLS = 5
SECONDS = 1.0
LEAVING = 0.2
TICKS = 100
"""Steps of the event loop that count too: what the opening has begun goes on in the background."""

BYTES = 150 * 10**6


class Opened(NamedTuple):
    """The figures of a group.

    Attributes:
        shown: the number of its tools.
        seconds: the processor time of the start, and of the steps after it.
        leaving: the processor time of the end.
        size: the memory, in bytes.
        children: the number of processes.
    """

    shown: int
    seconds: float
    leaving: float
    size: int
    children: int


def main() -> int:
    """Open it; return the exit code."""
    configs = [
        ServerConfig(f"s{number}", Stdio("/nowhere", [str(number)]), connect="lazy") for number in range(SERVERS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        remember(configs, Path(folder))
        done = trio.run(show, configs, folder)
    print(f"{done.shown} tools of {SERVERS} lazy servers after {done.seconds:.2f} s of a core")
    print(f"in {done.size / 1e6:.0f} MB; left after another {done.leaving:.2f} s")
    complete = done.shown == SERVERS * TOOLS and done.children == 0
    return 0 if complete and done.seconds < SECONDS and done.leaving < LEAVING and done.size < BYTES else 1


def remember(configs: list[ServerConfig], folder: Path) -> None:
    """Store the tools of an earlier run."""
    store = CatalogStore(folder)
    for config in configs:
        key = fingerprint(config)
        assert key is not None
        tools = tuple(map(tool, range(TOOLS)))
        store.save(key, RememberedCatalog(server=config.name, tools=tools, identity=launch_pin(config)))


def tool(number: int) -> dict[str, Any]:
    """Return a tool, as servers list them."""
    properties = {"a": {"type": "string"}, "b": {"type": "integer", "description": "how often"}}
    schema = {"type": "object", "properties": properties, "required": ["a"]}
    return {"name": f"tool_{number}", "description": "Do one thing well, and nothing else.", "inputSchema": schema}


async def show(configs: list[ServerConfig], folder: str) -> Opened:
    """Open the group and leave it."""
    began = time.process_time()
    async with open_servers(*configs, catalog_store=folder, max_servers=SERVERS) as group:
        shown = len(group.tools)
        for _ in range(TICKS):
            await trio.lowlevel.checkpoint()
        ready = time.process_time()
        size, children = memory(), census()["children"]
        left = time.process_time()
    return Opened(shown, ready - began, time.process_time() - left, size, children)


if __name__ == "__main__":
    sys.exit(main())
