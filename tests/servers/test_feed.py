"""A feed delivers in order, also if the tasks of one burst queue their items in any order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors._tasks import Feed


@asynccontextmanager
async def running_feed() -> AsyncIterator[tuple[Feed[int], list[int]]]:
    delivered: list[int] = []

    async def deliver(item: int) -> None:
        await trio.lowlevel.checkpoint()
        delivered.append(item)

    feed = Feed(deliver, max_size=100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        await wait_all_tasks_blocked()
        yield feed, delivered
        nursery.cancel_scope.cancel("the test is over")


@pytest.mark.parametrize("attempt", range(10))
async def test_a_lower_rank_of_the_same_burst_is_delivered_first(attempt: int) -> None:
    """The tasks of a burst run within one step of the event loop, in random order."""
    async with running_feed() as (feed, delivered):
        feed.put(2, 0, rank=2)
        await trio.lowlevel.checkpoint()
        feed.put(1, 0, rank=1)
        await feed.wait_idle()
        assert delivered == [1, 2]


@pytest.mark.parametrize("attempt", range(10))
async def test_waiting_includes_items_of_tasks_that_are_scheduled(attempt: int) -> None:
    async with running_feed() as (feed, delivered), trio.open_nursery() as nursery:

        async def put() -> None:
            feed.put(1, 0)

        nursery.start_soon(put)
        await feed.wait_idle()
        assert delivered == [1]


async def test_items_of_one_rank_are_delivered_as_they_arrived() -> None:
    async with running_feed() as (feed, delivered):
        for item in (3, 1, 2):
            feed.put(item, 0)
        await feed.wait_idle()
        assert delivered == [3, 1, 2]
