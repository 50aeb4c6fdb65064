"""Long work in the event loop, in pieces: whatever one server sends, what others have to do goes on in between."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import trio
from attrs import define, field

__all__ = ["Turns"]

PIECE: Final = 0.0005
"""Seconds of work between two checkpoints, on the real clock because it is about processor time. A request to another
server takes several steps, and each may have to wait for so long."""


@define(eq=False)
class Turns:
    """Lets other tasks run, now and then."""

    _since: float = field(factory=perf_counter, init=False)

    async def take(self) -> None:
        """A step of the work is done. A checkpoint if there was none for `PIECE` seconds."""
        if perf_counter() - self._since > PIECE:
            await trio.lowlevel.checkpoint()
            self._since = perf_counter()
