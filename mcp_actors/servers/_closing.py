"""The order in which the servers of a group begin to close.

All servers are told to stop in one step and close side by side, but tasks that wake up in one step run in any order. So
each server that was connected when the group was left waits until those configured after it have begun.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

__all__ = ["ClosingOrder"]


class ClosingOrder:
    """Lets the servers of one group begin to close in reverse configured order."""

    def __init__(self) -> None:
        self._due: list[str] = []
        self._parking = trio.lowlevel.ParkingLot()

    def leave(self, connected: Iterable[str]) -> None:
        """Note that the group is left.

        Args:
            connected: the names of the servers that are connected now, in configured order. Each of them calls `begin`,
                however its connection ends.
        """
        self._due.extend(connected)

    async def wait_turn(self, server: str) -> None:
        """Wait until every server configured after this one has begun to close.

        **Cancellation**: leaves at once; `begin` is still due.
        """
        while server in self._due and self._due[-1] != server:
            await self._parking.park()

    def begin(self, server: str) -> None:
        """Note that a server begins to close. Does nothing unless the group was left."""
        if server in self._due:
            self._due.remove(server)
            self._parking.unpark_all()
