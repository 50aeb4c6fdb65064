"""The processor time that metrics add to a tool call, without and with OpenTelemetry.

Groups with different observers take turns in one process. The servers are other processes, whose time is not counted.
"""

from __future__ import annotations

import gc
import statistics
from contextlib import AsyncExitStack
from functools import partial
from time import process_time
from typing import Any, Final

import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from mcp_actors import ServerConfig, ServerRef, Stdio, open_servers
from mcp_actors.observe import Metrics

from .figures import Figure
from .peers import quick_server

CALLERS: Final = (1, 16)
ROUNDS: Final = 60
CALLS: Final = 512
BOUND: Final = 2.0
"""Microseconds of processor time a call."""


async def play(ref: ServerRef, callers: int) -> float:
    """Make the calls of a round; return the microseconds of processor time that each has taken."""

    async def repeat() -> None:
        for _ in range(CALLS // callers):
            await ref.call_tool("echo", {"text": "hello"})

    gc.collect()
    began = process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(repeat)
    return (process_time() - began) / CALLS * 1e6


def least(rounds: list[float]) -> float:
    """Return the lower decile: other load of the machine only ever adds to the time of a call."""
    return statistics.quantiles(rounds, n=10)[0]


async def measure() -> list[Figure]:
    """Compare groups without an observer, with metrics, and with metrics that record by OpenTelemetry too."""
    provider = MeterProvider([InMemoryMetricReader()])
    observers: dict[str, tuple[Any, ...]] = {
        "none": (),
        "metrics": (Metrics(),),
        "metrics, OpenTelemetry": (Metrics(provider.get_meter("bench")),),
    }
    found: list[Figure] = []
    command, *arguments = quick_server.command()
    async with AsyncExitStack() as stack:
        config = partial(ServerConfig, "quick", Stdio(command, arguments), required=True)
        groups = {
            name: await stack.enter_async_context(open_servers(config(), observers=each))
            for name, each in observers.items()
        }
        gc.disable()  # a collection would fall upon one of them by chance
        for callers in CALLERS:
            rounds: dict[str, list[float]] = {name: [] for name in groups}
            for number in range(ROUNDS):
                # Each comes first as often as the others: the one before it leaves the caches as it likes.
                for place in range(len(groups)):
                    name = [*groups][(number + place) % len(groups)]
                    rounds[name].append(await play(groups[name]["quick"], callers))
            base = rounds.pop("none")
            found.append(Figure(f"processor time of a call; callers: {callers}", least(base), "µs"))
            added = {name: least(each) - least(base) for name, each in rounds.items()}
            label = f"processor time that metrics add to a call; callers: {callers}"
            found.append(Figure(label, added["metrics"], "µs", bound=BOUND))
            shared = added["metrics, OpenTelemetry"] - added["metrics"]
            found.append(Figure(f"the same of OpenTelemetry alone; callers: {callers}", shared, "µs"))
        gc.enable()
    provider.shutdown()
    return found


def figures() -> list[Figure]:
    """Measure all of it."""
    return trio.run(measure)
