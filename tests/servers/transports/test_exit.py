"""Watching a child process without reaping it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from mcp_actors.transports.stdio import _process
from mcp_actors.transports.stdio._process import has_successor, is_stopped, wait_exiting

from ..groups import BOUND
from ..processes import eventually

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems report it differently, or not at all")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_the_exit_of_a_process_is_noticed_without_reaping_it(
    child: subprocess.Popen[bytes],
) -> None:
    """B-05."""
    child.terminate()
    with trio.fail_after(BOUND):
        assert await wait_exiting(child.pid)
    assert child.wait() == -signal.SIGTERM


async def test_waiting_for_an_exit_can_be_cancelled(child: subprocess.Popen[bytes]) -> None:
    with trio.move_on_after(0.01) as scope:
        await wait_exiting(child.pid)
    assert scope.cancelled_caught


@linux
async def test_without_pidfd_the_exit_is_not_reported(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-05: health checks and `stop` then find out."""

    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert not await wait_exiting(child.pid)


@linux
@pytest.mark.parametrize("exits", [False, True])
async def test_an_exit_is_noticed_although_there_were_too_many_open_files(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, exits: bool
) -> None:
    """C-03: it is looked for now and then, and reported as soon as a file can be opened."""
    pidfd_open, refused = os.pidfd_open, list[int]()

    def refuse_once(pid: int) -> int:
        if refused and not exits:
            child.terminate()
            return pidfd_open(pid)
        refused.append(pid)
        if exits:
            child.terminate()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse_once)
    monkeypatch.setattr(_process, "SHORTAGE_WAIT", 0.001)
    with trio.fail_after(BOUND):
        assert await wait_exiting(child.pid)
    assert refused
    assert child.returncode is None, "it was reaped"


@linux
def test_without_files_to_look_with_a_process_may_have_a_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """C-03: a shortage of files ends no connection."""

    def refuse(path: Path) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        assert has_successor(0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refuse)
        assert has_successor(0, 0)


@linux
async def test_a_suspended_process_is_distinguished_from_a_running_one(child: subprocess.Popen[bytes]) -> None:
    """B-06: any number of times."""
    assert not is_stopped(child.pid)
    child.send_signal(signal.SIGSTOP)
    await eventually(lambda: is_stopped(child.pid))
    assert is_stopped(child.pid)
    child.send_signal(signal.SIGCONT)
    await eventually(lambda: not is_stopped(child.pid))
    child.kill()
    child.wait()
    assert not is_stopped(child.pid)


def test_without_waitid_no_process_counts_as_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "waitid", raising=False)
    assert not is_stopped(os.getpid())


@linux
def test_a_successor_has_written_as_many_bytes_as_were_read(child: subprocess.Popen[bytes]) -> None:
    """B-05: `sleep` writes nothing."""
    assert has_successor(child.pid, 0)
    assert not has_successor(child.pid, 1)
