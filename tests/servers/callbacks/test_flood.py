"""A server that sends more notifications than it may: what is bounded, what is told, and what stays right."""

from __future__ import annotations

import logging

import pytest
import trio
from hypothesis import given, strategies as st
from mcp.types import ToolListChangedNotification
from trio.testing import wait_all_tasks_blocked

from mcp_actors import Callbacks, open_servers
from mcp_actors.config import Limits
from mcp_actors.servers import Flooded
from mcp_actors.servers.connection.callbacks._meter import NotificationMeter

from ..asking import ERAS, Era, Heard, asking, call, log
from ..groups import Events, server
from ..links import text_of
from ..test_incoming import listeners_of


def admitted(meter: NotificationMeter, *times: float) -> list[bool]:
    return [meter.admit(time) for time in times]


def test_so_many_are_taken_in_a_second_and_no_more() -> None:
    meter = NotificationMeter(2)
    assert admitted(meter, 5.0, 5.1) == [True, True]
    assert not meter.flooded
    assert admitted(meter, 5.2, 5.9) == [False, False]
    assert (meter.flooded, meter.dropped) == (True, 2)


def test_a_flood_goes_on_until_a_second_has_passed_within_the_limit() -> None:
    meter = NotificationMeter(1)
    assert admitted(meter, 0.0, 0.5, 1.0, 1.5) == [True, False, True, False]
    assert (meter.flooded, meter.dropped) == (True, 2)
    assert admitted(meter, 2.0, 3.0) == [True, True]
    assert (meter.flooded, meter.dropped) == (False, 2)
    assert admitted(meter, 3.1) == [False]
    assert (meter.flooded, meter.dropped) == (True, 1)


def test_a_flood_is_over_after_a_silence() -> None:
    meter = NotificationMeter(1)
    assert admitted(meter, 0.0, 0.5, 9.0) == [True, False, True]
    assert not meter.flooded


@given(limit=st.integers(1, 5), gaps=st.lists(st.floats(0, 3), max_size=100))
def test_of_any_sequence_no_second_window_takes_more_than_twice_the_limit(limit: int, gaps: list[float]) -> None:
    """Windows begin when something comes, so any second touches two of them at most."""
    meter, now, taken = NotificationMeter(limit), 0.0, list[float]()
    for gap in gaps:
        now += gap
        if meter.admit(now):
            taken.append(now)
    assert all(sum(at <= each < at + 1 for each in taken) <= 2 * limit for at in taken)


async def test_progress_is_not_lost_in_a_flood() -> None:
    """Nor is the answer."""
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(progress)

    config = server("a", "--progress", "300", limits=Limits(max_notifications=5), callbacks=Callbacks(message=Heard()))
    async with open_servers(config) as servers:
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=note)) == "3"
    assert seen == [float(number) for number in range(1, 301)]


@pytest.mark.parametrize("era", ERAS)
async def test_over_the_limit_nothing_more_is_heard_which_is_an_event_and_a_log_line(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes on to serve, and what changes of lists it told is known."""
    heard, changes, events = Heard(), list[object](), Events()
    config = asking(era, limits=Limits(max_notifications=20), callbacks=Callbacks(logging=heard, message=heard))
    flood = [log(number) for number in range(500)]
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(config, observers=[events]) as servers:
            listeners_of(servers, "a").add(ToolListChangedNotification, changes.append)
            await call(servers["a"], "tell", notifications=[*flood, {"method": "notifications/tools/list_changed"}])
            await wait_all_tasks_blocked()
            assert "methods" in await call(servers["a"], "seen")
    assert 40 <= len(heard) <= 80  # of two callbacks, in one or two windows
    assert len(changes) == 1
    [event] = events.of(Flooded, "a")
    assert (event.server, event.limit) == ("a", 20)
    [record] = [record for record in caplog.records if "notifications" in record.getMessage()]
    assert record.getMessage() == (
        "server 'a': sends more than 20 notifications a second; callbacks hear of that many each second and not of the "
        "rest; if it may send so many, raise limits=Limits(max_notifications=…)"
    )


async def test_a_flood_that_nobody_listens_to_is_told_in_other_words(caplog: pytest.LogCaptureFixture) -> None:
    flood = [log(number) for number in range(100)]
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(asking("legacy", limits=Limits(max_notifications=20))) as servers:
            await call(servers["a"], "tell", notifications=flood)
            await wait_all_tasks_blocked()
    assert caplog.records[0].getMessage() == (
        "server 'a': sends more than 20 notifications a second; nobody here listens to them, but each takes time: have "
        "the server send less, or stop it"
    )
