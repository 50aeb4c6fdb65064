"""A recorder of events: a list, and a way to wait."""

from __future__ import annotations

import asyncio

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors.kernel import Started, Stopped
from mcp_actors.testing import EventRecorder

FIRST = Started(actor="a", incarnation=1, time=0.0)
SECOND = Started(actor="a", incarnation=2, time=1.0)


async def test_an_event_that_was_recorded_before_is_found() -> None:
    recorder = EventRecorder()
    recorder(FIRST)
    recorder(SECOND)
    assert await recorder.wait_for(Started) is FIRST
    assert await recorder.wait_for(Started, incarnation=2) is SECOND
    assert await recorder.wait_for(Started, after=FIRST) is SECOND


async def test_a_wait_ends_with_the_event_and_not_with_others() -> None:
    recorder = EventRecorder()
    found: list[Started] = []

    async def wait() -> None:
        found.append(await recorder.wait_for(Started, incarnation=2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        recorder(FIRST)
        recorder(Stopped(actor="a", incarnation=2, time=1.0))
        await wait_all_tasks_blocked()
        assert found == []
        recorder(SECOND)
    assert found == [SECOND]


def test_a_wait_works_on_asyncio() -> None:
    async def main() -> None:
        recorder = EventRecorder()
        asyncio.get_running_loop().call_later(0, recorder, FIRST)
        assert await recorder.wait_for(Started) is FIRST

    asyncio.run(main())


async def test_after_is_an_event_of_the_recorder_and_not_an_equal_one() -> None:
    recorder = EventRecorder()
    recorder(FIRST)
    with pytest.raises(ValueError, match="was not recorded here; pass an event of this recorder"):
        await recorder.wait_for(Started, after=Started(actor="a", incarnation=1, time=0.0))


async def test_a_misspelled_field_is_an_error() -> None:
    recorder = EventRecorder()
    recorder(FIRST)
    with pytest.raises(AttributeError, match="incarnatoin"):
        await recorder.wait_for(Started, incarnatoin=2)
