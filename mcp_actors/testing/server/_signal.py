"""Wake tasks of any event loop from any thread."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import sniffio
import trio

if TYPE_CHECKING:
    from collections.abc import Callable


class Signal:
    """An event that any thread may set, and that tasks of any event loop may wait for."""

    def __init__(self) -> None:
        self._set = False
        self._wakers: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    @property
    def is_set(self) -> bool:
        """True once it was set."""
        return self._set

    def set(self) -> None:
        """Wake all tasks that wait, in the order in which they began."""
        with self._lock:
            self._set = True
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    async def wait(self) -> None:
        """Wait until it is set."""
        event = anyio.Event()
        with self._lock:
            if self._set:
                event.set()
            else:
                self._wakers.append(_waker(event.set))
        await event.wait()


def _waker(fn: Callable[[], object]) -> Callable[[], object]:
    """Return a function for any thread that calls `fn` on the event loop of the current task."""
    if sniffio.current_async_library() == "trio":
        token = trio.lowlevel.current_trio_token()
        return lambda: post(token, fn)
    loop = sys.modules["asyncio"].get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(fn)

    return wake


def post(token: trio.lowlevel.TrioToken, fn: Callable[[], object]) -> None:
    """Call a function in a run of Trio: at once if this is that run, and soon if it is another one."""
    if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is token:
        # Not by way of the token, which wakes the run through a socket: a seeded run would not be repeatable.
        fn()
    else:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(fn)
