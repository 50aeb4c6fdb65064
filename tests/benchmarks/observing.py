"""The processor time that an observer of calls adds to a tool call: one that does nothing, metrics, and OpenTelemetry.

They take turns on one connection of one group, so that a difference is not that of two processes. The server is another
process, whose time is not counted.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import process_time
from typing import Final

import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from mcp_actors import ServerConfig, ServerGroup, Stdio, open_servers
from mcp_actors.observe import Metrics
from mcp_actors.servers import Attempt, CallObserver

from .figures import Figure
from .peers import quick_server

CALLERS: Final = (1, 16)
ROUNDS: Final = 150
CALLS: Final = 128
BOUND: Final = 2.0
"""Microseconds of processor time a call."""

NONE, ANY, METRICS, METER = "nothing", "an idle observer", "Metrics()", "its meter of OpenTelemetry"


class Idle(CallObserver):
    """Takes attempts, and counts nothing."""

    def settled(self, attempt: Attempt) -> None:
        """Do nothing."""


def observed_by(servers: ServerGroup, observer: CallObserver | None) -> Callable[[], None]:
    """Return a function that lets this be the only observer of the program, as if the group was opened with it."""
    record, hub = servers["quick"]._record, servers._hub
    own, observers = hub.observers, () if observer is None else (observer,)
    record.observe_calls(observers)
    observed = record.calls.deadlines.observed

    def observe() -> None:
        record.calls.deadlines.observed, hub.observers = observed, (*observers, *own)

    record.observe_calls(())
    return observe


async def play(servers: ServerGroup, callers: int) -> float:
    """Make the calls of a round; return the microseconds of processor time that each has taken."""
    ref = servers["quick"]

    async def repeat() -> None:
        for _ in range(CALLS // callers):
            await ref.call_tool("echo", {"text": "hello"})

    began = process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(repeat)
    return (process_time() - began) / CALLS * 1e6


async def measure() -> list[Figure]:
    """Compare calls without an observer to calls with each."""
    provider = MeterProvider([InMemoryMetricReader()])
    command, *arguments = quick_server.command()
    found: list[Figure] = []
    async with open_servers(ServerConfig("quick", Stdio(command, arguments), required=True)) as servers:
        meter = Metrics(provider.get_meter("bench"))
        kinds = {NONE: None, ANY: Idle(), METRICS: Metrics(), METER: meter}
        switches = {name: observed_by(servers, each) for name, each in kinds.items()}
        await play(servers, CALLERS[-1])
        gc.collect()
        gc.disable()  # a collection would fall upon one of them by chance
        for callers in CALLERS:
            # Apart from the others, because OpenTelemetry leaves little of them in the caches.
            for contest in ((NONE, ANY, METRICS), (METRICS, METER)):
                rounds: dict[str, list[float]] = {name: [] for name in contest}
                for number in range(ROUNDS):
                    # Each comes first as often as the others: the one before it leaves the caches as it likes.
                    for place in range(len(contest)):
                        name = contest[(number + place) % len(contest)]
                        switches[name]()
                        rounds[name].append(await play(servers, callers))
                found.extend(figures_of(rounds, callers))
        gc.enable()
    provider.shutdown()
    return found


def figures_of(rounds: Mapping[str, Sequence[float]], callers: int) -> Iterator[Figure]:
    """Yield what each observer adds to the calls of the first."""
    base, *others = rounds
    if base == NONE:
        yield Figure(f"processor time of a call; callers: {callers}", statistics.median(rounds[base]), "µs")
    for name in others:
        label = f"processor time that {name} adds to a call; callers: {callers}"
        yield Figure(label, added(rounds[base], rounds[name]), "µs", bound=BOUND if name == METRICS else None)


def added(base: Sequence[float], other: Sequence[float]) -> float:
    """Return the median difference of the calmer half of the rounds: other load makes all calls dearer."""
    calm = sorted(zip(base, other, strict=True), key=sum)[: ROUNDS // 2]
    return statistics.median(dearer - cheaper for cheaper, dearer in calm)


def figures() -> list[Figure]:
    """Measure all of it."""
    return trio.run(measure)
