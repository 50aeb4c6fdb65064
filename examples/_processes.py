"""Processes as the operating system reports them, so that the demo does not have to trust the library it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process at one moment. A zombie has exited, and its parent has not waited for it yet."""

    pid: int
    parent: int
    group: int
    zombie: bool
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({'zombie' if self.zombie else self.command})"


class Family:
    """The children of this process, and whatever else is in the process groups that they have led.

    A child of a child is found by its group, also after its own parent is gone.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()

    def members(self) -> list[Process]:
        """Look at all processes now, and list those of this family.

        Zombies are included, but for those whose parent is not this process: nothing can be done about them here.
        """
        everything = list(_from_proc() if sys.platform == "linux" else _from_ps())
        ours = {
            process.group for process in everything if process.parent == os.getpid()
        }
        self._groups |= ours - {os.getpgrp()}
        return [
            process
            for process in everything
            if process.parent == os.getpid()
            or (process.group in self._groups and not process.zombie)
        ]

    def running(self, program: str) -> list[int]:
        """List the process ids of the members that run and have `program` in their command line."""
        return [
            process.pid
            for process in self.members()
            if program in process.command and not process.zombie
        ]


def _from_proc() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            status = (folder / "stat").read_text(errors="replace")
            command = (
                (folder / "cmdline")
                .read_text(errors="replace")
                .replace("\0", " ")
                .strip()
            )
        except OSError:
            continue  # it ended while we looked
        # "pid (name) state parent group …": the name may contain anything, so count from its closing parenthesis.
        state, parent, group = status.rpartition(")")[2].split()[:3]
        yield Process(int(folder.name), int(parent), int(group), state == "Z", command)


def _from_ps() -> Iterator[Process]:  # pyright: ignore[reportUnusedFunction]  # used on macOS
    columns = ["ps", "-A", "-ww", "-o", "pid=,ppid=,pgid=,state=,command="]
    with subprocess.Popen(
        columns, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as ps:
        output, _ = ps.communicate(timeout=10)
    for line in output.splitlines():
        pid, parent, group, state, *command = line.split(maxsplit=4)
        if int(pid) != ps.pid:
            yield Process(
                int(pid),
                int(parent),
                int(group),
                state.startswith("Z"),
                " ".join(command),
            )
