"""Members of a pool by themselves: names, budgets, what they have taken, and a pool that becomes one actor."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import Actor, ActorStopped, ChildSpec, Pool, SupervisorRef, open_supervisor

from .members import Asker, Boom, Hall, Job, Member, at, open_pool


async def test_the_names_of_members_have_the_separator_of_the_pool() -> None:
    async with open_pool(hall := Hall(), 2, separator=":") as db:
        assert sorted(hall.up) == ["db:1", "db:2"]
        assert db.child("db:2").state == "running"


async def test_each_member_has_a_budget_of_its_own_if_that_is_asked_for() -> None:
    options: dict[str, Any] = {"max_restarts": 1, "budget_per_member": True, "on_limit": "park", "strict": False}
    async with open_pool(hall := Hall(), 2, **options) as db, trio.open_nursery() as nursery:
        asker = Asker(nursery, db)
        for crash in range(3):
            await asker.ask(Job(crash, error=Boom()))
        took = [member for _, member in hall.log]
        # The same member is next each time: the one that is free since the shortest time.
        assert took[:2] == [took[0]] * 2
        assert db.child(took[0]).state == "failed"
        assert db.child(took[2]).state == "running"
        await db.restart_child(took[0])
        await db.child(took[0]).call(Job("again"))


async def test_members_with_budgets_of_their_own_may_fail_once_each_by_default() -> None:
    async with (
        open_pool(hall := Hall(), 2, budget_per_member=True, on_limit="park", strict=False) as db,
        trio.open_nursery() as nursery,
    ):
        for crash in range(2):
            await Asker(nursery, db.child("db-1")).ask(Job(crash, error=Boom()))
        assert [db.child(name).state for name in ("db-1", "db-2")] == ["failed", "running"]
        assert len(hall.log) == 2


async def test_a_call_says_which_member_has_taken_it() -> None:
    gate = trio.Event()
    async with open_pool(hall := Hall(), 1) as db:
        taken, waiting = [db.send_request(job) for job in at(gate, "a", "b")]
        await settle()
        assert (taken.actor, waiting.actor) == ("db-1", "db")
        gate.set()
        assert await taken.wait() == await waiting.wait() == "db-1"
        assert (taken.actor, waiting.actor) == ("db-1", "db-1")
        assert len(hall.log) == 2


async def test_a_pool_that_becomes_one_actor_keeps_its_mailbox_and_forgets_its_members() -> None:
    hall, gate = Hall(), trio.Event()
    sizes = [2, 1]

    def make() -> Actor:
        return Pool(hall.member, 2) if sizes.pop(0) == 2 else Member(hall)

    async with open_supervisor(ChildSpec("db", make)) as supervisor, trio.open_nursery() as nursery:
        db = supervisor.child("db", SupervisorRef)
        member = db.child("db-1")
        asker = Asker(nursery, db)
        await supervisor.stop_child("db", keep_mailbox=True)
        await asker.ask(Job("waiting"))
        await supervisor.restart_child("db")
        await asker.ask(Job("later", wait=gate.wait))
        assert asker.outcomes == {"waiting": "db"}
        assert (db.statistics().in_flight, str(supervisor.tree()).count("db")) == (1, 1)
        assert type(supervisor.child("db")) is not SupervisorRef
        assert member.state == "stopped"
        with pytest.raises(ActorStopped):
            await member.call(Job("refused"))
        gate.set()
