"""Limit the notifications per second of a server.

A pure decision: no clock, no tasks.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

WINDOW: Final = 1.0
"""Seconds that the limit is for."""


@define
class NotificationMeter:
    """Counts the notifications of one connection, second by second.

    A *flood* begins with the first notification over the limit. It ends with the first that arrives after a second
    without one over the limit.

    Attributes:
        limit: the maximum of notifications per second.
        flooded: True during a flood.
        dropped: the number of refused notifications in this flood, or in the last.
    """

    limit: int
    flooded: bool = field(default=False, init=False)
    dropped: int = field(default=0, init=False)
    _began: float = field(default=float("-inf"), init=False)
    _count: int = field(default=0, init=False)

    def admit(self, now: float) -> bool:
        """Count a notification that arrives now; return True if it is within the limit."""
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
