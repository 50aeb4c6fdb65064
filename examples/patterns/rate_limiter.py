"""A rate limiter: so many requests at once, and so many a second after that.

Prints::

    3 requests at once, 3 wait
    a caller that left takes no turn
    done: 0 1 2 4 5
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    Later,
    LaterQueue,
    Message,
    handles,
    open_actor,
)


@frozen
class Acquire(Call[None]):
    """Wait for a turn."""


@frozen
class Refill(Message):
    pass


class Limiter(Actor[Acquire | Refill]):
    def __init__(self, *, rate: float, burst: int) -> None:
        self._period, self._burst = 1 / rate, burst
        self._turns = burst
        self._waiting: LaterQueue[None] = LaterQueue()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self.every(self._period, Refill())
        yield

    @handles(Acquire)
    def acquire(self, message: Acquire) -> Later[None] | None:
        if self._turns:
            self._turns -= 1
            return None
        return self._waiting.add(self.defer(message, keep_slot=False))

    @handles(Refill)
    def refill(self, message: Refill) -> None:
        if not self._waiting.reply(None):
            self._turns = min(self._turns + 1, self._burst)


async def request(limiter: ActorRef[Acquire], number: int, done: list[int]) -> None:
    with trio.move_on_after(0.001 if number == 3 else 60):
        await limiter.call(Acquire())
        done.append(number)


async def main() -> None:
    done: list[int] = []
    async with open_actor(Limiter(rate=3, burst=3), name="limiter") as limiter:
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(request, limiter, number, done)
                await trio.lowlevel.checkpoint()
            print(f"{len(done)} requests at once, {6 - len(done)} wait")
        print("a caller that left takes no turn")
        print("done:", *done)


trio.run(main)
