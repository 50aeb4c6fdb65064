"""The fixture that watches over all tests is itself worth nothing unless it finds things."""

from __future__ import annotations

import argparse
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from mcp_actors.testing import Snapshot, _leftovers

from . import conftest
from .conftest import FRAMEWORKS_AT_FIRST

pytest_plugins = ["pytester"]

SLEEP_FOR_EVER = [sys.executable, "-c", "import time; print(flush=True); time.sleep(3600)"]


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests that leave something behind on purpose not wait for it to go away."""
    monkeypatch.setattr(_leftovers, "GRACE", 0.0)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, as stdio servers are."""
    with start_sleeper() as process:
        yield process
        process.kill()


def start_sleeper() -> subprocess.Popen[bytes]:
    """Return a process that runs its program already: until the end of `exec` it has no command line yet."""
    process = subprocess.Popen(SLEEP_FOR_EVER, start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        output.readline()
    return process


def test_a_test_that_hangs_fails_and_is_named(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    """A row whose test would wait for ever when its behavior is taken away must fail all the same."""
    assert 0 < float(pytestconfig.getini("faulthandler_timeout")) < 600
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
    pytester.makepyfile("import time\ndef test_that_hangs():\n    time.sleep(3600)\n")
    result = run_pytest("-o", "faulthandler_timeout=0.1", "-o", "faulthandler_exit_on_timeout=true")
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*Timeout*", "*test_that_hangs*"])


def test_no_framework_is_imported_to_collect_tests(pytestconfig: pytest.Config) -> None:
    """They take several seconds of each worker; a test imports its framework when it runs."""
    assert pytestconfig.stash[FRAMEWORKS_AT_FIRST] == set()


@pytest.mark.parametrize(("path", "is_kept_out"), [("a.py", False), ("b.py", True)])
def test_what_is_there_after_a_module_is_kept_out_of_collections(
    path: str, is_kept_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "STAYING", 1_000)
    before, kept = gc.get_freeze_count(), [[place] for place in range(2_000)]
    ended, following = (argparse.Namespace(path=Path(each)) for each in ("a.py", path))
    conftest.pytest_runtest_teardown(ended, following)  # type: ignore[arg-type]  # it needs no more
    assert (gc.get_freeze_count() - before > len(kept)) is is_kept_out


def test_nothing_is_found_when_nothing_is_left() -> None:
    assert Snapshot.take().leftovers() == []


def test_a_running_child_in_another_session_is_found_and_ended() -> None:
    before = Snapshot.take()
    with start_sleeper() as process:
        [found] = before.leftovers()
        assert found.startswith(f"child process {process.pid}: {sys.executable}")
        assert before.leftovers() == []


def test_a_zombie_is_found() -> None:
    before = Snapshot.take()
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    [found] = before.leftovers()
    assert found.startswith(f"child process {process.pid}: zombie of ")
    process.wait()


def test_a_child_that_was_there_before_is_not_the_tests(sleeper: subprocess.Popen[bytes]) -> None:
    assert Snapshot.take().leftovers() == []
    assert sleeper.poll() is None


@pytest.mark.usefixtures("no_grace")
def test_an_open_file_is_found_by_its_name(tmp_path: Path) -> None:
    before = Snapshot.take()
    with open(tmp_path / "left.txt", "w") as file:
        [found] = before.leftovers()
        assert found.startswith(f"file descriptor {file.fileno()}: ")
        if sys.platform == "linux":
            assert found.endswith("left.txt")


@pytest.mark.usefixtures("no_grace")
def test_both_ends_of_a_socket_pair_are_found() -> None:
    before = Snapshot.take()
    left, right = socket.socketpair()
    with left, right:
        assert len(before.leftovers()) == 2
    assert before.leftovers() == []


@pytest.mark.usefixtures("no_grace")
def test_a_descriptor_that_is_reused_for_something_else_is_found(tmp_path: Path) -> None:
    first = os.open(tmp_path / "first", os.O_CREAT)
    before = Snapshot.take()
    os.close(first)
    second = os.open(tmp_path / "second", os.O_CREAT)
    try:
        assert second == first
        assert len(before.leftovers()) == 1
    finally:
        os.close(second)


@pytest.mark.usefixtures("no_grace")
def test_a_thread_is_found_by_its_name() -> None:
    before = Snapshot.take()
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="straggler")
    thread.start()
    assert before.leftovers() == ["thread 'straggler'"]
    done.set()
    thread.join()
    assert before.leftovers() == []


def test_a_thread_that_is_about_to_end_has_grace() -> None:
    before = Snapshot.take()
    done = threading.Event()
    threading.Thread(target=done.wait).start()
    threading.Timer(0.05, done.set).start()
    assert before.leftovers() == []


def test_trio_itself_leaves_nothing_that_counts() -> None:
    before = Snapshot.take()
    trio.run(trio.to_thread.run_sync, time.monotonic)
    trio.run(trio.run_process, [sys.executable, "-c", ""])
    assert before.leftovers() == []


def test_a_test_that_leaves_something_fails_and_the_next_one_does_not(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.makeconftest("from tests.conftest import nothing_left_behind")
    pytester.makepyfile(
        f"""
        import subprocess
        import trio

        async def test_a_leaves_a_child():
            await trio.lowlevel.open_process({SLEEP_FOR_EVER!r}, start_new_session=True)

        async def test_b_leaves_nothing():
            await trio.run_process({SLEEP_FOR_EVER[:2]!r} + [""])
        """
    )
    pytester.makeini("[pytest]\ntrio_mode = true")
    result = run_pytest("-p", "trio")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_a_leaves_a_child*", "left behind:", "  child process *"])


def test_a_test_that_a_cancellation_leaves_fails_unless_something_around_it_is_cancelled(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.makeconftest("from tests.conftest import pytest_runtest_setup")
    pytester.makepyfile(
        """
        import hypothesis
        import trio

        async def of_another_task():
            with trio.CancelScope() as scope:
                scope.cancel()
                try:
                    await trio.sleep_forever()
                except trio.Cancelled as error:
                    return error

        async def test_a_leaves_with_a_cancellation():
            raise await of_another_task()

        async def test_b_has_it_in_a_group():
            raise BaseExceptionGroup("two", [await of_another_task(), LookupError()])

        @hypothesis.given(hypothesis.strategies.just(1))
        async def test_c_leaves_with_it_in_an_example(example):
            raise await of_another_task()

        async def test_d_is_cancelled_with_what_is_around_it(nursery):
            nursery.cancel_scope.cancel()
            await trio.sleep_forever()

        async def test_e_ends_by_itself():
            await trio.lowlevel.checkpoint()
        """
    )
    pytester.makeini("[pytest]\ntrio_mode = true")
    result = run_pytest("-p", "trio")
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(["*a cancellation left the test, and nothing around it is cancelled*"])


def test_a_failure_says_how_to_see_it_again_and_which_guarantee_it_proves(
    pytester: pytest.Pytester, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport")
    pytester.makepyfile('def test_of_a_row():\n    """K1: of a sentence."""\n    assert False\n')
    result = run_pytest()
    result.stdout.fnmatch_lines(
        ["*to see it again*", "PROGRAMS_SEED=* python -m pytest *::test_of_a_row", "it proves K1 *"]
    )
