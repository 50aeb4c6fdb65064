"""How long the start of a group waits for which server.

It waits for the first connect of each: until it has succeeded or failed, or, if the server is not required, has taken
``connect_timeout``. With a gate, only for those whose connect matters before anything can be done: servers that are
required, and servers of which nothing is remembered. The others go on connecting.

Nothing here starts a server. The group's supervisor does, and awaits those that are required only
(``Supervisor(await_start=False)``); so the waiting is done in the task that opens the group, where every deadline and
cancellation reaches it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from ..._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._record import ServerRecord

__all__ = ["StartGate", "check_gate"]

FIRST_CONNECT: Final = ("pending", "connecting")
"""The states before the first connect has come to something."""


class StartGate:
    """Waits for first connects.

    Args:
        records: the servers.
        seconds: how long to wait for those of which something is remembered; None: as long as it takes.
    """

    def __init__(self, records: Iterable[ServerRecord], seconds: float | None) -> None:
        self._deadline = math.inf if seconds is None else trio.current_time() + seconds
        self._awaited = [record for record in records if record.config.connect == "eager"]

    async def wait(self) -> None:
        """Wait until the block may begin."""
        for record in self._awaited:
            while record.state == "pending":  # for some steps only: nobody is to meet a server that is not begun with
                await record.wait_change()
        with trio.move_on_at(self._deadline):
            for record in self._awaited:
                while _undecided(record):
                    await record.wait_change()
        for record in self._awaited:
            while _undecided(record) and not record.deferred:
                await record.wait_change()
        if any(record.state == "failed" and record.config.on_failure == "raise" for record in self._awaited):
            await trio.sleep_forever()  # the group is about to end, and this with it


def _undecided(record: ServerRecord) -> bool:
    """Return True if the first connect of a server has to be waited for. Required servers are connected already."""
    return _connects(record) and record.overdue is None


def _connects(record: ServerRecord) -> bool:
    """Whether the first connect of a server has come to nothing yet. A state may flash by, a failure stays."""
    return record.state in FIRST_CONNECT and record.last_error is None


def check_gate(seconds: object, *, remembers: bool) -> None:
    """Refuse a gate that cannot be.

    Raises:
        ConfigError: it is no number of seconds, or nothing is remembered.
    """
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise ConfigError(
            f"start_gate={seconds!r} is not possible; give seconds, 0 or more, like start_gate=0.25, or None to "
            "wait for every server",
            source="open_servers",
            path="start_gate",
        )
    if not remembers:
        raise ConfigError(
            f"start_gate={seconds!r} needs a catalog_store: servers of which nothing is remembered are waited for; "
            "add catalog_store=True, or remove start_gate",
            source="open_servers",
            path="start_gate",
        )
