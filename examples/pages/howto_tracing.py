"""The OpenTelemetry spans of a connect and of a tool call.

Prints::

    span 'MCP send server/discover'
    span 'MCP send tools/list'
    span 'plan a trip'
    span 'MCP send tools/call get_current_time', child of 'plan a trip'
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import trio
from opentelemetry import trace

from mcp_actors import ServerConfig, Stdio, open_servers

tracer = trace.get_tracer("trips")


async def main() -> None:
    async with open_servers(ServerConfig("time", Stdio("mcp-server-time"))) as servers:
        with tracer.start_as_current_span("plan a trip"):
            oslo = {"timezone": "Europe/Oslo"}
            await servers["time"].call_tool("get_current_time", oslo)


class Named(trace.NonRecordingSpan):
    """A span that has a name and belongs to trace 42."""

    def __init__(self, name: str) -> None:
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        super().__init__(trace.SpanContext(42, 7, is_remote=False, trace_flags=flags))
        self._name = name

    def __repr__(self) -> str:
        return repr(self._name)


class Printer(trace.TracerProvider, trace.Tracer):
    """Print each span. Use the SDK of OpenTelemetry, with an exporter, instead."""

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, *args: Any, **options: Any) -> trace.Span:
        parent = trace.get_current_span(options.get("context"))
        inside = parent.get_span_context().is_valid
        print(f"span {name!r}" + (f", child of {parent}" if inside else ""))
        return Named(name)

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # theirs is a decorator, too
        self, name: str, *args: Any, **options: Any
    ) -> Generator[trace.Span]:
        with trace.use_span(self.start_span(name, *args, **options)) as span:
            yield span


trace.set_tracer_provider(Printer())
trio.run(main)
