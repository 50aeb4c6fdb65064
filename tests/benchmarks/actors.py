"""The actors that are measured: as simple as can be, so that what is measured is the kernel."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, Call, Later, handles


@frozen
class Ask(Call[int]):
    """Wants its number back."""

    number: int


class Echo(Actor):
    """Answers at once. With one slot, as by default, concurrent callers queue."""

    async def handle(self, message: Ask) -> int:
        """Give the number back."""
        return message.number


class PlainEcho(Actor):
    """Answers at once, without a task."""

    @handles(Ask)
    def answer(self, message: Ask) -> int:
        """Give the number back."""
        return message.number


class WideEcho(Echo):
    """Serves many at the same time."""

    max_in_flight = 256


class Relay(Actor):
    """Takes messages without a task, as a connection does that many requests share; another task answers them."""

    max_in_flight = 256

    def __init__(self) -> None:
        self._taken: deque[Later[int]] = deque()
        self._lot = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the task that answers."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer)
            yield
            nursery.cancel_scope.cancel("the actor stops")

    def take(self, later: Later[Any]) -> bool:
        """Take a message, in its sender's step."""
        if not self._taken:  # else the task is awake
            self._lot.unpark()
        self._taken.append(later)
        return True

    async def _answer(self) -> None:
        while True:
            while self._taken:
                later = self._taken.popleft()
                assert isinstance(later.message, Ask)
                later.reply(later.message.number)
            await self._lot.park()

    async def handle(self, message: Ask) -> int:
        """Is not called, because `take` takes all messages."""
        raise AssertionError(message)
