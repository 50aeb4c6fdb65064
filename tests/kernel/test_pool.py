"""Equal actors behind one reference: who takes what, and what becomes of it when members or the pool end."""

from __future__ import annotations

import contextvars
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorError,
    ActorStartError,
    ActorStopped,
    Backoff,
    ChildSpec,
    DeadLetter,
    GaveUp,
    MailboxFull,
    Message,
    NotSent,
    Pool,
    RestartLimitReached,
    Started,
    Stopped,
    Stopping,
    Supervisor,
    SupervisorRef,
    open_actor,
    open_supervisor,
)

from ..messages import Said
from .actors import leaving
from .members import Asker, Boom, Hall, Job, JobNow, Member, at, open_pool


async def test_members_share_what_is_sent_to_the_pool() -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, 3) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, *range(5)))
        assert sorted(member for _, member in hall.log) == ["db-1", "db-2", "db-3"]
        assert (db.statistics().in_flight, db.statistics().queued) == (3, 2)
        assert [child.id for child in await db.which_children()] == ["db-1", "db-2", "db-3"]
        gate.set()
    assert sorted(job for job, _ in hall.log) == [0, 1, 2, 3, 4]  # two that begin in one tick may swap
    assert asker.outcomes == dict(hall.log)


async def test_the_member_with_the_most_free_slots_is_next() -> None:
    hall, gates = Hall(slots=3), [trio.Event() for _ in range(9)]
    async with open_pool(hall, 3) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*(Job(number, wait=gate.wait) for number, gate in enumerate(gates)))
        for begin in (0, 3, 6):
            assert len({member for _, member in hall.log[begin : begin + 3]}) == 3
        # One of them finishes two messages, another one: three more go to where there is room.
        first, second = dict(hall.log)[0], dict(hall.log)[1]
        for job, member in list(hall.log):
            if (member == first and job != 0) or (member == second and job == 1):
                gates[job].set()
        await settle()
        del hall.log[:]
        await asker.ask(*at(gates[0], *"abc"))
        assert [member for _, member in hall.log][:1] == [first]
        assert sorted(member for _, member in hall.log) == sorted([first, first, second])
        for gate in gates:
            gate.set()


async def test_a_pool_with_little_to_do_leaves_its_other_members_idle() -> None:
    hall = Hall()
    async with open_pool(hall, 4) as db:
        assert len({await db.call(Job()) for _ in range(10)}) == 1


async def test_a_message_to_a_member_is_handled_by_that_member_first() -> None:
    """Its own mailbox, for control messages, timers, and tasks that hold its reference."""
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, 2) as db, trio.open_nursery() as nursery:
        second = db.child("db-2")
        asker, own = Asker(nursery, db), Asker(nursery, second)
        await asker.ask(*at(gate, 1, 2, 3))
        await own.ask(Job("own"))
        assert await second.call(JobNow("now")) == "db-2"
        assert "own" not in own.outcomes
        gate.set()
        await settle()
        assert hall.jobs("db-2")[1:3] == ["now", "own"]
        # A member that is busy with messages of its own takes none of the pool's.
        gate = trio.Event()
        await own.ask(*at(gate, "own"))
        assert await db.call(Job()) == "db-1"
        gate.set()


async def test_a_crash_affects_what_its_member_was_handling_and_nothing_else(said: Said) -> None:
    hall, gate, crash = Hall(slots=2), trio.Event(), trio.Event()
    async with open_pool(hall, 2) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, 0, 1, 2))
        await asker.ask(Job("crash", wait=crash.wait, error=Boom()), Job("queued"))
        victim = dict(hall.log)["crash"]
        lost = next(job for job, member in hall.log if member == victim and job != "crash")
        assert not asker.outcomes
        crash.set()
        await settle()
        assert isinstance(asker.outcomes["crash"], Boom)
        said("member crashes", str(asker.outcomes[lost]), member=victim)
        assert isinstance(asker.outcomes[lost], ActorCrashed)
        assert set(asker.outcomes) == {"crash", lost, "queued"}
        gate.set()
    assert {type(outcome) for job, outcome in asker.outcomes.items() if job not in ("crash", lost)} == {str}
    assert sorted(job for job, _ in hall.log if isinstance(job, int)) == [0, 1, 2]


