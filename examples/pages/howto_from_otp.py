"""An actor for readers who know a gen_server, and its supervisor.

Prints::

    5
    5 after a tick
    the counter crashed: ZeroDivisionError('integer division or modulo by zero')
    a new one counts from 0: 1
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    Later,
    Message,
    handles,
    open_supervisor,
)


@frozen
class Add(Call[int]):
    number: int


@frozen
class Divide(Call[int]):
    by: int


@frozen
class NextTick(Call[int]):
    """Wait for the next tick."""


@frozen
class Tick(Message):
    pass


class Counter(Actor):  # -behaviour(gen_server).
    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self.total = 0  # init/1
        self.waiting: list[Later[int]] = []
        self.every(0.01, Tick())  # timer:send_interval/2
        yield
        self.total = 0  # terminate/2

    @handles(Add)  # handle_call/3, handle_cast/2 and handle_info/2
    async def add(self, message: Add) -> int:
        self.total += message.number
        return self.total  # {reply, Total, State}

    @handles(Divide)
    async def divide(self, message: Divide) -> int:
        self.total //= message.by
        return self.total

    @handles(NextTick)
    async def next_tick(self, message: NextTick) -> Later[int]:
        later = self.defer(message, keep_slot=False)
        self.waiting.append(later)
        return later  # {noreply, State}

    @handles(Tick)
    async def tick(self, message: Tick) -> None:
        for later in self.waiting:
            later.reply(self.total)  # gen_server:reply/2
        self.waiting.clear()

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ZeroDivisionError)  # let it crash


async def main() -> None:
    async with open_supervisor(
        ChildSpec("counter", Counter, restart="permanent", shutdown=5),
        strategy="one_for_one",
        max_restarts=1,  # intensity
        window=5,  # period
    ) as supervisor:
        counter = supervisor.child("counter")
        print(await counter.call(Add(5)))
        print(await counter.call(NextTick()), "after a tick")
        try:
            await counter.call(Divide(0))
        except ZeroDivisionError as error:
            print(f"the counter crashed: {error!r}")
        print("a new one counts from 0:", await counter.call(Add(1)))


if __name__ == "__main__":
    trio.run(main)
