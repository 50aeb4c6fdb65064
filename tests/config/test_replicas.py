"""The number of processes of a server: where it is refused, and how files have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from mcp_actors import ConfigError, Http, InProcess, ServerConfig, Socket, Sse, Stdio
from mcp_actors.config import dump_config, load_config
from mcp_actors.config._transports import HttpOrSse
from mcp_actors.config._values import Written

from ..messages import Said


@pytest.mark.parametrize("replicas", [0, -1, True, 2.0, "3", None])
def test_replicas_are_a_whole_number(replicas: Any) -> None:
    with pytest.raises(ConfigError, match=r"server 'a': replicas=.* is not valid; give a whole number of 1 or more"):
        ServerConfig("a", Stdio("a"), replicas=replicas)


@pytest.mark.parametrize(
    ("row", "transport", "options"),
    [
        ("replicas over HTTP", Http("https://a.example/mcp"), {}),
        ("replicas over SSE", Sse("https://a.example/sse"), {}),
        ("replicas of a URL with variables", HttpOrSse(Written("https://${HOST}/mcp")), {}),
        ("replicas over a socket", Socket("/run/x.sock"), {}),
        ("replicas in process", InProcess(MCPServer("a")), {}),
        ("replicas with an order", Stdio("a"), {"max_in_flight": 1}),
        ("replicas that end the group", Stdio("a"), {"on_failure": "raise"}),
    ],
)
def test_replicas_are_refused_where_they_make_no_sense(
    row: str, transport: Any, options: dict[str, Any], said: Said
) -> None:
    """S2-30: a server that serializes its calls keeps something between them, and others have no processes."""
    with pytest.raises(ConfigError) as refused:
        ServerConfig("a", transport, replicas=3, **options)
    assert refused.value.path == "servers.a.replicas"
    said(row, str(refused.value))
    assert ServerConfig("a", transport, replicas=1, **options).replicas == 1


def test_replicas_are_a_setting_of_a_file_and_written_back(tmp_path: Path) -> None:
    """S2-30: in files, in the environment and in `dump_config`."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "a", "mcp_actors": {"replicas": 3}}}}))
    [config] = load_config(path).servers
    assert config.replicas == 3
    assert dump_config([config])["mcpServers"]["a"]["mcp_actors"]["replicas"] == 3


def test_the_environment_overrides_the_number_of_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "${HOME}/a"}}}))
    monkeypatch.setenv("MCP_ACTORS__A__REPLICAS", "4")
    assert [config.replicas for config in load_config(path).servers] == [4]


def test_a_file_with_replicas_of_an_endpoint_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"url": "https://a.example", "mcp_actors": {"replicas": 2}}}}))
    [error] = load_config(path).failed.values()
    assert "mcpServers.a.mcp_actors.replicas: replicas=2 is not valid" in str(error)
