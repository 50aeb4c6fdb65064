"""A server that exceeds the limit on notifications."""

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
from mcp_actors.servers.connection._callbacks import NotificationMeter

from ...messages import Said
from ..asking import ERAS, Era, Heard, asking, call, log
from ..groups import Events, server
from ..links import text_of
from ..test_incoming import listeners_of


def admitted(meter: NotificationMeter, *times: float) -> list[bool]:
    return [meter.admit(time) for time in times]


def test_the_limit_is_per_second() -> None:
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
def test_any_second_has_at_most_twice_the_limit(limit: int, gaps: list[float]) -> None:
    """A window begins with a notification, so any second overlaps with two windows at most."""
    meter, now, taken = NotificationMeter(limit), 0.0, list[float]()
    for gap in gaps:
        now += gap
        if meter.admit(now):
            taken.append(now)
    assert all(sum(at <= each < at + 1 for each in taken) <= 2 * limit for at in taken)


async def test_progress_is_not_lost_in_a_flood() -> None:
    """The response is not lost either."""
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(progress)

    config = server("a", "--progress", "300", limits=Limits(max_notifications=5), callbacks=Callbacks(message=Heard()))
    async with open_servers(config) as servers:
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2}, progress=note)) == "3"
    assert seen == [float(number) for number in range(1, 301)]


@pytest.fixture
def in_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a flood take no time, however long this machine takes to read it."""
    admit = NotificationMeter.admit
    monkeypatch.setattr(NotificationMeter, "admit", lambda meter, now: admit(meter, 0.0))


@pytest.mark.parametrize("era", ERAS)
async def test_notifications_over_the_limit_are_dropped_with_an_event_and_a_log_line(
    era: Era, caplog: pytest.LogCaptureFixture, said: Said, in_one_second: None
) -> None:
    """The server goes on serving, and its list changes are handled."""
    heard, changes, events = Heard(), list[object](), Events()
    config = asking(era, limits=Limits(max_notifications=20), callbacks=Callbacks(logging=heard, message=heard))
    flood = [log(number) for number in range(500)]
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(config, observers=[events]) as servers:
            listeners_of(servers, "a").add(ToolListChangedNotification, changes.append)
            await call(servers["a"], "tell", notifications=[*flood, {"method": "notifications/tools/list_changed"}])
            await wait_all_tasks_blocked()
            assert "methods" in await call(servers["a"], "seen")
    assert len(heard) == 2 * 20  # of two callbacks
    assert len(changes) == 1
    [event] = events.of(Flooded, "a")
    assert (event.server, event.limit) == ("a", 20)
    [message] = [message for message in caplog.messages if "notifications" in message]
    said("flood of notifications", message)


async def test_a_flood_without_callbacks_has_another_remedy(
    caplog: pytest.LogCaptureFixture, said: Said, in_one_second: None
) -> None:
    flood = [log(number) for number in range(100)]
    with caplog.at_level(logging.WARNING, "mcp_actors"):
        async with open_servers(asking("legacy", limits=Limits(max_notifications=20))) as servers:
            await call(servers["a"], "tell", notifications=flood)
            await wait_all_tasks_blocked()
    said("flood of notifications without callbacks", caplog.messages[0])
