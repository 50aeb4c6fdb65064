"""A pool with a key: a lane for each member, order for each key, and keys whose member does not serve."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors._backoff import Backoff
from mcp_actors.kernel import (
    ActorError,
    ActorStopped,
    ChildSpec,
    Event,
    MailboxFull,
    Pool,
    Stopping,
    SupervisorRef,
    Unhandled,
    open_supervisor,
)

from ..messages import Said
from .members import Asker, Boom, Hall, Job, JobNow, at, open_pool


def key(job: Job) -> Any:
    return job.key


async def keys_of(db: SupervisorRef, size: int) -> list[int]:
    """A key for each member, in order."""
    found: dict[str, int] = {}
    number = 0
    while len(found) < size:
        found.setdefault(await db.call(Job(key=number)), number)
        number += 1
    return [found[f"db-{number}"] for number in range(1, size + 1)]


async def test_messages_with_equal_keys_are_handled_in_order_by_one_member() -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, 3, key=key) as db, trio.open_nursery() as nursery:
        keys = await keys_of(db, 3)
        del hall.log[:]
        asker = Asker(nursery, db)
        await asker.ask(*(Job((each, number), each, gate.wait) for number in range(3) for each in keys))
        assert (db.statistics().in_flight, db.statistics().queued) == (3, 6)
        gate.set()
    for number, each in enumerate(keys, 1):
        assert hall.jobs(f"db-{number}") == [(each, 0), (each, 1), (each, 2)]


async def test_keys_are_spread_over_the_members() -> None:
    """Also ints with a common factor, whose hashes are themselves."""
    hall = Hall()
    async with open_pool(hall, 4, key=key) as db:
        for number in range(100):
            await db.call(Job(number, 4 * number))
    assert min(len(hall.jobs(f"db-{number}")) for number in range(1, 5)) > 10


async def test_equal_keys_of_different_types_have_one_member() -> None:
    async with open_pool(Hall(), 4, key=key) as db:
        assert len({await db.call(Job(key=each)) for each in (1, 1.0, True)}) == 1


async def test_the_keys_of_a_member_that_restarts_wait_in_order(autojump_clock: MockClock) -> None:
    hall = Hall()
    async with (
        open_pool(hall, 2, key=key, backoff=Backoff(first=1, initial=1), window=100) as db,
        trio.open_nursery() as nursery,
    ):
        first, second = await keys_of(db, 2)
        with pytest.raises(Boom):
            await db.call(Job(key=first, error=Boom()))
        asker = Asker(nursery, db)
        await asker.ask(Job("a", first), Job("b", first), Job("c", second))
        assert (asker.outcomes, db.statistics().queued) == ({"c": "db-2"}, 2)
    assert hall.jobs("db-1")[-2:] == ["a", "b"]
    assert asker.outcomes == {"a": "db-1", "b": "db-1", "c": "db-2"}


async def test_the_keys_of_a_parked_member_are_refused_until_it_is_restarted(said: Said) -> None:
    hall, gate = Hall(), trio.Event()
    async with (
        open_pool(hall, 2, key=key, on_limit="park", max_restarts=0) as db,
        trio.open_nursery() as nursery,
    ):
        first, second = await keys_of(db, 2)
        asker = Asker(nursery, db)
        await asker.ask(Job("crash", first, gate.wait, Boom()), Job("queued", first))
        gate.set()
        await settle()
        said("member with the key is parked", str(asker.outcomes["queued"]))
        for send in (db.call, db.tell):
            with pytest.raises(ActorStopped) as refused:
                await send(Job(key=first))
            assert refused.value.actor == "db-1"
        assert await db.call(Job(key=second)) == "db-2"
        await db.restart_child("db-1")
        assert await db.call(Job(key=first)) == "db-1"


async def test_a_key_function_that_raises_is_an_error_of_the_sender(said: Said) -> None:
    def broken(job: Job) -> Any:
        raise KeyError(job.name)

    async with open_pool(Hall(), 2, key=broken) as db:
        for send in (db.call, db.tell):
            with pytest.raises(KeyError, match="name") as raised:
                await send(Job("name"))
            said("key function raises", *raised.value.__notes__)
        with pytest.raises(KeyError):
            db.tell_nowait(Job("name"))
        assert db.statistics().queued == 0
        assert len(await db.which_children()) == 2


async def test_a_key_that_is_not_hashable_is_an_error_of_the_sender(said: Said) -> None:
    async with open_pool(Hall(), 2, key=key) as db:
        with pytest.raises(TypeError) as refused:
            await db.call(Job(key=[1]))  # type: ignore[arg-type]  # that is the point
        said("key is not hashable", str(refused.value))


async def test_a_control_message_needs_no_key() -> None:
    async with open_pool(Hall(), 2, key=lambda job: job.nothing) as db:
        with pytest.raises(TypeError, match="does not understand"):
            await db.call(JobNow())


async def test_a_full_lane_refuses_or_waits(said: Said) -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, 2, mailbox_size=1, key=key) as db, trio.open_nursery() as nursery:
        first, second = await keys_of(db, 2)
        await Asker(nursery, db).ask(*at(gate, 1, 2, key=first))
        with pytest.raises(MailboxFull) as full:
            db.tell_nowait(Job(key=first))
        said("lane is full", str(full.value))
        nursery.start_soon(db.tell, Job(3, first))
        await settle()
        assert db.statistics().queued == 2
        assert await db.call(Job(key=second)) == "db-2"
        gate.set()
    assert hall.jobs("db-1")[-3:] == [1, 2, 3]


async def test_messages_that_wait_for_the_pool_to_start_go_to_their_members(caplog: pytest.LogCaptureFixture) -> None:
    """In order, each with the error that its sender would have got; a tell that waits for room waits for its lane."""
    hall = Hall()
    variable = contextvars.ContextVar("variable", default="the pool")
    seen = set()

    def length(job: Job) -> int:
        seen.add(variable.get())
        return len(job.key)  # type: ignore[arg-type]  # it raises for the job without a key

    spec = ChildSpec("db", lambda: Pool(hall.member, 2, key=length), mailbox_size=3)
    async with (
        open_supervisor(spec, observers=[hall.events.append]) as house,
        trio.open_nursery() as nursery,
    ):
        await house.stop_child("db", keep_mailbox=True)
        variable.set("a sender")
        db = house.child("db")
        asker = Asker(nursery, db)
        await asker.ask(Job(0, key="one"), Job(1, key="two"))
        db.tell_nowait(Job("told without a key"))
        nursery.start_soon(db.tell, Job("told", key="six"))
        await settle()
        await asker.ask(Job("without a key"))
        assert (asker.outcomes, db.statistics().queued) == ({}, 5)
        await house.restart_child("db")
        await settle()
    assert isinstance(asker.outcomes.pop("without a key"), TypeError)
    assert [event.message for event in hall.events if isinstance(event, Unhandled)] == ["Job"]
    assert len(caplog.messages) == 1
    assert seen == {"a sender"}
    assert [job for job, _ in hall.log] == [0, 1, "told"]
    assert len({member for _, member in hall.log}) == 1


async def test_the_pool_restarts_with_what_waits_for_its_members() -> None:
    """In order: the messages from before the restart, then those from during it."""
    hall, gate, up = Hall(), trio.Event(), trio.Event()
    spec = ChildSpec("db", lambda: Pool(hall.member, 2, key=key, max_restarts=0))
    async with open_supervisor(spec) as house, trio.open_nursery() as nursery:
        db = house.child("db")
        assert isinstance(db, SupervisorRef)
        first, second = await keys_of(db, 2)
        del hall.log[:]
        asker = Asker(nursery, db)
        await asker.ask(Job("crash", first, gate.wait, Boom()), Job("a", first), *at(trio.Event(), "lost", key=second))
        await asker.ask(Job("b", second))
        hall.starts = [up.wait, up.wait]
        gate.set()
        await db.wait_state("starting")
        await asker.ask(Job("c", first), Job("d", second))
        assert db.statistics().queued == 4
        up.set()
        await settle()
        assert hall.jobs("db-1") == ["crash", "a", "c"]
        assert hall.jobs("db-2") == ["lost", "b", "d"]


async def test_closing_the_pool_answers_what_waits_for_its_members_in_one_step() -> None:
    hall, queued = Hall(), list[int]()

    def observe(event: Event) -> None:
        if isinstance(event, Stopping) and event.actor == "db":
            queued.append(house.child("db").statistics().queued)

    spec = ChildSpec("db", lambda: Pool(hall.member, 2, key=key))
    async with open_supervisor(spec, observers=[observe]) as house:
        db = house.child("db")
        assert isinstance(db, SupervisorRef)
        first, second = await keys_of(db, 2)
        async with trio.open_nursery() as nursery:
            asker = Asker(nursery, db)
            for each in (first, second):
                await asker.ask(*at(trio.Event(), f"{each} in flight", f"{each} queued", key=each))
            assert db.statistics().queued == 2
            await house.stop_child("db")
        assert queued == [0]
        assert {type(outcome) for outcome in asker.outcomes.values()} == {ActorStopped}
        with pytest.raises(ActorStopped):
            await db.call(Job(key=first))
        await house.restart_child("db")
        assert await db.call(Job(key=first)) == "db-1"
        assert (await db.call(Job(key=second))) == "db-2"
    assert not any(job is not None and str(job).endswith("queued") for job, _ in hall.log)


async def test_no_key_is_refused_while_a_stopped_pool_starts_again() -> None:
    """In each tick: the mailbox of each member accepts messages before the pool gives it any."""
    hall = Hall()
    async with open_supervisor(ChildSpec("db", lambda: Pool(hall.member, 2, key=key))) as house:
        db = house.child("db", SupervisorRef)
        await house.stop_child("db")

        async def send_each_tick(number: int) -> None:
            while db.state == "stopped":
                await trio.lowlevel.checkpoint()
            for _ in range(10):
                db.tell_nowait(Job(key=number))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(send_each_tick, number)
            await house.restart_child("db")
        await settle()
    assert len(hall.log) == 100


async def test_a_member_cannot_call_its_pool_with_a_key_of_its_own() -> None:
    hall = Hall()
    async with open_pool(hall, 2, key=key) as db:
        first, second = await keys_of(db, 2)

        async def inner(each: int) -> None:
            await db.call(Job(key=each))

        with pytest.raises(ActorError, match=r"would deadlock \('db-1' \(handling Job\) waits for 'db-1'"):
            await db.call(Job(key=first, wait=lambda: inner(first)))
        await db.call(Job(key=first, wait=lambda: inner(second)))
