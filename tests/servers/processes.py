"""Ask the operating system about processes, independently of the code under test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

import trio

State = Literal["running", "zombie", "gone"]

BOUND: Final = 90.0
"""Seconds for what takes milliseconds, so that a test fails where it would wait for ever."""


class Process(NamedTuple):
    """One process at one moment."""

    pid: int
    parent: int
    group: int
    state: str

    @property
    def zombie(self) -> bool:
        """Whether it has ended and waits for its parent to notice."""
        return self.state == "Z"


def processes() -> list[Process]:
    """List all processes there are now."""
    return _from_proc() if sys.platform == "linux" else _from_ps()


def _from_proc() -> list[Process]:
    folders = (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [process for folder in folders if (process := _read(folder)) is not None]


def _from_ps() -> list[Process]:
    lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid=,state="], capture_output=True, text=True, check=True)
    fields = (line.split() for line in lines.stdout.splitlines())
    return [Process(int(pid), int(parent), int(group), state[0]) for pid, parent, group, state in fields]


def _read(folder: Path) -> Process | None:
    try:
        text = (folder / "stat").read_text(errors="replace")
    except OSError:
        return None  # it ended while we looked
    state, parent, group = text.rpartition(")")[2].split()[:3]
    return Process(int(folder.name), int(parent), int(group), state)


def state_of(pid: int | None) -> State:
    """Say whether a process runs, has ended and waits for its parent to notice, or is gone altogether."""
    for process in processes():
        if process.pid == pid:
            return "zombie" if process.zombie else "running"
    return "gone"


def group_members(group: int) -> list[int]:
    """List the processes of a group that run."""
    return [process.pid for process in processes() if process.group == group and not process.zombie]


def parents() -> dict[int, int]:
    """Return the parent of each process that runs."""
    return {process.pid: process.parent for process in processes() if not process.zombie}


def children_of(pid: int) -> list[int]:
    """List the processes that another one has started and that run."""
    return [child for child, parent in parents().items() if parent == pid]


def child_pids() -> set[int]:
    """List our own children, zombies included."""
    return {process.pid for process in processes() if process.parent == os.getpid()}


async def freeze(pid: int) -> None:
    """Suspend a process, and wait until it is: a SIGSTOP is sent at once but takes a moment to work."""
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: any(each.pid == pid and each.state == "T" for each in processes()))


async def wait_ended(pids: Iterable[int], *, within: float = BOUND) -> None:
    """Wait until none of these processes runs any more: a SIGKILL is sent at once but takes a moment to work.

    Raises:
        trio.TooSlowError: one still runs after `within` seconds.
    """
    waited_for = set(pids)
    await eventually(lambda: all(state_of(pid) != "running" for pid in waited_for), within=within)


async def eventually(condition: Callable[[], bool], *, within: float = BOUND) -> None:
    """Wait for something that another process does, and for which there is no portable event.

    The longer it takes, the longer are the pauses between two looks: up to a twentieth of a second, and as long as a
    tenth of the time so far.

    Raises:
        trio.TooSlowError: it is not so after `within` seconds.
    """
    pause = 0.005
    with trio.fail_after(within):
        while not condition():
            await trio.sleep(pause)
            pause = min(1.1 * pause, 0.05)
