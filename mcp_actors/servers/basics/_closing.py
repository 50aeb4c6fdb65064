"""Close the servers of a group in reverse configured order.

All servers are asked to stop in one step and close concurrently, but Trio runs the tasks that wake up in one step in
any order. So each server that was connected when the block exited waits until those configured after it have begun.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio


class ClosingOrder:
    """The closing order of the servers of one group."""

    def __init__(self) -> None:
        self._due: list[str] = []
        self._parking = trio.lowlevel.ParkingLot()

    def leave(self, connected: Iterable[str]) -> None:
        """Note that the block of the group has exited.

        Args:
            connected: the names of the servers that are connected now, in configured order. Each of them must call
                `begin`, however its connection ends, or the others wait for ever.
        """
        self._due.extend(connected)

    async def wait_turn(self, server: str) -> None:
        """Wait until every server configured after this one has begun to close.

        **Cancellation**: leaves at once; `begin` is still due.
        """
        while server in self._due and self._due[-1] != server:
            await self._parking.park()

    def begin(self, server: str) -> None:
        """Note that a server begins to close; do nothing if the block of the group has not exited."""
        if server in self._due:
            self._due.remove(server)
            self._parking.unpark_all()
