"""Log the outages of servers: losses, failed connects, parking and recovery.

Python shows warnings on stderr if a program does not configure logging, so a loss, a failed connect and a parking are
warnings with their reason. A recovery is at level INFO. An outage may last for days and a server may flap, so each
reason is a warning once an outage, and at most `MOST_REASONS` are; everything else is at level DEBUG. An outage is over
when the server has served for its ``reset_after``; a recovery that does not last is part of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define, field, frozen

from ._connection_errors import problem_of
from ._events import StateChanged
from ._state import CONNECTED, FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ..kernel import Event
    from ._record import ServerRecord

__all__ = ["OutageLog"]

logger = logging.getLogger("mcp_actors.servers")

MOST_REASONS: Final = 10
"""Different warnings in one outage. A server may put the time of day into each of its last words."""

LASTING: Final = 60.0
"""Seconds of serving that end an outage if the server's policy has no ``reset_after``."""

_TROUBLE: Final = FAILED | {"degraded"}


@define
class _Outage:
    """What was logged of one outage.

    Attributes:
        down_at: when the server was last well, by the wall clock.
        well_since: when it became well again, on Trio's clock; None while it is not.
        told: what was a warning.
        recovery: the level for its return: INFO if there was a warning since it was last well.
    """

    down_at: datetime
    well_since: float | None = None
    told: set[str] = field(factory=set)
    recovery: int = logging.DEBUG


@frozen
class OutageLog:
    """An observer of a group, which never hears of requests.

    Args:
        records: the servers by name.
    """

    records: Mapping[str, ServerRecord]
    _outages: dict[str, _Outage] = field(factory=dict, init=False)

    wants_requests: ClassVar[bool] = False

    def __call__(self, event: Event) -> None:
        """Log a change of state that is part of a story."""
        if not isinstance(event, StateChanged):
            return
        if event.new in _TROUBLE:
            self._trouble(event, self.records[event.server])
        elif event.new == "ready":
            self._well(event)
        elif event.new == "stopped":
            self._outages.pop(event.server, None)

    def _trouble(self, event: StateChanged, record: ServerRecord) -> None:
        outage = self._current(event, record)
        why = _why(event, record)
        level, text = logging.DEBUG, _told(event, record, why)
        reason = f"{event.new}: {why}"
        if reason not in outage.told and len(outage.told) < MOST_REASONS and not _is_raised(event, record):
            outage.told.add(reason)
            outage.recovery, level = logging.INFO, logging.WARNING
            if len(outage.told) == MOST_REASONS:
                text += " (until it has recovered, further failures are logged at level DEBUG)"
        _log(level, event, text)

    def _current(self, event: StateChanged, record: ServerRecord) -> _Outage:
        """The outage that a failure belongs to."""
        outage = self._outages.get(event.server)
        lasting = record.config.restart.reset_after or LASTING
        if outage is None or (outage.well_since is not None and event.time - outage.well_since >= lasting):
            outage = self._outages[event.server] = _Outage(event.at)
        elif outage.well_since is not None:
            outage.down_at, outage.well_since = event.at, None
        return outage

    def _well(self, event: StateChanged) -> None:
        outage = self._outages.get(event.server)
        if outage is None:
            _log(logging.INFO, event, event.reason)
            return
        away = (event.at - outage.down_at).total_seconds()
        _log(outage.recovery, event, f"{event.reason}; recovered after {away:.0f} s")
        outage.well_since, outage.recovery = event.time, logging.DEBUG


def _told(event: StateChanged, record: ServerRecord, why: str) -> str:
    if event.new == "backoff":
        return f"{'connection lost' if event.old in CONNECTED else 'connect failed, retrying'}: {why}"
    if event.new != "failed":
        return f"{event.new}: {why}"
    if record.retry_at is None:
        return f"has failed and is not retried: {why}; fix that, then await servers[{event.server!r}].restart()"
    failures = "1 failure" if record.failures == 1 else f"{record.failures} failures in a row"
    seconds = (record.retry_at - event.at).total_seconds()
    return f"parked after {failures}, next attempt in {seconds:.0f} s: {why}"


def _why(event: StateChanged, record: ServerRecord) -> str:
    """The reason, without the delay before the next attempt, which makes every repeat look new."""
    if record.error is None or event.new not in ("backoff", "failed"):
        return event.reason
    return problem_of(record.error)


def _is_raised(event: StateChanged, record: ServerRecord) -> bool:
    """Whether the program gets an exception that says so."""
    return event.new == "failed" and record.config.on_failure == "raise"


def _log(level: int, event: StateChanged, text: str) -> None:
    logger.log(level, "server %r: %s", event.server, text, extra={"mcp_server": event.server})
