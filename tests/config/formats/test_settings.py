"""Settings of this package are under ``mcp_actors`` in an entry, and are validated as in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from mcp_actors import Backoff, BreakerPolicy, HealthPolicy, Http, RestartPolicy, RetryPolicy, ServerConfig, Stdio
from mcp_actors.config import RetryBudget, load_config
from mcp_actors.config.formats._keys import SETTABLE

from ...messages import Said
from .writing import load, one, wrong

HOST = "https://example.com"


def test_every_setting_of_a_server_can_be_made(tmp_path: Path) -> None:
    """S2-04: the fields of a configuration, the bearer token included."""
    settings = {
        "required": True,
        "on_failure": "raise",
        "protocol": "legacy",
        "connect_timeout": 1.5,
        "startup_timeout": 15,
        "request_timeout": None,
        "progress_timeout": 0,
        "stop_timeout": 2,
        "max_in_flight": 1,
        "mailbox_size": 3,
        "overflow": "fail",
        "when_down": "fail",
        "restarts": {"max_restarts": 2, "reset_after": None, "backoff": {"initial": 1, "factor": 3}},
        "retry": {"attempts": 2, "isolated": True, "budget": {"max_tokens": 5}},
        "breaker": {"failures": 3},
        "health": {"interval": None, "fail_after": 20},
        "validate": "schema",
        "trust_annotations": True,
    }
    http: dict[str, Any] = {
        "auth": "${TOKEN}",
        "max_connections": 7,
        "keepalive": 8,
        "max_body_bytes": 9,
        "verify": "/ca.pem",
    }
    expected = ServerConfig(
        "docs",
        Http(HOST, **http),
        required=True,
        on_failure="raise",
        protocol="legacy",
        connect_timeout=1.5,
        startup_timeout=15,
        request_timeout=None,
        progress_timeout=None,
        stop_timeout=2,
        max_in_flight=1,
        mailbox_size=3,
        overflow="fail",
        when_down="fail",
        restarts=RestartPolicy(max_restarts=2, reset_after=None, backoff=Backoff(initial=1, factor=3)),
        retry=RetryPolicy(attempts=2, isolated=True, budget=RetryBudget(max_tokens=5)),
        breaker=BreakerPolicy(failures=3),
        health=HealthPolicy(interval=None, fail_after=20),
        validate="schema",
        trust_annotations=True,
    )
    assert one(tmp_path, {"url": HOST, "mcp_actors": {**settings, **http}}) == expected


def test_so_can_those_of_a_command(tmp_path: Path) -> None:
    settings = {"env_from": ["TOKEN"], "max_line_bytes": 100, "connect": "lazy", "breaker": None}
    expected = ServerConfig("docs", Stdio("x", env_from=("TOKEN",), max_line_bytes=100), connect="lazy")
    assert one(tmp_path, {"command": "x", "mcp_actors": settings}) == expected


def test_unencrypted_http_can_be_allowed(tmp_path: Path) -> None:
    plain = "http://example.com/mcp"
    assert one(tmp_path, {"url": plain, "mcp_actors": {"allow_insecure": True}}).transport == Http(
        plain, allow_insecure=True
    )


def test_nothing_of_a_server_was_forgotten() -> None:
    """Every option of a server is in the entry, in the settings, or takes a function."""
    elsewhere = {"name", "transport", "enabled", "source", "middleware", "callbacks", "client_info", "extensions"}
    assert {attribute.name for attribute in attrs.fields(ServerConfig)} - elsewhere <= SETTABLE


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({"conect_timeout": 3}, "mcp_actors: unknown setting"),
        ({"timeout": 3}, "mcp_actors: a word of several settings"),
        ([], "mcp_actors: found a list"),
        (None, "mcp_actors: found None"),
        (
            {"middleware": []},
            "mcp_actors.middleware: a file cannot hold the Python objects that this takes",
        ),
        ({"command": "y"}, "mcp_actors.command: this belongs in the entry itself, next to 'mcp_actors'"),
        ({"stop_timeout": 0}, "mcp_actors.stop_timeout: stop_timeout=0 is not valid"),
        ({"restarts": 3}, "mcp_actors.restarts: found an int"),
        ({"restarts": {"max": 3}}, "mcp_actors.restarts: unknown setting"),
        ({"backoff": {"initial": 1}}, "mcp_actors: a setting of two others"),
        ({"restarts": {"attempts": 3}}, "mcp_actors.restarts: a setting of another"),
        ({"restarts": {"request_timeout": 3}}, "mcp_actors.restarts: a setting one level higher"),
        ({"limits": {"max_list_bytes": "8MB"}}, "mcp_actors.limits: an int in quotes"),
        ({"restarts": {"backoff": {"factor": 0}}}, "mcp_actors.restarts.backoff: factor=0 is not valid"),
        (
            {"retry": {"attempts": 0}},
            "mcp_actors.retry: attempts=0 is not valid",
        ),
        ({"max_connections": 3}, "mcp_actors.max_connections: 'max_connections' is not an option of Stdio"),
        ({"validate": {}}, "mcp_actors.validate: validate=<JsonObject> is not valid"),
        ({"max_in_flight": [1]}, "mcp_actors.max_in_flight: max_in_flight=<tuple> is not valid"),
    ],
)
def test_an_invalid_setting_is_an_error(tmp_path: Path, settings: Any, row: str, said: Said) -> None:
    said(row, wrong(tmp_path, {"command": "x", "mcp_actors": settings}))


def test_an_invalid_entry_can_still_be_required(tmp_path: Path) -> None:
    servers = {
        "a": {"required": True},
        "b": {"mcp_actors": {"required": True}},
        "c": {"mcp_actors": {"required": False}},
        "d": {"mcp_actors": 3},
        "e": {"required": True, "disabled": True},
        "f": {"required": True, "command": "x"},
    }
    loaded = load(tmp_path, {"mcpServers": servers})
    assert list(loaded.failed) == ["a", "b", "c", "d"]
    assert loaded.required == {"a", "b"}


def test_a_mapping_is_read_as_a_file_is() -> None:
    loaded = load_config({"mcpServers": {"docs": {"command": "x", "mcp_actors": {"retry": {"attempts": 1}}}}})
    assert loaded.servers == (ServerConfig("docs", Stdio("x"), retry=RetryPolicy(attempts=1)),)
    assert loaded.source == "a mapping"
