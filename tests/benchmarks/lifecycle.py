"""What it takes to start and stop many supervised actors, and how that grows with their number."""

from __future__ import annotations

import json
import sys
from time import perf_counter
from typing import Final

import trio

from mcp_actors.kernel import ChildSpec, open_supervisor

from .actors import Echo
from .figures import Figure
from .measuring import in_fresh_process, no_collection

FEW: Final = 1_000
MANY: Final = 10_000


async def start_and_stop(actors: int) -> tuple[float, float]:
    """Return the seconds that the start took, and the stop."""
    specs = [ChildSpec(f"echo-{number}", Echo) for number in range(actors)]
    with no_collection():
        before = perf_counter()
        async with open_supervisor(*specs):
            started = perf_counter()
        return started - before, perf_counter() - started


def figures() -> list[Figure]:
    """How long it takes, and the growth: 1 means that ten times as many take ten times as long."""
    found = []
    few, many = (in_fresh_process(__name__, actors) for actors in (FEW, MANY))
    for what, of_few, of_many in zip(("start", "stop"), few, many, strict=True):
        found += [
            Figure(f"{what} of {FEW} supervised actors", of_few * 1e3, "ms"),
            Figure(f"{what} of {MANY}", of_many * 1e3, "ms"),
            Figure("growth per actor", of_many / of_few / (MANY / FEW), "times"),
        ]
    return found


if __name__ == "__main__":
    print(json.dumps(trio.run(start_and_stop, int(sys.argv[1]))))
