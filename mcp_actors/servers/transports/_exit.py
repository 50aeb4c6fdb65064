"""Look at a child process without reaping it: wait for its exit, and see what it has become.

For the exit, Linux gives a file descriptor that becomes readable (pidfd), macOS an event (kqueue); no thread waits. A
process that has exited and was not reaped keeps its number and its group, so that the group can still be signaled: see
`_process`.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import trio

__all__ = ["has_successor", "is_stopped", "wait_exiting"]


async def wait_exiting(pid: int) -> bool:
    """Wait until a child has exited. Returns False, at once, where the system does not tell."""
    if sys.platform == "linux":
        return await _wait_pidfd(pid)
    elif sys.platform == "darwin":
        return await _wait_kqueue(pid)
    else:
        await trio.lowlevel.checkpoint()
        return False


if sys.platform == "linux":

    async def _wait_pidfd(pid: int) -> bool:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # a kernel before 5.3, or a sandbox
            await trio.lowlevel.checkpoint()
            return False
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return True

elif sys.platform == "darwin":

    async def _wait_kqueue(pid: int) -> bool:
        """Wait as `trio.Process.wait` does. Only one task may, for one process."""
        queue = trio.lowlevel.current_kqueue()

        def event(flags: int) -> select.kevent:
            return select.kevent(pid, select.KQ_FILTER_PROC, flags, select.KQ_NOTE_EXIT)

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            queue.control([event(select.KQ_EV_DELETE)], 0)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            queue.control([event(select.KQ_EV_ADD | select.KQ_EV_ONESHOT)], 0)
        except ProcessLookupError:  # it is about to be a zombie
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_kevent(pid, select.KQ_FILTER_PROC, abort)
        return True


def is_stopped(pid: int) -> bool:
    """Whether a child is stopped (SIGSTOP, state T); False where the system does not tell."""
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def has_successor(leader: int, written: int) -> bool:
    """Whether another process of a leader's session has written so many bytes; True where the system does not tell.

    When the leader of a session has exited, this tells a server that was its child from a helper that only holds its
    pipes: the server has written all that was ever read from it. Blocks: it looks at every process.
    """
    if sys.platform == "linux":
        return any(_succeeds(process, leader, written) for process in Path("/proc").iterdir())
    else:
        return True


def _succeeds(process: Path, leader: int, written: int) -> bool:
    try:
        state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        return int(session) == leader and state != "Z" and _written(process) >= written
    except PermissionError:
        return True  # it is of that session, but another user's
    except OSError:
        return False  # no process, or one that has just gone


def _written(process: Path) -> int:
    counts = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
    return int(counts["wchar"])
