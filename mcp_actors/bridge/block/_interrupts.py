"""Delay Ctrl-C while a guest run of Trio is in protected code.

In `trio.run` Trio handles SIGINT itself, and raises `KeyboardInterrupt` only in code that is not protected from it. A
guest run leaves the signal to the host, whose handler may raise anywhere: in Trio's scheduler too, or in the loop of an
actor, which would then never stop.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import trio


class InterruptGuard:
    """A handler for SIGINT that runs the previous handler after the guest's turn if Trio protects the current code.

    Outside the main thread, and where SIGINT is ignored or has its default action, nothing is installed.
    """

    def __init__(self) -> None:
        self._found: Callable[[int, FrameType | None], object] | None = None
        self._handler: Final = self._on_signal
        self._in_turn = False
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
        """Run a turn of the guest."""
        self._in_turn = True
        try:
            turn()
        finally:
            self._in_turn = False

    def catch_up(self) -> None:
        """Run the previous handler if the signal came in protected code during the turn."""
        if self._late:
            self._late = False
            self._pass_on(signal.SIGINT, None)
            if signal.getsignal(signal.SIGINT) is not self._handler:
                self._found = None  # it was uninstalled in the turn

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Trio decides by the frames below this one, which are those of the interrupted code, so it must be asked here
        # and not after the turn. Outside a turn nothing would run a delayed handler soon, so the signal is passed on.
        if self._in_turn and trio.lowlevel.currently_ki_protected():
            self._late = True
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._found is not None:
            self._found(number, frame)
