"""A pool that grows while messages wait, and shrinks when members are idle."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors._backoff import Backoff
from mcp_actors.kernel import (
    ActorStopped,
    ChildSpec,
    IgnoreStart,
    MemberAdded,
    MemberRemoved,
    Pool,
    Started,
    StartFailed,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import Do, Host
from .members import Asker, Boom, Hall, Job, JobNow, at, open_pool


async def test_a_pool_grows_by_as_many_as_wait_up_to_its_maximum() -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (1, 4)) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, 1))
        assert hall.up == ["db-1"]
        for _ in range(2):
            nursery.start_soon(asker._one, Job(_, wait=gate.wait))
        await settle()
        assert sorted(hall.up) == ["db-1", "db-2", "db-3"]
        await asker.ask(*at(gate, *range(10, 15)))
        assert sorted(hall.up) == ["db-1", "db-2", "db-3", "db-4"]
        assert (db.statistics().in_flight, db.statistics().queued) == (4, 4)
        gate.set()
    assert hall.of(MemberAdded) == [("MemberAdded", "db", f"db-{number}") for number in (2, 3, 4)]
    assert [event.members for event in hall.events if isinstance(event, MemberAdded)] == [2, 3, 4]


async def test_a_free_slot_or_a_member_that_starts_is_reason_enough_not_to_grow() -> None:
    hall, gate, up = Hall(slots=2), trio.Event(), trio.Event()
    async with open_pool(hall, (1, 4)) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, 1, 2))
        assert hall.up == ["db-1"]
        hall.starts = [up.wait, up.wait, up.wait]
        await asker.ask(*at(gate, 3))
        assert len(hall.starts) == 2
        await asker.ask(*at(gate, 4))
        assert len(hall.starts) == 1
        up.set()
        await settle()
        assert len(hall.up) == 3
        await asker.ask(*at(gate, 5, 6))
        assert len(hall.up) == 3
        gate.set()


async def test_idle_members_are_stopped_after_their_time_down_to_the_minimum(autojump_clock: MockClock) -> None:
    hall = Hall()
    async with open_pool(hall, (2, 4), shrink_after=10) as db, trio.open_nursery() as nursery:
        for name, seconds in (("a", 1), ("b", 1), ("c", 2), ("d", 3)):
            nursery.start_soon(db.call, Job(name, wait=partial(trio.sleep, seconds)))
        await trio.sleep(4)
        assert len(hall.up) == 4
        await trio.sleep(100)
        assert len(hall.up) == 2
        assert [(event.time, event.members) for event in hall.events if isinstance(event, MemberRemoved)] == [
            (11, 3),
            (11, 2),
        ]
        assert {member for _, _, member in hall.of(MemberRemoved)} == {dict(hall.log)["a"], dict(hall.log)["b"]}
        assert [child.id for child in await db.which_children()] == sorted(hall.up)


async def test_the_minimum_is_kept_however_long_members_are_idle(autojump_clock: MockClock) -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (2, 4), shrink_after=10) as db, trio.open_nursery() as nursery:
        await Asker(nursery, db).ask(*at(gate, 1, 2, 3))
        gate.set()
        await trio.sleep(9)
        assert len(hall.up) == 3
        await trio.sleep(1000)
        assert len(hall.up) == 2
        assert len(hall.of(MemberRemoved)) == 1


async def test_a_member_that_has_work_is_not_idle(autojump_clock: MockClock) -> None:
    hall = Hall()
    async with open_pool(hall, (1, 2), shrink_after=10) as db, trio.open_nursery() as nursery:
        for seconds in (100, 50):
            nursery.start_soon(db.call, Job(seconds, wait=partial(trio.sleep, seconds)))
        await trio.sleep(59)
        assert len(hall.up) == 2
        await trio.sleep(2)
        assert hall.up == [dict(hall.log)[100]]


async def test_a_member_in_use_stays_while_another_one_is_stopped(autojump_clock: MockClock) -> None:
    """Messages go to the member that was idle for the shortest time, so the others can be stopped."""
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (1, 3), shrink_after=10) as db, trio.open_nursery() as nursery:
        await Asker(nursery, db).ask(*at(gate, 1, 2, 3))
        gate.set()
        users = set()
        for _ in range(20):
            await trio.sleep(1)
            users.add(await db.call(Job()))
        assert hall.up == [*users]


async def test_messages_to_its_own_reference_keep_a_member_from_being_stopped(autojump_clock: MockClock) -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (1, 2), shrink_after=10) as db, trio.open_nursery() as nursery:
        await Asker(nursery, db).ask(*at(gate, 1, 2))
        gate.set()
        await settle()
        longest, other = (member for _, member in hall.log)
        nursery.start_soon(db.child(longest).call, Job(wait=partial(trio.sleep, 20)))
        await trio.sleep(15)
        assert hall.up == [longest]
        assert hall.of(MemberRemoved) == [("MemberRemoved", "db", other)]


async def test_a_burst_while_members_are_stopped_makes_the_pool_grow_again(autojump_clock: MockClock) -> None:
    """A member that stops takes nothing, keeps its place until it has stopped, and its name is used again then."""
    hall, gate = Hall(stop=partial(trio.sleep, 4)), trio.Event()
    async with open_pool(hall, (1, 2), shrink_after=10) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, 1, 2))
        gate.set()
        await trio.sleep(11)
        assert len(hall.of(MemberRemoved)) == 1
        gone = hall.of(MemberRemoved)[0][2]
        gate = trio.Event()
        await asker.ask(*at(gate, 3, 4))
        assert (len(hall.up), db.statistics().queued) == (2, 1)
        await trio.sleep(5)
        assert db.statistics().queued == 0
        assert hall.log[-1] == (4, gone)
        gate.set()
    assert {type(outcome) for outcome in asker.outcomes.values()} == {str}


async def test_a_member_that_stops_is_not_about_to_serve(autojump_clock: MockClock) -> None:
    hall, gate = Hall(stop=partial(trio.sleep, 4)), trio.Event()
    async with open_pool(hall, (1, 3), shrink_after=10) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, 1, 2))
        gate.set()
        await trio.sleep(11)
        assert (len(hall.of(MemberRemoved)), len(hall.up)) == (1, 2)
        gate = trio.Event()
        await asker.ask(*at(gate, 3, 4))
        assert (db.statistics().in_flight, len(hall.up)) == (2, 3)
        gate.set()


async def test_a_pool_that_restarts_without_its_added_members_keeps_what_waits() -> None:
    """None of its first members runs, and the added one is not started again; but the pool is."""
    hall, gate = Hall(), trio.Event()
    specs = [
        ChildSpec("db", lambda: Pool(hall.member, (1, 2), on_limit="park", max_restarts=0)),
        ChildSpec("other", hall.member),
    ]
    async with open_supervisor(*specs, strategy="one_for_all") as house, trio.open_nursery() as nursery:
        db = house.child("db", SupervisorRef)
        asker = Asker(nursery, db)
        await asker.ask(*at(trio.Event(), 1, 2))
        assert db.child("db-2").state == "running"
        await db.child("db-1").tell(JobNow(error=Boom()))
        await db.child("db-1").wait_state("failed")
        await asker.ask(Job("waits"))
        with pytest.raises(Boom):
            await house.child("other").call(Job(error=Boom()))
        await settle()
        assert asker.outcomes["waits"] == "db-1"
        gate.set()


@pytest.mark.parametrize("key", [None, lambda job: job.key])
async def test_a_pool_may_restart_with_fewer_members(key: Any) -> None:
    """Messages to a member that it no longer has are refused; those to the pool wait for the others."""
    hall, sizes = Hall(), [3, 1]
    spec = ChildSpec("db", lambda: Pool(hall.member, sizes.pop(0), key=key))
    async with open_supervisor(spec) as house, trio.open_nursery() as nursery:
        db = house.child("db", SupervisorRef)
        await house.stop_child("db", keep_mailbox=True)
        pool, gone = Asker(nursery, db), Asker(nursery, db.child("db-3"))
        await pool.ask(Job("waits"))
        await gone.ask(Job("refused"))
        await house.restart_child("db")
        await settle()
        assert pool.outcomes == {"waits": "db-1"}
        assert isinstance(gone.outcomes["refused"], ActorStopped)
        assert [child.id for child in await db.which_children()] == ["db-1"]


async def test_a_member_that_cannot_be_added_is_dropped_and_tried_again_later(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    async def refused() -> None:
        raise Boom("too many connections")

    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (1, 3)) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, 1))
        hall.starts = [refused, refused]
        await asker.ask(*at(gate, 2, 3))
        assert [child.id for child in await db.which_children()] == ["db-1"]
        said("member was not added", caplog.messages[0])
        assert (len(hall.of(StartFailed)), len(hall.of(MemberRemoved))) == (1, 1)
        await trio.sleep(1.1)
        assert len(hall.of(StartFailed)) == 2
        await trio.sleep(1)
        assert len(hall.up) == 3
        gate.set()
    assert {type(outcome) for outcome in asker.outcomes.values()} == {str}


async def test_a_member_with_nothing_to_run_is_dropped_without_a_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def ignore() -> None:
        raise IgnoreStart

    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (1, 2)) as db, trio.open_nursery() as nursery:
        hall.starts = [ignore]
        await Asker(nursery, db).ask(*at(gate, 1, 2))
        assert (hall.up, caplog.messages) == (["db-1"], [])
        gate.set()


async def test_a_pool_grows_in_place_of_a_member_that_stays_away(autojump_clock: MockClock) -> None:
    """One that is about to come back counts as coming, so only the second message makes the pool grow."""
    hall, gate = Hall(), trio.Event()
    async with (
        open_pool(hall, (1, 3), backoff=Backoff(first=100, initial=100, maximum=100), window=1000) as db,
        trio.open_nursery() as nursery,
    ):
        asker = Asker(nursery, db)
        await asker.ask(Job("crash", error=Boom()), *at(gate, 1))
        assert hall.up == []
        await asker.ask(*at(gate, 2))
        assert hall.up == ["db-2"]
        await trio.sleep(101)
        assert sorted(hall.up) == ["db-1", "db-2"]
        gate.set()


async def test_a_pool_grows_in_place_of_a_member_that_is_parked() -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (2, 3), on_limit="park", max_restarts=0) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(Job("crash", error=Boom()), *at(gate, 1, 2))
        assert len(hall.up) == 2
        assert sorted(child.state for child in await db.which_children()) == ["failed", "running", "running"]
        gate.set()


async def test_a_restarted_pool_begins_with_its_minimum() -> None:
    hall, gate, crash = Hall(), trio.Event(), trio.Event()
    spec = ChildSpec("db", lambda: Pool(hall.member, (1, 3), max_restarts=0))
    async with open_supervisor(spec, observers=[hall.events.append]) as house, trio.open_nursery() as nursery:
        asker = Asker(nursery, house.child("db"))
        await asker.ask(*at(trio.Event(), 1, 2), Job("crash", wait=crash.wait, error=Boom()))
        assert len(hall.up) == 3
        del hall.events[:]
        crash.set()
        await settle()
        assert [name for _, name in hall.of(Started) if name != "db"] == ["db-1"]
        gate.set()


async def test_a_pool_stops_while_a_member_is_being_added() -> None:
    hall = Hall()
    async with trio.open_nursery() as nursery, open_pool(hall, (1, 2)) as db:
        asker = Asker(nursery, db)
        hall.starts = [trio.sleep_forever]
        await asker.ask(*at(trio.Event(), 1, 2))
        assert len(await db.which_children()) == 2
    assert hall.up == []
    assert len(asker.outcomes) == 2


async def test_an_added_member_may_be_stopped_while_it_starts() -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, (1, 2)) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        hall.starts = [trio.sleep_forever]
        await asker.ask(*at(gate, 1, 2))
        await db.stop_child("db-2")
        assert [child.state for child in await db.which_children()] == ["running", "stopped"]
        gate.set()
    assert asker.outcomes == {1: "db-1", 2: "db-1"}


async def test_an_exit_from_a_member_that_is_added_leaves_the_block() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    hall = Hall()
    with pytest.raises(SystemExit):  # noqa: PT012  # the block raises at its end
        async with open_pool(hall, (1, 2)) as db, trio.open_nursery() as nursery:
            hall.starts = [leave]
            await Asker(nursery, db).ask(*at(trio.Event(), 1, 2))
            await trio.sleep_forever()


async def test_a_pool_that_grows_by_many_members_looks_for_their_numbers_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """C-34: it would take a time that grows with the square of their number otherwise."""
    asked: list[int] = []
    name_of = Pool._id

    def counted(pool: Pool[Any], number: int) -> str:
        asked.append(number)
        return name_of(pool, number)

    monkeypatch.setattr(Pool, "_id", counted)
    async with open_actor(Pool(Host, (1, 50)), name="db") as db, trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(db.call, Do(partial(trio.sleep, 1)))
        await settle()
        assert len(await SupervisorRef(db._record).which_children()) == 50
    assert len(asked) < 4 * 50
