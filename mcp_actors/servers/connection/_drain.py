"""End a connection without losing its requests.

Requests that were sent come to their own end first. Requests that provably had no effect wait for that, and so do those
that the mailbox hands over meanwhile; then all of them are requeued, and the last one ends the incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

DRAIN_TIMEOUT: Final = 60.0
"""Seconds for which requests that were sent may delay those that wait. Few requests take longer, and a server that
never answers must not delay the others for ever."""


class Drain:
    """The end of one connection, from its first sign to its last request.

    Args:
        end: ends the incarnation, with the cause that was given to `begin` or `wait`.
    """

    def __init__(self, end: Callable[[Exception], None]) -> None:
        self._end = end
        self._cause: Exception | None = None
        self._under_way = 0
        self._waiting = 0
        self._over = trio.Event()

    @property
    def begun(self) -> bool:
        """True once no more requests may be sent."""
        return self._cause is not None

    def enter(self) -> None:
        """Note that a request is about to be sent."""
        self._under_way += 1

    def leave(self) -> None:
        """Note that a request that was entered has ended."""
        self._under_way -= 1
        if self._cause is not None:
            self._end_if_done()

    def begin(self, cause: Exception) -> None:
        """Begin to drain, and end at once if no request is under way. The first cause counts."""
        self._cause = self._cause or cause
        self._end_if_done()

    async def wait(self, cause: Exception | None = None) -> None:
        """Wait until the connection is drained; begin to drain if a cause is given. Then raise `NotSent`.

        **Cancellation**: leaves at once; other requests go on waiting.
        """
        # All that wait must be requeued in one tick, in which the mailbox cannot hand any of them over again. The last
        # of them ends the incarnation, so that none of them counts as a request that was sent.
        if self._over.is_set():
            return  # without a checkpoint, which would miss that tick
        self._waiting += 1
        try:
            if cause is not None:
                self.begin(cause)
            with trio.move_on_after(DRAIN_TIMEOUT):
                await self._over.wait()
            if not self._over.is_set():
                # Timed out: this task wakes the others, and a checkpoint puts it into the same tick as they are in.
                self._over.set()
                await trio.lowlevel.checkpoint()
        finally:
            self._waiting -= 1
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._cause is None or (self._under_way and not self._over.is_set()):
            return
        self._over.set()
        if not self._waiting:
            self._end(self._cause)
