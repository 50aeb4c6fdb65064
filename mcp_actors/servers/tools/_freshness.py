"""Decide whether a list response is newer than the one shown.

Two listings may cross: the server can have read them in either order, whatever the order of its answers. And a change
notification may overtake a listing. An answer is therefore shown only if its request was sent after the shown answer
had arrived, and no notification has arrived since the request. So the shown list never goes back in time. An answer
that is not shown leaves `Freshness.stale_since` set, and the list has to be requested again.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, Literal, NamedTuple

import trio
from attrs import define, field

STALE_GRACE: Final = 5.0
"""Seconds for which the shown list may be known to be outdated. After that even an overtaken answer is shown, because
it is newer: otherwise the list of a server that changes faster than it answers would never be updated."""

Verdict = Literal["newest", "overtaken", "crossed"]
"""An answer is the newest one, overtaken by a notification, or crossed with the shown one."""


class Ticket(NamedTuple):
    """The moment when a listing was requested: the number of listings and of notifications so far."""

    number: int
    notifications: int


@define(eq=False)
class Freshness:
    """How recent the shown answer is.

    Attributes:
        stale_since: when it was first known to be outdated; None while it is the newest one known.
    """

    stale_since: float | None = field(default=None, init=False)
    _notifications: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)
    _begun_when_shown: int = field(default=0, init=False)
    _became_stale: trio.Event | None = field(default=None, init=False)

    @cached_property
    def turn(self) -> trio.Lock:
        """Held by the task that lists again: of several replicas, by that of one."""
        return trio.Lock()

    @property
    def is_stale(self) -> bool:
        """Return True if the shown answer is known to be outdated."""
        return self.stale_since is not None

    def mark_stale(self, now: float) -> None:
        """Mark the shown answer as possibly outdated."""
        self._notifications += 1
        if self.stale_since is None:
            self.stale_since = now
        if self._became_stale is not None:
            self._became_stale.set()

    def begin(self) -> Ticket:
        """Register a request that is about to be sent."""
        self._begun += 1
        return Ticket(self._begun, self._notifications)

    def judge(self, ticket: Ticket, now: float) -> Verdict:
        """Judge an answer by the moment of its request."""
        if ticket.number <= self._begun_when_shown:
            return "crossed"
        patient = self.stale_since is not None and now - self.stale_since < STALE_GRACE
        return "overtaken" if ticket.notifications < self._notifications and patient else "newest"

    def show(self, ticket: Ticket, now: float) -> None:
        """Register that the answer to this request is shown."""
        self._begun_when_shown = self._begun
        self.stale_since = None if ticket.notifications == self._notifications else now

    async def wait_stale(self) -> None:
        """Wait until the shown answer may be outdated. Only the task that lists again waits for that."""
        while not self.is_stale:
            self._became_stale = trio.Event()
            await self._became_stale.wait()
