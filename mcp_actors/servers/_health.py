"""Decide from consecutive failures how healthy a server is. Pure rules: no clock, no tasks.

On the wire a frozen server and a single-threaded one in a long tool look the same, so the ladder has two halves. Its
lower rungs (`degraded`, `unhealthy`) follow from failures alone and hurt nobody: the next answer takes them back. Its
upper rungs (`restart`, `fail`) end work that may be under way, and need more than silence: see `ServerHealth.verdict`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from attrs import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from ..config import HealthPolicy

__all__ = ["Condition", "Health", "HealthStatus", "Ladder", "Verdict"]

Condition = Literal["healthy", "degraded", "unhealthy"]
Verdict = Literal["restart", "fail"]


@frozen(kw_only=True)
class Health:
    """The result of one health check.

    Attributes:
        status: ``"healthy"`` if the server is connected and answered in time, else ``"unhealthy"``.
        message: what was found, for people.
        latency: seconds until the answer; None if there was none.
        checked_at: the end of the check, by the wall clock, in UTC.
    """

    status: Literal["healthy", "unhealthy"]
    message: str
    latency: float | None
    checked_at: datetime


@frozen(kw_only=True)
class HealthStatus:
    """What is known about the health of a server.

    Attributes:
        status: ``"healthy"``, ``"degraded"`` or ``"unhealthy"``; ``"unknown"`` while it is not connected.
        last_check: the last check; None before the first. Answers to requests count too, but are no checks.
        failures: consecutive failures, without any answer in between.
        last_error: the last failure of this kind, also after it was overcome.
    """

    status: Literal["healthy", "degraded", "unhealthy", "unknown"]
    last_check: Health | None
    failures: int
    last_error: Exception | None


@frozen
class Ladder:
    """Consecutive failures of one server.

    Attributes:
        before: failures that count from earlier connections: a reconnect is no answer.
        here: failures on this connection.
        since: when the first of these was asked.
        known_at: when anything was heard last, a failure or an answer. What was asked before that says nothing new:
            requests that were sent together and time out together are one failure.
    """

    before: int = 0
    here: int = 0
    since: float = math.inf
    known_at: float = -math.inf

    @property
    def failures(self) -> int:
        """Failures without any answer in between."""
        return self.before + self.here

    def failed(self, asked: float, now: float) -> Ladder:
        """Count a question of that time to which there was no answer."""
        if asked < self.known_at:
            return self
        return Ladder(self.before, self.here + 1, self.since if self.here else asked, now)

    def answered(self, now: float) -> Ladder:
        """Begin anew: the server has answered."""
        return Ladder(known_at=now)

    def reconnected(self, policy: HealthPolicy) -> Ladder:
        """Go on counting on a new connection."""
        return Ladder(self._rung(policy))

    def condition(self, policy: HealthPolicy) -> Condition:
        """How healthy the server counts. A new connection is given the benefit of the doubt until it fails too."""
        if self.here and self.failures >= policy.unhealthy_after:
            return "unhealthy"
        return "degraded" if self.here and self.failures >= policy.warn_after else "healthy"

    def verdict(self, policy: HealthPolicy) -> Verdict | None:
        """What is due, if nothing speaks against it."""
        if self.here and self._rung(policy) >= policy.fail_after:
            return "fail"
        return "restart" if self.here >= policy.restart_after else None

    def _rung(self, policy: HealthPolicy) -> int:
        # However long a restart had to wait, it comes before the end.
        return self.before + min(self.here, policy.restart_after)
