"""Dormant supervisors: their children have refs and mailboxes, but no task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import define, field
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorStopped,
    ChildSpec,
    DormantSupervisor,
    Event,
    MailboxFull,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)

from .workers import Echo, Yard


@define
class Nested:
    """A supervisor of one child, which is dormant until it is woken."""

    yard: Yard = field(factory=Yard)
    awake: bool = False
    mailbox_size: int = 1

    def make(self) -> Actor:
        child = ChildSpec("a", self.yard.spec("a").factory, mailbox_size=self.mailbox_size, overflow="fail")
        return Supervisor(child) if self.awake else DormantSupervisor(child)

    @asynccontextmanager
    async def opened(self, *observers: list[Event]) -> AsyncIterator[tuple[SupervisorRef, SupervisorRef]]:
        """Open a supervisor with it as its child; yield both."""
        notes = [each.append for each in observers]
        async with open_supervisor(ChildSpec("n", self.make), name="house", observers=notes) as house:
            yield house, house.child("n", SupervisorRef)


async def test_the_children_of_a_dormant_supervisor_have_refs_and_are_not_started() -> None:
    nested, events = Nested(), list[Event]()
    async with nested.opened(events) as (house, n):
        child = n.child("a")
        assert (n.state, child.state, child.statistics().incarnation) == ("stopped", "stopped", 0)
        assert str(house.tree()).split() == ["house/", "running", "└─", "n/", "stopped", "└─", "a", "stopped"]
        assert [info.kind for info in await house.which_children()] == ["supervisor"]
        await settle()
        tasks = trio.lowlevel.current_statistics().tasks_living
    assert nested.yard.log == []
    assert [event.actor for event in events if event.actor == "a"] == []
    nested.awake = True
    async with nested.opened():
        await settle()
        assert trio.lowlevel.current_statistics().tasks_living > tasks


async def test_messages_to_the_children_of_a_dormant_supervisor_wait_until_it_is_woken() -> None:
    nested, answers = Nested(), list[int]()
    async with nested.opened() as (house, n), trio.open_nursery() as nursery:
        child = n.child("a")

        async def ask() -> None:
            answers.append(await child.call(Echo(7)))

        nursery.start_soon(ask)
        await settle()
        assert (answers, child.statistics().queued) == ([], 1)
        with pytest.raises(MailboxFull):
            await child.call(Echo(8))
        nested.awake = True
        await house.restart_child("n")
        await settle()
        assert (answers, n.state, child.state) == ([7], "running", "running")
        assert await n.child("a").call(Echo(9)) == 9
    assert nested.yard.log == ["a up", "a down"]


async def test_a_dormant_supervisor_that_is_stopped_answers_what_waits_for_its_children() -> None:
    nested, refused = Nested(), list[str]()
    async with nested.opened() as (house, n), trio.open_nursery() as nursery:
        child = n.child("a")

        async def ask() -> None:
            with pytest.raises(ActorStopped) as caught:
                await child.call(Echo(7))
            refused.append(str(caught.value))

        nursery.start_soon(ask)
        await settle()
        await house.stop_child("n")
        await settle()
        assert len(refused) == 1
        with pytest.raises(ActorStopped):
            await child.call(Echo(8))
        nested.awake = True
        await house.restart_child("n")
        assert await child.call(Echo(9)) == 9


async def test_a_change_of_the_children_of_a_dormant_supervisor_waits_until_it_is_woken() -> None:
    nested = Nested()
    async with nested.opened() as (house, n), trio.open_nursery() as nursery:
        nursery.start_soon(n.stop_child, "a")
        await settle()
        assert n.statistics().queued == 1
        nested.awake = True
        await house.restart_child("n")
    assert nested.yard.log == ["a up", "a down"]


async def test_the_end_of_the_tree_answers_what_waits_for_the_children_of_a_dormant_supervisor() -> None:
    nested, ended = Nested(), trio.Event()
    async with trio.open_nursery() as nursery:
        async with nested.opened() as (_, n):
            child = n.child("a")

            async def ask() -> None:
                with pytest.raises(ActorStopped):
                    await child.call(Echo(7))
                ended.set()

            nursery.start_soon(ask)
            await settle()
        assert child.state == "stopped"
        await ended.wait()


async def test_a_supervisor_may_become_dormant_again_and_keeps_what_waits() -> None:
    nested, answers = Nested(awake=True), list[int]()
    async with nested.opened() as (house, n), trio.open_nursery() as nursery:
        child = n.child("a")
        await house.stop_child("n", keep_mailbox=True)
        nested.awake, nested.mailbox_size = False, 2
        await house.restart_child("n")
        assert (n.state, child.state) == ("stopped", "stopped")

        async def ask(number: int) -> None:
            answers.append(await child.call(Echo(number)))

        for number in range(2):  # as many as its mailbox holds now
            nursery.start_soon(ask, number)
            await settle()
        nested.awake = True
        await house.restart_child("n")
        await settle()
        assert answers == [0, 1]
    assert nested.yard.log == ["a up", "a down", "a up", "a down"]
