"""Ctrl-C in a program that has Trio as a guest: what must not be interrupted is not.

In a program of its own Trio handles the signal, and raises `KeyboardInterrupt` only where a task is not protected from
it. A guest leaves the signal to the host, whose handler may raise anywhere: also in the midst of Trio's scheduler, or
of an actor's loop, which would then never stop.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import trio

__all__ = ["InterruptGuard"]


class InterruptGuard:
    """Around each turn of the guest: a SIGINT that comes where Trio protects its code is handled after the turn.

    It stands before the handler that it finds, and takes itself away again. Outside of the main thread, and where no
    function handles the signal, it does nothing.
    """

    def __init__(self) -> None:
        self._found: Callable[[int, FrameType | None], object] | None = None
        self._handler: Final = self._on_signal
        self._in_turn = False
        self._late = False

    def install(self) -> None:
        """Begin."""
        found: Any = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(found):
            self._found = found
            signal.signal(signal.SIGINT, self._handler)

    def uninstall(self) -> None:
        """End, if nobody else handles the signal by now."""
        if self._found is not None and signal.getsignal(signal.SIGINT) is self._handler:
            signal.signal(signal.SIGINT, self._found)
        self._found = None

    def take(self, turn: Callable[[], object]) -> None:
        """Let the guest take a turn."""
        self._in_turn = True
        try:
            turn()
        finally:
            self._in_turn = False

    def catch_up(self) -> None:
        """Handle the signal, if it came during the turn."""
        if self._late:
            self._late = False
            self._pass_on(signal.SIGINT, None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # It looks at the frames that called this one: those of what was interrupted.
        if self._in_turn and trio.lowlevel.currently_ki_protected():
            self._late = True
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._found is not None:
            self._found(number, frame)
