"""Run the calls of a store in one thread, and lock it.

A disk or a keyring may hang, for hours if it waits for a person. So a cancelled caller leaves at once, and its call
goes on in an abandoned thread. Three rules keep a call that ends late from doing harm:

- A store has one thread, which runs its calls in order. A hanging store costs one thread, however many wait for it.
- A lock is released by that thread too, so not before the calls that were begun under it have ended.
- A call that has not begun when its caller leaves is dropped, unless something depends on it (a write, a release).

The lock is on a file that is never replaced or removed: the second process would lock the new file. The kernel releases
the lock with its process, so a killed process leaves none behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

import trio
from attrs import define, field

from .._errors import ConfigError
from .._user_files import make_directory

T = TypeVar("T")

PATIENCE: Final = 30.0
"""Seconds to wait for a call of a store. It takes milliseconds, unless a disk hangs or a keyring asks a person."""

LOOK_EVERY: Final = 0.02
"""Seconds between two attempts. A blocking attempt could not be cancelled."""

LONGEST: Final = 60.0
"""Seconds to wait. A refresh takes less than a second, and gives up after 30."""

_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, no quota, and no room below the limit for the size of a file."""

_PASSING: Final = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this system (sysctl fs.file-max)",
    errno.EIO: "check the disk",
    errno.ESTALE: "check the disk or the file server",
}
"""Errors that the next attempt may not meet, and what to do about each."""


class StoreBusy(ConfigError):
    """Another process keeps the lock, or the store cannot be used now. That may end, so a retry may help."""


@contextmanager
def patiently(seconds: float = PATIENCE) -> Iterator[None]:
    """Limit the time that a block waits for a store, also for one of the user.

    Raises:
        StoreBusy: the time is over.
    """
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise busy(seconds) from None


def busy(seconds: float) -> StoreBusy:
    """Return the error about a store that does not answer."""
    problem, remedy = f"no answer within {seconds:g} s", "unlock the keyring, or check the disk"
    return StoreBusy(f"token store: {problem}; {remedy}", source="TokenStore")


