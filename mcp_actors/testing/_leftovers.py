"""Find processes, descriptors, threads and asyncio tasks that a test leaves behind.

Descriptors, threads and tasks get `GRACE` seconds to go away. Child processes started since the snapshot before the
test are killed.

Owns: snapshots; a ``ps`` process.
Writes: signals to child processes. Runs the garbage collector.
Calls: nothing.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

GRACE: Final = 10.0
"""Seconds for descriptors, threads and tasks to go away."""


class ChildProcess(NamedTuple):
    """A child process. `started` tells apart processes with the same id."""

    pid: int
    started: str
    description: str


class Descriptor(NamedTuple):
    number: int
    target: str


class Snapshot(NamedTuple):
    """The process at one moment: its child processes, file descriptors, threads and asyncio tasks.

    Take a snapshot before a test, and call `leftovers` after, as the fixture `nothing_left` does.
    """

    children: frozenset[tuple[int, str]]
    descriptors: frozenset[Descriptor]
    threads: frozenset[threading.Thread]
    tasks: frozenset[Any] | None

    @classmethod
    def take(cls, *, tasks: bool = False) -> Snapshot:
        """Return a snapshot of the present moment.

        Args:
            tasks: True includes asyncio tasks. Finding them takes up to a tenth of a second in a large program.
        """
        known = frozenset((child.pid, child.started) for child in children())
        pending = frozenset(asyncio_tasks()) if tasks else None
        return cls(known, frozenset(descriptors()), frozenset(busy_threads()), pending)

    def leftovers(self) -> list[str]:
        """Describe everything new since the snapshot. New children are killed, so that the next test starts clean.

        Idle worker threads of Trio do not count. Descriptors, threads and tasks get some seconds to go away.
        """
        strays = [child for child in children() if (child.pid, child.started) not in self.children]
        for child in strays:
            _end(child)
        return [
            *(f"child process {child.pid}: {child.description}" for child in strays),
            *(f"file descriptor {number}: {target}" for number, target in _stay(descriptors, self.descriptors)),
            *(f"thread {thread.name!r}" for thread in _stay(busy_threads, self.threads)),
            *(
                f"asyncio task {task.get_name()!r}"
                for task in ([] if self.tasks is None else _stay(asyncio_tasks, self.tasks))
            ),
        ]


def children() -> list[ChildProcess]:
    """List all child processes, in any session or group, zombies included."""
    return sorted(_children_from_proc() if sys.platform == "linux" else _children_from_ps())


def descriptors() -> list[Descriptor]:
    found = []
    for number in sorted(map(int, os.listdir("/dev/fd"))):
        # The descriptor that listed the folder is closed by now.
        with suppress(OSError):
            found.append(Descriptor(number, _target(number)))
    return found


def busy_threads() -> list[threading.Thread]:
    # Trio keeps idle worker threads for ten seconds. A working thread has a job's name, so only idle threads match.
    return [thread for thread in threading.enumerate() if not re.fullmatch(r"Trio thread \d+", thread.name)]


def asyncio_tasks() -> list[Any]:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    # `asyncio.all_tasks` needs the event loop; only the collector knows all tasks. Ask the type, not the object: a
    # proxy may answer for another object.
    return [each for each in gc.get_objects() if issubclass(type(each), asyncio.Task) and not each.done()]


def _stay(look: Callable[[], Iterable[T]], known: frozenset[T]) -> list[T]:
    deadline = time.monotonic() + GRACE
    while found := [thing for thing in look() if thing not in known]:
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.01)
    return found


def _end(child: ChildProcess) -> None:
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child.pid, 0)


def _target(number: int) -> str:
    if sys.platform == "linux":
        return os.readlink(f"/proc/self/fd/{number}")
    else:
        status = os.fstat(number)
        return f"mode {status.st_mode:o}, device {status.st_dev}, inode {status.st_ino}"


def _children_from_proc() -> Iterator[ChildProcess]:
    try:
        # Raises without a child, as in most tests, and reaps nothing. Reading /proc takes milliseconds.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    us = os.getpid()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            status = (folder / "stat").read_text(errors="replace")
            command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
        except OSError:
            continue
        # "pid (name) state ppid …": the name may contain anything, so count from its closing parenthesis.
        name, _, rest = status.partition("(")[2].rpartition(")")
        fields = rest.split()
        state, parent, started = fields[0], int(fields[1]), fields[19]
        if parent == us:
            yield ChildProcess(int(folder.name), started, "zombie of " + name if state == "Z" else command or name)


def _children_from_ps() -> Iterator[ChildProcess]:
    # The time of start has five words: "Thu Jan  1 00:00:00 1970".
    command = ["ps", "-A", "-o", "pid=,ppid=,state=,lstart=,command="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}) as ps:
        output, _ = ps.communicate()
    for line in output.splitlines():
        pid, parent, state, *words = line.split()
        if int(parent) == os.getpid() and int(pid) != ps.pid:
            name = " ".join(words[5:])
            yield ChildProcess(int(pid), " ".join(words[:5]), "zombie of " + name if state.startswith("Z") else name)
