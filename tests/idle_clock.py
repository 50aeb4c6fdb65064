"""A clock that skips waits while this process and the programs that it has started are idle.

It is for tests of time-outs with real servers. While anybody works, time passes slowly, so that no time-out expires
because a machine is slow; the rest of a time-out takes milliseconds. The clock does not know what other processes wait
for, so it is not for servers that sleep for a while. Nor does it see bytes that a socket holds back: set TCP_NODELAY.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Final

import trio

from . import forkserver

GLANCE: Final = 0.002
"""Seconds between two looks at whether anybody does anything."""

WORK: Final = 0.006
"""The same while one of them works: a program that starts does so for a third of a second."""

SLOWNESS: Final = 10.0
"""Seconds of work for each second that passes on the clock."""

AT_WORK: Final = frozenset("RD")
"""States of a thread that runs, waits for a processor, or for a disk."""


class IdleClock(trio.abc.Clock, trio.abc.Instrument):
    """Runs slower than real time, and on Linux skips to the next deadline when all are idle.

    Attributes:
        skips: whether it does so now. A test sets it to False before it waits for a process that sleeps for a moment.
    """

    def __init__(self) -> None:
        self.skips = True
        self._skipped = 0.0
        self._idle = False
        self._known: set[int] = set()

    def start_clock(self) -> None:
        """Begin."""
        trio.lowlevel.add_instrument(self)

    def current_time(self) -> float:
        """Return the time, which includes all that was skipped."""
        return perf_counter() / SLOWNESS + self._skipped

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return how long to wait for events until the next look; skip the wait at the second idle look in a row.

        Data that was on its way to this process at the first look has arrived by the second.
        """
        left = deadline - self.current_time()
        if left <= 0 or math.isinf(left) or not self.skips or sys.platform != "linux":
            return left * SLOWNESS
        was_idle, self._idle = self._idle, AT_WORK.isdisjoint(_states(self._known))
        if not (was_idle and self._idle):
            return GLANCE if self._idle else WORK
        self._skipped += left
        return 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Forget the last look: something happens."""
        self._idle = False


def _states(known: set[int]) -> Iterator[str]:
    """Read the states of all threads of this process but this one, of all processes below it, and of all forks.

    Args:
        known: processes that were below this one at a look before, which is updated. The child of one that was killed
            is not below this one any more, and on a busy machine it may be killed later.
    """
    pids = list(known | {os.getpid(), *forkserver.running})
    for pid in pids:
        known.discard(pid)
        threads: list[Path] = []
        with suppress(OSError):  # a process that has just ended
            threads += Path(f"/proc/{pid}/task").iterdir()
            known.add(pid)
        for thread in threads:
            with suppress(OSError):  # a thread that has just ended
                children = map(int, (thread / "children").read_text().split())
                pids.extend(child for child in children if child not in known)
                if thread.name != str(threading.get_native_id()):
                    yield (thread / "stat").read_text().rpartition(")")[2].split()[0]