# --- the thread of a store ------------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class _Job(Generic[T]):
    """One call, and who waits for it."""

    fn: Callable[[], T]
    lasting: bool
    undo: Callable[[T], object]
    token: trio.lowlevel.TrioToken | None
    done: trio.Event = field(factory=trio.Event, init=False)
    _values: list[T] = field(factory=list, init=False)
    _error: BaseException | None = field(default=None, init=False)
    _left: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)
    _mutex: threading.Lock = field(factory=threading.Lock, init=False)

    def run(self) -> None:
        """Make the call, in the thread."""
        if self._left and not self.lasting:
            return
        try:
            self._values.append(self.fn())
        except BaseException as error:
            self._error = error
        with self._mutex:
            self._ended = True
            if self._left:
                self._undo()
        if self.token is not None:
            with suppress(trio.RunFinishedError):  # and with the run, the caller
                self.token.run_sync_soon(self.done.set)

    def leave(self) -> None:
        """Note that the caller has left."""
        with self._mutex:
            self._left = True
            if self._ended:
                self._undo()

    def _undo(self) -> None:
        for value in self._values:
            self.undo(value)

    def result(self) -> T:
        """Return the result, or raise the error."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._values[0]


class StoreThread:
    """Runs calls in one thread, in the order in which they come. It may outlive a run of Trio."""

    def __init__(self) -> None:
        self._jobs: deque[_Job[Any]] = deque()
        self._busy = False
        self._mutex = threading.Lock()

    async def run(
        self,
        fn: Callable[..., T],
        *args: object,
        lasting: bool = False,
        undo: Callable[[T], object] = lambda value: None,
    ) -> T:
        """Call a function in the thread, and return its result.

        **Cancellation**: leaves at once. A call that has begun goes on.

        Args:
            fn: the function.
            args: its arguments.
            lasting: True makes the call also if its caller has left before it began.
            undo: called with the result if the caller has left meanwhile.

        Raises:
            StoreBusy: no thread can be started.
            Exception: the function has raised it.
        """
        job = _Job(partial(fn, *args), lasting, undo, trio.lowlevel.current_trio_token())
        try:
            self._post(job)
        except RuntimeError as error:
            problem = f"no thread can be started for it ({error}); raise the limit of processes (ulimit -u)"
            raise StoreBusy(f"token store: {problem}", source="TokenStore") from None
        try:
            await job.done.wait()
        except BaseException:
            job.leave()
            raise
        return job.result()

    def post(self, fn: Callable[..., object], *args: object) -> None:
        """Call a function in the thread, and do not wait for it."""
        job = _Job(partial(fn, *args), lasting=True, undo=lambda value: None, token=None)
        try:
            self._post(job)
        except RuntimeError:
            job.run()

    def _post(self, job: _Job[Any]) -> None:
        with self._mutex:
            self._jobs.append(job)
            if self._busy:
                return
            try:
                trio.lowlevel.start_thread_soon(self._work, lambda outcome: None, "token store")
            except RuntimeError:
                self._jobs.pop()
                raise
            self._busy = True

    def _work(self) -> None:
        while True:
            with self._mutex:
                if not self._jobs:
                    self._busy = False
                    return
                job = self._jobs.popleft()
            job.run()


_threads: Final[WeakValueDictionary[str, StoreThread]] = WeakValueDictionary()


def thread_of(store: str) -> StoreThread:
    """Return the thread of a store: the same one for all objects with its name, since each connection makes one."""
    return _threads.setdefault(store, StoreThread())


# --- the lock -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def file_lock(path: Path, thread: StoreThread) -> AsyncIterator[None]:
    """Hold the lock while the block runs, and until the calls of the thread that were begun in it have ended.

    **Cancellation**: leaves the wait at once, without the lock.

    Raises:
        StoreBusy: another process keeps the lock.
        ConfigError: the file cannot be created, or its file system has no locks.
    """
    try:
        descriptor = await thread.run(_open, path, undo=os.close)
    except OSError as error:
        raise unusable(path, "created", error) from None
    try:
        until = trio.current_time() + LONGEST
        while not await thread.run(_locked, descriptor, path):
            if trio.current_time() >= until:
                problem = f"another process has held {path} for {LONGEST:g} s; end that process"
                raise StoreBusy(f"token store: {problem}", source="TokenStore")
            await trio.sleep(LOOK_EVERY)
        yield
    finally:
        # After a write that hangs. A network file system may block here too.
        thread.post(_release, descriptor)


def _open(path: Path) -> int:
    make_directory(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if (passing := busy_file(path, "locked", error)) is not None:
            raise passing from None
        problem = f"the file system of {path.parent} has no locks ({error.strerror})"
        remedy = "keep tokens on a local file system: set XDG_DATA_HOME, or OAuth(store=FileTokenStore(directory))"
        raise ConfigError(f"token store: {problem}; {remedy}", source="TokenStore") from None
    return True


def _release(descriptor: int) -> None:
    # Explicitly: a child that this program has forked meanwhile has the file open too, and would keep the lock.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def unusable(path: Path, done: str, error: OSError) -> ConfigError:
    """Return the error about a file of a store that cannot be created, written or removed."""
    passing = busy_file(path, done, error)
    if passing is not None:
        return passing
    remedy = "free some space there" if error.errno in _FULL else "make its directory writable"
    elsewhere = "set XDG_DATA_HOME, or give OAuth(store=FileTokenStore(directory))"
    problem = f"{path} cannot be {done} ({error.strerror})"
    return ConfigError(f"token store: {problem}; {remedy}, {elsewhere}", source="TokenStore")


def busy_file(path: Path, done: str, error: OSError) -> StoreBusy | None:
    """Return the error about a file if its failure says nothing about the file, and may pass; otherwise None."""
    remedy = _PASSING.get(error.errno or 0)
    if remedy is None:
        return None
    return StoreBusy(f"token store: {path} cannot be {done} ({error.strerror}); {remedy}", source="TokenStore")
