"""The catalogue follows a server whose tools change, and never shows an older list after a newer one."""

from __future__ import annotations

import logging

import pytest
import trio
from mcp import MCPError
from mcp.types import INTERNAL_ERROR
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ServerGroup, ToolsChanged, open_servers
from mcp_actors.kernel import Event
from mcp_actors.servers._catalog import STALE_GRACE

from .changing import Changing, Era, shown, wait_shown
from .groups import Events
from .links import text_of


@pytest.fixture(params=["legacy", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> Era:
    """Notices come by themselves in the one era, and over a stream that is asked for in the other."""
    era: Era = request.param
    return era


async def test_a_change_appears_by_itself(era: Era, autojump_clock: MockClock) -> None:
    """A-20: after a notification the list is requested, and an event has the added and removed tools."""
    here, events = Changing(era), Events()
    async with open_servers(here.config(), observers=[events]) as group:
        before = group.tools
        await here.change()
        await wait_shown(group, "v2", "same")
        assert [tool.name for tool in before] == ["v1", "same"]
        first, second = events.of(ToolsChanged)
        assert (first.added, first.removed, first.changed) == (("v1", "same"), (), ())
        assert (second.tools, second.added, second.removed, second.changed) == (("v2", "same"), ("v2",), ("v1",), ())
        assert text_of(await group.call_tool("mcp__here__v2")) == "v2"


async def test_a_burst_of_notices_refreshes_once(era: Era, autojump_clock: MockClock) -> None:
    """A-20: some servers say the same five times at once."""
    here = Changing(era)
    async with open_servers(here.config()) as group:
        await trio.sleep(10)
        asked = here.asked
        await here.change(notices=5)
        await wait_shown(group, "v2", "same")
        await trio.sleep(60)
        assert here.asked == asked + 1


async def test_no_list_is_requested_while_nothing_changes(era: Era, autojump_clock: MockClock) -> None:
    """S4-09, B-41: the list of tools is kept until the server says that it has changed."""
    here = Changing(era)
    async with open_servers(here.config()) as group:
        for _ in range(10):
            await group.call_tool("mcp__here__same")
            await trio.sleep(1000)
        assert here.asked == 1


async def test_a_list_that_a_notice_has_overtaken_is_not_shown(era: Era, autojump_clock: MockClock) -> None:
    """A-20: the answer to a refresh that was under way when another notice came."""
    here, events, slow = Changing(era), Events(), trio.Event()
    async with open_servers(here.config(), observers=[events]) as group:
        here.answers = [slow]
        await here.change()
        await trio.sleep(1)
        assert here.asked == 2
        await here.change()
        await wait_all_tasks_blocked()
        slow.set()
        await wait_shown(group, "v3", "same")
        assert [event.tools[0] for event in events.of(ToolsChanged)] == ["v1", "v3"]
        assert here.asked == 3


async def test_a_list_requested_by_a_caller_is_not_shown_either_if_it_was_overtaken(
    era: Era, autojump_clock: MockClock
) -> None:
    """A-20: the caller gets the answer nevertheless."""
    here, events, slow = Changing(era), Events(), trio.Event()
    async with open_servers(here.config(), observers=[events]) as group, trio.open_nursery() as nursery:
        here.answers = [slow]
        here.version = 2
        answers: list[str] = []

        async def ask() -> None:
            answers.extend(tool.name for tool in await group["here"].list_tools())

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        await here.change()
        await wait_all_tasks_blocked()
        slow.set()
        await wait_shown(group, "v3", "same")
        assert answers == ["v2", "same"]
        assert [event.tools[0] for event in events.of(ToolsChanged)] == ["v1", "v3"]


async def test_the_later_of_two_crossed_answers_is_not_taken_for_the_newer_one(
    autojump_clock: MockClock,
) -> None:
    """A-20: an answer that took longer is not newer."""
    here, events, slow = Changing(), Events(), trio.Event()
    async with open_servers(here.config(), observers=[events]) as group, trio.open_nursery() as nursery:
        here.answers = [slow]
        nursery.start_soon(group["here"].list_tools)
        await wait_all_tasks_blocked()
        here.version = 2  # and no notice
        await group["here"].list_tools()
        assert shown(group) == ["v2", "same"]
        slow.set()
        await trio.sleep(60)
        assert [event.tools[0] for event in events.of(ToolsChanged)] == ["v1", "v2"]


async def test_a_third_answer_decides_between_two_crossed_ones_that_differ(autojump_clock: MockClock) -> None:
    """A-20: nor is it older."""
    here, slow = Changing(), trio.Event()
    async with open_servers(here.config()) as group, trio.open_nursery() as nursery:
        here.before_reading = slow
        nursery.start_soon(group["here"].list_tools)
        await wait_all_tasks_blocked()
        await group["here"].list_tools()
        here.version = 2  # and no notice
        slow.set()
        await wait_shown(group, "v2", "same")
        assert here.asked == 4


async def test_a_server_that_changes_without_pause_is_followed_all_the_same(
    era: Era, autojump_clock: MockClock
) -> None:
    """A-20: every answer is overtaken, so one is shown now and then, and the server is not asked without pause."""
    here, events = Changing(era), Events()
    async with open_servers(here.config(), observers=[events]) as group:
        for _ in range(600):
            slow = trio.Event()
            here.answers = [slow] * 2
            await here.change()
            await trio.sleep(0.05)
            await here.change()
            await trio.sleep(0.05)
            slow.set()
        versions = [int(event.tools[0][1:]) for event in events.of(ToolsChanged)]
        assert versions == sorted(versions)
        assert len(versions) >= 60 / STALE_GRACE / 2
        assert here.asked <= 120
        await wait_shown(group, f"v{here.version}", "same")


async def test_a_refresh_that_fails_keeps_the_old_list_and_is_tried_again(
    era: Era, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """A-20: with growing pauses, and one line in the log."""
    here = Changing(era)
    async with open_servers(here.config()) as group:
        here.answers = [MCPError(INTERNAL_ERROR, "the list is lost")] * 5
        await here.change()
        await trio.sleep(2)
        assert shown(group) == ["v1", "same"]
        assert group["here"].state == "ready"
        await wait_shown(group, "v2", "same")
        assert here.asked == 7
        assert 1 + 2 + 4 + 8 + 16 < trio.current_time() < 45
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith(
        "server 'here': its tools may have changed, but tools/list failed: the list is lost; the catalogue keeps the "
        "last list, and the request is repeated in 1"
    )


async def test_a_refresh_that_is_never_answered_is_given_up_although_requests_have_no_bound(
    era: Era, autojump_clock: MockClock
) -> None:
    here = Changing(era)
    async with open_servers(here.config(request_timeout=None, connect_timeout=20)) as group:
        here.answers = [trio.Event()]
        await here.change()
        await wait_shown(group, "v2", "same")
        assert 20 < trio.current_time() < 25


async def test_a_list_requested_by_a_caller_is_never_cached(era: Era, autojump_clock: MockClock) -> None:
    """S4-10: whatever the server says about how long an answer may be kept."""
    here = Changing(era)
    async with open_servers(here.config()) as group:
        for _ in range(3):
            await group["here"].list_tools()
        here.version = 2  # and no notice
        assert [tool.name for tool in await group["here"].list_tools()] == ["v2", "same"]
        assert shown(group) == ["v2", "same"]
        assert here.asked == 5


async def test_a_refresh_waits_for_its_turn_on_a_session_that_is_serialized(
    era: Era, autojump_clock: MockClock
) -> None:
    """S1-17: a request of the catalogue counts as any other."""
    here, events = Changing(era), Events()
    free = trio.Event()
    async with (
        open_servers(here.config(max_in_flight=1), observers=[events]) as group,
        trio.open_nursery() as nursery,
    ):
        here.until = free
        nursery.start_soon(group.call_tool, "mcp__here__same")
        await wait_all_tasks_blocked()
        await here.change()
        await trio.sleep(10)
        assert here.asked == 1
        free.set()
        await wait_shown(group, "v2", "same")


@pytest.mark.parametrize("slots", [1, 64])
async def test_a_listener_to_a_change_may_call_the_server(era: Era, slots: int, autojump_clock: MockClock) -> None:
    """A-19: a reader of events, and a task that an observer starts, both while the refresh has just ended."""
    here = Changing(era)
    called: list[str] = []
    async with trio.open_nursery() as nursery:

        async def call(group: ServerGroup, name: str) -> None:
            called.append(text_of(await group.call_tool(name)))

        def observe(event: Event) -> None:
            if isinstance(event, ToolsChanged) and event.removed:
                nursery.start_soon(call, group, "mcp__here__v2")

        async with open_servers(here.config(max_in_flight=slots), observers=[observe]) as group:
            async with group.watch_events() as events:
                await here.change()
                with trio.fail_after(600):  # no notification of the change
                    while not isinstance(await anext(events), ToolsChanged):
                        pass
                await call(group, "mcp__here__same")
                assert [tool.name for tool in await group["here"].list_tools()] == ["v2", "same"]
            await wait_all_tasks_blocked()
    assert sorted(called) == ["same", "v2"]


async def test_a_change_while_the_connection_begins_is_not_missed(era: Era, autojump_clock: MockClock) -> None:
    here, slow = Changing(era), trio.Event()
    here.answers = [slow]

    async def change() -> None:
        await wait_all_tasks_blocked()
        await here.change(notices=5)
        slow.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        async with open_servers(here.config()) as group:
            await wait_shown(group, "v2", "same")
            await trio.sleep(60)
            assert here.asked == 2


async def test_notices_of_a_connection_that_is_over_refresh_nothing(era: Era, autojump_clock: MockClock) -> None:
    """A-22, S1-23: the new connection's own list is what counts."""
    here = Changing(era)
    async with open_servers(here.config()) as group:
        await here.change()  # the refresh is about to begin
        await group["here"].restart()
        assert shown(group) == ["v2", "same"]
        await trio.sleep(60)
        assert here.asked == 2


async def test_a_server_that_gives_notice_after_each_answer_is_not_asked_without_pause(
    era: Era, autojump_clock: MockClock
) -> None:
    """A-20: the less often the longer nothing is new. A real change begins this anew."""
    here, answering = Changing(era), trio.Event()

    async def answer() -> None:
        await trio.lowlevel.checkpoint()
        answering.set()

    async def follow() -> None:
        nonlocal answering
        while True:
            await answering.wait()
            answering = trio.Event()
            await trio.sleep(0.01)
            await here.notify()

    async with open_servers(here.config()) as group, trio.open_nursery() as nursery:
        here.before_answer = answer
        nursery.start_soon(follow)
        await here.notify()
        await trio.sleep(3600)
        assert 60 < here.asked < 80
        here.version = 2
        await wait_shown(group, "v2", "same", within=61)
        soon = here.asked
        await trio.sleep(5)
        assert here.asked - soon >= 4
        nursery.cancel_scope.cancel("it was told often enough")


async def test_a_server_that_gives_notice_before_each_answer_is_not_asked_without_pause_either(
    era: Era, autojump_clock: MockClock
) -> None:
    """A-20: every answer is overtaken, and is what the one before was."""
    here = Changing(era)
    async with open_servers(here.config()) as group:
        here.before_answer = here.notify
        await here.notify()
        await trio.sleep(3600)
        assert 60 < here.asked < 80
        here.before_answer = None
        await here.change()
        await wait_shown(group, "v2", "same", within=61)


async def test_a_server_that_has_been_silent_for_a_minute_is_asked_soon(era: Era, autojump_clock: MockClock) -> None:
    """A-20: however often it was asked in vain before."""
    here = Changing(era)
    async with open_servers(here.config()) as group:
        for _ in range(20):
            await here.notify()
            await trio.sleep(59)
        await trio.sleep(61)
        await here.change()
        await wait_shown(group, "v2", "same", within=1)


async def test_a_server_whose_list_takes_long_has_half_of_the_time_at_most(era: Era, autojump_clock: MockClock) -> None:
    here = Changing(era)

    async def answer() -> None:
        await trio.sleep(3)
        here.version += 1
        await here.notify()

    async with open_servers(here.config()):
        here.before_answer = answer
        await here.notify()
        await trio.sleep(600)
        assert here.asked <= 101


async def test_a_server_with_a_refresh_interval_is_asked_without_a_notice(era: Era, autojump_clock: MockClock) -> None:
    """S2-22: once per interval, from the last request on."""
    here = Changing(era)
    async with open_servers(here.config(refresh_interval=300)) as group:
        here.version = 2  # and no notice
        await trio.sleep(299)
        assert (shown(group), here.asked) == (["v1", "same"], 1)
        await trio.sleep(2)
        assert (shown(group), here.asked) == (["v2", "same"], 2)
        await here.change()
        await trio.sleep(299)
        assert (shown(group), here.asked) == (["v3", "same"], 3)
        await trio.sleep(3000)
        assert here.asked == 13


async def test_a_request_for_the_interval_that_fails_is_repeated_soon(era: Era, autojump_clock: MockClock) -> None:
    """S2-22."""
    here = Changing(era)
    async with open_servers(here.config(refresh_interval=300)) as group:
        here.version, here.answers = 2, [MCPError(INTERNAL_ERROR, "the list is lost")]
        await trio.sleep(303)
        assert (shown(group), here.asked) == (["v2", "same"], 3)


async def test_a_refresh_interval_delays_no_notice(era: Era, autojump_clock: MockClock) -> None:
    """S2-22: however often the server was asked in vain."""
    here = Changing(era)
    async with open_servers(here.config(refresh_interval=5)) as group:
        await trio.sleep(58)
        await here.change()
        await wait_shown(group, "v2", "same", within=1)


async def test_a_server_whose_list_is_requested_again_becomes_idle_all_the_same(autojump_clock: MockClock) -> None:
    """S2-22: requests of our own do not count as use, whether for the interval or after a notice."""
    here = Changing()
    async with open_servers(here.config(refresh_interval=10, idle_timeout=60)) as group:
        await trio.sleep(45)
        await here.change()
        await trio.sleep(22)
        assert (group["here"].state, shown(group)) == ("pending", ["v2", "same"])
        asked = here.asked
        await trio.sleep(1000)
        assert here.asked == asked
