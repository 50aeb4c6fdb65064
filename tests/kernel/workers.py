"""Children for the tests of the supervisor, which act on request and record what happens to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Literal, TypeVar

import pytest
import trio
from attrs import define, field, frozen
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    ActorState,
    Call,
    ChildSpec,
    Event,
    StopActor,
    Supervisor,
    SupervisorRef,
)

E = TypeVar("E", bound=BaseException)

Deed = float | BaseException | Callable[[], Awaitable[None]] | None
"""What a worker does at a start or a stop: sleep so many seconds, raise, or run something. None does nothing."""


class Boom(Exception):
    """A crash."""


class Hopeless(Exception):
    """A crash after which a restart cannot help."""


@frozen
class Crash(Call[None]):
    error: Exception = field(factory=lambda: Boom("boom"), eq=False)


@frozen
class Finish(Call[None]):
    reason: Literal["normal", "shutdown"] = "normal"


@frozen
class Echo(Call[int]):
    number: int


@frozen
class Hang(Call[None]):
    """Is never answered."""


@define(eq=False)
class Yard:
    """Where workers live: makes their specs, knows what happened and what runs.

    Attributes:
        log: ``"a up"``, ``"a down"`` (it left normally), ``"a failed"``, ``"a killed"`` (its clean-up was cancelled).
        running: who is between its acquiring and the end of its release.
        events: for ``observers=[yard.events.append]``.
    """

    log: list[str] = field(factory=list)
    running: list[str] = field(factory=list)
    events: list[Event] = field(factory=list)

    def spec(self, id: str, *starts: Deed, stop: Deed = None, **options: Any) -> ChildSpec:
        """Describe a worker; ``starts`` is what its successive starts do, and all later ones start at once."""
        deeds = iter(starts)
        return ChildSpec(id, lambda: Worker(self, id, next(deeds, None), stop), **options)

    def take_log(self) -> list[str]:
        """The records since the last call."""
        log, self.log = self.log, []
        return log

    def of(self, kind: type[Event], *fields: str) -> list[Any]:
        """The events of a kind, in order: the actor's name, or a tuple of these fields."""
        found = [event for event in self.events if isinstance(event, kind)]
        if not fields:
            return [event.actor for event in found]
        return [tuple(getattr(event, name) for name in fields) for event in found]


class Worker(Actor):
    def __init__(self, yard: Yard, id: str, start: Deed = None, stop: Deed = None) -> None:
        self.yard = yard
        self.id = id
        self.start_deed = start
        self.stop_deed = stop

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.yard.running.append(self.id)
        try:
            try:
                await do(self.start_deed)
            except BaseException:
                self.yard.log.append(f"{self.id} failed")
                raise
            self.yard.log.append(f"{self.id} up")
            yield
            try:
                await do(self.stop_deed)
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                self.yard.log.append(f"{self.id} killed")
                raise
            self.yard.log.append(f"{self.id} down")
        finally:
            self.yard.running.remove(self.id)

    async def handle(self, message: Crash | Finish | Echo | Hang) -> int:
        match message:
            case Crash(error):
                raise error
            case Finish(reason):
                raise StopActor(reason)
            case Hang():
                await trio.sleep_forever()
        return message.number

    def is_fatal(self, exc: Exception) -> bool:
        return True

    def is_hopeless(self, exc: BaseException) -> bool:
        return isinstance(exc, Hopeless)


async def do(deed: Deed) -> None:
    if isinstance(deed, BaseException):
        raise deed
    if callable(deed):
        await deed()
    elif deed is not None:
        await trio.sleep(deed)


def wait_and_raise(seconds: float, message: str = "boom") -> Callable[[], Awaitable[None]]:
    """A deed that fails after a while."""

    async def deed() -> None:
        await trio.sleep(seconds)
        raise Boom(message)

    return deed


def nest(id: str, *specs: ChildSpec, child: dict[str, Any] | None = None, **options: Any) -> ChildSpec:
    """A child that is a supervisor with these options; ``child`` has those of the child itself."""
    return ChildSpec(id, lambda: Supervisor(*specs, **options), **(child or {}))


def door_raises(kind: type[E], match: str | None = None) -> AbstractContextManager[pytest.ExceptionInfo[E], bool]:
    """`pytest.raises`, around a door that raises at the end of a block which does several things."""
    return pytest.raises(kind, match=match)


def state(ref: ActorRef) -> ActorState:
    """The state as it is now (a type checker takes an attribute's value for lasting)."""
    return ref.state


async def states(supervisor: SupervisorRef) -> list[ActorState]:
    """The states of all children, in the order of the table."""
    return [child.state for child in await supervisor.which_children()]


async def shielded(seconds: float) -> None:
    """A part that no kill reaches."""
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)


async def crash(ref: ActorRef, error: Exception | None = None) -> None:
    """Crash an actor, and wait until everybody has done what is to be done at once."""
    error = error or Boom("boom")
    with pytest.raises(type(error)):
        await ref.call(Crash(error))
    await settle()


async def finish(ref: ActorRef, reason: Literal["normal", "shutdown"] = "normal") -> None:
    """Have an actor end by itself."""
    await ref.tell(Finish(reason))
    await settle()
