"""Which answer counts, when a server is asked for its tools more than once and says in between that they have changed.

Listings may cross: two that were under way at the same time can have been read in either order, whatever the order of
their answers. And a listing may be overtaken by a notification that it is out of date. So what is shown is replaced
only by an answer to a question that was asked when what is shown had arrived, and since which there was no
notification. Thus it never goes back, and an answer that is not shown leaves the matter open (`Currency.stale_since`):
somebody has to ask again.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import define, field, frozen

__all__ = ["Currency", "Ticket", "Verdict"]

PATIENCE: Final = 5.0
"""Seconds for which what is shown may be known to be out of date. Then an answer that was overtaken is shown too, for
it is newer: a server that changes faster than it answers would otherwise be shown as it was at first for ever."""

Verdict = Literal["newest", "overtaken", "crossed"]
"""What an answer is: the newest there is; overtaken by a notification; crossed with the one that is shown."""


@frozen
class Ticket:
    """The moment in which a listing was begun: how many were before it, and how many notifications."""

    number: int
    notifications: int


@define(eq=False)
class Currency:
    """What is known about how recent the answer is that is shown.

    Attributes:
        stale_since: when it was first known to be out of date; None: it is the newest, as far as is known.
    """

    stale_since: float | None = field(default=None, init=False)
    _notifications: int = field(default=0, init=False)
    _begun: int = field(default=0, init=False)
    _begun_when_shown: int = field(default=0, init=False)

    def mark_stale(self, now: float) -> None:
        """What is shown is out of date, or may be."""
        self._notifications += 1
        if self.stale_since is None:
            self.stale_since = now

    def begin(self) -> Ticket:
        """The server is about to be asked."""
        self._begun += 1
        return Ticket(self._begun, self._notifications)

    def judge(self, ticket: Ticket, now: float) -> Verdict:
        """What the answer is that has come to a question."""
        if ticket.number <= self._begun_when_shown:
            return "crossed"
        patient = self.stale_since is not None and now - self.stale_since < PATIENCE
        return "overtaken" if ticket.notifications < self._notifications and patient else "newest"

    def show(self, ticket: Ticket, now: float) -> None:
        """The answer to this question is shown from now on."""
        self._begun_when_shown = self._begun
        self.stale_since = None if ticket.notifications == self._notifications else now
