"""The files on the page about HTTP: for Kubernetes, a container and systemd."""

from __future__ import annotations

import json
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_actors.cli._app import make_app
from mcp_actors.gateway import _serve
from mcp_actors.gateway.http import _door, _streamable, _wire

from ...source import ROOT, blocks

PAGE = Path(ROOT, "docs/howto/gateway_http.md")


def block(language: str, number: int = 0) -> str:
    return [each.text for each in blocks(PAGE) if each.language == language][number]


def options_of(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line of ours, as the program reads it."""
    assert words[:2] == ["mcp-actors", "serve"]
    _, bound, _ = make_app().parse_args(words[1:], exit_on_error=False, print_error=False)
    return dict(bound.arguments)


def container() -> dict[str, Any]:
    return dict(
        line.split(" ", 1)
        for line in block("dockerfile").splitlines()
        if line.split(" ", 1)[0] in ("ENTRYPOINT", "CMD")
    )


def test_the_container_serves_over_http() -> None:
    found = options_of(json.loads(container()["ENTRYPOINT"]) + json.loads(container()["CMD"]))
    assert (found["config"], found["http"]) == ("/etc/mcp/servers.json", "0.0.0.0:8000")
    assert found["token_file"] == "/run/secrets/token"


def test_the_deployment_probes_what_the_gateway_answers() -> None:
    pod = yaml.safe_load(block("yaml"))["spec"]["template"]["spec"]
    [gateway] = pod["containers"]
    found = options_of(json.loads(container()["ENTRYPOINT"]) + gateway["args"])
    assert (found["http"], found["host_name"]) == ("0.0.0.0:8000", ("mcp",))
    assert found["token_file"].startswith(gateway["volumeMounts"][0]["mountPath"])
    assert gateway["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8000}
    assert gateway["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8000}
    # The secret belongs to root, and this user alone reads it through the group.
    assert (pod["volumes"][0]["secret"]["defaultMode"], pod["securityContext"]["fsGroup"]) == (0o440, 1000)
    assert pod["terminationGracePeriodSeconds"] > _door.PROBE_SECONDS + _door.DRAIN_SECONDS


def test_the_units_of_systemd_fit_together() -> None:
    unit, service = ConfigParser(), ConfigParser()
    unit.read_string(block("ini", 0))
    service.read_string(block("ini", 1))
    words = shlex.split(service["Service"]["ExecStart"])
    assert options_of(["mcp-actors", *words[1:]])["http"] == "systemd"
    assert int(unit["Socket"]["Backlog"]) >= 1024
    assert service["Service"]["KillMode"] == "mixed"
    assert float(service["Service"]["TimeoutStopSec"]) > _door.PROBE_SECONDS + _door.DRAIN_SECONDS


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ("headers", (_wire.MAX_HEAD // 1024, _wire.HEAD_SECONDS)),
        ("a body", (16, 250, _wire.BODY_SECONDS)),
        ("connections", (_door.MAX_CONNECTIONS, _wire.IDLE_SECONDS)),
        ("sessions", (_streamable.MAX_SESSIONS, _streamable.SESSION_SECONDS / 60)),
        ("data that a client does not read", (_serve.MAX_BACKLOG // 1024**2, _wire.READ_SECONDS)),
    ],
)
def test_the_limits_are_those_of_the_code(row: str, values: tuple[float, ...]) -> None:
    [line] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row} |")]
    assert [f"{value:g}" in line for value in values] == [True] * len(values)
