"""Notice that a file has changed, without reading it."""

from __future__ import annotations

import os
import time
from typing import Final, TypeAlias

FILE_INTERVAL: Final = 1.0
"""Seconds between two looks at a file. A look is one system call, so this costs nothing that could be measured."""

TICK: Final = 0.02
"""Seconds within which two changes of a file may get the same time: kernels count it in steps of up to 10 ms."""

_MOST_TICKS: Final = 5  # that a look waits for a file which is written all the time

Stamp: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of the content and of anything else.

A file that was written or replaced, or has other permissions, has another one.
"""


def stamp_of(path: str) -> Stamp | None:
    """Return the stamp of a file; None if it cannot be found.

    A file that was changed just now is awaited for `TICK` seconds. Otherwise it could be changed again, after it was
    read, and have the same stamp.
    """
    try:
        status = os.stat(path)
        for _ in range(_MOST_TICKS):
            if not 0 <= time.time() - status.st_ctime < TICK:
                break
            time.sleep(TICK)
            status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
