"""Measure the time to the first tools of servers that take a second to start, remembered or not."""

from __future__ import annotations

import statistics
import tempfile
from time import perf_counter
from typing import Final

import trio

from mcp_actors import ServerConfig, Stdio, open_servers

from ..servers import scripted_server
from .figures import Figure
from .measuring import median_ratio

SERVERS: Final = 16
DELAY: Final = "1"
"""Seconds that each server takes before it answers anything."""

ROUNDS: Final = 5
BOUND: Final = 1 / 20


async def first_tools(configs: list[ServerConfig], store: str, start_gate: float | None) -> float:
    """Open all servers; return the seconds until their tools are listed."""
    started = perf_counter()
    async with open_servers(*configs, catalog_store=store, start_gate=start_gate) as servers:
        shown = {tool.server for tool in servers.tools}
        seconds = perf_counter() - started
    assert len(shown) == SERVERS
    return seconds


async def measure(store: str) -> list[Figure]:
    """Measure both ways in turns. The first round, in which nothing is remembered yet, does not count."""
    command, arguments = scripted_server.command("--start-delay", DELAY)
    configs = [
        ServerConfig(f"scripted-{number}", Stdio(command, arguments), protocol="legacy") for number in range(SERVERS)
    ]
    await first_tools(configs, store, None)
    rounds = [(await first_tools(configs, store, None), await first_tools(configs, store, 0)) for _ in range(ROUNDS)]
    waited, remembered = map(list, zip(*rounds, strict=True))
    return [
        Figure(f"{SERVERS} servers that need a second, all connected", statistics.median(waited), "s"),
        Figure("their first tools, remembered", statistics.median(remembered) * 1000, "ms"),
        Figure("their first tools, remembered", median_ratio(remembered, waited), "all starts", bound=BOUND),
    ]


def figures() -> list[Figure]:
    """Measure starts with and without remembered tools."""
    with tempfile.TemporaryDirectory() as store:
        return trio.run(measure, store)
