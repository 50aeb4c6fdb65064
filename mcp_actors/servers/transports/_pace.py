"""Limit how fast a server is read, so that a flood from it hardly delays other servers.

All servers share one event loop. Each message takes a short step, but a server that writes without pause would take one
in every turn of the loop. Pauses lose nothing: unread bytes wait in the pipe, and then the server waits. Pure
decisions: no clock, no tasks.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ReadingPace"]

AT_ONCE: Final = 500
"""Unsolicited messages that are read without a pause, at least; more if ``Limits.max_notifications`` is higher."""

A_SECOND: Final = 6
"""Multiple of that number that is read per second afterwards. At 0.2 ms each, 3000 messages take 60 % of the time."""

NOTICED: Final = 0.001
"""Seconds of wasted work before a pause: a banner or a few log lines on stdout cause none."""

RESTS: Final = 20
"""Length of a pause as a multiple of the wasted work: few calls to other servers then meet such a step."""

LONGEST: Final = 0.5
"""Maximum seconds of one pause: during it nothing of the server is noticed, not even its exit."""


class ReadingPace:
    """The reading speed of one connection.

    Args:
        max_notifications: as in ``Limits``.
    """

    def __init__(self, max_notifications: int = AT_ONCE) -> None:
        self._at_once = max(max_notifications, AT_ONCE)
        self._credit = float(self._at_once)
        self._credited = 0.0
        self._wasted = 0.0

    def unasked(self, now: float) -> float:
        """Count an unsolicited message; return the seconds to pause after it."""
        rate = A_SECOND * self._at_once
        self._credit = min(self._at_once, self._credit + (now - self._credited) * rate) - 1
        self._credited = now
        return max(0.0, -self._credit / rate)

    def wasted(self, seconds: float) -> float | None:
        """Count wasted work; return the seconds to pause after it, or None for no pause."""
        self._wasted += seconds
        if self._wasted < NOTICED:
            return None
        rest, self._wasted = self._wasted * RESTS, 0.0
        return min(rest, LONGEST)
