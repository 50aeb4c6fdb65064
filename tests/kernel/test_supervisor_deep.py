"""Supervisors under supervisors under supervisors."""

from __future__ import annotations

import math
import sys
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from mcp_actors.kernel import (
    ActorRef,
    ActorStartError,
    ChildSpec,
    Starting,
    Stopped,
    Supervisor,
    SupervisorRef,
    open_supervisor,
)
from mcp_actors.kernel._circles import effective_deadline
from mcp_actors.kernel._record import Record

from .workers import Boom, Echo, Yard, nest, shielded, state


async def test_a_deep_tree_stops_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: Counter[Record] = Counter()

    def close(record: Record, why: str) -> None:
        closed[record] += 1
        really_close(record, why)

    really_close = Record.close
    refs: list[ActorRef] = []
    yard = Yard()
    async with open_supervisor(observers=[yard.events.append]) as supervisor:
        below = supervisor
        for level in range(400):
            ref = await below.start_child(ChildSpec(f"s{level}", Supervisor))
            assert isinstance(ref, SupervisorRef)
            below = ref
            refs.append(ref)
        monkeypatch.setattr(Record, "close", close)
    assert {ref.state for ref in refs} == {"stopped"}
    assert yard.of(Stopped) == [*(ref.name for ref in reversed(refs)), "supervisor"]
    assert max(closed.values()) <= 2


async def test_an_actor_below_an_overdue_supervisor_stops_once(autojump_clock: MockClock) -> None:
    yard = Yard()
    late = nest("n", yard.spec("a"), yard.spec("b", partial(shielded, 30)), child={"start_timeout": 1})
    async with open_supervisor(
        late, max_restarts=0, on_limit="park", strict=False, observers=[yard.events.append]
    ) as supervisor:
        nested = supervisor.child("n")
        assert isinstance(nested, SupervisorRef)
        a, b = nested.child("a"), nested.child("b")
        assert state(nested) == "failed"
        assert yard.running == ["b"]
        assert yard.of(Stopped) == []
        await trio.sleep(40)
        assert yard.running == []
        assert [state(a), state(b)] == ["stopped", "stopped"]
        assert yard.of(Stopped) == ["b", "a", "n"]


NESTED: Final = 400
"""While so many supervisors start, over a thousand cancel scopes are nested, and none of them is shielded."""


def chain(bottom: ChildSpec) -> ChildSpec:
    for _ in range(NESTED):
        bottom = nest("n", bottom)
    return bottom


async def test_a_deep_tree_starts_as_one_and_serves(autojump_clock: MockClock) -> None:
    yard = Yard()
    with trio.fail_after(1):
        async with open_supervisor(chain(yard.spec("a"))) as supervisor:
            for _ in range(NESTED):
                supervisor = supervisor.child("n", SupervisorRef)
            assert await supervisor.child("a").call(Echo(1)) == 1
    assert yard.log == ["a up", "a down"]


async def test_a_failed_start_at_the_bottom_of_a_deep_tree_is_raised(autojump_clock: MockClock) -> None:
    yard = Yard()
    boom = Boom("no start")
    with trio.fail_after(1), pytest.raises(ActorStartError) as raised:
        async with open_supervisor(chain(yard.spec("a", boom))):
            pytest.fail("it has started")
    cause: BaseException | None = raised.value
    while cause is not None and cause is not boom:
        cause = cause.__cause__
    assert cause is boom


async def test_an_actor_below_a_parked_supervisor_that_never_started_has_stopped(autojump_clock: MockClock) -> None:
    yard = Yard()
    nested = nest("n", yard.spec("a", Boom("start")), yard.spec("b"))
    async with open_supervisor(
        nested, max_restarts=0, on_limit="park", strict=False, observers=[yard.events.append]
    ) as supervisor:
        never_started = supervisor.child("n", SupervisorRef).child("b")
        with trio.fail_after(1):
            await never_started.wait_stopped()
        assert yard.of(Starting) == ["supervisor", "n", "a"]
        assert yard.of(Stopped) == ["a"]


async def test_scopes_too_deep_for_pythons_stack_count_as_no_deadline() -> None:
    """Trio asks each scope in turn, in one nested call per scope."""
    with ExitStack() as scopes:
        for _ in range(2 * sys.getrecursionlimit()):
            scopes.enter_context(trio.CancelScope())
        with pytest.raises(RecursionError):
            trio.current_effective_deadline()
        assert effective_deadline() == math.inf
