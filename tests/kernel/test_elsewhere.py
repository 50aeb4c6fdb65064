"""A ref belongs to one Trio run: elsewhere, the error names the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import trio

from mcp_actors.kernel import ActorRef, ActorStopped, open_actor

from ..messages import Said
from .actors import Get, Host, Put, open_child

Use = Callable[[ActorRef], Any]

STEPS: dict[str, Use] = {
    "tell_nowait": lambda ref: ref.tell_nowait(Put(1)),
    "send_request": lambda ref: ref.send_request(Get(1)),
}
WAITS: dict[str, Callable[[ActorRef], Awaitable[Any]]] = {
    "call": lambda ref: ref.call(Get(1)),
    "tell": lambda ref: ref.tell(Put(1)),
    "wait_stopped": lambda ref: ref.wait_stopped(),
    "wait_state": lambda ref: ref.wait_state("failed"),
}


def run_step(step: Use, ref: ActorRef) -> None:
    step(ref)


def in_asyncio(wait: Callable[[ActorRef], Awaitable[Any]], ref: ActorRef) -> None:
    async def main() -> None:
        await wait(ref)

    asyncio.run(main())


def in_another_run(wait: Callable[[ActorRef], Awaitable[Any]], ref: ActorRef) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            await wait(ref)

    trio.run(main)


def step_in_another_run(step: Use, ref: ActorRef) -> None:
    async def main() -> None:
        step(ref)

    trio.run(main)


USES: dict[str, Callable[[ActorRef], None]] = {
    **{f"{name}, thread": partial(run_step, step) for name, step in STEPS.items()},
    **{f"{name}, run": partial(step_in_another_run, step) for name, step in STEPS.items()},
    **{f"{name}, asyncio": partial(in_asyncio, wait) for name, wait in WAITS.items()},
    **{f"{name}, run": partial(in_another_run, wait) for name, wait in WAITS.items()},
}


@pytest.mark.parametrize("use", USES)
async def test_a_ref_used_elsewhere_is_refused_and_loses_no_slot(use: str, said: Said) -> None:
    """B-30: and every call after that is served."""
    seen: list[object] = []
    async with open_actor(Host(seen=seen), name="house") as ref:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="'house'") as refused:
                await trio.to_thread.run_sync(USES[use], ref)
            said("used outside its Trio run", str(refused.value))
        with trio.fail_after(60):
            assert await ref.call(Get(2)) == 2
        assert ref.statistics().in_flight == 0
    assert seen == [2]


async def test_the_remedy_that_is_named_works() -> None:
    """B-30: a thread sends its messages through `trio.from_thread`."""

    def work(ref: ActorRef) -> int:
        trio.from_thread.run_sync(ref.tell_nowait, Put(1))
        return trio.from_thread.run(ref.call, Get(2))

    seen: list[object] = []
    async with open_actor(Host(seen=seen), name="house") as ref:
        assert await trio.to_thread.run_sync(work, ref) == 2
        assert ref.state == await trio.to_thread.run_sync(lambda: ref.state)
    assert seen == [1, 2]


async def test_events_are_watched_in_the_run_of_the_tree() -> None:
    """B-30: a reader in another run would be woken by this one."""
    async with open_child() as supervisor:
        with pytest.raises(RuntimeError, match="'supervisor'"):
            await trio.to_thread.run_sync(supervisor.watch_events)


def test_a_ref_of_a_run_that_has_ended_says_that_its_actor_has_stopped() -> None:
    async def main() -> ActorRef:
        async with open_actor(Host(), name="host") as ref:
            return ref

    ref = trio.run(main)
    with ThreadPoolExecutor(1) as elsewhere:
        sends: list[Callable[[Put], None]] = [
            ref.tell_nowait,
            lambda message: elsewhere.submit(ref.tell_nowait, message).result(),
        ]
        for send in sends:
            with pytest.raises(ActorStopped):
                send(Put(1))
