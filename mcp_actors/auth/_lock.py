"""Hold a lock against other tasks and other processes.

The lock is on a file that is never replaced or removed: the second process would lock the new file. The kernel releases
the lock with its process, so a killed process leaves none behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from .._errors import ConfigError
from .._user_files import make_directory

LOOK_EVERY: Final = 0.02
"""Seconds between two attempts. A blocking attempt could not be cancelled."""

LONGEST: Final = 60.0
"""Seconds to wait. A refresh takes less than a second, and gives up after 30."""

_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, no quota, and no room below the limit for the size of a file."""


class LockHeld(ConfigError):
    """Another process keeps the lock. It may release it, so a retry may help."""


@asynccontextmanager
async def file_lock(path: Path) -> AsyncIterator[None]:
    """Hold the lock while the block runs. Each attempt is made in a thread, because a network file system may block.

    **Cancellation**: leaves the wait at once, without the lock.

    Raises:
        LockHeld: another process keeps the lock.
        ConfigError: the file cannot be created, or its file system has no locks.
    """
    try:
        descriptor = await trio.to_thread.run_sync(_open, path)
    except OSError as error:
        raise unusable(path, "created", error) from None
    try:
        until = trio.current_time() + LONGEST
        while not await trio.to_thread.run_sync(_locked, descriptor, path):
            if trio.current_time() >= until:
                problem = f"another process has held {path} for {LONGEST:g} s; end that process"
                raise LockHeld(f"token store: {problem}", source="TokenStore")
            await trio.sleep(LOOK_EVERY)
        yield
    finally:
        os.close(descriptor)  # which releases the lock


def _open(path: Path) -> int:
    make_directory(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        problem = f"the file system of {path.parent} has no locks ({error.strerror})"
        remedy = "keep tokens on a local file system: set XDG_DATA_HOME, or OAuth(store=FileTokenStore(directory))"
        raise ConfigError(f"token store: {problem}; {remedy}", source="TokenStore") from None
    return True


def unusable(path: Path, done: str, error: OSError) -> ConfigError:
    """Return the error about a file of a store that cannot be created, written or removed."""
    problem = f"{path} cannot be {done} ({error.strerror})"
    remedy = "free some space there" if error.errno in _FULL else "make its directory writable"
    elsewhere = "set XDG_DATA_HOME, or give OAuth(store=FileTokenStore(directory))"
    return ConfigError(f"token store: {problem}; {remedy}, {elsewhere}", source="TokenStore")
