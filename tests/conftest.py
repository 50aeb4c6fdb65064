"""Fixtures and settings for every test: nothing is left behind, and hypothesis has no deadline.

A run of folders takes two processes, unless ``-n`` says otherwise.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from mcp_actors.testing import Snapshot

from .forkserver import interpreter
from .idle_clock import IdleClock
from .messages import WRITE, Said, check, table_for
from .node.packages import NodeMissing, fetch, node
from .programs import FULL_SIZE
from .source import ROOT
from .summary import Summary

# How long an example takes depends on the machine. What must not take long says so in its test.
hypothesis.settings.register_profile(
    "mcp_actors",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=not (FULL_SIZE or "PROGRAMS_SEED" in os.environ),
)
hypothesis.settings.load_profile("mcp_actors")

# What a shell runs in the background, it runs deaf to Ctrl-C, and nohup to the end of a terminal; and so would be all
# programs that are interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


WORKERS: Final = 2


@pytest.hookimpl(tryfirst=True)  # before that of pytest-xdist
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use two workers for folders, and none for single files, for a debugger, or where tests write."""
    option = config.option
    if is_worker(config) or getattr(option, "numprocesses", 0) is not None or option.dist != "no":
        return
    folders = any(Path(argument).is_dir() for argument in config.args)
    if folders and not option.usepdb and option.capture != "no" and not WRITE:
        option.numprocesses, option.dist = WORKERS, "worksteal"
        keep_bytecode(config)


def keep_bytecode(config: pytest.Config) -> None:
    """Keep the bytecode of a run in a folder of its own where the environment allows no other.

    Without it all interpreters that the tests start compile the SDK, and some of them the frameworks, again.
    """
    if sys.dont_write_bytecode:
        folder = tempfile.mkdtemp(prefix="mcp_actors-bytecode-")
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config: pytest.Config) -> None:
    """Let the process that has all reports write the summary."""
    if not is_worker(config):
        config.pluginmanager.register(Summary(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the modules and items of a run out of all garbage collections: they stay to its end.

    There are more than a million objects, so that each full collection, and some tests ask for several, would take a
    third of a second. Young collections are made rarer too, which saves a tenth of the time of all tests: what a test
    leaves in cycles is looked for at its end, by a collection that is asked for.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


def is_worker(config: pytest.Config) -> bool:
    """Return True if this process runs tests for another one."""
    return hasattr(config, "workerinput")


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a child process, an open file descriptor or a busy thread.

    It is synchronous, so for a Trio test it looks before `trio.run` begins and after it has ended. It is the first
    fixture to be set up and the last to be torn down; what fixtures of a wider scope hold is not the test's.
    """
    before = Snapshot.take()
    yield
    if found := before.leftovers():
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(scope="session")
def npm_packages() -> None:
    """Skip a test that needs the npm packages where they are missing; one of ``tests/node`` fails there."""
    try:
        node()
        fetch()
    except NodeMissing:
        pytest.skip("the npm packages are missing; tests/node/test_packages.py says what to do")


@pytest.fixture
def programs_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the Python programs that a test starts by `sys.executable` in forks."""
    monkeypatch.setattr(sys, "executable", interpreter())


@pytest.fixture
def run_pytest(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, programs_in_forks: None
) -> Callable[..., pytest.RunResult]:
    """Run pytest in a fork, with the plugins that its arguments name; it can import this project."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester: pytest.Pytester = request.getfixturevalue("pytester")
    return pytester.runpytest_subprocess


@pytest.fixture
def idle_clock() -> IdleClock:
    """Run a Trio test with a clock that skips waits in which neither it nor its child processes do anything."""
    return IdleClock()


@pytest.fixture
def said(request: pytest.FixtureRequest) -> Said:
    """Compare a message with its row in the table of the test's folder."""
    return partial(check, table_for(request.path.parent))
