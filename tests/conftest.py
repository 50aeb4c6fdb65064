"""Fixtures and settings for every test: nothing is left behind, and hypothesis has no deadline.

A run of folders takes two processes, unless ``-n`` says otherwise.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from shlex import quote
from typing import Any, Final

import hypothesis
import pytest
import trio
from _pytest.runner import runtestprotocol

from mcp_actors.config import _template
from mcp_actors.testing import Snapshot

from . import certificates, tool_models
from .durations import Meter, Reach
from .forkserver import interpreter
from .idle_clock import IdleClock
from .importing import FRAMEWORKS
from .messages import WRITE, Said, check, table_for
from .node.packages import NodeMissing, fetch, node
from .processor_time import freeze
from .programs import FULL_SIZE, SEED, number_of
from .slice import (
    modules,
    pytest_addoption as pytest_addoption,
    pytest_collection_modifyitems as pytest_collection_modifyitems,
    pytest_ignore_collect as pytest_ignore_collect,
)
from .source import ROOT, docs_module
from .summary import Summary

# How long an example takes depends on the machine. What must not take long says so in its test.
hypothesis.settings.register_profile(
    "mcp_actors",
    max_examples=number_of(100),
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

FRAMEWORKS_AT_FIRST: Final = pytest.StashKey[frozenset[str]]()
"""The frameworks that were imported when all tests had been collected."""


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
    """Let the process that has all reports write the summary, and all processes what their tests cost if asked to."""
    if not is_worker(config):
        config.pluginmanager.register(Summary(config))
    elif config.option.durations is None and not (config.option.maxfail or config.option.xmlpath):
        config.pluginmanager.register(Brief())
    alone = is_worker(config) or not getattr(config.option, "numprocesses", None)
    if folder := os.environ.get("DURATIONS"):
        config.pluginmanager.register(Meter(folder, alone=alone))
    if alone and "REACH" in os.environ:
        config.pluginmanager.register(Reach())
    if alone:  # a run that a test starts is a part of that test
        os.environ.pop("DURATIONS", None)
        os.environ.pop("REACH", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the modules and items of a run out of all garbage collections: they stay to its end.

    There are more than a million objects, so that each full collection, and some tests ask for several, would take a
    third of a second. Young collections are made rarer too, which saves a tenth of the time of all tests: what a test
    leaves in cycles is looked for at its end, by a collection that is asked for.
    """
    gc.disable()
    import_from_the_end(session.config)
    try:
        return (yield)
    finally:
        session.config.stash[FRAMEWORKS_AT_FIRST] = frozenset(FRAMEWORKS) & sys.modules.keys()
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


STAYING: Final = 100_000
"""So many new objects after a module of tests are worth a full collection: imported frameworks, or trees of files."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep out of all garbage collections what is still there after a module of tests: it stays to the end, too.

    A collection that a test asks for takes four tenths of a second where all frameworks are imported.
    """
    if nextitem is not None and nextitem.path != item.path and len(gc.get_objects()) > STAYING:
        freeze()


def import_from_the_end(config: pytest.Config) -> None:
    """Let every second worker import the modules of tests before it collects them, the last one first.

    To compile and rewrite them all takes three times as long as to import them. So two workers meet in the middle, and
    each loads what the other one has compiled.
    """
    if int(getattr(config, "workerinput", {}).get("workerid", "gw0")[2:]) % 2:
        for path in reversed([*modules(config)]):
            with suppress(Exception, pytest.skip.Exception):  # the collection reports it
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def is_worker(config: pytest.Config) -> bool:
    """Return True if this process runs tests for another one."""
    return hasattr(config, "workerinput")


class Brief:
    """A plugin of workers that reports of each test which has passed one phase of three, and nothing at its beginning.

    To send all of them, and to read them, takes as long as the cheapest half of the tests.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test. The last report has what all phases have said."""
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if len(reports) == 3 and all(report.passed for report in reports):
            _, call, last = reports
            call.user_properties, call.sections = last.user_properties, last.sections
            reports = [call]
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure what a contributor needs to see it again; fold skips for one reason.

    A worker sends three reports of each test, and half of what they say are keywords, which are not used.
    """
    report = yield
    if report.passed:
        report.keywords = {}
    if report.skipped and report.when == "setup" and call.excinfo is not None:
        places = [entry for entry in call.excinfo.traceback if Path(entry.path).is_relative_to(ROOT / "tests")]
        if isinstance(report.longrepr, tuple):
            path, line = (str(places[-1].path), places[-1].lineno + 1) if places else (report.longrepr[0], 1)
            report.longrepr = (path, line, report.longrepr[2])
    if report.failed:
        docstring = getattr(getattr(item, "obj", None), "__doc__", None) or ""
        proves = docs_module("_guarantees").ID.findall(docstring)
        order = item.config.getoption("randomly_seed", None)
        seeds = "" if order is None else f"--randomly-seed={order} "
        again = f"PROGRAMS_SEED={SEED} python -m pytest -n 0 {seeds}{quote(item.nodeid)}"
        about = [f"it proves {each} of docs/guarantees.toml" for each in proves]
        report.sections.append(("to see it again", "\n".join([again, *about])))
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a Trio test fail if a cancellation leaves it that no scope around the test has caused.

    pytest-trio would take the test for passed, although the rest of its body has not run.
    """
    if not isinstance(item, pytest.Function):
        return
    given: Any = getattr(item.obj, "hypothesis", None)
    if inspect.iscoroutinefunction(item.obj):
        item.obj = to_its_end(item.obj)
    elif given is not None and inspect.iscoroutinefunction(given.inner_test):
        given.inner_test = to_its_end(given.inner_test)


def to_its_end(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def run(*args: object, **options: object) -> None:
        try:
            await test(*args, **options)
        except* trio.Cancelled as group:
            if trio.current_effective_deadline() > -math.inf:
                raise AssertionError("a cancellation left the test, and nothing around it is cancelled") from group
            raise

    return run


@pytest.fixture(scope="session", autouse=True)
def costly_parts_are_shared() -> None:
    """Share the certificates of this machine between all groups, and the models of tools between servers."""
    certificates.share()
    tool_models.share()


@pytest.fixture(scope="session", autouse=True)
def http_transport() -> None:
    """With ``HTTP=httpx2``, let all tests use httpx2's own transport in place of ours: they must pass with both."""
    if os.environ.get("HTTP") == "httpx2":
        client: Any = importlib.import_module("mcp_actors.transports.http._client")
        client.KeepAliveTransport = lambda context, limits: client.httpx2.AsyncHTTPTransport(context, limits=limits)


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
    """Skip a test that needs the npm packages where they are missing. All are skipped for one reason."""
    try:
        node()
        fetch()
    except NodeMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def programs_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the Python programs that a test starts by `sys.executable` in forks."""
    monkeypatch.setattr(sys, "executable", interpreter())
    monkeypatch.setitem(_template.INTERPRETERS, ".py", interpreter())


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
