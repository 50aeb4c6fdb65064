"""Let servers finish their requests before they are disconnected.

A server that leaves refuses new requests and finishes those that it has accepted, the queued ones too: it *drains*. A
server that comes back, because it is restarted or has a new configuration, finishes those in flight only; all others
wait for its next connection (`ServerLife.holding`). Then it is disconnected, whatever is left.

Only a server that serves is drained, and only in a change that was asked for: not if the block is left by an exception
or a cancellation, and not if the connection is lost or given up by the health checks. While it drains it is
``stopping``, so it is not checked.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ..._checks import is_number
from ..._errors import ConfigError
from ..record import ACTIVE, Drained

if TYPE_CHECKING:
    from ..record import ServerRecord
    from ._roster import Roster

__all__ = ["DRAIN_TIMEOUT", "check_drain", "drain", "leave"]

DRAIN_TIMEOUT: Final = 30.0
"""Default of ``drain_timeout``: what service managers wait before they kill a program, less the time for the stop."""


async def drain(record: ServerRecord, seconds: float, *, queued: bool) -> None:
    """Wait until a server has finished its requests, for a limited time; not at all if it has none.

    Args:
        record: the record of the server.
        seconds: the limit; 0 does not wait.
        queued: whether it finishes the queued requests too.
    """
    if record.life.state in ACTIVE and seconds and record.calls.deadlines.pending(queued=queued):
        await _drain(record, seconds, queued=queued)


async def _drain(record: ServerRecord, seconds: float, *, queued: bool) -> None:
    deadlines = record.calls.deadlines
    record.life.begin_to_drain(deadlines.pending(queued=queued), seconds)
    with trio.move_on_after(seconds):
        await deadlines.wait_settled(queued=queued)
    record.life.emit(Drained, unfinished=deadlines.pending(queued=queued))


async def leave(roster: Roster, seconds: float) -> None:
    """Refuse all requests and changes from now on, and let the servers finish what they have accepted.

    Returns at once if there is nothing to finish.

    **Cancellation**: ends the wait.
    """
    roster.closing = True
    records = tuple(roster.records.values())
    for record in records:
        record.life.leaving = True
    serving = [record for record in records if record.life.state in ACTIVE]
    if not seconds or not any(record.calls.deadlines.pending(queued=True) for record in serving):
        return
    async with trio.open_nursery() as nursery:
        for record in serving:
            # Also one without requests: in this state it refuses new ones.
            nursery.start_soon(partial(_drain, record, seconds, queued=True), name=f"{record.config.name}:drain")


def check_drain(seconds: object) -> float:
    """Validate a ``drain_timeout``.

    Raises:
        ConfigError: it is not a number of seconds.
    """
    if is_number(seconds) and 0 <= seconds < math.inf:
        return seconds
    raise ConfigError(
        f"drain_timeout={seconds!r} is not a number of seconds; pass 0 or more, like drain_timeout=10",
        source="open_servers",
        path="drain_timeout",
    )
