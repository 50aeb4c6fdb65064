"""An account that postpones deposits while it is closed.

Prints::

    while it is closed: 2 deposits wait
    10 30
"""

from __future__ import annotations

import trio
import trio.testing
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    Message,
    Postpone,
    handles,
    open_actor,
)


@frozen
class Deposit(Call[int]):
    amount: int


class Close(Message):
    pass


class Reopen(Message):
    pass


class Account(Actor[Deposit | Close | Reopen]):
    def __init__(self) -> None:
        self._closed = False
        self._total = 0

    @handles(Deposit)
    def deposit(self, message: Deposit) -> int:
        if self._closed:
            raise Postpone
        self._total += message.amount
        return self._total

    @handles(Close)
    def close(self, message: Close) -> None:
        self._closed = True

    @handles(Reopen)
    def reopen(self, message: Reopen) -> None:
        self._closed = False
        self.resume()


async def deposit(account: ActorRef[Deposit], amount: int, totals: list[int]) -> None:
    totals.append(await account.call(Deposit(amount)))


async def main() -> None:
    totals: list[int] = []
    async with (
        open_actor(Account(), name="account") as account,
        trio.open_nursery() as nursery,
    ):
        await account.tell(Close())
        for amount in (10, 20):
            nursery.start_soon(deposit, account, amount, totals)
            await trio.testing.wait_all_tasks_blocked()
        waiting = account.statistics().queued
        print(f"while it is closed: {waiting} deposits wait")
        await account.tell(Reopen())
    print(*sorted(totals))


trio.run(main)
