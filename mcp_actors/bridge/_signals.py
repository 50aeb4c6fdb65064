"""Receive signals where Trio runs next to an event loop.

Python runs signal handlers in the main thread only, between any two lines. Trio may run in another thread, or as a
guest of the event loop. No handler may interrupt a guest's scheduler.

Owns: wake-up pipes.
Writes: signal handlers of the process; its wake-up descriptor; readers of the event loop.
Calls: nothing.
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


# --- Ctrl-C in a guest run --------------------------------------------------------------------------------------------

# In `trio.run` Trio handles SIGINT, and raises `KeyboardInterrupt` only in unprotected code. A guest run leaves the
# signal to the host, whose handler may raise anywhere: in Trio's scheduler, or in the loop of an actor, which then
# never stops.


class InterruptGuard:
    """A handler for SIGINT that delays the previous handler while the guest runs protected code.

    The guest's code runs only in a turn of Trio's scheduler (`take`) or a step of the bridge (`step`). All other code
    is the host's.
    """

    def __init__(self) -> None:
        self._found: Callable[[int, FrameType | None], object] | None = None
        self._handler: Final = self._on_signal
        self._in_guest = False
        self._late = False

    def install(self) -> None:
        found: Any = signal.getsignal(signal.SIGINT)
        # Not callable: the default action, or an ignored signal.
        if threading.current_thread() is threading.main_thread() and callable(found):
            self._found = found
            signal.signal(signal.SIGINT, self._handler)

    def uninstall(self) -> None:
        if self._found is not None and signal.getsignal(signal.SIGINT) is self._handler:
            signal.signal(signal.SIGINT, self._found)
        if not self._late:  # else `catch_up` still needs it
            self._found = None

    def take(self, turn: Callable[[], object]) -> None:
        """Run a turn. `catch_up` must follow."""
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
                self._found = None  # this guard was uninstalled in the turn

    def step(self, step: Step) -> None:
        """Run a step of the bridge, then the delayed handler; takes the place of a lane."""
        if self._in_guest:
            step()  # in a turn or in another step, which passes the signal on at its end
        else:
            self.take(step)
            self.catch_up()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Trio decides by the frames of the interrupted code, which are below this frame, so ask Trio here, not later.
        # To Trio, the host's code is protected, too, hence `_in_guest`: after that code nothing would run a delayed
        # handler soon, and the program would ignore Ctrl-C.
        if self._in_guest and trio.lowlevel.currently_ki_protected():
            self._late = True
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._found is not None:
            self._found(number, frame)


# --- Wake-ups ---------------------------------------------------------------------------------------------------------


class SignalWakeup:
    """Wakes an event loop at each signal, so that Python's handler runs at once.

    The system may give a signal to a thread of Trio, but handlers run in the main thread. asyncio wakes an idle main
    thread only after a handler was added to the loop. uvloop always does: over an existing wake-up descriptor,
    nothing is installed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pipe: tuple[int, int] | None = None

    def install(self) -> None:
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


# --- Long starts ------------------------------------------------------------------------------------------------------


class StopHandlers:
    """Handlers for SIGINT and SIGTERM, while a block starts, that call a function before the program's handlers.

    A web server's handler notes the signal, and acts only after the start of its application. A signal that is ignored,
    or has its default action, gets no handler.

    Args:
        on_stop: called in the main thread, between any two lines.
    """

    def __init__(self, on_stop: Callable[[], object]) -> None:
        self._on_stop = on_stop
        self._handler: Final = self._note
        self._found: dict[int, Callable[[int, FrameType | None], object]] = {}

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(found := signal.getsignal(number)):
                self._found[number] = found
                signal.signal(number, self._handler)

    def uninstall(self) -> None:
        for number, found in self._found.items():
            if signal.getsignal(number) is self._handler and threading.current_thread() is threading.main_thread():
                signal.signal(number, found)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.uninstall()  # first: what the program's handler raises may end the start at any line
        self._on_stop()
        self._found[number](number, frame)
