"""Decide how fast to read from a server, so that what nobody asked for costs the others little.

Whatever a server writes is dealt with in the event loop that all servers share. Steps are short, but a server that
always has something to say would have one of them in each turn. Rests are no loss: what is not read waits in the pipe,
and then the server waits. Pure decisions: no clock, no tasks.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ReadingPace"]

AT_ONCE: Final = 500
"""Unasked messages that are read without a rest, at least; more, if more notifications are taken in a second."""

A_SECOND: Final = 6
"""How many times as many are read in a second after that. At 0.2 ms each, 3000 take 60 % of the time."""

NOTICED: Final = 0.001
"""Seconds of work that come to nothing before a rest: a banner or a few lines of log on stdout cause none."""

RESTS: Final = 20
"""How many times as long a rest is as the work was: few calls of others meet a step of such work then."""

LONGEST: Final = 0.5
"""Seconds of one rest: in it nothing is noticed of the server, not even its end."""


class ReadingPace:
    """How fast one connection is read.

    Args:
        max_notifications: as in ``Limits``.
    """

    def __init__(self, max_notifications: int = AT_ONCE) -> None:
        self._at_once = max(max_notifications, AT_ONCE)
        self._credit = float(self._at_once)
        self._credited = 0.0
        self._wasted = 0.0

    def unasked(self, now: float) -> float:
        """Count a message that nobody asked for; return how many seconds to rest after it."""
        rate = A_SECOND * self._at_once
        self._credit = min(self._at_once, self._credit + (now - self._credited) * rate) - 1
        self._credited = now
        return max(0.0, -self._credit / rate)

    def wasted(self, seconds: float) -> float | None:
        """Count work that came to nothing; return how many seconds to rest after it, if at all."""
        self._wasted += seconds
        if self._wasted < NOTICED:
            return None
        rest, self._wasted = self._wasted * RESTS, 0.0
        return min(rest, LONGEST)