async def test_what_a_member_returns_unsent_goes_to_another_in_its_old_place() -> None:
    """K4, across members: it is older than what has waited meanwhile."""
    hall, gate, lost = Hall(), trio.Event(), trio.Event()

    class Connection(Member):
        async def handle(self, message: Job) -> str:
            if message.name == "unsent" and not lost.is_set():
                await lost.wait()
                self.fail(Boom())
                raise NotSent
            return await super().handle(message)

    pool = Pool(lambda: Connection(hall), 2, strict=False)
    async with open_actor(pool, name="db") as db, trio.open_nursery() as nursery:
        hall.starts = [trio.sleep_forever]
        asker = Asker(nursery, db)
        await asker.ask(Job("unsent"), *at(gate, "other"), Job("later"))
        assert db.statistics().queued == 1
        lost.set()
        await settle()
        assert db.statistics().queued == 2
        gate.set()
        await settle()
        assert [job for job, _ in hall.log] == ["other", "unsent", "later"]
        assert len({asker.outcomes[job] for job in ("other", "unsent", "later")}) == 1
        nursery.cancel_scope.cancel()


async def test_what_a_member_returns_unsent_is_handled_by_an_idle_one_at_once(autojump_clock: MockClock) -> None:
    """K4: it does not wait until the member is restarted."""
    hall, lost = Hall(), trio.Event()

    class Connection(Member):
        async def handle(self, message: Job) -> str:
            if not lost.is_set():
                lost.set()
                self.fail(Boom())
                raise NotSent
            return await super().handle(message)

    pool = Pool(lambda: Connection(hall), 2, max_restarts=1, window=math.inf, backoff=Backoff(first=60))
    async with open_actor(pool, name="db") as db:
        await db.call(Job("unsent"))
        assert trio.current_time() == 0


async def test_a_caller_that_leaves_is_forgotten_queued_or_in_flight() -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, 2) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(*at(gate, 0))
        async with trio.open_nursery() as leaving:
            leaver = Asker(leaving, db)
            await leaver.ask(Job("in flight", wait=trio.sleep_forever), Job("queued"))
            leaving.cancel_scope.cancel()
        await settle()
        assert await db.call(Job("next")) == dict(hall.log)["in flight"]
        assert [job for job, _ in hall.log] == [0, "in flight", "next"]
        gate.set()


async def test_a_deadline_of_the_layer_above_expires_queued_and_in_flight() -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, 1) as db, trio.open_nursery() as nursery:
        pending = [db.send_request(Job(name, wait=gate.wait)) for name in "ab"]
        await settle()
        assert [each.handed_over for each in pending] == [True, False]
        for each in pending:
            assert each.expire(TimeoutError(str(each)))
            with pytest.raises(TimeoutError):
                await each.wait()
        asker = Asker(nursery, db)
        await asker.ask(Job("next"))
        assert [job for job, _ in hall.log] == ["a", "next"]


async def test_a_member_handles_a_message_in_its_senders_context() -> None:
    """K7, for a message that is taken at once and one that has waited."""
    variable = contextvars.ContextVar("variable", default="none")
    seen, gate = list[str](), trio.Event()

    async def look() -> None:
        seen.append(variable.get())
        await gate.wait()

    async with open_pool(Hall(), 1) as db, trio.open_nursery() as nursery:
        for name in "ab":
            token = variable.set(name)
            nursery.start_soon(db.call, Job(wait=look))
            await settle()
            variable.reset(token)
        gate.set()
    assert seen == ["a", "b"]


