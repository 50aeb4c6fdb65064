"""The actors of these tests. Their messages are data, which may come from another loop or thread."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, Call, Message

caller: ContextVar[str] = ContextVar("caller", default="nobody")


class Boom(Exception):
    """An ordinary failure of a handler."""


class Fatal(Exception):
    """A failure of a handler that ends the incarnation."""


@frozen
class Echo(Call[int]):
    """Wants its number back, after some steps of others."""

    number: int
    steps: int = 0


@frozen
class Nap(Call[None]):
    """Is handled until it is cancelled."""


@frozen
class Count(Call[tuple[int, int]]):
    """Asks how many naps were begun, and how many of them have ended."""


@frozen
class WhoCalls(Call[str]):
    """Asks what the handler finds in the context variable `caller`."""


@frozen
class Fail(Call[None]):
    """Wants to fail with this."""

    error: Exception


@frozen
class Note(Message):
    """Is kept."""

    item: int


@frozen
class Notes(Call[tuple[int, ...]]):
    """Asks for what was kept."""


class Worker(Actor):
    """Does what it is asked for, many things at the same time."""

    max_in_flight = 1000

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.notes: list[int] = []

    async def handle(self, message: Any) -> Any:
        match message:
            case Echo(number, steps):
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                return number
            case Nap():
                await self._nap()
            case Count():
                return self.begun, self.ended
            case WhoCalls():
                return caller.get()
            case Fail(error):
                raise error
            case Note(item):
                self.notes.append(item)
            case Notes():
                return tuple(self.notes)
        return None

    async def _nap(self) -> None:
        self.begun += 1
        try:
            await trio.sleep_forever()
        finally:
            self.ended += 1

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)


class SerialWorker(Worker):
    """Does one thing at a time."""

    max_in_flight = 1
