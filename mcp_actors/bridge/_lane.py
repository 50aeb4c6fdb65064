"""Run functions in another thread, in order, with few wake-ups."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    import asyncio

HAS_EVENTFD: Final = hasattr(os, "eventfd")
"""Whether a lane can have a `_Bell`. On Linux it can."""

Step = Callable[[], object]
"""A function to be run on the other side. It must not raise."""


class Lane:
    """One direction between two threads: runs functions on the other side, in the order in which they were put in.

    Waking a thread costs more than everything else here, so the other side is woken once for all functions that are put
    in before it runs the first of them. While it listens, it is woken by a bell, which costs half of `wake`.

    Args:
        wake: schedules a function on the other side; may raise if that side has ended.
    """

    __slots__ = ("_bell", "_steps", "_wake", "_woken")

    def __init__(self, wake: Callable[[Step], object]) -> None:
        self._wake = wake
        self._steps: deque[Step] = deque()
        self._woken = False
        self._bell = _Bell() if HAS_EVENTFD else None

    def put(self, step: Step) -> None:
        """Schedule a function on the other side.

        Raises:
            RuntimeError: the other side has ended, and the function does not run, unless it has run in the last
                moment. (asyncio raises it as such, Trio as `trio.RunFinishedError`.)
        """
        # There is no lock: both sides share a deque and a flag. The step is appended before the flag is read here, and
        # `run` lowers the flag before it counts the steps. So a step is either counted by the run that is under way or
        # wakes the other side again; in the opposite order a step could wait in the deque with nothing to wake for it.
        self._steps.append(step)
        if not self._woken:
            self._woken = True
            try:
                if self._bell is None or not self._bell.ring():
                    self._wake(self.run)
            except BaseException:
                self._woken = False
                raise

    def run(self) -> None:
        """Run the functions that were put in. Called on the other side."""
        self._woken = False  # before the steps are counted, see `put`
        # Steps that arrive meanwhile wait for the next wake-up, so a busy sender cannot keep this loop from ending.
        for _ in range(len(self._steps)):
            self._steps.popleft()()

    def listen_on_trio(self) -> None:
        """Listen until the Trio run of this thread ends."""
        if self._bell is not None:
            trio.lowlevel.spawn_system_task(self._bell.listen, self.run, name="mcp_actors: bridge")

    def listen_on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen on the event loop of this thread until `close`."""
        if self._bell is not None:
            self._bell.listen_on(loop, self.run)

    def close(self) -> None:
        """Stop listening. Called in the thread of the event loop, when the Trio run has ended."""
        if self._bell is not None:
            self._bell.close()


class _Bell:
    """Wakes a thread that listens to it, with one system call on each side.

    `TrioToken.run_sync_soon` and ``call_soon_threadsafe`` take a lock, and write to a socket that the other side reads
    until an exception says that it is empty. They are for a thread that does not listen: not yet, or no longer.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._heard = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # A block that is dropped is never left, so nothing closes its lanes.
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._finalizer.atexit = False  # Trio's thread may listen still

    def ring(self) -> bool:
        """Wake the other side. Return False if that does not listen."""
        if not self._heard or (self._loop is not None and self._loop.is_closed()):
            return False
        os.eventfd_write(self._fd, 1)
        return True

    async def listen(self, run: Step) -> None:
        """Run a function whenever the bell rings."""
        self._heard = True
        try:
            while True:
                await trio.lowlevel.wait_readable(self._fd)
                os.eventfd_read(self._fd)
                run()
        finally:
            # In this order: a sender that still saw the flag has put its step in before, and nothing else runs it.
            self._heard = False
            run()

    def listen_on(self, loop: asyncio.AbstractEventLoop, run: Step) -> None:
        """Run a function on an event loop whenever the bell rings."""

        def hear() -> None:
            os.eventfd_read(self._fd)
            run()

        with suppress(NotImplementedError):  # an event loop may do without
            loop.add_reader(self._fd, hear)
            self._loop, self._heard = loop, True

    def close(self) -> None:
        """Stop listening."""
        self._heard = False
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
        self._finalizer()


def run_now(step: Step) -> None:
    """Run a function; takes the place of a lane where both sides share a thread."""
    step()