async def test_a_full_pool_refuses_or_waits_like_any_actor(said: Said) -> None:
    hall, gate = Hall(), trio.Event()
    async with open_pool(hall, 2, mailbox_size=1) as db, trio.open_nursery() as nursery:
        await Asker(nursery, db).ask(*at(gate, 1, 2, 3))
        with pytest.raises(MailboxFull) as full:
            db.tell_nowait(Job())
        said("pool is full", str(full.value))
        with trio.move_on_after(0) as patience:
            await db.tell(Job())
        assert patience.cancelled_caught
        gate.set()
    assert [job for job, _ in hall.log] == [1, 2, 3]


async def test_stopping_the_pool_answers_everyone_at_once(autojump_clock: MockClock) -> None:
    """A member that hangs while stopping delays no caller, and no other member."""
    hall, gate = Hall(stop=partial(trio.sleep, 4)), trio.Event()
    spec = ChildSpec("db", lambda: Pool(hall.member, 2))
    async with open_supervisor(spec) as house, trio.open_nursery() as nursery:
        asker = Asker(nursery, house.child("db"))
        await asker.ask(*at(gate, *range(4)))
        before = trio.current_time()
        nursery.start_soon(house.stop_child, "db")
        await settle()
        assert sorted(asker.outcomes) == [0, 1, 2, 3]
        assert {type(outcome) for outcome in asker.outcomes.values()} == {ActorStopped}
        assert [outcome.handed_over for _, outcome in sorted(asker.outcomes.items())] == [True, True, False, False]
        assert len(hall.up) == 2
        await house.child("db").wait_stopped()
        assert (hall.up, trio.current_time() - before) == ([], 4)
    assert len(hall.log) == 2


