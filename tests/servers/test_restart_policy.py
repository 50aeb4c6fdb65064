"""When a server is started again, after how long, and when no more.

The delays are measured on a mock clock, with a server in this process that cannot be entered; what a restart means for
a process is shown on real ones.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import Backoff, RestartPolicy, ServerUnavailable, open_servers
from mcp_actors.kernel import Event, GaveUp, Restarting, Starting

from .groups import AT_ONCE, BOUND, NEVER, Events, Fault, command_with, crash, pids_in, reach, server, shell, state
from .links import text_of
from .processes import state_of

EXACT = Backoff(first=0, initial=1, maximum=60, factor=2)


async def test_the_delays_of_the_default_policy(autojump_clock: MockClock) -> None:
    """S2-34: five attempts, after 0, 1, 2, 4 and 8 seconds, each up to a tenth longer; then no more.

    S2-35: exhausted means ``failed``, with the reason.
    """
    fault, events = Fault(), Events()
    fault.on_enter = RuntimeError("the database is away")
    async with open_servers(fault.config(), observers=[events]) as group:
        assert await group["here"].wait_state("failed") == "failed"
        assert "the database is away" in str(group.errors["here"])
        assert group["here"].config == fault.config()
    restarts = events.of(Restarting)
    assert [event.attempt for event in restarts] == [1, 2, 3, 4, 5]
    for event, delay in zip(restarts, (0, 1, 2, 4, 8), strict=True):
        assert delay <= event.delay <= delay * 1.1
    begun = [event.time for event in events.of(Starting, "here")]
    waited = [later - sooner for sooner, later in pairwise(begun)]
    assert waited == pytest.approx([event.delay for event in restarts])
    assert len({event.delay / 2 ** (event.attempt - 2) for event in restarts[1:]}) > 1, "no jitter"


async def test_a_delay_grows_no_longer_than_a_minute(autojump_clock: MockClock) -> None:
    """S2-34: the cap."""
    fault, events = Fault(), Events()
    fault.on_enter = RuntimeError("no")
    policy = RestartPolicy(max_restarts=10, backoff=EXACT)
    async with open_servers(fault.config(restarts=policy), observers=[events]) as group:
        await group["here"].wait_state("failed")
    assert [event.delay for event in events.of(Restarting)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_resources_of_an_attempt_are_gone_before_the_next_one_begins(tmp_path: Path) -> None:
    """S2-34: old resources are closed before each attempt."""
    pids, still_there = tmp_path / "pids", list[str]()

    def look(event: Event) -> None:
        if isinstance(event, Starting) and event.actor == "a":
            still_there.extend(state_of(pid) for pid in pids_in(pids))

    config = server(
        "a", "--error-on-list", "--pid-file", str(pids), restarts=RestartPolicy(max_restarts=2, backoff=Backoff())
    )
    async with open_servers(config, observers=[look]) as group:
        await reach(group, "a", "failed")
    assert still_there == ["gone"] * (0 + 1 + 2)
    assert len(pids_in(pids)) == 3


async def test_serving_for_long_enough_clears_the_back_off_and_the_budget(mock_clock: MockClock) -> None:
    """S2-35: lasting success resets; success that does not last does not."""
    events = Events()
    policy = RestartPolicy(max_restarts=2, reset_after=60, backoff=Backoff())
    async with open_servers(server("a", restarts=policy), observers=[events]) as group:
        for seconds in (59.0, 59.0, 61.0, 0.0):
            mock_clock.jump(seconds)
            await crash(group, "a")
            await reach(group, "a", "ready", "failed")
        assert state(group, "a") == "ready"
        assert [event.attempt for event in events.of(Restarting)] == [1, 2, 1, 2]
        await crash(group, "a")
        assert state(group, "a") == "failed"
        assert "killed by SIGKILL" in str(group.errors["a"])


async def test_a_server_that_is_given_up_can_be_brought_back(tmp_path: Path) -> None:
    """A-12: by ``start``, ``restart`` and ``reconnect``, each with a fresh budget.

    S2-35: the configuration is kept for that.
    """
    count = tmp_path / "count"
    policy = RestartPolicy(max_restarts=1, backoff=Backoff())
    async with open_servers(server("a", "--fail-first", "2", str(count), restarts=policy)) as group:
        for revive in (group["a"].start, group["a"].restart, group.reconnect):
            await reach(group, "a", "failed")
            with pytest.raises(ServerUnavailable):
                await group["a"].call_tool("pid")
            count.write_text("1")
            events = Events()
            group._hub.add(events)
            await revive()
            await reach(group, "a", "ready")
            assert len(events.of(Restarting, "a")) == 1
            assert text_of(await group["a"].call_tool("echo", {"text": "back"})) == "back"
            count.write_text("0")
            await crash(group, "a")


async def test_restarting_can_be_disabled_for_a_server_that_does_not_start() -> None:
    """S2-36: with ``max_restarts=0`` it is tried once."""
    events = Events()
    async with open_servers(server("a", "--exit-at-start", "3", restarts=NEVER), observers=[events]) as group:
        assert state(group, "a") == "failed"
    assert len(events.of(Starting, "a")) == 1
    assert len(events.of(GaveUp, "a")) == 1
    assert not events.of(Restarting)


async def test_restarting_can_be_disabled_for_a_server_that_dies() -> None:
    """S2-36: with ``max_restarts=0`` its first end is its last, and the error knows how it ended."""
    async with open_servers(server("a", restarts=NEVER)) as group:
        await crash(group, "a")
        assert state(group, "a") == "failed"
        assert str(group.errors["a"]) == "server 'a': its process was killed by SIGKILL while it was connected"
        assert group.status()["a"].last_error is group.errors["a"]


async def test_a_server_that_comes_up_late_is_connected_in_the_background(tmp_path: Path) -> None:
    """S1-11: what failed at the start is tried again while the others serve."""
    config = server("a", "--fail-first", "3", str(tmp_path / "count"), restarts=AT_ONCE)
    async with open_servers(server("b"), config) as group:
        await group.wait_ready()
        assert group.active == group.configured
        assert dict(group.errors) == {}
        assert group["a"].statistics().incarnation == 4


async def test_a_server_that_always_fails_does_not_disturb_the_others() -> None:
    """A-10: while one is started again and again, the other answers."""
    events = Events()
    async with open_servers(
        server("bad", "--exit-at-start", "3", restarts=AT_ONCE), server("good"), observers=[events]
    ) as group:
        while len(events.of(Starting, "bad")) < 5:
            with trio.fail_after(BOUND):
                assert text_of(await group["good"].call_tool("echo", {"text": "x"})) == "x"
        assert group["good"].statistics().incarnation == 1


async def test_a_failed_clean_up_keeps_nothing_from_being_started_afresh() -> None:
    """S1-08: what the old connection raised at its end is an event; the new one serves, and nothing old is shown."""
    fault = Fault()
    async with open_servers(fault.config()) as group:
        before = group["here"].info
        fault.on_exit = RuntimeError("no way out")
        await group["here"].stop()
        assert state(group, "here") == "stopped"
        assert len(group.tools) == 0
        assert dict(group.errors) == {}
        fault.server.add_tool(lambda: "two", name="two", description="Two.")
        await group["here"].start()
        assert state(group, "here") == "ready"
        assert [tool.name for tool in group.tools] == ["ping", "two"]
        assert text_of(await group["here"].call_tool("two")) == "two"
        assert group["here"].info is not before
        assert group["here"].statistics().failures == 0


async def test_a_process_that_must_be_killed_does_not_keep_its_server_from_being_started_afresh() -> None:
    """S1-08: for a process too: no stale pid, no stale session."""
    stubborn = server("a", "--ignore-eof", "--ignore-sigterm", stop_timeout=0.1)
    async with open_servers(stubborn) as group:
        pid = group["a"].statistics().pid
        await group["a"].stop()
        assert group["a"].statistics().pid is None
        assert state_of(pid) == "gone"
        await group["a"].start()
        assert text_of(await group["a"].call_tool("pid")) == str(group["a"].statistics().pid) != str(pid)


async def test_the_exit_code_of_a_server_that_dies_while_it_serves_is_in_the_errors(tmp_path: Path) -> None:
    """S2-10: the error of a server that is given up has its last words."""
    once = tmp_path / "once"
    config = shell(
        "a",
        f"[ -e '{once}' ] || {{ echo x > '{once}'; exec {command_with()}; }}; echo no space left >&2; exit 5",
        restarts=RestartPolicy(max_restarts=1, backoff=Backoff()),
    )
    async with open_servers(config) as group:
        await crash(group, "a")
        await reach(group, "a", "failed")
        assert "code 5" in str(group.errors["a"])
        assert "no space left" in str(group.errors["a"])
