"""Decide from consecutive failures how healthy a server is.

Pure rules: no clock, no tasks. On the wire a frozen server looks like a single-threaded one in a long tool, so the
ladder has two halves. Its lower rungs (`degraded`, `unhealthy`) follow from failures alone and do no harm: the next
answer reverts them. Its upper rungs (`restart`, `fail`) end requests that may be in progress, and need more than
silence: see `ServerHealth.verdict`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from attrs import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from ...config import HealthPolicy

Condition = Literal["healthy", "degraded", "unhealthy"]
Verdict = Literal["restart", "fail"]


@frozen(kw_only=True)
class Health:
    """The result of one health check.

    Attributes:
        status: ``"healthy"`` if the server is connected and answered in time, else ``"unhealthy"``.
        message: the finding, for people.
        latency: seconds until the answer; None without an answer.
        checked_at: the wall-clock time at the end of the check, in UTC.
    """

    status: Literal["healthy", "unhealthy"]
    message: str
    latency: float | None
    checked_at: datetime


@frozen(kw_only=True)
class HealthStatus:
    """The health of a server at one moment.

    Attributes:
        status: ``"healthy"``, ``"degraded"`` or ``"unhealthy"``; ``"unknown"`` while it is not connected.
        last_check: the last check; None before the first. Answers to requests reset `failures` but are not checks.
        failures: consecutive failures, without any answer in between.
        last_error: the last failure, kept after the server has recovered.
    """

    status: Literal["healthy", "degraded", "unhealthy", "unknown"]
    last_check: Health | None
    failures: int
    last_error: Exception | None


@frozen
class Ladder:
    """Consecutive failures of one server.

    Attributes:
        before: failures that count from earlier connections: a reconnect is not an answer.
        here: failures on this connection.
        since: the time at which the first request that failed here was sent.
        known_at: the time of the last failure or answer. The failure of a request that was sent before that is not
            counted: requests that were sent together and time out together are one failure.
    """

    before: int = 0
    here: int = 0
    since: float = math.inf
    known_at: float = -math.inf

    @property
    def failures(self) -> int:
        """The number of failures since the last answer."""
        return self.before + self.here

    def failed(self, asked: float, now: float) -> Ladder:
        """Count the failure of a request that was sent at `asked`."""
        if asked < self.known_at:
            return self
        return Ladder(self.before, self.here + 1, self.since if self.here else asked, now)

    def answered(self, now: float) -> Ladder:
        """Reset the count: the server has answered."""
        return Ladder(known_at=now)

    def reconnected(self, policy: HealthPolicy) -> Ladder:
        """Carry the count over to a new connection."""
        return Ladder(self._rung(policy))

    def condition(self, policy: HealthPolicy) -> Condition:
        """Return the condition of the server; ``healthy`` on a new connection until that has failed a check too."""
        if self.here and self.failures >= policy.unhealthy_after:
            return "unhealthy"
        return "degraded" if self.here and self.failures >= policy.warn_after else "healthy"

    def verdict(self, policy: HealthPolicy) -> Verdict | None:
        """Return the step that the failures call for, before any evidence that the server is busy."""
        if self.here and self._rung(policy) >= policy.fail_after:
            return "fail"
        return "restart" if self.here >= policy.restart_after else None

    def _rung(self, policy: HealthPolicy) -> int:
        # A busy server may fail many checks before its restart is allowed. Capped, these never skip the restart and
        # park the server at once.
        return self.before + min(self.here, policy.restart_after)
