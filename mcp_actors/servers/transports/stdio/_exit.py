"""Watch the exit and suspension of a child process without reaping it.

Linux reports an exit through a file descriptor (pidfd), macOS through an event (kqueue), so no thread has to wait. A
process that has exited keeps its pid and its process group until it is reaped, so the group can still be signaled (see
`_process`).
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import Final

import trio

from ...basics import own_shortage

SHORTAGE_WAIT: Final = 0.5
"""Seconds between two looks at a process while this program cannot open the file that reports its exit."""


async def wait_exiting(pid: int) -> bool:
    """Wait until a child has exited and return True; return False at once if the system does not report that."""
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
            while (descriptor := _open_pidfd(pid)) is None:
                await trio.sleep(SHORTAGE_WAIT)
                if has_exited(pid):
                    return True
        except OSError:  # a kernel before 5.3, or a sandbox that forbids it
            await trio.lowlevel.checkpoint()
            return False
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return True

    def _open_pidfd(pid: int) -> int | None:
        """Return a descriptor of a process; None if there are too many of them now."""
        try:
            return os.pidfd_open(pid)
        except OSError as error:
            if own_shortage(error) is None:
                raise
            return None

    def has_exited(pid: int) -> bool:
        """Return True if a child has exited, without reaping it."""
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

elif sys.platform == "darwin":

    async def _wait_kqueue(pid: int) -> bool:
        queue = trio.lowlevel.current_kqueue()

        def event(flags: int) -> select.kevent:
            return select.kevent(pid, select.KQ_FILTER_PROC, flags, select.KQ_NOTE_EXIT)

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            queue.control([event(select.KQ_EV_DELETE)], 0)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            queue.control([event(select.KQ_EV_ADD | select.KQ_EV_ONESHOT)], 0)
        except ProcessLookupError:  # it has just exited, and kqueue no longer finds it
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_kevent(pid, select.KQ_FILTER_PROC, abort)
        return True


def is_stopped(pid: int) -> bool:
    """Return True if a child is stopped (SIGSTOP, state T); False if the system does not report that."""
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def has_successor(leader: int, written: int) -> bool:
    """Return True if another process of the leader's session has written so many bytes, or if that is unknown.

    After the exit of the leader, this distinguishes a server that was its child from a helper that merely inherited its
    pipes: the server wrote all bytes that were read. Blocks, because it reads the status of every process.
    """
    if sys.platform == "linux":
        try:
            return any(_succeeds(process, leader, written) for process in Path("/proc").iterdir())
        except OSError:
            return True  # a shortage of files, for example
    else:
        return True


def _succeeds(process: Path, leader: int, written: int) -> bool:
    try:
        state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
        return int(session) == leader and state != "Z" and _written(process) >= written
    except PermissionError:
        return True  # a process of this session (see the line above) that belongs to another user
    except OSError as error:
        # Usually it is not a process, or one that has just exited. Without a file to look with, that is unknown.
        return own_shortage(error) is not None


def _written(process: Path) -> int:
    counts = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
    return int(counts["wchar"])
