"""The README's demo does what it says, and notices when something is not so."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing
from _processes import Family
from _steps import PROGRAMS, SCRIPTS, Show, StepFailed
from main_job import first_of

from mcp_actors.testing import children

from .forkserver import interpreter, run_python
from .source import EXAMPLES, parse
from .test_examples import agrees, expected_output, only_outages

DEMO: Final = EXAMPLES / "main_job.py"
TIMEOUT: Final = 60.0

needs_real_servers = pytest.mark.skipif(
    not all((SCRIPTS / PROGRAMS[name]).exists() for name in ("time", "git")),
    reason="needs mcp-server-time and mcp-server-git: install the extra 'demo' or 'test'",
)


COLD: Final = """
import runpy, sys
program, sys.executable = sys.argv[1:]
sys.path[0] = program.rpartition("/")[0]
runpy.run_path(program, run_name="__main__")
"""
"""A program that runs another one, whose servers run in forks."""


def run_demo(folder: Path, *, cold: bool, **environment: str) -> subprocess.CompletedProcess[str]:
    words = ("-c", COLD, DEMO, interpreter()) if cold else (DEMO,)
    return run_python("-W", "error", *words, cwd=folder, env={**os.environ, **environment}, timeout=TIMEOUT, cold=cold)


@needs_real_servers
def test_the_demo_prints_what_its_docstring_says_whatever_the_users_environment_is(tmp_path: Path) -> None:
    git = shutil.which("git")
    assert git is not None
    (tmp_path / ".gitconfig").write_text("[commit]\n\tgpgsign = true\n[core]\n\thooksPath = /nowhere\n")
    finished = run_demo(tmp_path, cold=True, PATH=str(Path(git).parent), HOME=str(tmp_path), GIT_DIR="/nowhere")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    expected = expected_output(ast.get_docstring(parse(DEMO)))
    assert expected is not None
    assert agrees(finished.stdout, expected), finished.stdout
    assert only_outages(finished.stderr), finished.stderr


def test_the_demo_fails_in_the_step_that_is_not_as_it_should_be(tmp_path: Path) -> None:
    finished = run_demo(tmp_path, cold=False, PATH=str(tmp_path))  # no git there
    assert finished.returncode == 1
    assert re.search(r"^FAILED in step 1: .*'git'", finished.stderr, re.MULTILINE)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        while [child.description for child in children() if child.pid == process.pid] != ["sleep 1000"]:
            time.sleep(0.01)  # it has not been executed yet
        yield process
        process.kill()


async def test_a_process_that_is_left_fails_the_demo(
    sleeper: subprocess.Popen[bytes], autojump_clock: trio.testing.MockClock
) -> None:
    show = Show()
    with pytest.raises(StepFailed, match=rf"^left behind: process {sleeper.pid} \(sleep 1000\)$"):
        await show.wait_nothing_left()
    with pytest.raises(StepFailed, match=rf"^should be gone: process {sleeper.pid} \(sleep 1000\)$"):
        show.check_gone(sleeper.pid)


@pytest.fixture
def zombie(sleeper: subprocess.Popen[bytes]) -> int:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    return sleeper.pid


async def test_an_unnoticed_process_fails_the_demo(zombie: int, autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(StepFailed, match=rf"^left behind: process {zombie} \(zombie\)$"):
        await Show().wait_nothing_left()


async def test_a_process_that_is_gone_is_fine(sleeper: subprocess.Popen[bytes]) -> None:
    show = Show()
    assert show.family.running("sleep 1000") == [sleeper.pid]
    sleeper.kill()
    sleeper.wait()
    show.check_gone(sleeper.pid)
    await show.wait_nothing_left()


def test_a_grandchild_whose_parent_is_gone_is_found_by_its_group() -> None:
    shell = "sleep 1000 >/dev/null & echo $!; read line"
    family = Family()
    with subprocess.Popen(
        ["sh", "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        assert {process.pid for process in family.members()} >= {parent.pid, grandchild}
        parent.communicate("\n", timeout=60)
    try:
        assert [process.pid for process in family.members()] == [grandchild]
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_server_that_should_run_and_does_not_fails_the_demo() -> None:
    assert children() == []
    with pytest.raises(StepFailed, match=r"^'time' should have one process, the operating system shows \[\]$"):
        Show().process_of("time")


def test_what_went_wrong_is_found_in_groups() -> None:
    cause = StepFailed("no")
    assert first_of(cause) is cause
    assert first_of(ExceptionGroup("", [ExceptionGroup("", [cause]), ValueError()])) is cause
