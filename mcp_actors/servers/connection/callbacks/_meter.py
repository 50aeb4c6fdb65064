"""How many notifications are taken from a server. A pure decision: no clock, no tasks."""

from __future__ import annotations

from typing import Final

from attrs import define, field

__all__ = ["NotificationMeter"]

WINDOW: Final = 1.0
"""Seconds: the limit is one per second."""


@define
class NotificationMeter:
    """Counts the notifications that come over one connection, second by second.

    A *flood* begins with the first notification over the limit, and ends with the first that comes after a second
    without one over the limit.

    Attributes:
        limit: how many are taken in a second.
        flooded: whether a flood is on.
        dropped: how many were not taken in this flood, or in the last.
    """

    limit: int
    flooded: bool = field(default=False, init=False)
    dropped: int = field(default=0, init=False)
    _began: float = field(default=float("-inf"), init=False)
    _count: int = field(default=0, init=False)

    def admit(self, now: float) -> bool:
        """Count one that has come now; return whether it is taken."""
        if now - self._began >= WINDOW:
            calm = self._count <= self.limit or now - self._began >= 2 * WINDOW
            self.flooded = self.flooded and not calm
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= self.limit:
            return True
        if not self.flooded:
            self.flooded, self.dropped = True, 0
        self.dropped += 1
        return False
