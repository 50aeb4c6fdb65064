"""B-35 for arbitrary programs of calls between actors: none hangs, and no call is refused that would not have hung."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any
from unittest import mock

import trio
from attrs import frozen
from hypothesis import given, settings, strategies as st

from mcp_actors.kernel import Actor, ActorError, ActorRef, Call, _ref, open_actor
from tests.programs import number_of

ACTORS = 3

Plan = tuple[Any, ...]
"""What a handler does, step by step: a number of seconds to sleep, or an actor to call with a plan.

True in a third place has that call made by a task that the handler starts in a nursery around all actors.
"""

steps = st.recursive(
    st.sampled_from([0.0, 1.0, 3.0]),
    lambda plans: st.tuples(st.integers(0, ACTORS - 1), st.lists(plans, max_size=3).map(tuple), st.booleans()),
    max_leaves=8,
)
requests = st.tuples(st.integers(0, ACTORS - 1), st.lists(steps, max_size=3).map(tuple), st.sampled_from([0.0, 1.0]))


@frozen(eq=False)
class Run(Call[None]):
    plan: Plan


class Worker(Actor):
    reentrant = True
    aside: trio.Nursery
    ticks: Iterator[int]

    def __init__(self, refs: list[ActorRef], refused: list[float], max_in_flight: int) -> None:
        self.refs = refs
        self.refused = refused
        self.max_in_flight = max_in_flight

    async def handle(self, message: Run) -> None:
        for step in message.plan:
            if isinstance(step, float):
                await trio.sleep(step)
                continue
            actor, plan, aside = step
            if aside:
                delay = next(Worker.ticks) / 100_000  # no two of them in the same instant, as below
                self.aside.start_soon(self.call, actor, plan, delay)
            else:
                await self.call(actor, plan)

    async def call(self, actor: int, plan: Plan, delay: float = 0.0) -> None:
        if delay > 0:
            await trio.sleep(delay)
        try:
            await self.refs[actor].call(Run(plan))
        except ActorError:
            self.refused.append(trio.current_time())


async def play(limits: list[int], program: list[Any]) -> list[float]:
    """Run a program, and return when a call was refused. Raises `trio.TooSlowError` if it hangs."""
    refs: list[ActorRef] = []
    refused: list[float] = []
    Worker.ticks = count(1)
    with trio.fail_after(10_000):
        async with AsyncExitStack() as stack:
            for number, limit in enumerate(limits):
                worker = Worker(refs, refused, limit)
                refs.append(await stack.enter_async_context(open_actor(worker, name=f"a{number}")))
            async with trio.open_nursery() as Worker.aside:
                for number, (actor, plan, start) in enumerate(program):
                    # No two requests begin in the same instant, so that a program runs alike each time.
                    Worker.aside.start_soon(later, start + number / 1000, refs[actor], Run(plan))
    return refused


async def later(seconds: float, ref: ActorRef, message: Run) -> None:
    await trio.sleep(seconds)
    await ref.call(message)


def run(fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return trio.run(fn, *args, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=number_of(150), deadline=None)
@given(st.lists(st.sampled_from([1, 1, 2]), min_size=ACTORS, max_size=ACTORS), st.lists(requests, max_size=6))
def test_a_program_never_hangs_and_is_refused_only_what_would(limits: list[int], program: list[Any]) -> None:
    """B-35."""
    if not run(play, limits, program):
        return
    with mock.patch.object(_ref, "find_circle", return_value=[]):
        try:
            run(play, limits, program)
        except trio.TooSlowError:
            return
    raise AssertionError("it would not have hung")
