"""Count the attempts of requests, for Prometheus and OpenTelemetry.

Servers choose the names of tools, and models ask for any name. So at most `max_tools` listed tools of each server get a
label; all others share one label.

Owns: counters; histograms; start times of sessions.
Writes: instruments of OpenTelemetry. Reads ``/proc``.
Calls: config, kernel, servers, servers.record.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from attrs import define, field
from mcp import MCPError

from ..config import Http, Socket, Sse, Stdio
from ..kernel import Event
from ..servers import (
    Attempt,
    CallObserver,
    ConnectionFacts,
    ReplicaChanged,
    ServerRemoved,
    ServerStatus,
    SourceStatus,
    StateChanged,
)
from ..servers.record import CONNECTED

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from ..config import ServerConfig

BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds in seconds, as OpenTelemetry's conventions for MCP advise."""

OTHER: Final = "other"
Labels = tuple[tuple[str, str], ...]

OF_SERVERS: Final[tuple[tuple[str, str, str, Callable[[ServerStatus], float]], ...]] = (
    ("mcp_server_state_since_seconds", "gauge", "When its state has changed.", lambda it: it.changed_at.timestamp()),
    ("mcp_server_queued", "gauge", "Requests in its mailbox.", lambda it: it.queued),
    ("mcp_server_in_flight", "gauge", "Requests without an answer yet.", lambda it: it.in_flight),
    ("mcp_server_restarts_total", "counter", "Connects beyond the first.", lambda it: it.restarts),
    ("mcp_server_failures", "gauge", "Failures since it last served.", lambda it: it.failures),
    ("mcp_server_healthy", "gauge", "1 if its health is not impaired.", lambda it: it.health.status == "healthy"),
    ("mcp_server_required", "gauge", "1 if the program is not ready without it.", lambda it: it.required),
    ("mcp_server_tools", "gauge", "Tools that it shows.", lambda it: it.tools),
)

OF_SOURCES: Final[tuple[tuple[str, str, Callable[[SourceStatus], float]], ...]] = (
    ("mcp_source_read_seconds", "When it was last read.", lambda it: it.read_at.timestamp()),
    ("mcp_source_error", "1 if it, or an entry of it, cannot be used.", lambda it: it.error is not None),
    ("mcp_source_current", "1 if what runs is what is written there.", lambda it: it.current),
)


class Observable(Protocol):
    """A `ServerGroup`, or the view of one for asyncio."""

    def status(self) -> Mapping[str, ServerStatus]:
        """Return a snapshot of every server."""

    @property
    def sources(self) -> tuple[SourceStatus, ...]:
        """The sources of the configuration."""


Histogram = list[float]
"""The number of durations in each bucket, then their sum."""

TOTAL: Final = len(BUCKETS) + 1
LEAST_BUCKET: Final = BUCKETS[0]


