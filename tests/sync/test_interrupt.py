"""Ctrl-C in a program without an event loop: it is raised at the call, and leaves nothing behind.

Some tests are about real processes, and one presses the key at a terminal. Others interrupt single lines.
"""

from __future__ import annotations

import gc
import os
import pty
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from mcp_actors import sync
from mcp_actors.sync import open_servers
from tests.forkserver import start_python
from tests.interrupter import Interrupter, with_bound
from tests.programs import FULL_SIZE
from tests.servers.fleet import wait_calls
from tests.servers.groups import BOUND, pids_in, server
from tests.servers.interruptible import SLOW_TO_STOP
from tests.servers.links import wait_for_line
from tests.servers.processes import eventually, state_of, wait_ended
from tests.servers.test_interrupt import Program, program
from tests.source import ROOT

from .test_calls import wait_until

INTERRUPTS: Final = 10_000 if FULL_SIZE else 10


@asynccontextmanager
async def sync_program(folder: Path, *arguments: str) -> AsyncIterator[Program]:
    async with program(folder, *arguments, module="tests.sync.interruptible") as it:
        yield it


async def test_ctrl_c_at_a_terminal_is_raised_at_the_call_and_the_program_goes_on(tmp_path: Path) -> None:
    """The server gets the notice; calls of other threads are answered, and nothing is in flight afterwards."""
    log, pids, skip, said, complained = (tmp_path / name for name in ("log", "pids", "skip", "out", "err"))
    files = ("--log-file", str(log), "--pid-file", str(pids), "--skip-file", str(skip))
    keyboard, terminal = pty.openpty()
    try:
        with (
            said.open("w") as out,
            complained.open("w") as err,
            start_python(
                *("-m", "tests.sync.interruptible", "terminal", *files),
                cwd=ROOT,
                stdin=terminal,
                stdout=out,
                stderr=err,
                start_new_session=True,
            ) as process,
        ):
            try:
                await wait_calls(log, 5)
                os.write(keyboard, b"\x03")
                await eventually(lambda: process.poll() is not None)
            finally:
                process.kill()
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert (process.returncode, complained.read_text()) == (0, "")
    assert said.read_text().splitlines() == ["ready", "interrupted", "goes on: on, 0 in flight", "leaving"]
    assert len([line for line in log.read_text().splitlines() if line.startswith("notifications/cancelled")]) == 1
    await wait_ended(pids_in(pids))


async def test_ctrl_c_during_a_call_that_is_not_caught_ends_the_program(tmp_path: Path) -> None:
    async with sync_program(tmp_path, "call", "--spawn-grandchild") as it:
        await wait_calls(it.log, 1)
        it.interrupt()
        await it.ends_as_interrupted()
        assert "eof" in it.log.read_text().splitlines()


async def test_ctrl_c_while_a_server_starts(tmp_path: Path) -> None:
    async with sync_program(tmp_path, "idle", "--never-answer") as it:
        await wait_for_line(it.log, "initialize")
        it.interrupt()
        await it.ends_as_interrupted()


async def test_ctrl_c_between_the_calls_of_a_busy_program(tmp_path: Path) -> None:
    async with sync_program(tmp_path, "load") as it:
        await it.wait_said("ready")
        it.interrupt()
        await it.ends_as_interrupted()


async def test_ctrl_c_in_a_progress_callback(tmp_path: Path) -> None:
    async with sync_program(tmp_path, "progress", "--progress", "3") as it:
        await wait_calls(it.log, 1)
        it.interrupt()
        await it.ends_as_interrupted()


async def test_ctrl_c_during_the_stop_comes_after_it(tmp_path: Path) -> None:
    """A second one, too."""
    async with sync_program(tmp_path, "leave", *SLOW_TO_STOP) as it:
        await it.wait_said("leaving")
        await wait_for_line(it.log, "eof")
        it.interrupt()
        it.interrupt()
        assert it.process.poll() is None
        it.skip_waits()
        await it.ends_as_interrupted()


# --- At every line ----------------------------------------------------------------------------------------------------

FOLDER: Final = str(Path(sync.__file__).parent)
BRIDGE: Final = str(Path(sync.__file__).parents[1] / "bridge")

