"""Servers that neither answer nor die: how long callers wait for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ConnectionLost, ServerUnavailable, open_servers
from tests.idle_clock import IdleClock

from .fleet import PROMPT, STARTED, Outcome, calls, http_config, http_server, kill, pid_of
from .groups import AT_ONCE, BOUND, LATER, overtaken, server
from .links import MARGIN, text_of
from .processes import eventually, freeze, state_of

STOP = 0.5
LONG_STOP = 60.0
"""Longer than a loaded machine takes to leave at once; the clock skips it."""

LARGE = {"text": "x" * 200_000}


async def test_a_caller_leaves_a_frozen_server_at_once_and_so_does_the_group(idle_clock: IdleClock) -> None:
    """S4-21: close is bounded; only SIGKILL reaches this server."""
    async with open_servers(server("a", stop_timeout=LONG_STOP)) as servers:
        pid = pid_of(servers["a"])
        await freeze(pid)
        began = trio.current_time()
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
            await servers["a"].call_tool("pid")
        left = trio.current_time()
        assert left - began < PROMPT
    assert trio.current_time() - left < LONG_STOP + MARGIN
    assert state_of(pid) == "gone"


@pytest.mark.own_way
async def test_requests_that_fill_the_pipe_are_lost_at_once_with_the_server(idle_clock: IdleClock) -> None:
    """A-03: whether they were written or half written; the next connection serves those that wait for room."""
    async with open_servers(server("a", restarts=AT_ONCE, stop_timeout=STOP)) as servers:
        await freeze(pid_of(servers["a"]))
        async with calls(30, servers["a"].call_tool, "echo", LARGE) as outcomes:
            await wait_all_tasks_blocked()
            statistics = servers["a"].statistics()
            assert (statistics.in_flight, statistics.queued) == (1, 29)
            cancelled = trio.current_time()
            with trio.move_on_after(0.05):
                await servers["a"].call_tool("echo", LARGE)
            assert trio.current_time() - cancelled < PROMPT
            killed, _ = trio.current_time(), kill(servers["a"])
        lost = [outcome for outcome in outcomes if outcome.error is not None]
        assert [type(outcome.error) for outcome in lost] == [ConnectionLost]
        assert lost[0].at - killed < PROMPT
        with trio.fail_after(BOUND):
            assert text_of(await servers["a"].call_tool("echo", LARGE)) == LARGE["text"]


async def test_a_restart_of_a_frozen_server_loses_what_was_sent_before_it_waits_for_its_end(
    idle_clock: IdleClock,
) -> None:
    """A-03: no caller waits for a slow close, and the restart does not wait for answers of a suspended process."""
    async with open_servers(server("a", stop_timeout=LONG_STOP)) as servers:
        pid = pid_of(servers["a"])
        await freeze(pid)
        async with calls(3, servers["a"].call_tool, "pid") as outcomes:
            await wait_all_tasks_blocked()
            asked = trio.current_time()
            await servers["a"].restart()
            back = trio.current_time()
        assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 3
        assert 0.5 * LONG_STOP < back - asked < LONG_STOP + STARTED
        assert max(outcome.at for outcome in outcomes) - asked < PROMPT
        assert state_of(pid) == "gone"


async def test_a_restart_goes_on_though_its_caller_has_left(idle_clock: IdleClock) -> None:
    """A server that was closed to be connected anew is not forgotten half-way."""
    async with open_servers(server("a", stop_timeout=STOP)) as servers:
        pid = pid_of(servers["a"])
        await freeze(pid)
        with trio.move_on_after(0.05) as patience:
            await servers["a"].restart()
        assert patience.cancelled_caught
        with trio.fail_after(STOP + MARGIN):
            assert int(text_of(await servers["a"].call_tool("pid"))) != pid


async def test_a_group_that_is_left_does_not_wait_for_a_reconnect_that_hangs(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """S4-21: a change of what runs is carried through, but not beyond the end of the group."""
    flags = ("--fail-first", "1", str(tmp_path / "tries"), "--never-answer")
    reconnect, call = Outcome(), Outcome()
    async with trio.open_nursery() as outer:
        config = server("a", *flags, restarts=LATER, stop_timeout=STOP, connect_timeout=30.0)
        async with open_servers(config, server("b")) as servers:
            outer.start_soon(reconnect.of, servers.reconnect)
            outer.start_soon(call.of, servers["a"].call_tool, "pid")
            await servers["a"].wait_state("connecting")
            left = trio.current_time()
        assert trio.current_time() - left < STOP + MARGIN
    assert isinstance(reconnect.error, ServerUnavailable)
    assert isinstance(call.error, ServerUnavailable)
    assert reconnect.at - left < PROMPT


async def test_a_stop_overtakes_a_reconnect_that_hangs_and_the_last_call_wins(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """S4-21: stopping is bounded by the server's own stop, whatever else is being changed."""
    flags = ("--fail-first", "1", str(tmp_path / "tries"), "--never-answer")
    config = server("a", *flags, restarts=LATER, stop_timeout=STOP, connect_timeout=30.0)
    async with open_servers(config, server("b"), server("c")) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(overtaken, servers.reconnect)
        await servers["a"].wait_state("connecting")
        nursery.start_soon(overtaken, servers.reconnect, "a", "b")
        # Both are being connected anew when they are stopped: a hangs, and b may be faster or slower than that.
        await eventually(lambda: [servers[name].statistics().incarnation for name in ("a", "b")] == [3, 2])
        asked = trio.current_time()
        await servers["c"].restart()
        await servers["b"].stop()
        await servers["a"].stop()
        assert trio.current_time() - asked < STOP + MARGIN
        assert (servers["a"].state, servers["b"].state) == ("stopped", "stopped")
        a, b, c = (ref.statistics().incarnation for ref in servers.configured)
        assert (a, b) == (3, 2)
        assert c in (2, 3)  # its restart may share the connection of the reconnect
        assert servers["b"].state == "stopped"


async def test_a_frozen_http_server_delays_no_caller(idle_clock: IdleClock) -> None:
    """S4-21: ending a session takes a bounded time if the server does not react."""
    with http_server() as (port, process):
        async with open_servers(http_config(port, stop_timeout=STOP, protocol="legacy")) as servers:
            await servers["web"].call_tool("echo", {"text": "x"})
            await freeze(process.pid)
            with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
                await servers["web"].call_tool("echo", {"text": "x"})
            left = trio.current_time()
        assert 0.5 * STOP < trio.current_time() - left < STOP + MARGIN
