"""Receive signals where Trio runs next to an event loop.

The main thread runs handlers of signals, and Trio may be in another, or be a guest that a handler must not interrupt.
`InterruptGuard` delays Ctrl-C in protected code of a guest. `SignalWakeup` wakes the event loop at each signal, and
`StopNotes` notices those that stop a program while its block starts. `TrioRun` of ``_block`` owns one of each.

The first and the last one may replace handlers of SIGINT and SIGTERM, and the other one sets the wake-up descriptor to
a pipe that it owns. This file starts nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    import asyncio

    from ._bridge import Step


# --- Delay Ctrl-C while a guest run of Trio is in protected code ------------------------------------------------------

# In `trio.run` Trio handles SIGINT itself, and raises `KeyboardInterrupt` only in code that is not protected from it. A
# guest run leaves the signal to the host, whose handler may raise anywhere: in Trio's scheduler too, or in the loop of
# an actor, which would then never stop.


class InterruptGuard:
    """A handler for SIGINT that runs the previous handler after the guest's code if Trio protects the current code.

    The guest's code is its turns, and the steps of the bridge, which run between turns: a request begins in one. All
    other code of the thread is the host's, and is interrupted as if there were no guest.

    Nothing is installed outside the main thread, and where SIGINT is ignored or has its default action.
    """

    def __init__(self) -> None:
        self._found: Callable[[int, FrameType | None], object] | None = None
        self._handler: Final = self._on_signal
        self._in_guest = False
        self._late = False

    def install(self) -> None:
        """Put this handler before the current one."""
        found: Any = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(found):
            self._found = found
            signal.signal(signal.SIGINT, self._handler)

    def uninstall(self) -> None:
        """Restore the previous handler, unless another one has replaced this handler."""
        if self._found is not None and signal.getsignal(signal.SIGINT) is self._handler:
            signal.signal(signal.SIGINT, self._found)
        if not self._late:  # else `catch_up` passes the signal of the last turn on
            self._found = None

    def take(self, turn: Callable[[], object]) -> None:
        """Run a turn. Call `catch_up` after it."""
        self._in_guest = True
        try:
            turn()
        finally:
            self._in_guest = False

    def catch_up(self) -> None:
        """Run the previous handler if the signal came in protected code of the guest."""
        if self._late:
            self._late = False
            self._pass_on(signal.SIGINT, None)
            if signal.getsignal(signal.SIGINT) is not self._handler:
                self._found = None  # it was uninstalled in the turn

    def step(self, step: Step) -> None:
        """Run a step of the bridge, and the previous handler after it; takes the place of a lane."""
        if self._in_guest:
            step()  # in a turn or in another step, which passes the signal on at its end
        else:
            self.take(step)
            self.catch_up()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Trio decides by the frames below this one, which are those of the interrupted code, so it must be asked here
        # and not later. It calls the host's code protected too, after which nothing would run a delayed handler soon.
        if self._in_guest and trio.lowlevel.currently_ki_protected():
            self._late = True
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._found is not None:
            self._found(number, frame)


# --- Wake the event loop at a signal, whichever thread gets it --------------------------------------------------------


class SignalWakeup:
    """Wakes an event loop at each signal, so that Python's handler runs at once.

    The kernel may give a signal to any thread, also to those of Trio, but handlers run in the main thread only. While
    that waits in an event loop, nothing wakes it: asyncio sets a wake-up descriptor only if a handler was added to the
    loop. uvloop always sets one. Then nothing is installed here, and nothing outside the main thread.

    Args:
        loop: the event loop that runs in this thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pipe: tuple[int, int] | None = None

    def install(self) -> None:
        """Set the wake-up descriptor, if there is none."""
        if threading.current_thread() is not threading.main_thread():
            return
        if (found := signal.set_wakeup_fd(-1)) != -1:
            signal.set_wakeup_fd(found)
            return
        reader, writer = self._pipe = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self._loop.add_reader(reader, self._drain, reader)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def uninstall(self) -> None:
        """Take the wake-up descriptor away, unless another one has replaced it."""
        if self._pipe is None:
            return
        (reader, writer), self._pipe = self._pipe, None
        if threading.current_thread() is threading.main_thread() and (found := signal.set_wakeup_fd(-1)) != writer:
            signal.set_wakeup_fd(found)
        self._loop.remove_reader(reader)  # False if the loop is closed
        os.close(reader)
        os.close(writer)

    @staticmethod
    def _drain(reader: int) -> None:
        with suppress(BlockingIOError):
            os.read(reader, 4096)


# --- Notice that a program is asked to stop while it starts -----------------------------------------------------------


class StopNotes:
    """Handlers for SIGINT and SIGTERM, while a block starts, that call a function before the program's own handlers.

    A web server's handler notes such a signal, and acts on it when its application has started. Nothing is installed
    outside the main thread, and where a signal is ignored or has its default action.

    Args:
        on_stop: called in the main thread, between any two lines.
    """

    def __init__(self, on_stop: Callable[[], object]) -> None:
        self._on_stop = on_stop
        self._handler: Final = self._note
        self._found: dict[int, Callable[[int, FrameType | None], object]] = {}

    def install(self) -> None:
        """Put the handlers before the current ones."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(found := signal.getsignal(number)):
                self._found[number] = found
                signal.signal(number, self._handler)

    def uninstall(self) -> None:
        """Restore the handlers that were found, unless others have replaced these."""
        for number, found in self._found.items():
            if signal.getsignal(number) is self._handler and threading.current_thread() is threading.main_thread():
                signal.signal(number, found)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.uninstall()  # first: what the program's handler raises may end the start at any line
        self._on_stop()
        self._found[number](number, frame)
