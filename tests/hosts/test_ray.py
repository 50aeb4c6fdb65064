"""A gateway in an actor of Ray, in a cluster of two nodes on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from ..forkserver import run_python
from ..source import ROOT
from .cluster import IN_FLIGHT, NOT_STARTED, PART, Report

TIMEOUT: Final = 280.0
"""Seconds for one program: they take half a minute; this is for a machine that is busy with other things."""

LATE: Final = 2.0
"""Seconds from the moment when Ray has restarted the actor until calls are answered again, at most."""

needs_ray = pytest.mark.skipif(
    sys.platform != "linux" or find_spec("ray") is None, reason="needs Ray on Linux: install the extra 'ray'"
)


def played(module: str, *arguments: str) -> Any:
    """Run a program with a cluster of its own; return what it prints."""
    with tempfile.TemporaryDirectory() as folder:  # short, because Ray's sockets are in it
        command = [sys.executable, "-m", f"tests.hosts.{module}", *arguments, folder]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if finished.returncode == NOT_STARTED:
        pytest.skip(f"Ray does not start here: {finished.stderr.splitlines()[-1]}")
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.fixture
def play(record_property: Callable[[str, object], None]) -> Callable[[str], Report]:
    """Play a scenario, and check what holds in each."""

    def play(scenario: str) -> Report:
        report = Report(**played("cluster", scenario))
        record_property("note", str(report))
        assert report.others == {}
        assert (report.doubled, report.unheard, report.unasked) == (0, 0, 0)
        assert report.answered <= report.executed <= report.answered + report.unknown
        assert report.unknown <= report.losses * IN_FLIGHT
        assert all(after - before <= LATE for before, after in zip(report.engine, report.served, strict=True))
        assert report.left == []
        return report

    return play


@needs_ray
def test_calls_go_to_a_host_that_ray_has_placed(play: Callable[[str], Report]) -> None:
    report = play("calm")
    assert report.unknown == 0
    assert report.answered > 2 * PART


@needs_ray
@pytest.mark.parametrize(("scenario", "losses"), [("kill_worker", 2), ("kill_node", 1)])
def test_queued_calls_are_carried_on_by_the_host_that_ray_starts_after_a_kill(
    scenario: str, losses: int, play: Callable[[str], Report]
) -> None:
    report = play(scenario)
    assert report.losses == losses == len(report.served)


@needs_ray
def test_a_connection_outlives_a_node_that_ray_believes_dead(play: Callable[[str], Report]) -> None:
    """The old host goes on while the new one runs. A restart of the server moves to the new one; no call is lost."""
    report = play("freeze_node")
    assert report.outlived == PART
    assert report.unknown == 0


@needs_ray
def test_checks_break_the_connection_to_a_host_that_is_suspended(play: Callable[[str], Report]) -> None:
    assert play("freeze_worker").losses == 1


@needs_ray
def test_a_user_reads_why_there_is_no_address() -> None:
    said = played("words")
    assert said["not connected"] == "this process is not connected to Ray; call ray.init(address=…) first"
    for asked, namespace in {"no actor": "tests", "another namespace": "elsewhere"}.items():
        problem = f"Ray has no actor 'tools' in namespace {namespace!r}, or it has died for good"
        assert said[asked] == f"{problem}; start it, or set namespace=…"
    assert re.fullmatch(r"[\d.]+:\d+", said["address"])
    for name, reason in {
        "no file": r".*no\.json.*",
        "no servers": r".*nothing\.json has no enabled server",
        "open secret": r".*can be read by other users.*",
        "two servers": r".* MCP_ACTORS__A__ENV__URL: this fits the servers 'a' and 'a__env'; rename one of them",
    }.items():
        assert re.fullmatch(rf"actor '{name}' of Ray has died for good \({reason}\); start it again", said[name])
    assert said["suspended"].startswith("actor 'tools' of Ray did not answer within 3 s: it is starting or suspended, ")
    assert said["longest step"] < 1.0
    assert said["cancelled after"] < 1.0
    assert said["resumed"] == said["address"]
    whole = [True, "not_sent", "a", ["a note"], "OSError(5, 'the cable is cut')"]
    assert said["returned"] == said["raised"] == whole
    assert said["restarted"] is True


def test_without_ray_the_import_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; import mcp_actors.hosts; import mcp_actors.hosts.ray"
    finished = run_python("-c", code, cwd=tmp_path, timeout=60)
    assert finished.returncode != 0
    remedy = "needs the package 'ray', which is not installed; run: pip install 'mcp-actors[ray]'"
    assert f"ImportError: mcp_actors.hosts.ray {remedy}" in finished.stderr
