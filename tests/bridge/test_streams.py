"""Streams: several readers, and the end of the group or of the reader."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from mcp_actors.bridge import AsyncioStream, AsyncioSupervisorRef, Host, open_supervisor
from mcp_actors.kernel import ChildSpec, RequestFinished, RequestStarted
from tests.servers.groups import BOUND

from .actors import Boom, Note, Worker

HOSTS: list[Host] = ["thread", "guest"]
pytestmark = pytest.mark.parametrize("host", HOSTS)


def worker() -> ChildSpec:
    return ChildSpec("worker", Worker)


async def until_ended_by(
    supervisor: AsyncioSupervisorRef, reading: asyncio.Event, then: Callable[[AsyncioStream[Any]], None]
) -> None:
    """Read events until there are no more, and leave the stream in some way."""
    async with supervisor.watch_events() as events:
        reading.set()
        async for _ in events:
            pass
        then(events)


def test_several_readers_get_each_event_once(host: Host) -> None:
    async def main() -> None:
        async with open_supervisor(worker(), host=host) as supervisor, supervisor.watch_events() as events:
            readers = [asyncio.create_task(anext(events)) for _ in range(4)]
            await asyncio.sleep(0)
            for number in range(2):
                await supervisor.child("worker").tell(Note(number))
            async with asyncio.timeout(BOUND):
                got = await asyncio.gather(*readers)
        assert [type(event) for event in got].count(RequestStarted) == 2
        assert [type(event) for event in got].count(RequestFinished) == 2

    asyncio.run(main())


def test_a_stream_that_outlives_its_group_ends_like_any_other(host: Host) -> None:
    async def main() -> None:
        reading = asyncio.Event()
        async with open_supervisor(worker(), host=host) as supervisor:
            reader = asyncio.create_task(until_ended_by(supervisor, reading, lambda _: None))
            await reading.wait()
        await reader

    asyncio.run(main())


def test_asyncio_logs_no_lost_exception_of_a_stream(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    def boom(_: object) -> None:
        raise Boom

    async def main() -> None:
        reading = asyncio.Event()
        async with open_supervisor(worker(), host=host) as supervisor:
            reader = asyncio.create_task(until_ended_by(supervisor, reading, boom))
            await reading.wait()
        with pytest.raises(Boom):
            await reader
        async with open_supervisor(worker(), host=host) as supervisor:
            watching = supervisor.watch_events()
            events = await watching.__aenter__()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0)  # goes on reading, to lose nothing
        await watching.__aexit__(None, None, None)

    asyncio.run(main())
    gc.collect()
    assert not caplog.records
