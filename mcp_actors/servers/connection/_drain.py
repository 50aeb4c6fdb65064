"""How a connection ends that is of no more use while some of its requests are still under way.

Nobody's answer is thrown away for it. Requests that are with the server come to their own end first. Those that
provably had no effect wait for that, as does whatever the mailbox hands over meanwhile; then they all go back to their
places, and the last of them ends the incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

__all__ = ["Departure"]

PATIENCE: Final = 60.0
"""Seconds that requests under way may hold up those that wait. Few take longer, and a server that will never answer
must not keep the others waiting for ever."""


class Departure:
    """The end of one incarnation, from its first sign to its last request.

    Args:
        end: ends the incarnation, with the cause that was given to `wait`.
    """

    def __init__(self, end: Callable[[Exception], None]) -> None:
        self._end = end
        self._cause: Exception | None = None
        self._under_way = 0
        self._waiting = 0
        self._leaving = trio.Event()

    @property
    def begun(self) -> bool:
        """Whether no more requests are to be sent."""
        return self._cause is not None

    def enter(self) -> None:
        """A request is about to be sent."""
        self._under_way += 1

    def leave(self) -> None:
        """A request that was entered has come to its end, whatever that is."""
        self._under_way -= 1
        self._go_on()

    def begin(self, cause: Exception) -> None:
        """Decide the end: at once if nothing is under way. The first cause counts."""
        self._cause = self._cause or cause
        self._go_on()

    async def wait(self, cause: Exception | None = None) -> None:
        """Wait for the end, which is decided now if there is a cause; then the caller has to raise `NotSent`.

        Those who wait go on in one and the same tick, in which the mailbox can hand over none of them again. The last
        one ends the incarnation; so none of them is taken for a request that was with the server.

        **Cancellation**: leaves at once; the others go on waiting.
        """
        if self._leaving.is_set():
            return  # without a checkpoint: it would miss that tick, and wait beside those who come back from it
        self._waiting += 1
        try:
            if cause is not None:
                self.begin(cause)
            with trio.move_on_after(PATIENCE):
                await self._leaving.wait()
            if not self._leaving.is_set():
                self._leaving.set()
                await trio.lowlevel.checkpoint()
        finally:
            self._waiting -= 1
            self._go_on()

    def _go_on(self) -> None:
        if self._cause is None or (self._under_way and not self._leaving.is_set()):
            return
        self._leaving.set()
        if not self._waiting:
            self._end(self._cause)
