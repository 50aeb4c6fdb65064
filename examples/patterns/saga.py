"""A saga: steps at several services, which are undone in reverse order if a later one fails.

Prints::

    seat reserved
    card charged
    card refunded
    seat released
    not booked: no more tickets
    booked: True
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, Call, handles, open_actor

Step = Callable[[], Awaitable[None]]
UNDO_TIMEOUT = 10


@frozen
class Book(Call[bool]):
    """Carry out all steps or none of them.

    Attributes:
        steps: each with the one that undoes it.
    """

    steps: tuple[tuple[Step, Step], ...]


class Bookings(Actor[Book]):
    finish_on_stop = True  # half a booking does harm

    @handles(Book)
    async def book(self, message: Book) -> bool:
        undo: list[Step] = []
        try:
            for do, undo_it in message.steps:
                undo.append(undo_it)  # a step that fails may have had its effect
                await do()
        except BaseException as failure:
            # Also if the caller leaves. Bounded, because a shield must be.
            with trio.move_on_after(UNDO_TIMEOUT, shield=True):
                for step in reversed(undo):
                    try:
                        await step()
                    except Exception as error:  # the others are undone all the same
                        failure.add_note(f"a step was not undone: {error!r}")
            raise
        return True


def say(text: str) -> Step:
    async def step() -> None:
        await trio.lowlevel.checkpoint()
        if text:
            print(text)

    return step


async def fail() -> None:
    raise OSError("no more tickets")


async def main() -> None:
    seat = say("seat reserved"), say("seat released")
    card = say("card charged"), say("card refunded")
    async with open_actor(Bookings(), name="bookings") as bookings:
        try:
            await bookings.call(Book((seat, card, (fail, say("")))))
        except OSError as error:
            print(f"not booked: {error}")
        print("booked:", await bookings.call(Book(((say(""), say("")),))))


trio.run(main)
