"""Environment variables that override single values."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_actors import Http, ServerConfig, Stdio, load_config
from mcp_actors.config import check_overrides
from mcp_actors.config._template import resolved

from ...messages import Said


def load(entry: Any, name: str = "docs") -> ServerConfig:
    loaded = load_config({"mcpServers": {name: entry}})
    assert not loaded.errors
    return loaded.servers[0]


@pytest.mark.parametrize(
    ("name", "field", "value", "entry", "changed"),
    [
        ("docs", "COMMAND", "other", {"command": "x", "args": ["a"]}, {"command": "other", "args": ["a"]}),
        ("docs", "ARGS", '["b", "c"]', {"command": "x", "args": ["a"]}, {"command": "x", "args": ["b", "c"]}),
        ("docs", "URL", "https://y.example", {"serverUrl": "https://x.example"}, {"url": "https://y.example"}),
        ("docs", "URL", "https://y.example", "https://x.example", {"url": "https://y.example"}),
        ("docs", "ENABLED", "false", {"command": "x", "disabled": False}, {"command": "x", "enabled": False}),
        ("docs", "REQUIRED", "true", {"command": "x"}, {"command": "x", "required": True}),
        (
            "docs",
            "REQUEST_TIMEOUT",
            "7.5",
            {"command": "x", "tool_timeout_sec": 3},
            {"command": "x", "mcp_actors": {"request_timeout": 7.5}},
        ),
        ("docs", "WHEN_DOWN", "fail", {"command": "x"}, {"command": "x", "mcp_actors": {"when_down": "fail"}}),
        (
            "docs",
            "RESTARTS__MAX_RESTARTS",
            "3",
            {"command": "x", "mcp_actors": {"restarts": {"window": 5, "max_restarts": 9}}},
            {"command": "x", "mcp_actors": {"restarts": {"window": 5, "max_restarts": 3}}},
        ),
        ("my.docs-1", "CWD", "/tmp", {"command": "x"}, {"command": "x", "cwd": "/tmp"}),
    ],
)
def test_a_variable_replaces_the_value_of_a_field(
    monkeypatch: pytest.MonkeyPatch, name: str, field: str, value: str, entry: Any, changed: Any
) -> None:
    """S2-19: the environment comes last and changes single values."""
    expected = load(changed, name)
    server = {"docs": "DOCS", "my.docs-1": "MY_DOCS_1"}[name]
    monkeypatch.setenv(f"MCP_ACTORS__{server}__{field}", value)
    assert load(entry, name) == expected


def test_a_credential_is_referred_to_and_never_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ENV__API_KEY", "ENV__NEW", "HEADERS__X_TEAM", "HEADERS__X_NEW", "AUTH"):
        monkeypatch.setenv(f"MCP_ACTORS__DOCS__{variable}", "hunter2-${X}")
    stdio = load({"command": "x", "env": {"api-key": "${OLD}", "B": "b"}})
    assert stdio.transport == Stdio(
        "x",
        env={"api-key": "${MCP_ACTORS__DOCS__ENV__API_KEY}", "B": "b", "NEW": "${MCP_ACTORS__DOCS__ENV__NEW}"},
    )
    http = load({"url": "https://x.example", "headers": {"X-Team": "a"}, "bearer_token": "${OLD}"})
    assert http.transport == Http(
        "https://x.example",
        headers={"X-Team": "${MCP_ACTORS__DOCS__HEADERS__X_TEAM}", "X-NEW": "${MCP_ACTORS__DOCS__HEADERS__X_NEW}"},
        auth="${MCP_ACTORS__DOCS__AUTH}",
    )


def test_a_value_is_what_a_file_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_ACTORS__DOCS__URL", "https://${HOST}/mcp")
    transport = load({"url": "https://x.example"}).transport
    assert resolved(transport, {"HOST": "h.example"}, where="docs") == Http("https://h.example/mcp")


def test_an_entry_that_a_variable_makes_invalid_names_it(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """A server that would run with the value that was to be replaced might be the wrong one."""
    monkeypatch.setenv("MCP_ACTORS__DOCS__REQUEST_TIMEOUT", "soon")
    loaded = load_config({"mcpServers": {"docs": {"command": "x"}}})
    assert not loaded.servers
    said("override: invalid value", str(loaded.errors[0]))


@pytest.mark.parametrize(
    ("row", "variable", "servers"),
    [
        ("override: unknown server", "MCP_ACTORS__DOCZ__URL", ["docs", "mail"]),
        ("override: no servers", "MCP_ACTORS__DOCS__URL", []),
        ("override: unknown field", "MCP_ACTORS__DOCS__REQUEST_TIMEOT", ["docs", "mail"]),
        ("override: a field that code sets", "MCP_ACTORS__DOCS__MIDDLEWARE", ["docs"]),
        ("override: two servers", "MCP_ACTORS__MY_DOCS__URL", ["my.docs", "my-docs"]),
        ("override: a server and a field", "MCP_ACTORS__A__ENV__URL", ["a", "a--env"]),
    ],
)
def test_a_variable_that_fits_no_server_or_two_is_an_error_that_names_both(
    said: Said, row: str, variable: str, servers: list[str]
) -> None:
    """S2-19."""
    failed = check_overrides(servers, {variable: "x", "MCP_ACTORS_CONNECT_TIMEOUT": "5", "PATH": "/bin"})
    assert [*failed] == (servers if len(servers) == 2 and "unknown" not in row else [variable])
    said(row, str(next(iter(failed.values()))))


def test_a_longer_name_is_preferred_if_only_it_has_such_a_field() -> None:
    assert not check_overrides(["a", "a--b"], {"MCP_ACTORS__A__B__URL": "x"})
