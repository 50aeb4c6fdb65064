"""Members for the tests of pools: they write down who handles what, and wait at gates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import trio
from attrs import define, field, frozen
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import Actor, Call, Event, Pool, SupervisorRef, open_actor


class Boom(Exception):
    """A crash."""


@frozen(eq=False)
class Job(Call[str]):
    """Answered with the name of the member that has handled it.

    Attributes:
        name: written down by that member.
        key: for pools with a key.
        wait: awaited first.
        error: raised after that.
    """

    name: Any = None
    key: Hashable = None
    wait: Callable[[], Awaitable[object]] | None = None
    error: Exception | None = None


@frozen(eq=False)
class JobNow(Job):
    """The same on the control lane."""

    control: ClassVar[bool] = True


@define(eq=False)
class Hall:
    """Where members work.

    Attributes:
        log: the jobs that were begun, each with its member.
        up: the members that run.
        starts: awaited by the successive starts; later starts take no time.
        stop: awaited by each member that stops.
        slots: the ``max_in_flight`` of the members.
        events: for ``observers=[hall.events.append]``.
    """

    log: list[tuple[Any, str]] = field(factory=list)
    up: list[str] = field(factory=list)
    starts: list[Callable[[], Awaitable[object]]] = field(factory=list)
    stop: Callable[[], Awaitable[object]] | None = None
    slots: int = 1
    events: list[Event] = field(factory=list)

    def member(self) -> Member:
        return Member(self)

    def jobs(self, member: str) -> list[Any]:
        """Return what a member has begun."""
        return [job for job, name in self.log if name == member]

    def of(self, *kinds: type[Event]) -> list[tuple[str, ...]]:
        """The events of these kinds, with the actor and the member that they are about."""
        found = [event for event in self.events if isinstance(event, kinds)]
        return [
            (type(event).__name__, event.actor, *([event.member] if hasattr(event, "member") else []))
            for event in found
        ]


class Member(Actor):
    def __init__(self, hall: Hall) -> None:
        self.hall = hall
        self.max_in_flight = hall.slots

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        name = self.ref.name
        if self.hall.starts:
            await self.hall.starts.pop(0)()
        self.hall.up.append(name)
        try:
            yield
            if self.hall.stop is not None:
                await self.hall.stop()
        finally:
            self.hall.up.remove(name)

    async def handle(self, message: Job) -> str:
        self.hall.log.append((message.name, self.ref.name))
        if message.wait is not None:
            await message.wait()
        if message.error is not None:
            raise message.error
        return self.ref.name

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Boom)


@asynccontextmanager
async def open_pool(
    hall: Hall, size: Any = 4, *, mailbox_size: int = 256, **options: Any
) -> AsyncIterator[SupervisorRef]:
    """Open a pool with the name ``"db"``."""
    pool = Pool(hall.member, size, **options)
    async with open_actor(pool, name="db", mailbox_size=mailbox_size, observers=[hall.events.append]) as ref:
        yield cast("SupervisorRef", ref)


class Asker:
    """Makes calls in tasks of their own, one after the other, and knows what became of each."""

    def __init__(self, nursery: trio.Nursery, ref: Any) -> None:
        self.outcomes: dict[Any, Any] = {}
        self._nursery = nursery
        self._ref = ref

    async def ask(self, *jobs: Job) -> None:
        """Make these calls in this order, and wait until all is done that can be done."""
        for job in jobs:
            self._nursery.start_soon(self._one, job)
            await settle()

    async def _one(self, job: Job) -> None:
        try:
            self.outcomes[job.name] = await self._ref.call(job)
        except Exception as exc:
            self.outcomes[job.name] = exc


def at(gate: trio.Event, *names: Any, key: Hashable = None) -> list[Job]:
    """Jobs that wait at a gate."""
    return [Job(name, key, gate.wait) for name in names]
