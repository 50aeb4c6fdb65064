"""Measure the calls of a quiet server while many tasks call another one: the event loop is shared.

Both servers do next to nothing. Rounds in peace and rounds next to the noise take turns in a process of their own, and
calls of the quiet server follow one another.
"""

from __future__ import annotations

import json
import statistics
import sys
from time import perf_counter
from typing import Final

import trio

from mcp_actors import ServerConfig, ServerRef, Stdio, open_servers

from .figures import Figure
from .measuring import in_fresh_process
from .peers import quick_server

CALLERS: Final = 128
"""Tasks that call the other server without a pause."""

ROUNDS: Final = 7
CALLS: Final = 300
"""Of the quiet server, per round; 2 000 in all, of which a full collection of garbage delays one."""

RATIO: Final = 20.0
"""How much longer than half of the calls in peace 99 of 100 calls next to the noise may take."""

ATTEMPTS: Final = 3


async def times(ref: ServerRef, calls: int) -> list[float]:
    """Call one after the other; return the milliseconds of each."""
    found = []
    for _ in range(calls):
        began = perf_counter()
        await ref.call_tool("echo", {"text": "hello"})
        found.append((perf_counter() - began) * 1e3)
    return found


async def play(callers: int, rounds: int, calls: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of all calls in peace, and of all next to the noise."""
    command, *arguments = quick_server.command()
    configs = [ServerConfig(name, Stdio(command, arguments), required=True) for name in ("noisy", "quiet")]
    peace: list[float] = []
    noise: list[float] = []
    async with open_servers(*configs) as servers:

        async def call() -> None:
            while True:
                await servers["noisy"].call_tool("echo", {"text": "hello"})

        await times(servers["quiet"], calls)  # so that no round pays for what happens only once
        for _ in range(rounds):
            peace += await times(servers["quiet"], calls)
            async with trio.open_nursery() as nursery:
                for _ in range(callers):
                    nursery.start_soon(call)
                await times(servers["quiet"], 10)
                noise += await times(servers["quiet"], calls)
                nursery.cancel_scope.cancel("the round is over")
    return peace, noise


def figures(callers: int = CALLERS, rounds: int = ROUNDS, calls: int = CALLS) -> list[Figure]:
    """Measure, and again if the bound is missed: other load of the machine only ever adds."""
    found: list[Figure] = []
    for _ in range(ATTEMPTS):
        peace, noise = in_fresh_process(__name__, callers, rounds, calls)
        half, most = statistics.median(peace), statistics.quantiles(noise, n=100)[-1]
        label = f"a call of a quiet server; callers of another: {callers}"
        found = [
            Figure("a call of a quiet server in peace, p50", half, "ms"),
            Figure(f"{label}, p50", statistics.median(noise), "ms"),
            Figure(f"{label}, p99", most, "ms"),
            Figure(f"{label}, p99, to p50 in peace", most / half, "", bound=RATIO),
        ]
        if found[-1].verdict == "PASS":
            break
    return found


if __name__ == "__main__":
    callers, rounds, calls = map(int, sys.argv[1:])
    print(json.dumps(trio.run(play, callers, rounds, calls)))
