"""Yield to the event loop during CPU-bound loops."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import trio
from attrs import define, field

__all__ = ["TimeSlice"]

PIECE: Final = 0.0005
"""Seconds of work between two checkpoints, on the real clock because it bounds processor time. A request to another
server takes several steps of the event loop, and each of them may have to wait that long."""


@define(eq=False)
class TimeSlice:
    """Yields to other tasks after every `PIECE` seconds of work."""

    _since: float = field(factory=perf_counter, init=False)

    async def checkpoint(self) -> None:
        """Run a checkpoint if there was none for `PIECE` seconds. Call it after each step of the work."""
        if perf_counter() - self._since > PIECE:
            await trio.lowlevel.checkpoint()
            self._since = perf_counter()
