"""Run a command in this process, with real servers whose exits are awaited."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from ..servers.conftest import exits_are_awaited as exits_are_awaited
from .terminal import NAMED, accept_found


class Done(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


Run: TypeAlias = Callable[..., Done]


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have commands store what their users accept in a folder of the test."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in `tmp_path`, whose configuration was accepted; it says nothing of a start that takes long."""
    from mcp_actors.cli import _run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mcp_actors.cli._connect.REPORT_EVERY", math.inf)
    monkeypatch.setattr("gc.freeze", lambda: None)  # or the garbage of all tests before would stay for ever

    def run(*words: str) -> Done:
        capsys.readouterr()
        accept_found(tmp_path)
        code = _run.run(words)
        stdout, stderr = capsys.readouterr()
        return Done(code, stdout, stderr.removeprefix(NAMED))

    return run
