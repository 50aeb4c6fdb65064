"""Count what a group of servers must not leave behind."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import trio


def census() -> dict[str, int]:
    """Count what a group must not leave behind."""
    gc.collect()
    parents = [path.read_text().rsplit(")", 1)[1].split()[1] for path in _stats()]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": parents.count(str(os.getpid())),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
    }


def _stats() -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/stat") if os.access(path, os.R_OK)]


def memory() -> int:
    """Bytes of memory that this process has, as the system counts."""
    with Path("/proc/self/statm").open() as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
