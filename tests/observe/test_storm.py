"""After a storm of kills all counters agree: those of callers, observers, Prometheus, OpenTelemetry and the server."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from mcp_actors import (
    Backoff,
    ConnectionLost,
    RequestTimedOut,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    ServerGroup,
    Stdio,
    open_servers,
)
from mcp_actors.observe import Metrics

from ..load import counting_server
from ..programs import FULL_SIZE, SEED

CALLS: Final = 10_000 if FULL_SIZE else 1_500
CALLERS: Final = 100
KILL_EVERY: Final = CALLS // 12
AT_ONCE: Final = RestartPolicy(max_restarts=10**9, backoff=Backoff())
RETRY: Final = RetryPolicy(attempts=2, backoff=Backoff())

ERRORS: Final = {ConnectionLost: "lost", RequestTimedOut: "timed_out", MCPError: "error"}


class Storm:
    """Makes calls of several kinds while their server is killed, and lists how each has ended for its caller."""

    def __init__(self, servers: ServerGroup) -> None:
        self.ref = servers["counting"]
        self.ends: Counter[str] = Counter()
        self._ids = iter(range(CALLS))
        self._draw = random.Random(SEED)
        self._due = trio.Event()

    async def rage(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kill)
            async with trio.open_nursery() as callers:
                for _ in range(CALLERS):
                    callers.start_soon(self._call)
            nursery.cancel_scope.cancel("all calls were made")

    async def _call(self) -> None:
        for id in self._ids:
            how = self._draw.random()
            meta = {"k": 1} if how < 0.5 else None
            tool = "run" if how > 0.05 else "unknown"
            with trio.move_on_after(0.001 if 0.5 < how < 0.55 else 1000) as scope:
                self.ends[await self._end(partial(self.ref.call_tool, tool, {"id": id}, meta=meta), how)] += 1
            if scope.cancelled_caught:
                self.ends["cancelled"] += 1
            if id % KILL_EVERY == KILL_EVERY // 2:
                self._due.set()

    async def _end(self, call: Callable[..., Any], how: float) -> str:
        try:
            result = await call(idempotent=True if how > 0.8 else None)
        except (ConnectionLost, RequestTimedOut, MCPError) as exc:
            return next(name for kind, name in ERRORS.items() if isinstance(exc, kind))
        return "tool_error" if result.is_error else "ok"

    async def _kill(self) -> None:
        while True:
            await self._due.wait()
            self._due = trio.Event()
            pid = self.ref.statistics().pid
            with suppress(ProcessLookupError):
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)


def counted(samples: Iterable[tuple[dict[str, str], float]], label: str, **only: str) -> Counter[str]:
    """Add the counters of attempts by one label; `only` are the labels that count."""
    found: Counter[str] = Counter()
    for labels, value in samples:
        if only.items() <= labels.items():
            found[labels[label]] += int(value)
    return found


def scraped(text: str) -> list[tuple[dict[str, str], float]]:
    """Read the counters of attempts with Prometheus' own parser."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "mcp_client_attempts_total"
    ]


def exported(reader: InMemoryMetricReader, name: str) -> list[Any]:
    """Return the points of an instrument of OpenTelemetry."""
    data = reader.get_metrics_data()
    assert data is not None
    return [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="kills a process by the pid that the system tells")
async def test_after_a_storm_of_kills_all_counters_agree_with_the_callers_and_the_server(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    counts = tmp_path / "counts"
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = Metrics(provider.get_meter("test"))
    config = ServerConfig(
        "counting",
        Stdio(sys.executable, (counting_server.__file__, str(counts))),
        protocol="legacy",
        restarts=AT_ONCE,
        retry=RETRY,
        max_in_flight=64,
        validate="off",
    )
    async with open_servers(config, observers=[metrics]) as servers:
        storm = Storm(servers)
        await storm.rage()
        text = metrics.text(servers)
    samples = scraped(text)
    record_property("note", f"{CALLS} calls: {dict(storm.ends)}; all attempts: {dict(counted(samples, 'result'))}")
    points = [(dict(each.attributes), each.value) for each in exported(reader, "mcp_actors.attempts")]
    assert storm.ends.total() == CALLS
    assert min(storm.ends["ok"], storm.ends["lost"], storm.ends["cancelled"]) > 0
    for each in (samples, points):
        assert counted(each, "result", last="true") == storm.ends
    assert counted(samples, "outcome") == counted(points, "outcome")
    executed = counts.read_bytes().count(b"\n")
    results, outcomes = counted(samples, "result"), counted(samples, "outcome")
    answered = results["ok"] + results["tool_error"]
    assert answered <= executed <= answered + outcomes["unknown"]
    durations = sum(each.count for each in exported(reader, "mcp.client.operation.duration"))
    assert durations == sum(outcomes.values()) - outcomes["not_sent"]
    provider.shutdown()
