"""Wake tasks of any event loop from any thread.

A test on asyncio and the actors that it tests may be in two threads (`mcp_actors.bridge`), and so may a scripted server
and its client. `Signal` is an event for both, `News` one that is set again and again, and `post` calls a function in a
run of Trio. The rest of this room uses them; this file imports nothing else of the package.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import anyio
import sniffio
import trio


class Signal(anyio.Event):
    """An event that any thread may set, and that tasks of any event loop may wait for."""

    def __new__(cls) -> Self:
        """Make this class, and not the event of the current event loop, as `anyio.Event` does."""
        return object.__new__(cls)

    def __init__(self) -> None:
        self._set = False
        self._wakers: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def is_set(self) -> bool:
        """Return True once it was set."""
        return self._set

    def set(self) -> None:
        """Wake all tasks that wait, in the order in which they began."""
        with self._lock:
            self._set = True
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    async def wait(self) -> None:
        """Wait until it is set.

        **Cancellation**: leaves at once.
        """
        event = anyio.Event()
        with self._lock:
            if self._set:
                event.set()
            else:
                self._wakers.append(_waker(event.set))
        await event.wait()

    def statistics(self) -> anyio.EventStatistics:
        """Return the number of waits that began before it was set, those that were cancelled included."""
        return anyio.EventStatistics(len(self._wakers))


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


class News:
    """Wakes the tasks that wait for the next note.

    Attributes:
        next: set at the next note. Take it before you look at the notes: one that another thread makes in between is
            not missed then.
    """

    def __init__(self) -> None:
        self.next = Signal()

    def wake(self) -> None:
        """Wake all tasks that wait; each looks again for what it waits for."""
        before, self.next = self.next, Signal()
        before.set()
