"""The text for Prometheus, and OpenTelemetry's instruments."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from mcp import MCPError
from mcp.types import CallToolResult, TextContent
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from mcp_actors import Backoff, RestartPolicy, ServerConfig, ServerError, load_config, open_servers
from mcp_actors.kernel import Event
from mcp_actors.observe import Metrics
from mcp_actors.observe._metrics import _common
from mcp_actors.servers import ReplicaChanged
from mcp_actors.testing import Fail, ScriptedServer

from ..source import ROOT
from .test_storm import exported


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels and values of a metric, by Prometheus' own parser."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


async def test_a_scrape_in_an_outage_says_which_server_and_since_when(server: ScriptedServer) -> None:
    metrics = Metrics()
    restarts = RestartPolicy(max_restarts=10, backoff=Backoff(first=60, initial=60))
    config = ServerConfig("docs", server.stdio(), restarts=restarts)
    async with open_servers(config, ServerConfig("other", server.in_process()), observers=[metrics]) as servers:
        await servers["docs"].call_tool("echo", {"text": "a"})
        [(labels, memory)] = samples(metrics.text(servers), "mcp_server_resident_memory_bytes")
        assert labels == {"server": "docs", "replica": "docs"}
        assert memory > 2**20
        server.crash()
        with trio.fail_after(20):
            await servers["docs"].wait_state("backoff")
        text = metrics.text(servers)
        changed = servers["docs"].statistics().changed_at.timestamp()
    assert ({"server": "docs", "state": "backoff"}, 1.0) in samples(text, "mcp_server_state")
    assert ({"server": "docs"}, changed) in samples(text, "mcp_server_state_since_seconds")
    assert not [labels for labels, _ in samples(text, "mcp_server_cpu_seconds_total") if labels["server"] == "docs"]


async def test_labels_stay_bounded_under_a_server_that_renames_its_tools_for_ever(server: ScriptedServer) -> None:
    metrics = Metrics(max_tools=3)
    async with open_servers(ServerConfig("x", server.in_process(), validate="off"), observers=[metrics]) as servers:
        for number in range(20):
            server.add_tool(f"tool{number}", notify=False)
            await servers["x"].list_tools()
            await servers["x"].call_tool(f"tool{number}")
            server.remove_tool(f"tool{number}", notify=False)
        text = metrics.text(servers)
    found = {labels["tool"]: value for labels, value in samples(text, "mcp_client_attempts_total")}
    assert found == {"": 20, "tool0": 1, "tool1": 1, "tool2": 1, "other": 17}
    assert len(metrics._series) <= 8


async def test_a_tool_that_is_not_listed_and_a_resource_get_no_label(server: ScriptedServer) -> None:
    metrics = Metrics()
    async with open_servers(ServerConfig("x", server.in_process()), observers=[metrics]) as servers:
        for number in range(5):
            await _raises(servers["x"].call_tool(f"invented{number}"))
            await _raises(servers["x"].read_resource(f"file:///{number}"))
        text = metrics.text(servers)
    assert {labels["tool"] for labels, _ in samples(text, "mcp_client_attempts_total")} == {"other"}
    assert metrics._series == {}


async def _raises(call: Any) -> None:
    with suppress(ServerError, MCPError):
        assert (await call).is_error


async def test_names_with_quotes_and_line_ends_can_be_parsed(server: ScriptedServer) -> None:
    metrics = Metrics()
    name = 'a"b\\c\nd'
    server.add_tool(name)
    async with open_servers(ServerConfig("x", server.in_process()), observers=[metrics]) as servers:
        await servers["x"].call_tool(name)
        text = metrics.text(servers)
    assert [labels["tool"] for labels, _ in samples(text, "mcp_client_attempts_total")] == [name]


async def test_buckets_add_up(server: ScriptedServer, autojump_clock: MockClock) -> None:
    async def slow(arguments: object) -> str:
        await trio.sleep(3)
        return "done"

    metrics = Metrics()
    server.add_tool("slow", slow)
    async with open_servers(ServerConfig("x", server.in_process()), observers=[metrics]) as servers:
        await servers["x"].call_tool("slow")
        await servers["x"].call_tool("echo", {"text": "a"})
        text = metrics.text(servers)
    buckets = samples(text, "mcp_client_operation_duration_seconds_bucket")
    assert {labels["le"]: value for labels, value in buckets if labels["tool"] == "slow"} == {
        **dict.fromkeys(("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1.0", "2.0"), 0),
        **dict.fromkeys(("5.0", "10.0", "30.0", "60.0", "120.0", "300.0", "+Inf"), 1),
    }


async def test_a_tool_that_fails_first_is_counted_by_its_results(server: ScriptedServer) -> None:
    failed = CallToolResult(content=[TextContent(type="text", text="no")], is_error=True)
    results = iter([failed, "a", "b", failed, "c"])
    server.add_tool("moody", lambda _: next(results))
    metrics = Metrics()
    async with open_servers(ServerConfig("x", server.in_process()), observers=[metrics]) as servers:
        for _ in range(5):
            await servers["x"].call_tool("moody")
        text = metrics.text(servers)
    found = {labels["result"]: value for labels, value in samples(text, "mcp_client_attempts_total")}
    assert found == {"ok": 3, "tool_error": 2}


async def test_only_attempts_that_may_have_reached_the_server_have_a_duration_there(server: ScriptedServer) -> None:
    metrics = Metrics()
    async with open_servers(ServerConfig("x", server.in_process()), observers=[metrics]) as servers:
        for arguments in ({"text": "a"}, {}, {"text": "b"}):
            with suppress(ServerError):
                await servers["x"].call_tool("echo", arguments)
        text = metrics.text(servers)
    assert [count for _, count in samples(text, "mcp_client_operation_duration_seconds_count")] == [2]
    assert [count for _, count in samples(text, "mcp_client_queue_duration_seconds_count")] == [3]


async def test_sources_say_when_they_were_read_and_if_they_are_used(tmp_path: Path, server: ScriptedServer) -> None:
    file = tmp_path / "mcp.json"
    stdio = server.stdio()
    entry = {"command": stdio.command, "args": [*stdio.args]}
    file.write_text(json.dumps({"mcpServers": {"x": entry}}))
    metrics = Metrics()
    async with open_servers(str(file), observers=[metrics]) as servers:
        before = metrics.text(servers)
        file.write_text(json.dumps({"mcpServers": {"x": entry, "y": {"command": 3}}}))
        await servers.reload()
        after = metrics.text(servers)
    source = {"source": str(file)}
    assert samples(before, "mcp_source_current") == [(source, 1)]
    assert samples(before, "mcp_source_error") == [(source, 0)]
    assert samples(after, "mcp_source_current") == [(source, 0)]
    assert samples(after, "mcp_source_error") == [(source, 1)]
    [(_, read)], [(_, again)] = samples(before, "mcp_source_read_seconds"), samples(after, "mcp_source_read_seconds")
    assert read < again


async def test_opentelemetry_gets_the_names_and_attributes_of_its_conventions(
    server: ScriptedServer, autojump_clock: MockClock
) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    server.inject(Fail(code=-32602))
    config = ServerConfig("x", server.in_process(), protocol="legacy")
    async with open_servers(config, observers=[Metrics(provider.get_meter("test"))]) as servers:
        await _raises(servers["x"].call_tool("echo", {"text": "a"}))
        await servers["x"].call_tool("echo", {"text": "a"})
        await trio.sleep(50)
    failed, done = sorted(exported(reader, "mcp.client.operation.duration"), key=lambda each: len(each.attributes))[
        ::-1
    ]
    common = {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "echo",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": "2025-11-25",
    }
    assert dict(done.attributes) == common
    assert dict(failed.attributes) == {**common, "error.type": "-32602", "rpc.response.status_code": "-32602"}
    assert done.explicit_bounds == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
    [session] = exported(reader, "mcp.client.session.duration")
    assert session.sum == pytest.approx(50, abs=1)
    assert dict(session.attributes) == {"mcp.protocol.version": "2025-11-25"}
    provider.shutdown()


async def test_a_session_without_a_request_has_its_attributes_and_the_error_that_has_ended_it(
    server: ScriptedServer,
) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = Metrics(provider.get_meter("test"))
    restarts = RestartPolicy(max_restarts=10, backoff=Backoff(first=60, initial=60))
    configs = [
        ServerConfig("pipe", server.stdio(), restarts=restarts, replicas=2, required=True),
        ServerConfig("http", server.http(), required=True),
    ]
    lost = trio.Event()

    def see(event: Event) -> None:
        if isinstance(event, ReplicaChanged) and event.new == "backoff":
            lost.set()

    async with open_servers(*configs, observers=[metrics, see]) as servers:
        await servers.wait_ready()
        pid = servers["pipe"].statistics().replicas.each[1].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with trio.fail_after(20):
            await lost.wait()
        await servers.remove("pipe")
    found = [{**each.attributes, "count": each.count} for each in exported(reader, "mcp.client.session.duration")]
    pipe = {"mcp.protocol.version": "2026-07-28", "network.transport": "pipe", "count": 1}
    http = {**pipe, "network.transport": "tcp", "network.protocol.name": "http"}
    assert sorted(found, key=len) == [pipe, {**pipe, "error.type": "ConnectionLost"}, http]
    assert [*metrics._describe] == ["http"]
    provider.shutdown()


@pytest.mark.parametrize("by", ["reload", "removal"])
async def test_a_server_that_has_replicas_no_more_has_its_sessions_recorded(server: ScriptedServer, by: str) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    config = ServerConfig("a", server.stdio(), replicas=2, required=True)
    counts = []
    async with open_servers(config, observers=[Metrics(provider.get_meter("test"))]) as servers:
        for replicas in (1, 2, 1):
            after = evolve(config, replicas=replicas)
            if by == "reload":
                await servers.reload(after)
            else:
                await servers.remove("a")
                await servers.add(after)
            await servers.wait_ready()
            counts.append(sum(each.count for each in exported(reader, "mcp.client.session.duration")))
        await servers.remove("a")
    assert [*counts, sum(each.count for each in exported(reader, "mcp.client.session.duration"))] == [2, 3, 5, 6]
    provider.shutdown()


def test_servers_of_files_with_variables_have_their_transport() -> None:
    """An address that is a variable may be a path, or a host and a port."""
    http = {"network.transport": "tcp", "network.protocol.name": "http"}
    for entry, attributes in (
        ({"command": "${A}"}, {"network.transport": "pipe"}),
        ({"url": "${A}"}, http),
        ({"type": "sse", "url": "https://${A}/sse"}, http),
        ({"socket": "h:${PORT}", "secret_file": "/secret"}, {"network.transport": "tcp"}),
        ({"socket": "/run/${A}.sock"}, {"network.transport": "unix"}),
        ({"socket": "${A}"}, {}),
    ):
        [config] = load_config({"mcpServers": {"a": entry}}).servers
        assert _common(config, None) == attributes


def test_a_negative_number_of_tools_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tools must be 0 or more, not -1"):
        Metrics(max_tools=-1)


async def test_the_queries_of_the_page_name_metrics_and_labels_that_are_scraped(
    tmp_path: Path, server: ScriptedServer
) -> None:
    page = (ROOT / "docs" / "howto" / "metrics.md").read_text()
    queries = re.findall(r"^\| [^|]+ \| `(.+)` \|$", page.partition("## Queries")[2], re.MULTILINE)
    assert len(queries) == 8
    file, metrics = tmp_path / "mcp.json", Metrics()
    stdio = server.stdio()
    file.write_text(json.dumps({"mcpServers": {"x": {"command": stdio.command, "args": [*stdio.args]}}}))
    async with open_servers(str(file), observers=[metrics]) as servers:
        await servers["x"].call_tool("echo", {"text": "a"})
        text = metrics.text(servers)
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    names = {sample.name for sample in found}
    labels = {label for sample in found for label in sample.labels}
    for query in queries:
        assert set(re.findall(r"mcp_\w+", query)) <= names, query
        grouped = re.findall(r"(?:by|on) \(([\w, ]+)\)", query)
        used = {label for each in grouped for label in each.split(", ")} | set(re.findall(r'(\w+)(?:!=|=~|=)"', query))
        assert used <= labels, query
