"""Late answers, timers, monitors and the picture of the tree, through a pool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    Down,
    Event,
    Later,
    Message,
    NotSent,
    Pool,
    Started,
    StopActor,
    Stopping,
    SupervisorRef,
    handles,
    open_actor,
    open_supervisor,
)

from .members import Asker, Boom, Hall, Job, JobNow, Member, at, open_pool


@frozen
class Ask(Call[str]):
    name: str = ""


@frozen
class Tick(Message):
    pass


class Deferring(Actor):
    """Answers later; ``held`` has what is not answered yet, by member."""

    held: dict[str, Later[str]]

    def __init__(self, held: dict[str, Later[str]], *, keep_slot: bool = True) -> None:
        self.held = held
        self.keep_slot = keep_slot

    @handles(Ask)
    async def ask(self, message: Ask) -> str | Later[str]:
        later: Later[str] = self.defer(message, keep_slot=self.keep_slot)
        self.held[message.name] = later
        return later


async def test_a_late_answer_keeps_the_slot_of_its_member() -> None:
    held: dict[str, Later[str]] = {}
    async with open_actor(Pool(lambda: Deferring(held), 2), name="db") as db, trio.open_nursery() as nursery:
        pending = {name: db.send_request(Ask(name)) for name in "abc"}
        await settle()
        assert (sorted(held), db.statistics().in_flight, db.statistics().queued) == (["a", "b"], 2, 1)
        held["b"].reply("late")
        assert await pending["b"].wait() == "late"
        await settle()
        assert sorted(held) == ["a", "b", "c"]
        for name in "ac":
            held[name].reply(name)
            assert await pending[name].wait() == name
        nursery.cancel_scope.cancel()


async def test_an_idle_member_that_owes_an_answer_is_not_stopped(autojump_clock: MockClock) -> None:
    held: dict[str, Later[str]] = {}
    gate = trio.Event()

    class Both(Deferring, Member):
        def __init__(self) -> None:
            Deferring.__init__(self, held, keep_slot=False)
            Member.__init__(self, Hall())

        async def handle(self, message: Ask | Job) -> Any:
            return await (Actor.handle(self, message) if isinstance(message, Ask) else Member.handle(self, message))

    pool = Pool(Both, (1, 2), shrink_after=10)
    async with open_actor(pool, name="db") as db, trio.open_nursery() as nursery:
        assert isinstance(db, SupervisorRef)
        await Asker(nursery, db).ask(*at(gate, 1, 2))
        gate.set()
        await settle()
        pending = db.child("db-1").send_request(Ask("late"))
        await trio.sleep(1)
        await db.child("db-2").call(Job())
        await trio.sleep(100)
        assert [child.id for child in await db.which_children()] == ["db-1"]
        held["late"].reply("late")
        assert await pending.wait() == "late"


async def test_members_that_take_without_a_task_share_what_they_refuse() -> None:
    """A message that one refuses goes to another, in its old place; one that all refuse waits until one takes again."""
    taken: list[tuple[str, str]] = []
    members: list[Taking] = []

    class Taking(Actor):
        def __init__(self) -> None:
            self.room = 1
            members.append(self)

        def take(self, later: Later[Any]) -> bool:
            if self.room == 0:
                raise NotSent
            self.room -= 1
            taken.append((later.message.name, self.ref.name))  # type: ignore[attr-defined]  # all are Asks
            later.reply(self.ref.name)
            return True

    async with open_actor(Pool(Taking, 2), name="db") as db:
        pending = [db.send_request(Ask(name)) for name in "abcd"]
        assert [name for name, _ in taken] == ["a", "b"]
        assert len({member for _, member in taken}) == 2
        assert db.statistics().queued == 2
        for member in members:
            member.room = 1
            member.take_again()
        assert [name for name, _ in taken] == ["a", "b", "c", "d"]
        assert [await each.wait() for each in pending] == [member for _, member in taken]


async def test_a_member_that_answers_at_once_is_free_for_the_pool_again() -> None:
    """While it takes a message it looks busy, also to messages that it sends to the pool meanwhile."""

    class Quick(Actor):
        def take(self, later: Later[Any]) -> bool:
            ask = later.message
            assert isinstance(ask, Ask)
            if ask.name:
                assert self.supervisor is not None
                self.supervisor.tell_nowait(Ask())
            later.reply(self.ref.name)
            return True

    async with open_actor(Pool(Quick, 1), name="db") as db:
        assert isinstance(db, SupervisorRef)
        for ref in (db, db.child("db-1"), db, db.child("db-1")):
            assert await ref.call(Ask("with another")) == "db-1"
            assert db.statistics().queued == 0


async def test_a_pool_grows_when_its_members_refuse() -> None:
    class Once(Actor):
        def __init__(self) -> None:
            self.full = False

        def take(self, later: Later[Any]) -> bool:
            if self.full:
                raise NotSent
            self.full = True
            later.reply(self.ref.name)
            return True

    async with open_actor(Pool(Once, (1, 3)), name="db") as db:
        assert [await db.call(Ask()) for _ in range(3)] == ["db-1", "db-2", "db-3"]


async def test_a_message_without_a_handler_is_refused_where_it_is_sent() -> None:
    """Control messages are for the pool itself, so they are not checked by the class of its members."""
    held: dict[str, Later[str]] = {}
    for key in (None, lambda _: 1):
        async with open_actor(Pool(lambda: Deferring(held), 2, key=key), name="db") as db:
            assert isinstance(db, SupervisorRef)
            for send in (db.call, db.tell):
                with pytest.raises(TypeError, match="Job"):
                    await send(Job())
            assert len(await db.which_children()) == 2


async def test_the_timers_of_a_member_are_its_own(autojump_clock: MockClock) -> None:
    ticks: list[str] = []

    class Ticking(Actor):
        @handles(Ask)
        async def ask(self, message: Ask) -> str:
            self.every(1, Tick())
            return self.ref.name

        @handles(Tick)
        async def tick(self, message: Tick) -> None:
            ticks.append(self.ref.name)

    async with open_actor(Pool(Ticking, 3), name="db") as db:
        name = await db.call(Ask())
        await trio.sleep(3.5)
        assert ticks == [name] * 3


async def test_a_pool_and_each_of_its_members_can_be_watched() -> None:
    hall = Hall()
    async with open_supervisor(ChildSpec("db", lambda: Pool(hall.member, 2))) as house:
        db = house.child("db", SupervisorRef)
        async with db.watch() as pool, db.child("db-1").watch() as member:
            with pytest.raises(Boom):
                await db.child("db-1").call(Job(error=Boom()))
            down = await member.wait()
            assert (down.reason, down.comes_back) == ("crashed", True)
            await house.stop_child("db")
            assert isinstance(await pool.wait(), Down)


async def test_the_tree_shows_the_pool_with_its_members() -> None:
    for key in (None, lambda job: job.key):
        hall, gate = Hall(), trio.Event()
        async with open_pool(hall, 2, key=key) as db, trio.open_nursery() as nursery:
            await Asker(nursery, db).ask(*at(gate, 1, 2, 3, 4, key=1))
            tree = db.tree()
            served = 2 if key is None else 1
            assert (tree.in_flight, tree.queued) == (served, 4 - served)
            assert tree.oldest_wait is not None
            assert sum(child.in_flight for child in tree.children) == served
            assert f"{served} in flight, {4 - served} queued for" in str(tree).splitlines()[0]
            gate.set()


async def test_a_control_message_to_a_member_is_answered_while_it_is_busy() -> None:
    gate = trio.Event()
    async with open_pool(Hall(), 1) as db, trio.open_nursery() as nursery:
        await Asker(nursery, db).ask(*at(gate, 1))
        assert await db.child("db-1").call(JobNow()) == "db-1"
        gate.set()


async def test_a_member_may_end_itself_by_the_first_message_that_it_takes(autojump_clock: MockClock) -> None:
    """The message has waited for the start, in the lane of the member."""
    starts = []

    class Brief(Member):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            starts.append(self.ref.name)
            if len(starts) == 1:
                self.after(0, Tick())
                await trio.sleep(1)
            async with super().running():
                yield

        def take(self, later: Later[Any]) -> bool:
            if isinstance(later.message, Tick):
                raise StopActor
            return False

    hall = Hall()
    pool = Pool(lambda: Brief(hall), 1)
    async with open_actor(pool, name="db", observers=[hall.events.append]) as db:
        assert await db.call(Job()) == "db-1"
    assert starts == ["db-1", "db-1"]
    assert hall.of(Started, Stopping)[:2] == [("Started", "db-1"), ("Stopping", "db-1")]


async def test_a_member_that_an_observer_ends_while_it_starts_is_restarted() -> None:
    hall, members = Hall(), []

    def make() -> Member:
        members.append(hall.member())
        return members[-1]

    def observe(happened: Event) -> None:
        if isinstance(happened, Started) and (happened.actor, happened.incarnation) == ("db-1", 1):
            members[-1].fail(Boom())

    async with open_actor(Pool(make, 1), name="db", observers=[observe]) as db:
        assert await db.call(Job()) == "db-1"
    assert len(members) == 2
