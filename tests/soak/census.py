"""Count what a group of servers must not leave behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import trio


def census() -> dict[str, int]:
    """Count what a group must not leave behind."""
    gc.collect()
    parents = [text.rsplit(")", 1)[1].split()[1] for text in _stats()]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": parents.count(str(os.getpid())),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
    }


def _stats() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended meanwhile
            yield path.read_text()


def memory() -> int:
    """Bytes of memory that this process has, as the system counts."""
    with Path("/proc/self/statm").open() as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