def lines_of(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    counts = tuple(accumulate(histogram[:TOTAL]))
    for bound, count in zip((*map(repr, BUCKETS), "+Inf"), counts, strict=True):
        yield sample(f"{name}_bucket", (*labels, ("le", bound)), count)
    yield sample(f"{name}_sum", labels, histogram[TOTAL])
    yield sample(f"{name}_count", labels, counts[-1])


@define(eq=False)
class Series:
    """The attempts with the same labels.

    Attributes:
        served: durations with the server, shared by all series of the tool; None if nothing was sent.
        queued: durations in the queue, shared by all series of the server.
        common: attributes of OpenTelemetry's conventions, without errors.
        labeled: the labels as attributes.
    """

    labels: Labels
    served: Histogram | None
    queued: Histogram
    common: dict[str, str]
    labeled: dict[str, str]
    number: int = field(default=0, init=False)

    def count(self, queued: float, served: float) -> None:
        self.number += 1
        histogram = self.queued
        if queued:
            histogram[bisect_left(BUCKETS, queued)] += 1
            histogram[TOTAL] += queued
        else:  # sent in the step of the caller
            histogram[0] += 1
        if self.served is not None:
            histogram = self.served
            histogram[bisect_left(BUCKETS, served) if served > LEAST_BUCKET else 0] += 1
            histogram[TOTAL] += served


class Metrics(CallObserver):
    """Counters and histograms of all attempts, for Prometheus and OpenTelemetry. Pass it as one of the ``observers``.

    Args:
        meter: records ``mcp.client.operation.duration`` and ``mcp.client.session.duration`` by OpenTelemetry's
            conventions for MCP, and counts ``mcp_actors.attempts``. None (default) records nothing there.
        max_tools: how many tools of each server get their own label. Default 100.

    Raises:
        ValueError: `max_tools` is negative.
    """

    def __init__(self, meter: Meter | None = None, *, max_tools: int = 100) -> None:
        if max_tools < 0:
            raise ValueError(f"Metrics: max_tools must be 0 or more, not {max_tools}")
        self._max_tools = max_tools
        self._series: dict[tuple[object, ...], Series] = {}
        self._shared: dict[Labels, Series] = {}
        self._served: dict[Labels, Histogram] = {}
        self._queued: dict[Labels, Histogram] = {}
        self._tools: dict[str, set[str]] = {}
        self._codes: set[str] = set()
        self._sessions: dict[str, float] = {}
        self._describe: dict[str, Callable[[str], ConnectionFacts]] = {}
        self._meter = meter
        if meter is not None:
            histogram = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=BUCKETS)
            self._operation = histogram("mcp.client.operation.duration")
            self._session = histogram("mcp.client.session.duration")
            self._attempts = meter.create_counter("mcp_actors.attempts", unit="{attempt}")

    def __repr__(self) -> str:
        return f"<Metrics {len(self._series)} series>"

    def added(self, server: str, describe: Callable[[str], ConnectionFacts]) -> None:
        """Keep the function that describes the server's sessions."""
        if self._meter is not None:
            self._describe[server] = describe

    def settled(self, attempt: Attempt) -> None:
        """Count an attempt."""
        key = _key_of(attempt)
        series = self._series.get(key) or self._find(key, attempt)
        series.count(attempt.queued, attempt.served)
        if self._meter is not None:
            self._record(series, attempt)

    def counter(self, attempt: Attempt) -> Callable[[float, float], None] | None:
        """Return a function that counts further attempts like this; None if the target has no label."""
        series = self._series.get(_key_of(attempt))
        if series is None:
            return None
        return series.count if self._meter is None else partial(self._count_and_record, series)

    def _find(self, key: tuple[object, ...], attempt: Attempt) -> Series:
        """Return the series of an attempt; keep it for the next, unless the target has no label."""
        tool = self._label_of(attempt)
        of_tool = ("server", attempt.server), ("kind", attempt.kind), ("tool", tool)
        labels = (
            *of_tool,
            ("result", attempt.result),
            ("outcome", attempt.outcome),
            ("last", str(attempt.last).lower()),
        )
        series = self._shared.get(labels)
        if series is None:
            served = None if attempt.outcome == "not_sent" else self._served.setdefault(of_tool, [0] * (TOTAL + 1))
            queued = self._queued.setdefault(of_tool[:1], [0] * (TOTAL + 1))
            series = self._shared[labels] = Series(
                labels, served, queued, self._attributes(attempt, tool), dict(labels)
            )
        if tool == (attempt.target or ""):
            self._series[key] = series
        return series

    def _label_of(self, attempt: Attempt) -> str:
        if attempt.target is None:
            return ""
        known = self._tools.setdefault(attempt.server, set())
        if attempt.target in known and attempt.kind == "tools/call":
            return attempt.target
        if len(known) >= self._max_tools or attempt.target == OTHER or not attempt.listed:
            return OTHER
        known.add(attempt.target)
        return attempt.target

    # --- OpenTelemetry ----------------------------------------------------------------------------------------------

    def _attributes(self, attempt: Attempt, tool: str) -> dict[str, str]:
        common = _common(attempt.config, attempt.protocol_version)
        named = {"gen_ai.tool.name": tool, "gen_ai.operation.name": "execute_tool"}
        return {"mcp.method.name": attempt.kind, **common, **(named if attempt.kind == "tools/call" else {})}

    def _count_and_record(self, series: Series, queued: float, served: float) -> None:
        series.count(queued, served)
        self._attempts.add(1, series.labeled)
        self._operation.record(served, series.common)

    def _record(self, series: Series, attempt: Attempt) -> None:
        self._attempts.add(1, series.labeled)
        if attempt.outcome == "not_sent":
            return
        attributes, error = series.common, attempt.error
        if attempt.result != "ok":
            attributes = {**attributes, "error.type": self._error_type(attempt)}
            if isinstance(error, MCPError):
                attributes["rpc.response.status_code"] = attributes["error.type"]
        self._operation.record(attempt.served, attributes)

    def _error_type(self, attempt: Attempt) -> str:
        error = attempt.error
        if not isinstance(error, MCPError):
            known = attempt.result != "error"
            return "timeout" if attempt.result == "timed_out" else attempt.result if known else type(error).__name__
        code = str(error.code)
        if code not in self._codes and len(self._codes) >= 20:  # a server may answer any number
            return "_OTHER"
        self._codes.add(code)
        return code

    def __call__(self, event: Event, /) -> None:
        """Record the duration of a session at its end."""
        if isinstance(event, ServerRemoved):
            self._describe.pop(event.server, None)
        if self._meter is None or not isinstance(event, StateChanged | ReplicaChanged):
            return
        name = event.replica if isinstance(event, ReplicaChanged) else event.server
        found = self._describe[event.server](name)
        if isinstance(event, StateChanged) and found.config.replicas > 1:
            return  # a ReplicaChanged came before
        if event.new in CONNECTED:
            self._sessions.setdefault(name, event.time)
        elif (began := self._sessions.pop(name, None)) is not None:
            attributes = _common(found.config, found.protocol_version)
            if found.error is not None:
                attributes["error.type"] = type(found.error).__name__
            self._session.record(event.time - began, attributes)

    # --- Prometheus -------------------------------------------------------------------------------------------------

    def text(self, servers: Observable) -> str:
        """Return all counts, and the present state of the servers, in the text format of Prometheus (0.0.4).

        Args:
            servers: the group; any thread may ask.
        """
        return "".join(f"{line}\n" for line in self._lines(servers))

    def _lines(self, servers: Observable) -> Iterator[str]:
        # Another thread may call this while the event loop counts. `list` of a dict's values is one step for the
        # interpreter, so iteration never meets a changed size; a lock would cost every call. Totals of one scrape may
        # therefore be a few attempts apart.
        series = list(self._shared.values())
        attempts = (sample("mcp_client_attempts_total", each.labels, each.number) for each in series)
        yield from family("mcp_client_attempts_total", "counter", "Attempts of requests that have ended.", attempts)
        for name, what, found in (
            ("mcp_client_operation_duration_seconds", "Time of attempts with the server.", self._served),
            ("mcp_client_queue_duration_seconds", "Time of attempts before they are handed over.", self._queued),
        ):
            lines = (line for labels, each in list(found.items()) for line in lines_of(name, labels, each))
            yield from family(name, "histogram", what, lines)
        yield from _lines_of_servers(servers.status())
        for name, what, value in OF_SOURCES:
            lines = (sample(name, [("source", each.name)], float(value(each))) for each in servers.sources)
            yield from family(name, "gauge", what, lines)


