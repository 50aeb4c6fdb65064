"""Receive signals on the event loop's side for Trio's side."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

import trio

from ..._tasks import Signals
from .._bridge import Bridge

Handler: TypeAlias = Callable[[int, FrameType | None], object]


class LoopSignals(Signals):
    """Signals of a program on asyncio. Python runs their handlers in the main thread, and Trio may be in another."""

    def __init__(self, bridge: Bridge, option: str, numbers: object) -> None:
        super().__init__(option, numbers)
        self.check_thread()
        self._bridge = bridge
        self._found: dict[int, Any] = {}

    @contextmanager
    def receive(self) -> Iterator[AsyncIterator[int]]:
        """Receive the signals, on Trio's side."""
        send, receive = trio.open_memory_channel[int](math.inf)
        handler = partial(self._on_signal, send)
        self._bridge.to_loop(partial(self._install, handler))
        try:
            yield receive
        finally:
            with suppress(RuntimeError):  # the event loop is closed
                self._bridge.to_loop(self._restore)

    # --- on the event loop's side -----------------------------------------------------------------------------------

    def _install(self, handler: Handler) -> None:
        # Not `loop.add_signal_handler`: it can only be taken back to the default action, and not to what was there.
        self._found = {number: signal.signal(number, handler) for number in self.numbers}

    def _restore(self) -> None:
        for number, found in self._found.items():
            signal.signal(number, signal.SIG_DFL if found is None else found)

    def _on_signal(self, send: trio.MemorySendChannel[int], number: int, _: FrameType | None) -> None:
        # By way of the loop: this may interrupt any line of Python, one of Trio's scheduler too.
        try:
            self._bridge.loop.call_soon_threadsafe(self._bridge.to_trio, partial(send.send_nowait, number))
        except RuntimeError:  # the event loop is closed, and no block is left to be ended
            self._restore()
            os.kill(os.getpid(), number)
