"""Limit the concurrent connects and the processes of a group."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from operator import attrgetter
from typing import Final

import trio

from ..._errors import ConnectFailed


class Capacity:
    """The capacity that the servers of a group share.

    Args:
        starting: the number of servers that connect at a time; further ones wait for their turn, in configured order.
        processes: the number of processes; a further one is refused.
    """

    def __init__(self, *, starting: float = math.inf, processes: float = math.inf) -> None:
        self._most_starting = starting
        self._starting = 0
        self._queue: list[Turn] = []
        self._places = count()
        self._most_processes = processes
        self._processes = 0

    def new_place(self) -> int:
        """Return the place of another server in the configured order."""
        return next(self._places)

    @asynccontextmanager
    async def turn(self, place: int, until: float, late: Callable[[str], object]) -> AsyncIterator[Turn]:
        """Wait for the turn to connect; it ends with the block, or earlier with `Turn.end`.

        **Cancellation**: leaves the queue.

        Args:
            place: the place of the server in the configured order.
            until: when to call `late` with the reason for the wait; the wait goes on.
            late: see above.
        """
        turn = Turn(self, place)
        insort(self._queue, turn, key=attrgetter("place"))
        try:
            # The servers of a group begin in one tick, in any order. After this checkpoint all are in the queue.
            await trio.lowlevel.checkpoint()
            self._admit()
            with trio.move_on_at(until):
                await turn.begun.wait()
            if not turn.begun.is_set():
                most = self._most_starting
                late(f"waits for its turn, because other servers are slow to connect (max_starting={most})")
                await turn.begun.wait()
            yield turn
        finally:
            turn.end()

    def end(self, turn: Turn) -> None:
        """See `Turn.end`."""
        if turn in self._queue:
            self._queue.remove(turn)
        else:
            self._starting -= 1
            self._admit()

    def _admit(self) -> None:
        while self._queue and self._starting < self._most_starting:
            self._starting += 1
            self._queue.pop(0).begun.set()

    @contextmanager
    def process(self, server: str) -> Iterator[None]:
        """Count a process while the block runs.

        Raises:
            ConnectFailed: there are too many already.
        """
        if self._processes >= self._most_processes:
            most = self._most_processes
            raise ConnectFailed(
                f"server {server!r}: not started, because no more processes are allowed "
                f"(max_processes={most}); stop a server, set idle_timeout, or raise max_processes",
                server=server,
                phase="open",
            )
        self._processes += 1
        try:
            yield
        finally:
            self._processes -= 1


class Turn:
    """The turn of one server to connect.

    Attributes:
        place: the place of the server in the configured order.
        begun: set when the turn has come.
    """

    def __init__(self, capacity: Capacity, place: int) -> None:
        self._capacity: Capacity | None = capacity
        self.place: Final = place
        self.begun: Final = trio.Event()

    def end(self) -> None:
        """Let the next server connect; do nothing the second time."""
        if self._capacity is not None:
            capacity, self._capacity = self._capacity, None
            capacity.end(self)
