"""Limit how fast the messages of a server are read.

All servers share one event loop. Each message takes a short step, but a server that writes without pause would take one
in every turn of the loop, and delay all others. Pauses lose nothing: unread bytes wait in the pipe, and then the server
waits. Pure decisions: no clock, no tasks.
"""

from __future__ import annotations

from typing import Final

AT_ONCE: Final = 500
"""Unsolicited messages that are read without a pause, at least; more if ``Limits.max_notifications`` is higher."""

A_SECOND: Final = 6
"""Multiple of that number that is read per second afterwards. At 0.2 ms each, 3000 messages take 60 % of the time."""

MESSAGE_BYTES: Final = 2 * 1024
"""Bytes of unsolicited messages that are read in the time of one: 1 MB at once, and then 6 MB per second."""

NOTICED: Final = 0.001
"""Seconds of wasted work before a pause: a banner or a few log lines on stdout cause none."""

RESTS: Final = 20
"""Length of a pause as a multiple of the wasted work: few calls to other servers then meet such a step."""

LONGEST: Final = 0.5
"""Maximum seconds of one pause: during it nothing of the server is noticed, not even its exit."""


REQUEST: Final = 5
"""Messages that a request of the server counts as, since a task answers it. A flood of them ends with its connection, a
second later than it could, but other servers are hardly delayed meanwhile."""

ANSWERS_AT_ONCE: Final = 4
"""Answers to requests of a server that are posted over HTTP without a pause. Each POST takes ten times the work that it
takes to read a message."""

ANSWERS_A_SECOND: Final = 100
"""Answers that are posted per second afterwards: more than a server may ask (see ``_server_requests``)."""


class Bucket:
    """A token bucket: so many at once, and then so many per second.

    Args:
        at_once: its size.
        rate: tokens that are added per second.
    """

    def __init__(self, at_once: float, rate: float) -> None:
        self._at_once = at_once
        self._rate = rate
        self._tokens = at_once
        self._filled = 0.0

    def take(self, now: float, tokens: float = 1) -> float:
        """Take some; return the seconds until there were enough, for which the caller has to wait."""
        self._tokens = min(self._at_once, self._tokens + (now - self._filled) * self._rate) - tokens
        self._filled = now
        return max(0.0, -self._tokens / self._rate)


class ReadingPace:
    """The reading speed of one connection.

    Args:
        max_notifications: as in ``Limits``.
    """

    def __init__(self, max_notifications: int = AT_ONCE) -> None:
        at_once = max(max_notifications, AT_ONCE)
        self._messages = Bucket(at_once, A_SECOND * at_once)
        self._bytes = Bucket(at_once * MESSAGE_BYTES, A_SECOND * at_once * MESSAGE_BYTES)
        self._wasted = 0.0

    def unasked(self, now: float, size: int = 0, *, request: bool = False) -> float:
        """Count an unsolicited message of so many bytes; return the seconds to pause after it."""
        return max(self._messages.take(now, REQUEST if request else 1), self._bytes.take(now, size))

    def unasked_part(self, now: float, size: int) -> float:
        """Count so many bytes of an unsolicited message that is still arriving; return the seconds to pause."""
        return self._bytes.take(now, size)

    def wasted(self, seconds: float) -> float:
        """Count wasted work; return the seconds to pause after it."""
        self._wasted += seconds
        if self._wasted < NOTICED:
            return 0.0
        rest, self._wasted = self._wasted * RESTS, 0.0
        return min(rest, LONGEST)
