"""Three ways for an actor to find another one: a ref that was handed over, its supervisor, and a path.

Prints::

    soup, as the book says
    house/kitchen/cook serves house/waiter
"""

from __future__ import annotations

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Supervisor,
    handles,
    open_actor,
    open_supervisor,
)


@frozen
class Ask(Call[str]):
    what: str


class Book(Actor[Ask]):
    @handles(Ask)
    def look_up(self, message: Ask) -> str:
        return f"{message.what}, as the book says"


class Cook(Actor[Ask]):
    def __init__(self, book: ActorRef[Ask]) -> None:
        self._book = book  # 1. a ref that was handed over

    @handles(Ask)
    async def cook(self, message: Ask) -> str:
        return await self._book.call(message)


class Waiter(Actor[Ask]):
    @handles(Ask)
    async def order(self, message: Ask) -> str:
        house = self.supervisor  # 2. the supervisor, and from there a path
        assert house is not None
        return await house.find("kitchen/cook", Cook).call(message)


async def main() -> None:
    async with (
        open_actor(Book(), name="book") as book,
        open_supervisor(
            ChildSpec(
                "kitchen", lambda: Supervisor(ChildSpec("cook", lambda: Cook(book)))
            ),
            ChildSpec("waiter", Waiter),
            name="house",
        ) as house,
    ):
        waiter = house.child("waiter", Waiter)  # 3. from outside, by its id
        print(await waiter.call(Ask("soup")))
        print(house.find("kitchen/cook").path, "serves", waiter.path)


trio.run(main)
