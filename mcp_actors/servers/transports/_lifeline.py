"""Whether a connection still stands, and who is told when the other side ends it."""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, field

__all__ = ["Lifeline"]


def _nobody() -> None:
    """Tell nobody."""


@define(eq=False)
class Lifeline:
    """The one place where the end of a connection is noted, shared by everything that may notice it first.

    Attributes:
        on_lost: called synchronously, at most once, at the moment the other side is found to be gone.
        on_exit: called synchronously when the process that was started has exited.
        on_gap: called synchronously when what the server sends unasked may have been missed.
        lost: the other side ended the connection while this side had not begun to.
        exited: the process that was started has exited, and the connection may stand all the same.
        heard_at: `trio.current_time` of the last byte from the other side; before the first, of the beginning.
        closing: this side has begun to close; what ends from now on is no loss.
        failure: what ended it, where more is known than that it ended.
    """

    on_lost: Callable[[], None]
    on_gap: Callable[[], None] = _nobody
    on_exit: Callable[[], None] = _nobody
    heard_at: float = field(factory=trio.current_time, init=False)
    exited: bool = field(default=False, init=False)
    lost: bool = field(default=False, init=False)
    closing: bool = field(default=False, init=False)
    failure: Exception | None = field(default=None, init=False)

    def exit(self) -> None:
        """Note that the process has exited, unless this side is closing already."""
        if not self.closing:
            self.exited = True
            self.on_exit()

    def lose(self, failure: Exception | None = None) -> None:
        """Note that the other side is gone; does nothing if that is known or this side is closing already."""
        if self.lost or self.closing:
            return
        self.lost = True
        self.failure = failure
        self.on_lost()
