"""Log the outages of servers: losses, failed connects, parking and recovery.

Python prints warnings on stderr even if a program does not configure logging, so a loss, a failed connect and a parking
are warnings with their reason. A recovery is at level INFO. An outage may last for days and a server may flap, so each
reason is a warning once per outage, up to `MOST_REASONS` of them; all else is at level DEBUG. An outage is over when
the server has served for its ``reset_after``; a shorter recovery is part of the outage. Each replica of a server has
outages of its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakKeyDictionary

from attrs import define, field, frozen

from ..._foreign import Log
from ..._text import problem_of
from ..record import CONNECTED, FAILED, PARKED, ReplicaChanged, StateChanged

if TYPE_CHECKING:
    from datetime import datetime

    from ...kernel import Event
    from ..record import ServerRecord
    from ._roster import Roster

logger = Log("mcp_actors.servers")

MOST_REASONS: Final = 10
"""Maximum of different warnings per outage. A server may print the time of day in each of its errors."""

LASTING: Final = 60.0
"""Seconds of serving that end an outage if the server's policy has no ``reset_after``."""

_TROUBLE: Final = FAILED | {"degraded"}


@define(eq=False)
class _Outage:
    """The log of one outage.

    Attributes:
        down_at: the wall-clock time at which the server last failed after it was ready.
        well_since: the time on Trio's clock at which it was ready again; None while it is not.
        logged: the reasons that were logged as warnings.
        recovery: the level for its recovery: INFO if there was a warning since it was last ready.
    """

    down_at: datetime
    well_since: float | None = None
    logged: set[str] = field(factory=set)
    recovery: int = logging.DEBUG


@frozen(eq=False)
class OutageLog:
    """Observes a group and logs its outages. Does not observe requests.

    Args:
        roster: the servers.
    """

    roster: Roster
    _outages: WeakKeyDictionary[ServerRecord, _Outage] = field(factory=WeakKeyDictionary, init=False)

    wants_requests: ClassVar[bool] = False

    def __call__(self, event: Event) -> None:
        """Log a change of state that begins, continues or ends an outage."""
        if not isinstance(event, StateChanged | ReplicaChanged):
            return
        record = self.roster.records[event.server]
        if isinstance(event, ReplicaChanged):
            record = record.replica(event.replica)
        if event.new in _TROUBLE:
            self._trouble(event, record)
        elif event.new == "ready":
            self._well(event, record)
        elif event.new == "stopped":
            self._outages.pop(record, None)

    def _trouble(self, event: StateChanged | ReplicaChanged, record: ServerRecord) -> None:
        outage = self._current(event, record)
        why = _why(event, record)
        level, text = logging.DEBUG, _text(event, record, why)
        reason = f"{event.new}: {why}"
        if reason not in outage.logged and len(outage.logged) < MOST_REASONS and not _is_raised(event, record):
            outage.logged.add(reason)
            outage.recovery, level = logging.INFO, logging.WARNING
            if len(outage.logged) == MOST_REASONS:
                text += " (until it has recovered, further failures are logged at level DEBUG)"
        _log(level, event, text)

    def _current(self, event: StateChanged | ReplicaChanged, record: ServerRecord) -> _Outage:
        """Return the outage that a failure belongs to; begin one if there is none."""
        outage = self._outages.get(record)
        lasting = record.config.restart.reset_after or LASTING
        if outage is None or (outage.well_since is not None and event.time - outage.well_since >= lasting):
            outage = self._outages[record] = _Outage(event.at)
        elif outage.well_since is not None:
            outage.down_at, outage.well_since = event.at, None
        return outage

    def _well(self, event: StateChanged | ReplicaChanged, record: ServerRecord) -> None:
        outage = self._outages.get(record)
        if outage is None:
            _log(logging.INFO, event, event.reason)
            return
        away = (event.at - outage.down_at).total_seconds()
        _log(outage.recovery, event, f"{event.reason}; recovered after {away:.0f} s")
        outage.well_since, outage.recovery = event.time, logging.DEBUG


def _text(event: StateChanged | ReplicaChanged, record: ServerRecord, why: str) -> str:
    if event.new == "backoff":
        return f"{'connection lost' if event.old in CONNECTED else 'connect failed, retrying'}: {why}"
    if event.new != "failed":  # with needs_auth, the reason has the remedy
        return f"{event.new}: {why}"
    if record.life.retry_at is None:
        return f"has failed and is not retried: {why}; fix that, then await servers[{event.server!r}].restart()"
    # A server that connects each time and soon fails again has never failed twice in a row.
    failures = f" after {record.life.failures} failures in a row" if record.life.failures > 1 else ""
    seconds = (record.life.retry_at - event.at).total_seconds()
    return f"parked{failures}, next attempt in {seconds:.0f} s: {why}"


def _why(event: StateChanged | ReplicaChanged, record: ServerRecord) -> str:
    """Return the reason without the delay until the next attempt, which would make every repetition a new reason."""
    if record.life.error is None or event.new not in PARKED | {"backoff"}:
        return event.reason
    return problem_of(record.life.error)


def _is_raised(event: StateChanged | ReplicaChanged, record: ServerRecord) -> bool:
    """Return True if the group raises the error, so that it need not be logged."""
    return event.new in PARKED and record.config.on_failure == "raise"


def _log(level: int, event: StateChanged | ReplicaChanged, text: str) -> None:
    if isinstance(event, ReplicaChanged):
        text = f"replica {event.replica!r}: {text}"
    logger.log(level, "server %r: %s", event.server, text, extra={"mcp_server": event.server})
