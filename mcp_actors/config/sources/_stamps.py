"""Notice that a file has changed, without reading it."""

from __future__ import annotations

import os
from typing import Final, TypeAlias

FILE_INTERVAL: Final = 1.0
"""Seconds between two looks at a file. A look is one system call, so this costs nothing that could be measured."""

Stamp: TypeAlias = tuple[int, int, int, int]
"""Device, inode, size and time of the last change: a file that was written or replaced has another one."""


def stamp_of(path: str) -> Stamp | None:
    """Return the stamp of a file; None if it cannot be found."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
