"""Times of day that mean the same on Trio and on asyncio."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
import trio

from mcp_actors import ServerUnavailable, StateChanged
from mcp_actors.bridge import Host, open_servers
from mcp_actors.kernel import Event
from tests.servers.groups import FOR_A_WHILE, server


@pytest.mark.parametrize("host", ["thread", "guest"])
def test_asyncio_programs_get_times_of_day(host: Host) -> None:
    """B-25: ``changed_at``, ``retry_at`` and ``at`` are times of day, and need no clock of Trio's to be read."""
    events: list[Event] = []

    async def main() -> None:
        before = datetime.now(UTC)
        async with open_servers(
            server("a"), server("b", "--exit-at-start", "3", restarts=FOR_A_WHILE), host=host, observers=[events.append]
        ) as servers:
            await servers["b"].wait_state("failed")
            with pytest.raises(ServerUnavailable) as caught:
                await servers["b"].list_tools()
            status = servers.status()
            after = datetime.now(UTC)
        assert all(before <= each.changed_at <= after for each in status.values())
        assert caught.value.retry_at == status["b"].retry_at
        assert status["b"].retry_at is not None
        assert 3000 < (status["b"].retry_at - before).total_seconds() < 3700
        changes = [event for event in events if isinstance(event, StateChanged) and event.new in ("ready", "failed")]
        assert [event.at for event in changes] == [status[event.server].changed_at for event in changes]

    asyncio.run(main())


async def test_events_of_trio_programs_have_it_too() -> None:
    """B-25: an aware datetime, whatever Trio's clock says."""
    before = datetime.now(UTC)
    event = Event(actor="a", incarnation=1, time=trio.current_time())
    assert before <= event.at <= datetime.now(UTC)
    assert event == Event(actor="a", incarnation=1, time=event.time)
