"""Queue items for a slow callback, within limits."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

MAX_WAITING: Final = 1000
"""Items that may wait for a slow callback. Then the oldest is dropped, because the latest matter most."""


class Feed(Generic[T]):
    """Delivers items in order, in a task of its own.

    Args:
        deliver: delivers an item. It handles its own exceptions.
        max_size: the most that the waiting items may take together, in the unit of `put`. Then the oldest is dropped;
            a single item that takes more is dropped at once.
        on_drop: called for each dropped item.
    """

    def __init__(
        self, deliver: Callable[[T], Awaitable[None]], *, max_size: int, on_drop: Callable[[], None] = lambda: None
    ) -> None:
        self._deliver = deliver
        self._max_size = max_size
        self._on_drop = on_drop
        self._waiting: list[tuple[float, int, int, T]] = []
        self._size = self._arrived = 0
        self._change = trio.Event()
        self._idle = trio.Event()
        self._idle.set()

    def put(self, item: T, size: int, rank: float = 0.0) -> None:
        """Queue an item, without waiting. Items are delivered by rank, and those of one rank as they arrived."""
        if size > self._max_size:
            self._on_drop()
            return
        self._arrived += 1
        heapq.heappush(self._waiting, (rank, self._arrived, size, item))
        self._size += size
        while len(self._waiting) > MAX_WAITING or self._size > self._max_size:
            self._take()
            self._on_drop()
        self._wake()

    def _wake(self) -> None:
        if self._idle.is_set():
            self._idle = trio.Event()
        self._change.set()

    def _take(self) -> T:
        _, _, size, item = heapq.heappop(self._waiting)
        self._size -= size
        return item

    async def run(self) -> None:
        """Deliver the queued items. **Cancellation**: drops them."""
        while True:
            await self._change.wait()
            self._change = trio.Event()
            # One checkpoint lets the tasks of one burst queue their items first; without it the first task to run
            # would have its item delivered before those of a lower rank.
            await trio.lowlevel.checkpoint()
            while self._waiting:
                await self._deliver(self._take())
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until all items are delivered, also those that tasks which are scheduled now will queue."""
        self._wake()
        await self._idle.wait()
