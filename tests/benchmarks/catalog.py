"""Measure how long a change of one server takes, which must hardly grow with the number of others."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import Final

from mcp.types import Tool, ToolAnnotations

from mcp_actors.catalog import CatalogSnapshot, Listing

from .figures import Figure

TOOLS: Final = 50
"""Of each server."""

FEW: Final = 4
MANY: Final = 40

CHANGES: Final = 30
"""In a row, per round."""

ROUNDS: Final = 7

RATIO: Final = 1.5
"""Bound for how much longer a change takes with ten times as many servers. Proportional to all tools it would be 10."""


def listing(server: int, version: int = 0) -> Listing:
    """Return the tools of a server, with eight arguments each."""
    argument = {"type": "string", "description": f"What to do about it, as of version {version}."}
    schema = {"type": "object", "properties": {f"argument_{each}": argument for each in range(8)}}
    hints = ToolAnnotations(read_only_hint=True)
    names = [f"tool_{each}" for each in range(TOOLS)]
    return Listing(
        f"server_{server}",
        [Tool(name=each, description="Do it. " * 50, input_schema=schema, annotations=hints) for each in names],
    )


def seconds_per_change(servers: int) -> float:
    """Let one server list something else, again and again; return what a change takes until a tool can be found."""
    listings = [listing(each) for each in range(servers)]
    snapshot = CatalogSnapshot.from_listings(listings)
    versions = [listing(1, 1), listings[1]]
    started = perf_counter()
    for each in range(CHANGES):
        listings[1] = versions[each % 2]
        snapshot = snapshot.updated(listings)
        snapshot.find("mcp__server_1__tool_0")
    return (perf_counter() - started) / CHANGES


def figures() -> list[Figure]:
    """How long a change takes with few and with many servers, and the ratio, as the median of rounds."""
    rounds = [(seconds_per_change(FEW), seconds_per_change(MANY)) for _ in range(ROUNDS)]
    few, many = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = statistics.median(above / below for below, above in rounds)
    return [
        Figure(f"a change of one server, {FEW * TOOLS} tools in all", few * 1e3, "ms"),
        Figure(f"a change of one server, {MANY * TOOLS} tools in all", many * 1e3, "ms"),
        Figure(f"{MANY // FEW} times as many servers", ratio, "x", bound=RATIO),
    ]