async def test_members_are_asked_to_stop_in_one_step_and_killed_when_they_hang(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    hall = Hall(stop=trio.sleep_forever)
    async with open_pool(hall, 3, shutdown=2.0) as db:
        assert db.state == "running"
    assert hall.of(Stopping)[1:] == [("Stopping", "db-3"), ("Stopping", "db-2"), ("Stopping", "db-1")]
    assert {event.time for event in hall.events if isinstance(event, Stopped)} == {2.0}
    assert len(caplog.messages) == 3


async def test_a_pool_that_restarts_keeps_what_waits() -> None:
    hall, gate, up = Hall(), trio.Event(), trio.Event()
    spec = ChildSpec("db", lambda: Pool(hall.member, 2, max_restarts=0))
    async with open_supervisor(spec) as house, trio.open_nursery() as nursery:
        db = house.child("db")
        asker = Asker(nursery, db)
        await asker.ask(*at(trio.Event(), 0), Job("crash", wait=gate.wait, error=Boom()), Job("a"), Job("b"))
        hall.starts = [up.wait, up.wait]
        gate.set()
        await db.wait_state("starting")
        await asker.ask(Job("c"))
        assert db.statistics().queued == 3
        up.set()
        await settle()
        assert isinstance(asker.outcomes[0], ActorCrashed)
        assert db.statistics().incarnation == 2
        begun = [job for job, _ in hall.log]
        assert (begun[:2], sorted(begun[2:4]), begun[4]) == ([0, "crash"], ["a", "b"], "c")
        assert {"a", "b", "c"} <= set(asker.outcomes)


async def test_a_strict_pool_names_the_member_that_does_not_start(said: Said) -> None:
    hall = Hall(starts=[trio.lowlevel.checkpoint, fails])
    with pytest.raises(ActorStartError) as failed:
        async with open_pool(hall, 3):
            raise AssertionError("it has not started")
    said("member did not start", str(failed.value), member=failed.value.actor)
    assert hall.up == []


async def fails() -> None:
    await settle()
    raise Boom("no database")


async def test_without_strict_the_other_members_serve_while_one_is_retried(autojump_clock: MockClock) -> None:
    hall = Hall(starts=[fails, fails])
    async with open_pool(hall, 3, strict=False) as db:
        assert await db.call(Job()) in ("db-1", "db-2", "db-3")
        await settle()
        assert len(hall.up) == 3


async def test_a_pool_that_does_not_await_its_members_keeps_the_messages_for_them() -> None:
    up = trio.Event()
    hall = Hall(starts=[up.wait])
    async with open_pool(hall, 1, strict=False, await_start=False) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        await asker.ask(Job(1), Job(2), Job(3))
        assert (db.state, db.statistics().queued) == ("running", 3)
        up.set()
    assert [job for job, _ in hall.log] == [1, 2, 3]


async def test_each_member_may_fail_once_before_the_pool_gives_up() -> None:
    """A database that restarts breaks all connections at once."""
    hall = Hall()
    with leaving(RestartLimitReached):
        async with open_pool(hall, 3) as db:
            for name in ("db-1", "db-2", "db-3"):
                with pytest.raises(Boom):
                    await db.child(name).call(Job(error=Boom()))
                await settle()
            assert len(hall.up) == 3
            with pytest.raises(Boom):
                await db.child("db-1").call(Job(error=Boom()))
            await trio.sleep_forever()


async def test_the_others_do_the_work_of_a_parked_member() -> None:
    hall = Hall()
    async with open_pool(hall, 2, on_limit="park", max_restarts=0) as db:
        with pytest.raises(Boom):
            await db.child("db-2").call(Job(error=Boom()))
        await db.child("db-2").wait_state("failed")
        assert {await db.call(Job()) for _ in range(3)} == {"db-1"}
        await db.restart_child("db-2")
        assert hall.up == ["db-1", "db-2"]


async def test_a_pool_without_members_refuses_until_one_is_restarted(said: Said) -> None:
    hall, gate = Hall(), trio.Event()
    async with (
        open_pool(hall, 2, on_limit="park", max_restarts=0) as db,
        trio.open_nursery() as nursery,
    ):
        asker = Asker(nursery, db)
        await asker.ask(*(Job(name, wait=gate.wait, error=Boom("away")) for name in ("one", "two")), Job("queued"))
        await db.tell(Job("told"))
        gate.set()
        await settle()
        last = hall.of(GaveUp)[-1][1]
        said(
            "pool has no member left",
            str(asker.outcomes["queued"]),
            last=last,
        )
        assert ("DeadLetter", "db") in hall.of(DeadLetter)
        for send in (db.call, db.tell):
            with pytest.raises(ActorStopped, match="all members"):
                await send(Job())
        with pytest.raises(ActorStopped, match="all members"):
            db.tell_nowait(Job())
        assert [child.state for child in await db.which_children()] == ["failed", "failed"]
        await db.restart_child("db-2")
        assert await db.call(Job()) == "db-2"
    assert [job for job, _ in hall.log] == ["one", "two", None]


async def test_a_pool_whose_members_were_stopped_refuses_too() -> None:
    async with open_pool(Hall(), 2) as db:
        for name in ("db-1", "db-2"):
            await db.stop_child(name)
        with pytest.raises(ActorStopped, match="it was stopped"):
            await db.call(Job())


async def test_messages_wait_for_a_member_that_was_stopped_with_its_mailbox_open() -> None:
    hall = Hall()
    async with open_pool(hall, 1) as db, trio.open_nursery() as nursery:
        await db.stop_child("db-1", keep_mailbox=True)
        asker = Asker(nursery, db)
        await asker.ask(Job("waits"))
        assert db.statistics().queued == 1
        await db.restart_child("db-1")
    assert asker.outcomes == {"waits": "db-1"}


async def test_a_member_may_call_its_pool_while_another_member_can_answer(said: Said) -> None:
    hall, gate = Hall(), trio.Event()

    async with open_pool(hall, 2) as db, trio.open_nursery() as nursery:

        async def ask_back() -> None:
            hall.log.append((await db.call(Job("inner")), "back"))

        assert await db.call(Job("outer", wait=ask_back)) != hall.log[-1][0]
        # Both slots wait for a third, so no answer could ever come.
        asker = Asker(nursery, db)

        async def ask_back_late() -> None:
            await gate.wait()
            await db.call(Job("inner"))

        await asker.ask(*(Job(number, wait=ask_back_late) for number in range(2)))
        gate.set()
        await settle()
        [(refused, error)] = [each for each in asker.outcomes.items() if isinstance(each[1], ActorError)]
        said("pool deadlocks", str(error), member=dict(hall.log)[refused])


async def test_a_member_may_call_its_pool_while_another_one_is_about_to_restart(autojump_clock: MockClock) -> None:
    hall = Hall()
    async with open_pool(hall, 2, backoff=Backoff(first=1, initial=1), window=100) as db:
        with pytest.raises(Boom):
            await db.child("db-1").call(Job(error=Boom()))
        await settle()

        async def ask_back() -> None:
            await db.call(Job("inner"))

        assert await db.call(Job("outer", wait=ask_back)) == "db-2"
        assert hall.log[-1] == ("inner", "db-1")


async def test_a_member_that_starts_cannot_call_a_pool_that_has_no_other() -> None:
    hall = Hall()

    class Eager(Member):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[None]:
            assert self.supervisor is not None
            if self.ref.name == "db-1":
                await self.supervisor.call(Job())
            async with super().running():
                yield

    with pytest.raises(ActorStartError, match="would deadlock"):
        async with open_actor(Pool(lambda: Eager(hall), 1), name="db"):
            raise AssertionError("it has not started")
    async with open_actor(Pool(lambda: Eager(hall), 2), name="db"):
        assert [member for _, member in hall.log] == ["db-2"]


async def test_the_table_of_members_is_the_pools_own(said: Said) -> None:
    async with open_pool(Hall(), 1) as db:
        with pytest.raises(ActorError) as refused:
            await db.start_child(ChildSpec("other", Actor))
        said("child of a pool", str(refused.value))
        with pytest.raises(ActorError):
            await db.delete_child("db-1")


async def test_a_member_cannot_be_a_supervisor(said: Said) -> None:
    with pytest.raises(ActorStartError) as failed:
        async with open_actor(Pool(Supervisor), name="db"):
            raise AssertionError("it has not started")
    said("member is a supervisor", str(failed.value.__cause__))


async def test_a_pool_in_a_tree_is_found_by_its_path() -> None:
    hall = Hall()
    async with open_supervisor(ChildSpec("db", lambda: Pool(hall.member, 2)), name="house") as house:
        assert house.find("db/db-2").path == "house/db/db-2"
        assert isinstance(house.child("db"), SupervisorRef)
    assert [name for _, name in hall.of(Started)] == []


async def test_a_control_message_to_the_pool_is_not_given_to_a_member() -> None:
    hall = Hall()
    async with open_pool(hall, 1) as db:
        with pytest.raises(TypeError):
            await db.call(JobNow())
    assert hall.log == []


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ("pool: size=0", {"size": 0}),
        ("pool: start_timeout=0", {"start_timeout": 0}),
        ("pool: size=True", {"size": True}),
        ("pool: size=(0, 2)", {"size": (0, 2)}),
        ("pool: size=(3, 2)", {"size": (3, 2)}),
        ("pool: size=(1, 2, 3)", {"size": (1, 2, 3)}),
        ("pool: size='4'", {"size": "4"}),
        ("pool: key='user'", {"key": "user"}),
        ("pool: size=(1, 8) and key", {"size": (1, 8), "key": id}),
        ("pool: factory=3", {"factory": 3}),
        ("pool: shrink_after=0", {"shrink_after": 0}),
        ("pool: shrink_after=inf", {"shrink_after": float("inf")}),
        ("pool: budget_per_member=2", {"budget_per_member": 2}),
        ("pool: separator=None", {"separator": None}),
    ],
)
def test_invalid_arguments_are_named(row: str, options: dict[str, Any], said: Said) -> None:
    with pytest.raises(ValueError, match="Pool") as refused:
        Pool(**{"factory": Hall().member} | options)
    said(row, str(refused.value))


def test_the_factory_is_checked_too() -> None:
    with pytest.raises(ValueError, match="factory"):
        Pool(None)  # type: ignore[arg-type]  # that is the point


async def test_an_object_that_is_not_a_message_is_refused() -> None:
    async with open_pool(Hall(), 1) as db:
        with pytest.raises(TypeError, match="is not a message"):
            await db.tell(Message)
