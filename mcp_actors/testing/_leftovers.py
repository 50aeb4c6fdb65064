"""Find processes, descriptors, threads and asyncio tasks that a test leaves behind.

A `Snapshot` holds those of one moment, the tasks if it is asked to, and later describes what is new; idle threads of
Trio do not count. `children` lists the child processes, on Linux from ``/proc``, elsewhere by running ``ps``. This file
also reads ``/dev/fd``, the list of threads and the objects of the collector. `leftovers` kills and reaps the new child
processes, may run the collector, and blocks for about `GRACE` seconds at most for each of the other kinds. It uses
nothing else of the package, and needs no event loop.
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
"""Seconds that descriptors and threads have to go away: a worker thread of Trio hands over its result before it is
done with its own bookkeeping, which takes milliseconds on a loaded machine. Child processes have no grace."""


class Child(NamedTuple):
    """A process whose parent we are. `started` is there because process ids are used again."""

    pid: int
    started: str
    description: str


class Descriptor(NamedTuple):
    """An open file descriptor and what it is open on."""

    number: int
    target: str


class Snapshot(NamedTuple):
    """The child processes, file descriptors, threads and asyncio tasks of this process at one moment.

    Take one before a test, and ask it for `leftovers` after. The fixture `nothing_left` does so.
    """

    children: frozenset[tuple[int, str]]
    descriptors: frozenset[Descriptor]
    threads: frozenset[threading.Thread]
    tasks: frozenset[Any] | None

    @classmethod
    def take(cls, *, tasks: bool = False) -> Snapshot:
        """Return a snapshot of this moment.

        Args:
            tasks: True includes asyncio tasks. Finding them takes up to a tenth of a second in a large program.
        """
        known = frozenset((child.pid, child.started) for child in children())
        pending = frozenset(asyncio_tasks()) if tasks else None
        return cls(known, frozenset(descriptors()), frozenset(busy_threads()), pending)

    def leftovers(self) -> list[str]:
        """Describe what is new since the snapshot. New children are killed, so that the next test starts clean.

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


def children() -> list[Child]:
    """List the child processes of this one, in whatever session or group they are, zombies included."""
    found = _children_from_proc() if sys.platform == "linux" else _children_from_ps()
    return sorted(found)


def descriptors() -> list[Descriptor]:
    numbers = [int(name) for name in os.listdir("/dev/fd")]
    found = []
    for number in sorted(numbers):
        # The descriptor with which the folder was listed is closed by now.
        with suppress(OSError):
            found.append(Descriptor(number, _target(number)))
    return found


def busy_threads() -> list[threading.Thread]:
    """List the threads of this process, without Trio's idle ones."""
    # Trio keeps worker threads for ten seconds. A working one bears the name of its job, so this matches idle ones.
    return [thread for thread in threading.enumerate() if not re.fullmatch(r"Trio thread \d+", thread.name)]


def asyncio_tasks() -> list[Any]:
    """List the asyncio tasks of all event loops of this process that have not ended."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    # `asyncio.all_tasks` needs the event loop, and only the collector knows all of them. The type is asked and not the
    # object, because a proxy may answer for another object.
    return [each for each in gc.get_objects() if issubclass(type(each), asyncio.Task) and not each.done()]


def _stay(look: Callable[[], Iterable[T]], known: frozenset[T]) -> list[T]:
    """Return what `look` finds beyond `known` and still finds after `GRACE` seconds."""
    deadline = time.monotonic() + GRACE
    while found := [thing for thing in look() if thing not in known]:
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.01)
    return found


def _end(child: Child) -> None:
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


def _children_from_proc() -> Iterator[Child]:
    try:
        # Looks and reaps nothing. Most tests have no child, and to read all of /proc takes milliseconds.
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
            continue  # it ended while we looked
        # "pid (name) state ppid …": the name may contain anything, so count from its closing parenthesis.
        name, _, rest = status.partition("(")[2].rpartition(")")
        fields = rest.split()
        state, parent, started = fields[0], int(fields[1]), fields[19]
        if parent == us:
            yield Child(int(folder.name), started, "zombie of " + name if state == "Z" else command or name)


def _children_from_ps() -> Iterator[Child]:
    # Five words make up the time of start: "Thu Jan  1 00:00:00 1970".
    command = ["ps", "-A", "-o", "pid=,ppid=,state=,lstart=,command="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}) as ps:
        output, _ = ps.communicate()
    for line in output.splitlines():
        pid, parent, state, *words = line.split()
        if int(parent) == os.getpid() and int(pid) != ps.pid:
            name = " ".join(words[5:])
            yield Child(int(pid), " ".join(words[:5]), "zombie of " + name if state.startswith("Z") else name)
