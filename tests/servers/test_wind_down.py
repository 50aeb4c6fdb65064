"""Winding a connection down: the order, and the outcomes of its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import wait_all_tasks_blocked

from mcp_actors.kernel import Actor, ActorCrashed, Backoff, Call, ChildSpec, NotSent, open_supervisor
from mcp_actors.servers.connection._direct import WIND_DOWN_TIMEOUT, WindDown

from .fleet import calls

GONE = RuntimeError("it is of no more use")


@frozen
class Ask(Call[str]):
    """Fails in the first connection, unless it is let through."""

    name: str


class Connection(Actor):
    """One connection, of which the first is of no use: it has let through what was there before it was found out."""

    max_in_flight = 8

    def __init__(self, world: World) -> None:
        self.world = world
        self.first = not world.served and not world.connections
        self.wind_down = WindDown(self.fail)
        world.connections += 1

    async def handle(self, message: Ask) -> str:
        if self.wind_down.begun:
            await self.wind_down.wait()
            raise NotSent
        self.wind_down.under_way += 1
        try:
            if not self.first or message.name == "under way":
                await self.world.let_through.wait()
                self.world.served.append(message.name)
                return f"{message.name} by {self.world.connections}"
        finally:
            self.wind_down.note_ended()
        await self.wind_down.wait(GONE)
        raise NotSent


class World:
    """The part of a server that outlives connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.served: list[str] = []
        self.let_through = trio.Event()


@asynccontextmanager
async def connected(world: World) -> AsyncIterator[Any]:
    """Supervise connections."""
    spec = ChildSpec("it", lambda: Connection(world), mailbox_size=100)
    async with open_supervisor(spec, max_restarts=5, backoff=Backoff()) as supervisor:
        yield supervisor.child("it")


async def test_unsent_requests_are_requeued_once_those_in_flight_are_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A-06: whether they were found out to be unsent, came later, or still waited in the mailbox."""
    world, names = World(), [f"{number}" for number in range(20)]
    async with connected(world) as it, calls(1, it.call, Ask("under way")) as [under_way]:
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            answers: dict[str, str] = {}

            async def ask(name: str) -> None:
                answers[name] = await it.call(Ask(name))

            for name in names:
                nursery.start_soon(ask, name)
                await wait_all_tasks_blocked()
            assert (answers, world.connections) == ({}, 1)
            world.let_through.set()
        assert under_way.value == "under way by 1"
        assert answers == {name: f"{name} by 2" for name in names}
        assert (world.served[0], sorted(world.served[1:])) == ("under way", sorted(names))


async def test_a_request_without_an_answer_delays_the_others_for_a_bounded_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with connected(world) as it, calls(1, it.call, Ask("under way")) as [under_way]:
        await wait_all_tasks_blocked()
        began = trio.current_time()
        async with calls(3, it.call, Ask("other")) as others:
            with pytest.raises(ActorCrashed) as crashed:
                await under_way.result()
            assert trio.current_time() - began == WIND_DOWN_TIMEOUT
            world.let_through.set()
        assert [other.value for other in others] == ["other by 2"] * 3
        assert crashed.value.__cause__ is GONE


async def test_a_cancelled_request_does_not_delay_the_end(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with connected(world) as it, calls(1, it.call, Ask("under way")):
        await wait_all_tasks_blocked()
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await it.call(Ask("gone"))
        assert world.connections == 1
        world.let_through.set()
        assert await it.call(Ask("later")) == "later by 2"


async def test_the_first_cause_to_wind_down_is_the_cause_of_the_end() -> None:
    ends: list[Exception] = []
    wind_down = WindDown(ends.append)
    wind_down.under_way += 1
    wind_down.begin(GONE)
    wind_down.begin(RuntimeError("a later cause"))
    assert ends == []
    wind_down.note_ended()
    assert ends == [GONE]