NOT_BEGUN: Final = pytest.mark.filterwarnings(
    "ignore:coroutine '.*' was never awaited:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""Python complains of a coroutine that is interrupted before its first line."""


def interrupted(at: int | None, fn: Callable[[], object], path: str) -> tuple[int, bool]:
    """Run a function, interrupted at one line of some files; return how many there were, and whether it was."""
    interrupter = Interrupter(at, path)
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        with_bound(fn)
    except KeyboardInterrupt:
        return interrupter.lines, True
    finally:
        sys.settrace(before)
    return interrupter.lines, False


def assert_interrupted(line: int, fn: Callable[[], object], path: str) -> None:
    """Interrupt a function at one line; a call whose answer comes at once has fewer lines than one that waits."""
    ran, was = interrupted(line, fn, path)
    assert was or ran < line, line


def test_an_interrupt_in_a_clause_for_an_error_is_not_the_context_of_later_errors() -> None:
    """CPython's trace functions would make it that."""

    def handle() -> None:
        try:
            raise ValueError
        except ValueError:
            return

    lines, _ = interrupted(None, handle, __file__)
    assert [interrupted(line, handle, __file__) for line in range(1, lines + 1)] == [
        (line, True) for line in range(1, lines + 1)
    ]
    assert sys.exc_info() == (None, None, None)


@NOT_BEGUN
@pytest.mark.parametrize("path", [FOLDER, BRIDGE], ids=["sync", "bridge"])
def test_ctrl_c_at_any_line_of_a_call_withdraws_it_and_the_servers_remain_usable(path: str) -> None:
    """Another thread calls meanwhile, and gets all its answers."""
    stop = threading.Event()
    answers: list[str] = []

    def use() -> None:
        while not stop.is_set():
            answers.append(servers["a"].call("echo", text="other"))

    with open_servers(server("a")) as servers:
        other = threading.Thread(target=use)
        other.start()
        try:
            view = servers["a"]
            lines, _ = interrupted(None, lambda: view.call("echo", text="x"), path)
            assert lines > 10
            for line in chosen(lines):
                before = len(answers)
                assert_interrupted(line, lambda: view.call("echo", text="x"), path)
                with_bound(lambda: view.call("echo", text="on"))
                wait_until(lambda before=before: len(answers) > before)  # type: ignore[misc]  # a default
            wait_until(lambda: view.statistics().in_flight <= 1)
        finally:
            stop.set()
            other.join()
        wait_until(lambda: (view.statistics().in_flight, view.statistics().queued) == (0, 0))
        assert all(request.answered for request in view._bridge._waiting)
    assert set(answers) == {"other"}


def chosen(lines: int) -> list[int]:
    """Choose some lines, or all."""
    return sorted(random.sample(range(1, lines + 1), min(lines, INTERRUPTS)))


@NOT_BEGUN
@pytest.mark.parametrize("path", [FOLDER, str(Path(BRIDGE, "_block.py"))], ids=["sync", "bridge"])
def test_ctrl_c_at_any_line_of_a_block_leaves_no_thread_and_no_process(path: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def block() -> None:
        with open_servers(server("a", "--pid-file", str(pids))) as servers:
            servers["a"].call("echo", text="x")

    lines, _ = interrupted(None, block, path)
    assert lines > 10
    for line in chosen(lines):
        assert_interrupted(line, block, path)
        gc.collect()
        wait_until(lambda: not [each for each in threading.enumerate() if each.name == "mcp_actors: Trio"])
        wait_until(lambda: all(state_of(pid) == "gone" for pid in pids_in(pids)))


def test_ctrl_c_that_the_kernel_gives_to_another_thread_is_raised_within_a_second() -> None:
    """Python's handler runs in the main thread only, which such a signal does not wake."""

    def press() -> None:
        wait_until(lambda: servers["a"].statistics().in_flight == 1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    with open_servers(server("a", request_timeout=3 * BOUND)) as servers:
        other = threading.Thread(target=press)
        other.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            servers["a"].call("sleep", seconds=600)
        assert time.monotonic() - began < BOUND
        other.join()
        assert servers["a"].call("echo", text="on") == "on"
