"""An actor that takes messages without a task, and its callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field, frozen
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import Actor, ActorRef, Call, Later, open_actor

from .actors import Do, Fatal, Get


@frozen(eq=False)
class Ask(Call[int]):
    """Answered later.

    Attributes:
        number: any.
        take: called by ``take`` with the actor and the `Later`; None takes it.
    """

    number: int = 0
    take: Callable[[Taker, Later[int]], bool] | None = None


class Taker(Actor):
    """Takes each `Ask` without a task, and handles everything else."""

    def __init__(
        self,
        *,
        max_in_flight: int = 100,
        on_cancel: Callable[[Later[Any]], object] | None = None,
        background: Callable[[Taker], Awaitable[None]] | None = None,
        on_end: Callable[[Taker], None] | None = None,
    ) -> None:
        self.max_in_flight = max_in_flight
        self.on_cancel = on_cancel
        self.background = background
        self.on_end = on_end
        self.taken: list[Later[Any]] = []
        self.handled: list[Any] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as self.nursery:
            if self.background is not None:
                self.nursery.start_soon(self.background, self)
            yield
            self.nursery.cancel_scope.cancel("the taker stops")

    def take(self, later: Later[Any]) -> bool:
        if not isinstance(later.message, Ask):
            return False
        later.on_cancel = self.on_cancel
        if later.message.take is not None:
            return later.message.take(self, later)
        self.taken.append(later)
        return True

    def ending(self) -> None:
        if self.on_end is not None:
            self.on_end(self)

    async def handle(self, message: Any) -> Any:
        self.handled.append(message)
        match message:
            case Do(fn):
                return await fn()
            case Ask(number):
                return -number
            case Get(number):
                return number

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the messages taken, in order."""
        return [number_of(later) for later in self.taken]


@define
class Calls:
    """Callers in tasks of their own, and the outcome of each."""

    ref: ActorRef
    nursery: trio.Nursery
    outcomes: dict[Any, Any] = field(factory=dict)
    scopes: dict[Any, trio.CancelScope] = field(factory=dict)

    async def send(self, *messages: Call[Any]) -> None:
        """Send messages one after the other."""
        for message in messages:
            self.nursery.start_soon(self._call, message)
            await settle()

    async def _call(self, message: Any) -> None:
        number = getattr(message, "number", message)
        with trio.CancelScope() as self.scopes[number]:
            try:
                self.outcomes[number] = await self.ref.call(message)
            except Exception as exc:
                self.outcomes[number] = exc
        if self.scopes[number].cancelled_caught:
            self.outcomes[number] = "cancelled"

    def cancel(self, number: int) -> None:
        self.scopes[number].cancel("it gives up")

    @property
    def kinds(self) -> dict[Any, type]:
        return {number: type(outcome) for number, outcome in self.outcomes.items()}


@asynccontextmanager
async def taking(taker: Actor, *, observers: Any = (), **options: Any) -> AsyncIterator[Calls]:
    async with open_actor(taker, name="taker", observers=observers, **options) as ref, trio.open_nursery() as nursery:
        yield Calls(ref, nursery)


def number_of(later: Later[Any]) -> int:
    """The number of its message."""
    message: Any = later.message
    return int(message.number)


def counts(ref: ActorRef) -> tuple[int, int]:
    """How many messages are in flight, and queued."""
    now = ref.statistics()
    return now.in_flight, now.queued
