"""A counter: an actor that crashes and is replaced.

Prints::

    2
    5
    crashed: cannot add -1
    1
"""

from __future__ import annotations

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, Call, ChildSpec, open_supervisor


@frozen
class Add(Call[int]):
    amount: int


class Counter(Actor[Add]):
    """Adds up what it is sent."""

    def __init__(self) -> None:
        self.total = 0

    def handle(self, message: Add) -> int:
        if message.amount < 0:
            raise ValueError(f"cannot add {message.amount}")
        self.total += message.amount
        return self.total

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ValueError)


async def main() -> None:
    async with open_supervisor(ChildSpec("counter", Counter)) as supervisor:
        counter = supervisor.child("counter", Counter)
        print(await counter.call(Add(2)))
        print(await counter.call(Add(3)))
        try:
            await counter.call(Add(-1))
        except ValueError as error:
            print("crashed:", error)
        print(await counter.call(Add(1)))


trio.run(main)
