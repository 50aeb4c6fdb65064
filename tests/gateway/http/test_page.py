"""The files on the page about HTTP: for Kubernetes, a container and systemd."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from mcp_actors import ServerConfig, Stdio
from mcp_actors.cli._app import make_app
from mcp_actors.gateway import _budget, _listen, _network, _news, _output, _serve, _session
from mcp_actors.gateway.http import _door, _streamable, _wire
from mcp_actors.transports.socket import HANDSHAKE_SECONDS

from ...source import ROOT, blocks

PAGE = Path(ROOT, "docs/howto/gateway_http.md")

LONGEST_END: Final = _door.PROBE_SECONDS + _listen.DRAIN_SECONDS + ServerConfig("any", Stdio("any")).stop_timeout
"""Seconds from SIGTERM to the end of the process."""


IN_ALL: Final = (_budget.IN_FLIGHT // 1024**2, _budget.COPIES, _budget.CALL_OVERHEAD // 1024)
"""The row of the requests of all clients in flight."""


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


def entry() -> list[str]:
    """Return the command of ours that the container runs, behind its first process."""
    words: list[str] = json.loads(container()["ENTRYPOINT"])
    assert words[0] == "dumb-init"
    return words[1:]


def test_the_container_serves_over_http() -> None:
    found = options_of(entry() + json.loads(container()["CMD"]))
    assert (found["config"], found["http"]) == ("/etc/mcp/servers.json", "0.0.0.0:8000")
    assert found["token_file"] == "/run/secrets/token"


def test_the_deployment_probes_what_the_gateway_answers() -> None:
    pod = yaml.safe_load(block("yaml"))["spec"]["template"]["spec"]
    [gateway] = pod["containers"]
    found = options_of(entry() + gateway["args"])
    assert (found["http"], found["host_name"]) == ("0.0.0.0:8000", ("mcp",))
    assert found["token_file"].startswith(gateway["volumeMounts"][0]["mountPath"])
    assert gateway["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8000}
    assert gateway["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8000}
    assert gateway["readinessProbe"]["periodSeconds"] < _door.PROBE_SECONDS
    # The secret belongs to root, and this user alone reads it through the group. See test_access.py.
    assert pod["volumes"][0]["secret"]["defaultMode"] == 0o440
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000}
    assert "--uid 1000" in block("dockerfile")
    assert pod["terminationGracePeriodSeconds"] > LONGEST_END


def test_the_units_of_systemd_fit_together() -> None:
    unit, service = ConfigParser(), ConfigParser()
    unit.read_string(block("ini", 0))
    service.read_string(block("ini", 1))
    words = shlex.split(service["Service"]["ExecStart"].replace("\\\n", ""))
    found = options_of(["mcp-actors", *words[1:]])
    assert (found["http"], found["token_file"]) == ("systemd", "${CREDENTIALS_DIRECTORY}/token")
    assert service["Service"]["LoadCredential"].startswith("token:")
    assert int(unit["Socket"]["Backlog"]) >= 1024
    assert service["Service"]["KillMode"] == "mixed"
    assert float(service["Service"]["TimeoutStopSec"]) > LONGEST_END


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is missing")
@pytest.mark.parametrize(("was", "became", "wrong"), [("", "", ""), ("KillMode", "KilMode", "Unknown key 'KilMode'")])
def test_systemd_finds_nothing_wrong_with_the_units(was: str, became: str, wrong: str, tmp_path: Path) -> None:
    files = [tmp_path / "mcp.socket", tmp_path / "mcp.service"]
    for number, file in enumerate(files):
        file.write_text(block("ini", number).replace("/usr/bin/mcp-actors", "/bin/sh").replace(was, became) + "\n")
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, files)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, wrong in ran.stderr) == (int(bool(wrong)), True), ran.stderr


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ("headers", (_wire.MAX_HEAD // 1024, _wire.HEAD_SECONDS)),
        ("a body", (16, 250, _wire.BODY_SECONDS)),
        ("connections", (_door.MAX_HTTP_CONNECTIONS,)),
        ("a connection without a request", (_wire.IDLE_SECONDS, _wire.HEAD_SECONDS)),
        ("sessions", (_streamable.MAX_HTTP_SESSIONS,)),
        ("a session without a request", (_streamable.SESSION_SECONDS / 60,)),
        (
            "messages of a session for a stream that is not open",
            (_streamable.MAX_KEPT, _streamable.MAX_KEPT_BYTES // 1024**2),
        ),
        ("requests of a session in flight", (_session.MAX_CALLS,)),
        ("requests of all clients in flight", IN_ALL),
        ("data that a client does not read", (_wire.READ_SECONDS,)),
        ("data that waits for all clients", (_budget.WAITING // 1024**2, _budget.STALLED)),
        ("processes of servers `per-session`", (_budget.PROCESSES,)),
    ],
)
def test_the_limits_are_those_of_the_code(row: str, values: tuple[float, ...]) -> None:
    check_row(PAGE, row, values)


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ("clients", (_serve.MAX_CLIENTS,)),
        ("connections over TCP that have not proven the secret", (_network.MAX_UNPROVEN, HANDSHAKE_SECONDS)),
        ("a message", (_serve.MAX_MESSAGE // 1024**2, _serve.MAX_MESSAGE_VALUES // 1000)),
        ("requests of a client in flight", (_session.MAX_CALLS,)),
        ("requests of all clients in flight", IN_ALL),
        ("subscriptions of a client", (_news.MAX_WATCHED, _news.MAX_URI // 1024)),
        ("data that a client does not read", (_output.OUTPUT_BACKLOG // 1024**2,)),
        ("data that waits for all clients", (_budget.WAITING // 1024**2, _budget.STALLED)),
        ("processes of servers `per-session`", (_budget.PROCESSES,)),
    ],
)
def test_the_limits_over_stdio_and_sockets_are_those_of_the_code(row: str, values: tuple[float, ...]) -> None:
    check_row(Path(ROOT, "docs/howto/gateway.md"), row, values)


def check_row(page: Path, row: str, values: tuple[float, ...]) -> None:
    """Check that a row of a table of limits has these values."""
    [line] = [line for line in page.read_text().splitlines() if line.startswith(f"| {row} |")]
    assert [value for value in values if not re.search(rf"\b{value:g}\b", line)] == []
