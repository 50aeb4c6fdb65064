"""The logger ``mcp_actors.traffic`` has every message of a server, masked and cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import attrs
import pytest

from mcp_actors import ServerConfig, Stdio, open_servers
from mcp_actors.testing import ScriptedServer

from ..servers.groups import server as reporting

SECRET = "s3cr3t-of-the-server"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


async def test_every_message_of_one_server_is_logged_masked_and_cut(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="mcp_actors.traffic.x")
    stdio = server.stdio()
    assert isinstance(stdio, Stdio)
    stdio = attrs.evolve(stdio, env={"TOKEN": SECRET})
    async with open_servers(ServerConfig("x", stdio), ServerConfig("y", server.in_process())) as servers:
        await servers["x"].call_tool("echo", {"text": f"{SECRET} {'a' * 10_000}"})
        await servers["y"].call_tool("echo", {"text": "not logged"})
    records = [each for each in caplog.records if each.name.startswith("mcp_actors.traffic")]
    assert {each.name for each in records} == {"mcp_actors.traffic.x"}
    calls = [each for each in records if vars(each).get("mcp_method") == "tools/call"]
    assert [vars(each).get("mcp_direction") for each in calls] == ["out", "in"]
    assert len({vars(each).get("mcp_request_id") for each in calls}) == 1
    assert {vars(each).get("mcp_server") for each in records} == {"x"}
    assert {vars(each).get("mcp_method") for each in records} >= {"tools/list", "tools/call"}
    assert all(SECRET not in each.getMessage() and len(each.getMessage()) < 4200 for each in records)
    assert all("<env.TOKEN>" in each.getMessage() for each in calls)


async def test_notifications_and_errors_are_logged_too(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="mcp_actors.traffic")
    async with open_servers(ServerConfig("x", server.in_process(), protocol="legacy")) as servers:
        with pytest.raises(Exception, match="resources"):
            await servers["x"].read_resource("a:b")
        assert servers["x"].state == "ready"
    sent = [vars(each).get("mcp_method") for each in caplog.records if vars(each).get("mcp_direction") == "out"]
    assert sent[:3] == ["initialize", "notifications/initialized", "tools/list"]


async def test_reports_of_progress_over_stdio_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    """Unless messages are logged, the reader passes them straight to their callback."""
    caplog.set_level(logging.DEBUG, logger="mcp_actors.traffic")
    seen: list[float] = []
    async with open_servers(reporting("x", "--progress", "2")) as servers:
        await servers["x"].call_tool("add", {"a": 1, "b": 2}, progress=lambda progress, *_: seen.append(progress))
    reports = [each for each in caplog.records if vars(each).get("mcp_method") == "notifications/progress"]
    assert len(reports) == len(seen) == 2
