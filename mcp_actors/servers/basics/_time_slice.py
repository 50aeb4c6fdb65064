"""Yield to the event loop during CPU-bound loops.

Work is measured on the clock of the run. A mock clock does not move while a task works, so a run on one yields at the
same places each time, and one number can repeat it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio
from attrs import define, field

PIECE: Final = 0.0005
"""Seconds of work between two checkpoints. A request to another server takes several steps of the event loop, and each
of them may have to wait that long."""


def work_clock() -> Callable[[], float]:
    """Return the clock of this run, to be asked often: `trio.current_time` looks it up each time."""
    return trio.lowlevel.current_clock().current_time


@define(eq=False)
class TimeSlice:
    """Yields to other tasks after every `PIECE` seconds of work."""

    _clock: Callable[[], float] = field(factory=work_clock, init=False)
    _since: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._since = self._clock()

    async def checkpoint(self) -> None:
        """Run a checkpoint if there was none for `PIECE` seconds. Call it after each step of the work."""
        if self._clock() - self._since > PIECE:
            await trio.lowlevel.checkpoint()
            self._since = self._clock()
