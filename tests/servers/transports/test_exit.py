"""Watching a child process without reaping it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio

from mcp_actors.servers.transports.stdio._exit import has_successor, is_stopped, wait_exiting

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
