"""Factories that return another kind of actor under the same id."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked as settle

from mcp_actors.kernel import (
    Actor,
    ActorCrashed,
    ActorRef,
    ActorStopped,
    ChildSpec,
    DormantSupervisor,
    Pool,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)

from .actors import Do, Gate, Get, Host


def key(message: Any) -> int:
    return getattr(message, "number", 0)


# The ids of their children are the same, so an earlier one may be taken for a later one.
KINDS: Final[dict[str, Callable[[], Actor]]] = {
    "actor": Host,
    "supervisor": lambda: Supervisor(ChildSpec("x-1", Host), ChildSpec("other", Host)),
    "pool": lambda: Pool(Host, 2),
    "pool that grows": lambda: Pool(Host, (1, 3)),
    "pool with a key": lambda: Pool(Host, 2, key=key),
    "larger pool with a key": lambda: Pool(Host, 3, key=key),
    "dormant supervisor": lambda: DormantSupervisor(ChildSpec("x-1", Host)),
}


async def ask(ref: ActorRef, message: Any, outcomes: list[object]) -> None:
    try:
        outcomes.append(await ref.call(message))
    except (ActorCrashed, ActorStopped, TypeError) as exc:
        outcomes.append(exc)


def children(ref: ActorRef) -> list[ActorRef]:
    return [SupervisorRef(ref._record).child(id) for id in ref._record.children or ()]


@pytest.mark.parametrize("how", ["crash", "stop", "keep"])
@pytest.mark.parametrize(("first", "second"), list(product(KINDS, KINDS)))
async def test_an_actor_may_become_one_of_another_kind(first: str, second: str, how: str) -> None:
    """C-36: it starts at once, each message has an outcome, and an earlier child is taken over or gone."""
    made = iter([KINDS[first], KINDS[second]])
    outcomes: list[object] = []
    gate, asked = Gate(), 0
    with trio.fail_after(60):
        async with open_supervisor() as top, trio.open_nursery() as nursery:
            x = await top.start_child(ChildSpec("x", lambda: next(made)()))

            def send(message: Any) -> None:
                nonlocal asked
                for ref in [x, *before]:
                    nursery.start_soon(ask, ref, message, outcomes)
                    asked += 1

            before = children(x)
            send(Do(gate))
            send(Get(1))
            await settle()
            if how == "crash" and x._record.mailbox.life is not None:
                x._record.mailbox.life.end("crashed", ValueError("boom"))  # type: ignore[attr-defined]  # it has one
            else:
                await top.stop_child("x", keep_mailbox=how == "keep")
                send(Get(2))
                await settle()
                await top.restart_child("x")
            await settle()
            gate.open()
            send(Get(3))
            await settle()
            str(top.tree())
            assert x.statistics().incarnation == 2
            if second == "dormant supervisor":
                assert x.state == "stopped"
                await top.stop_child("x")  # what waits for it is refused
            else:
                assert x.state == "running"
                for ref in [x] if second != "supervisor" else children(x):
                    assert await ref.call(Get(4)) == 4
            await settle()
            assert len(outcomes) == asked
            # A child that was not taken over never runs again.
            now = set(children(x))
            assert all(ref in now or ref.state in ("stopped", "failed") for ref in before)


async def test_a_member_that_is_not_taken_over_says_why() -> None:
    """C-36: it shared the mailbox of a pool without a key."""
    made = iter([Pool(Host, 1), Pool(Host, 1, key=key)])
    async with open_supervisor(ChildSpec("x", lambda: next(made))) as top:
        member = top.child("x", SupervisorRef).child("x-1")
        await top.stop_child("x", keep_mailbox=True)
        await top.restart_child("x")
        assert await top.child("x").call(Get(1)) == 1
        with pytest.raises(ActorStopped):
            await member.call(Get(2))
