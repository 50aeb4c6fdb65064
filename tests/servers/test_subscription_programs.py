"""Subscriptions with any order of subscribing, leaving, changes and restarts."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import Backoff, RetryPolicy, ServerRef, open_servers
from mcp_actors.config import RetryBudget

from .library import Library
from .test_resources import Protocol, both_eras
from .test_subscriptions import next_of

URIS: Final = tuple(f"file:///{name}" for name in "abc")


async def come_and_go(ref: ServerRef, library: Library, random: Random) -> None:
    """Subscribe, hear of a change that this task makes, leave; or leave before that. A few times."""
    for _ in range(4):
        await trio.sleep(random.random())
        uris = random.sample(URIS, random.randint(1, len(URIS)))
        with trio.move_on_after(random.choice([0.0, 0.01, 60])):
            async with ref.subscribe(*uris) as changes:
                await trio.sleep(random.choice([0, 0, 0.3]))
                await library.change(uris[0])
                # A restart may come between any two of these steps; then the change is reported as missed.
                while (await next_of(changes)).uri != uris[0]:
                    pass


async def restart_now_and_then(ref: ServerRef, random: Random) -> None:
    for _ in range(4):
        await trio.sleep(random.random())
        await ref.restart()


@both_eras
@pytest.mark.parametrize("seed", range(3))
async def test_every_subscriber_gets_its_changes_and_nothing_is_left(
    era: Protocol, seed: int, autojump_clock: MockClock
) -> None:
    """Also with one request at a time; and the server takes its time, so that messages overtake each other."""
    random, library = Random(seed), Library()

    async def dawdle(ctx: object, call_next: object) -> object:
        await trio.sleep(random.choice([0, 0.01, 0.05]))
        return await call_next(ctx)  # type: ignore[operator]  # its types are the SDK's

    library.server.middleware.append(dawdle)  # type: ignore[arg-type]  # likewise
    retry = RetryPolicy(attempts=50, backoff=Backoff(initial=0.01), budget=RetryBudget(max_tokens=1000))
    config = library.config(protocol=era, max_in_flight=random.choice([1, 64]), retry=retry)
    async with open_servers(config) as servers:
        ref = servers["library"]
        async with ref.subscribe(*URIS) as standing:
            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(come_and_go, ref, library, Random(random.random()))
                nursery.start_soon(restart_now_and_then, ref, random)
            await trio.sleep(10)
            assert ref.statistics().in_flight == ref.statistics().queued == 0
            while standing._pending:
                await next_of(standing)
            for uri in URIS:
                await library.change(uri)
                assert (await next_of(standing)).uri == uri
        await trio.sleep(1)
        await wait_all_tasks_blocked()
        assert library.subscribed == {}
        lists_of_tools = 1 if era != "legacy" else 0
        assert len(library.listening._streams) == lists_of_tools
