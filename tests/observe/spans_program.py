"""Make calls below a span, on Trio or asyncio, and print all spans: ``python -m tests.observe.spans_program HOST``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_actors import Backoff, RetryPolicy, ServerConfig, bridge, open_servers
from mcp_actors.testing import Fail, ScriptedServer

RETRY = RetryPolicy(attempts=2, backoff=Backoff())


async def make_calls(servers: Any, server: ScriptedServer) -> None:
    """Make two calls below a span, the first of which is retried."""
    exporter.clear()
    with trace.get_tracer("program").start_as_current_span("program"):
        server.inject(Fail())
        await servers["x"].call_tool("echo", {"text": "a"}, idempotent=True)
        await servers["x"].call_tool("echo", {"text": "b"}, meta={"k": 1})


def main(host: str) -> None:
    """Make the calls, and print the spans."""
    with ScriptedServer() as server:
        config = ServerConfig("x", server.stdio(), retry=RETRY)

        async def on_trio() -> None:
            async with open_servers(config) as servers:
                await make_calls(servers, server)

        async def on_asyncio() -> None:
            async with bridge.open_servers(config) as servers:
                await make_calls(servers, server)

        if host == "trio":
            trio.run(on_trio)
        else:
            asyncio.run(on_asyncio())
    print(json.dumps([json.loads(span.to_json()) for span in exporter.get_finished_spans()]))


if __name__ == "__main__":
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    main(sys.argv[1])
