"""The state of one connection: open, lost or closing."""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, field

__all__ = ["Lifeline"]


def _ignore() -> None:
    pass


@define(eq=False)
class Lifeline:
    """The state of one connection, shared by all tasks that may notice its end first.

    Attributes:
        on_lost: called synchronously, at most once, when the other side turns out to be gone.
        on_exit: called synchronously when the started process has exited.
        on_gap: called synchronously when notifications of the server may have been missed.
        lost: True if the other side ended the connection before this side began to close it.
        exited: True if the started process has exited. The connection may go on through a child of it.
        heard_at: `trio.current_time` of the last byte from the other side; initially, of the start.
        closing: True if this side has begun to close, so a later end is not a loss.
        failure: the exception that ended the connection; None if only its end is known.
    """

    on_lost: Callable[[], None]
    on_gap: Callable[[], None] = _ignore
    on_exit: Callable[[], None] = _ignore
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
        """Note that the other side is gone. Does nothing if that is known, or if this side is closing already."""
        if self.lost or self.closing:
            return
        self.lost = True
        self.failure = failure
        self.on_lost()
