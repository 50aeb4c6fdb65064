"""Wake tasks of any event loop from any thread.

Actors and scripted servers may be in other threads than the test. Neither Trio's nor asyncio's events can be set from
another thread.

Owns: wakers of waiting tasks.
Writes: wake-up calls in event loops.
Calls: nothing.
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
    """An event that any thread may set, and that tasks of any event loop may await."""

    def __new__(cls) -> Self:
        """Make a `Signal`: `anyio.Event` would make an event of the current event loop."""
        return object.__new__(cls)

    def __init__(self) -> None:
        self._set = False
        self._wakers: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        with self._lock:
            self._set = True
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    async def wait(self) -> None:
        """Wait until set. **Cancellation** ends the wait."""
        event = anyio.Event()
        with self._lock:
            if self._set:
                event.set()
            else:
                self._wakers.append(_waker(event.set))
        await event.wait()

    def statistics(self) -> anyio.EventStatistics:
        """Return how many waits `set` would end, including cancelled waits."""
        return anyio.EventStatistics(len(self._wakers))


def _waker(fn: Callable[[], object]) -> Callable[[], object]:
    """Return a function that calls `fn` on the current task's event loop, from any thread."""
    if sniffio.current_async_library() == "trio":
        token = trio.lowlevel.current_trio_token()
        return lambda: post(token, fn)
    loop = sys.modules["asyncio"].get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(fn)

    return wake


def post(token: trio.lowlevel.TrioToken, fn: Callable[[], object]) -> None:
    """Call a function in a run of Trio: at once within this run, soon from elsewhere."""
    if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is token:
        # Don't use the token, which wakes the run through a socket: a seeded run would not be repeatable.
        fn()
    else:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(fn)


class NoteSignal:
    """Wakes the tasks that wait for the next note, such as a recorded event.

    Attributes:
        next: set at the next note. Take `next` before looking at the notes, or a note from another thread in between
            is missed.
    """

    def __init__(self) -> None:
        self.next = Signal()

    def wake(self) -> None:
        before, self.next = self.next, Signal()
        before.set()