def _common(config: ServerConfig, version: str | None) -> dict[str, str]:
    common = {} if version is None else {"mcp.protocol.version": version}
    if isinstance(config.transport, Stdio):
        common["network.transport"] = "pipe"
    elif isinstance(config.transport, Socket):
        address = config.transport.address
        if isinstance(address, str) and not address.startswith("${"):
            common["network.transport"] = "unix" if address.startswith(("/", "~/")) else "tcp"
    elif isinstance(config.transport, Http | Sse):
        common |= {"network.transport": "tcp", "network.protocol.name": "http"}
    return common


def _key_of(attempt: Attempt) -> tuple[object, ...]:
    return attempt.server, attempt.target, attempt.kind, attempt.result, attempt.outcome, attempt.last


def sample(name: str, labels: Iterable[tuple[str, object]], value: float) -> str:
    written = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels)
    return f"{name}{{{written}}} {value!r}"


def _escaped(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").replace("\r", r"\\r")


def family(name: str, kind: str, what: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
    yield from lines


def _lines_of_servers(servers: Mapping[str, ServerStatus]) -> Iterator[str]:
    for name, kind, what, value in OF_SERVERS:
        lines = (sample(name, [("server", each.name)], float(value(each))) for each in servers.values())
        yield from family(name, kind, what, lines)
    states = (sample("mcp_server_state", [("server", it.name), ("state", it.state)], 1) for it in servers.values())
    yield from family("mcp_server_state", "gauge", "1 for the state that it is in.", states)
    used = [(each.name, replica, use) for each in servers.values() for replica, use in _processes(each)]
    for at, name, kind, what in (
        (0, "mcp_server_resident_memory_bytes", "gauge", "Memory of its process."),
        (1, "mcp_server_cpu_seconds_total", "counter", "Processor time of its process."),
    ):
        lines = (sample(name, [("server", server), ("replica", replica)], use[at]) for server, replica, use in used)
        yield from family(name, kind, what, lines)


def _processes(server: ServerStatus) -> Iterator[tuple[str, tuple[int, float]]]:
    """Yield memory and processor time of each process, if the system reports them (Linux)."""
    for replica in server.replicas.each:
        with suppress(OSError, ValueError, IndexError):
            if replica.pid is not None:
                fields = Path(f"/proc/{replica.pid}/stat").read_text().rpartition(")")[2].split()
                ticks = int(fields[11]) + int(fields[12])
                memory = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
                yield replica.name, (memory, ticks / os.sysconf("SC_CLK_TCK"))
