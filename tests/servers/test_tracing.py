"""A request is traced if its span would be recorded, or the caller's span is to be propagated to the server."""

from __future__ import annotations

import pytest
from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, NoOpTracerProvider, SpanContext, TraceFlags

from mcp_actors import InProcess, ServerConfig, open_servers
from mcp_actors.servers._dispatcher import is_traced

CALLER = NonRecordingSpan(SpanContext(trace_id=1, span_id=2, is_remote=False, trace_flags=TraceFlags()))


def test_a_request_without_provider_and_span_is_not_traced() -> None:
    assert not is_traced()
    with trace.use_span(trace.INVALID_SPAN):
        assert not is_traced()


def test_a_request_below_a_span_of_its_caller_is_traced() -> None:
    with trace.use_span(CALLER):
        assert is_traced()


def test_a_request_is_traced_as_soon_as_there_is_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", NoOpTracerProvider())
    assert is_traced()


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_server_in_this_process_runs_below_the_span_of_its_caller(era: str) -> None:
    here, seen = MCPServer("here"), list[int]()

    @here.tool()
    def look() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    config = ServerConfig("here", InProcess(here), protocol="legacy" if era == "legacy" else "auto")
    async with open_servers(config) as servers:
        with trace.use_span(CALLER):
            await servers["here"].call_tool("look")
    assert seen == [2]
