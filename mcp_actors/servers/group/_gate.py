"""Decide how long opening a group waits for each server.

By default it waits until the first connect of every eager server has succeeded or failed; for an optional server, at
most ``connect_timeout``. With ``start_gate=N``, it waits at most N seconds for servers with remembered tools; required
servers and servers without remembered tools are awaited as before. Servers that are no longer awaited keep connecting.

The group's supervisor starts the servers, and awaits the required ones only (``Supervisor(await_start=False)``). The
gate waits in the task that opens the group, where every deadline and cancellation reaches it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from ..._checks import is_number
from ..basics import bad_option
from ..record import PARKED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..record import ServerRecord

FIRST_CONNECT: Final = ("pending", "connecting")
"""The states of a server whose first connect is undecided."""


class StartGate:
    """Waits for the first connects of the eager servers.

    Args:
        records: the servers.
        seconds: how long to wait for servers with remembered tools; None waits as long as it takes.
    """

    def __init__(self, records: Iterable[ServerRecord], seconds: float | None) -> None:
        # The clock starts here, before the store is read and required servers start: the user's seconds cover both.
        self._deadline = math.inf if seconds is None else trio.current_time() + seconds
        self._awaited = [record for record in records if record.config.connect == "eager"]

    async def wait(self) -> None:
        """Wait until the ``async with open_servers()`` block may begin.

        There is no checkpoint between a test of a state and `wait_change`, or a change in between would be missed.
        """
        for record in self._awaited:
            # Every server leaves `pending` within a few steps, whatever the deadline: the block never sees a server
            # that has not even begun to connect.
            while record.life.state == "pending":
                await record.life.wait_change()
        with trio.move_on_at(self._deadline):
            for record in self._awaited:
                while _undecided(record):
                    await record.life.wait_change()
        for record in self._awaited:
            while _undecided(record) and not record.catalog.deferred:
                await record.life.wait_change()
        if any(record.life.state in PARKED and record.config.on_failure == "raise" for record in self._awaited):
            # The supervisor is ending the group and cancels this task; the block must not begin meanwhile.
            await trio.sleep_forever()


def _undecided(record: ServerRecord) -> bool:
    """Return True while the first connect of a server has neither succeeded, failed nor taken too long.

    The state alone does not tell: a failed server is `connecting` again after its back-off, but keeps its error.
    """
    return record.life.state in FIRST_CONNECT and record.life.last_error is None and record.life.overdue is None


def check_gate(seconds: object, *, remembers: bool) -> None:
    """Validate a start gate.

    Raises:
        ConfigError: it is not a number of seconds, or there is no catalogue store.
    """
    if seconds is None:
        return
    if not is_number(seconds) or not 0 <= seconds < math.inf:
        problem = "is not a number of seconds; pass 0 or more, like start_gate=0.25, or None to wait for every server"
        raise bad_option("start_gate", seconds, problem)
    if not remembers:
        problem = "has no effect without a catalog_store, because every server without remembered tools is awaited"
        raise bad_option("start_gate", seconds, f"{problem}; add catalog_store=True, or remove start_gate")
