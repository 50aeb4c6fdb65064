"""Decide when and where an event stream goes on after its end.

Pure decisions: no clock, no tasks.
"""

from __future__ import annotations

import random
import re
from typing import Final

from attrs import define, field

from ....._backoff import Backoff
from .._events import Event

REOPENING: Final = Backoff(first=0.1, initial=0.1, maximum=5.0, jitter=0.1)
"""Seconds from the opening of a stream to that of the next one, by the number of streams in a row that brought no
message. The server may ask for more with a ``retry`` field, but not for less."""

RETRY: Final = 1.0
"""Seconds from the end of a stream to the opening of the next one, unless the server has sent a ``retry`` field."""

MAX_FRUITLESS: Final = 100
"""Maximum of streams in a row without a message that one request may open. They take about eight minutes."""

MAX_RESUMED: Final = 500
"""Maximum of streams of one request in all."""

MAX_REFUSED: Final = 2
"""Maximum of attempts in a row to open a stream. A server may have no such streams."""


CONTROLS: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Bytes that a header must not contain."""


@define(eq=False)
class Reopening:
    """The streams of one request, or those of notifications, one after the other.

    Attributes:
        last_id: the id of the last event that had one, as it was sent; None without any.
        retry: the seconds from the end of a stream to the opening of the next one.
    """

    last_id: bytes | None = field(default=None, init=False)
    retry: float = field(default=RETRY, init=False)
    _opened_at: float | None = field(default=None, init=False)
    _streams: int = field(default=0, init=False)
    _fruitless: int = field(default=0, init=False)

    @property
    def resumed(self) -> int:
        """How many streams followed the first one."""
        return self._streams - 1

    @property
    def exhausted(self) -> bool:
        """True if a request must not open another stream."""
        return self._fruitless > MAX_FRUITLESS or self.resumed >= MAX_RESUMED

    def open(self, now: float) -> None:
        """Note that a stream has begun."""
        self._opened_at = now
        self._streams += 1
        self._fruitless += 1

    def note(self, event: Event) -> None:
        """Note where the stream goes on after an event. An id that no header can have is ignored."""
        name = (event.id or b"").strip(b" \t")
        if name and not CONTROLS.search(name):
            self.last_id = name
        if event.retry is not None:
            self.retry = int(event.retry) / 1000

    def deliver(self) -> None:
        """Note that a message has arrived."""
        self._fruitless = 0

    def delay(self, now: float) -> float:
        """Return the seconds until the next stream may be opened, apart from `retry`."""
        if self._opened_at is None:
            return 0.0
        due = self._opened_at + REOPENING.delay(max(self._fruitless, 1), random=random.random)
        return max(due - now, 0.0)
