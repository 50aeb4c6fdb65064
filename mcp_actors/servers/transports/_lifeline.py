"""Whether a connection still stands, and who is told when the other side ends it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

__all__ = ["Lifeline"]


def _nobody() -> None:
    """Tell nobody."""


@define(eq=False)
class Lifeline:
    """The one place where the end of a connection is noted, shared by everything that may notice it first.

    Attributes:
        on_lost: called synchronously, at most once, at the moment the other side is found to be gone.
        on_gap: called synchronously when what the server sends unasked may have been missed.
        lost: the other side ended the connection while this side had not begun to.
        closing: this side has begun to close; what ends from now on is no loss.
        failure: what ended it, where more is known than that it ended.
    """

    on_lost: Callable[[], None]
    on_gap: Callable[[], None] = _nobody
    lost: bool = field(default=False, init=False)
    closing: bool = field(default=False, init=False)
    failure: Exception | None = field(default=None, init=False)

    def lose(self, failure: Exception | None = None) -> None:
        """Note that the other side is gone; does nothing if that is known or this side is closing already."""
        if self.lost or self.closing:
            return
        self.lost = True
        self.failure = failure
        self.on_lost()
