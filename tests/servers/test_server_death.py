"""Servers that die or cannot answer: how that is noticed, and what is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    ConnectFailed,
    ConnectionLost,
    LimitExceeded,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    open_servers,
)
from mcp_actors.kernel import EventStream
from mcp_actors.servers import ServerGroup, StateChanged
from tests.idle_clock import IdleClock

from .fleet import PROMPT, Outcome, calls, kill, pid_of, wait_calls
from .groups import AT_ONCE, BOUND, NEVER, pids_in, server
from .links import text_of, wait_for_line
from .processes import group_members, wait_ended
from .scripted_server import command


async def served_pid(servers: ServerGroup, name: str = "a") -> int:
    return int(text_of(await servers[name].call_tool("pid")))


async def next_change(events: EventStream) -> StateChanged:
    while not isinstance(event := await anext(events), StateChanged):
        pass
    return event


async def test_the_death_of_an_idle_server_is_noticed_without_a_call() -> None:
    """S3-17, A-07: the connection's own end is the signal; the next call answers from a new process."""
    async with open_servers(server("a", restarts=AT_ONCE)) as servers, servers.watch_events() as events:
        before = trio.current_time()
        pid = kill(servers["a"])
        with trio.fail_after(BOUND):
            event = await next_change(events)
            assert event.time - before < PROMPT
            assert (event.server, event.old, event.new) == ("a", "ready", "backoff")
            assert event.reason == "its process was killed by SIGKILL while it was connected"
            assert await served_pid(servers) != pid
        assert servers["a"].statistics().restarts == 1


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "SIGKILL"),
        (signal.SIGSEGV, "SIGSEGV"),
        # Most real-time signals have no name.
        pytest.param(40, "signal 40", marks=pytest.mark.skipif(sys.platform != "linux", reason="has no such signal")),
    ],
)
async def test_the_words_for_a_death_name_the_signal_once_it_is_known(number: int, words: str) -> None:
    """A-07: what is wrong can be read while the server is down."""
    async with open_servers(server("a", restarts=NEVER)) as servers:
        os.kill(pid_of(servers["a"]), number)
        with trio.fail_after(BOUND):
            await servers["a"].wait_state("failed")
        assert servers.connected == servers.active == ()
        assert f"killed by {words} while it was connected" in str(servers.errors["a"])


async def test_a_lost_call_has_a_note_of_what_its_process_has_written_last() -> None:
    """It is in the pipe before the process ends; the text of the error, which others may see, does not have it."""
    lines = [f"line {number}" for number in range(12)]
    note = "\n".join(
        ["its stderr ends with (servers['a'].stderr_tail has more until it is started again):", *lines[2:]]
    )
    for written, notes in (("\n".join(lines), [note]), ("", [])):
        async with open_servers(server("a", "--stderr", f"{written}\n", restarts=NEVER)) as servers:
            with pytest.raises(ConnectionLost) as caught:
                await servers["a"].call_tool("crash", {"code": 3})
            assert str(caught.value).endswith("send it again only if a second time does no harm")
            assert getattr(caught.value, "__notes__", []) == notes
            assert servers["a"].stderr_tail.strip() == written


async def test_an_answer_over_the_limit_is_not_blamed_on_the_process() -> None:
    program, args = command()
    config = ServerConfig("a", Stdio(program, args, max_line_bytes=10_000), restarts=NEVER)
    async with open_servers(config) as servers:
        with pytest.raises(LimitExceeded, match="max_line_bytes") as caught:
            await servers["a"].call_tool("echo", {"text": "x" * 20_000})
        assert "closed its stdout" not in str(caught.value)
        assert text_of(await servers["a"].call_tool("echo", {"text": "short"})) == "short"


async def test_a_server_that_leaves_right_after_its_tool_list_is_never_taken_for_ready() -> None:
    """A-07: the end of stdout may come in the very step in which the connect succeeds."""
    for _ in range(10):
        async with open_servers(server("a", "--die-after-list", restarts=NEVER)) as servers:
            with trio.fail_after(BOUND):
                await servers["a"].wait_state("failed")
            assert isinstance(servers.errors["a"], (ConnectFailed, ConnectionLost))
            assert "exited with code 8" in str(servers.errors["a"])


async def test_a_call_in_flight_at_the_kill_is_lost_at_once_and_a_queued_one_is_answered(tmp_path: Path) -> None:
    """A-03, A-09: no pending request hangs, and the one that was with the server is not sent again."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), restarts=AT_ONCE, max_in_flight=1)) as servers:
        ref, lost, queued = servers["a"], Outcome(), Outcome()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost.of, ref.call_tool, "sleep", {"seconds": 600})
            await wait_calls(log, 1)
            nursery.start_soon(queued.of, ref.call_tool, "pid")
            await wait_all_tasks_blocked()
            assert (ref.statistics().in_flight, ref.statistics().queued) == (1, 1)
            killed, pid = trio.current_time(), kill(ref)
        assert isinstance(lost.error, ConnectionLost)
        assert lost.error.outcome == "unknown"
        assert lost.at - killed < PROMPT
        assert int(text_of(queued.value)) not in (pid, 0)
        assert log.read_text().count("tools/call sleep") == log.read_text().count("tools/call pid") == 1


async def test_requests_that_wait_at_the_kill_are_served_by_the_next_process(tmp_path: Path) -> None:
    """A-03: in the mailbox or, as it is full, before it; of fifty-one requests only the one in flight is lost."""
    log, lost = tmp_path / "log", Outcome()
    config = server("a", "--log-file", str(log), restarts=AT_ONCE, max_in_flight=1, mailbox_size=2)
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(lost.of, servers["a"].call_tool, "sleep", {"seconds": 600})
        await wait_calls(log, 1)
        async with calls(50, servers["a"].call_tool, "pid") as outcomes:
            await wait_all_tasks_blocked()
            kill(servers["a"])
        assert {int(text_of(outcome.value)) for outcome in outcomes} == {pid_of(servers["a"])}
        assert isinstance(lost.error, ConnectionLost)


async def test_a_side_effect_happens_once_though_its_answer_is_lost(tmp_path: Path) -> None:
    """A-09: a call that was with the server is never sent a second time by itself."""
    count, log = tmp_path / "count", tmp_path / "log"
    flags = ("--count-file", str(count), "--log-file", str(log), "--die-in", "count")
    async with open_servers(server("a", *flags, restarts=AT_ONCE)) as servers:
        with pytest.raises(ConnectionLost):
            await servers["a"].call_tool("count")
        with trio.fail_after(BOUND):
            await servers["a"].wait_state("ready")
            await servers["a"].call_tool("echo", {"text": "still here"})
    assert count.read_text() == "1"
    assert log.read_text().count("tools/call count") == 1


async def test_fifty_calls_in_flight_end_in_fifty_losses(tmp_path: Path) -> None:
    """A-03: each caller has exactly one outcome, at once, and an exception object of its own."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), restarts=AT_ONCE)) as servers:
        async with calls(50, servers["a"].call_tool, "sleep", {"seconds": 600}) as outcomes:
            await wait_calls(log, 50)
            killed, _ = trio.current_time(), kill(servers["a"])
        errors = [outcome.error for outcome in outcomes]
        assert all(isinstance(error, ConnectionLost) and error.outcome == "unknown" for error in errors)
        assert len(set(map(id, errors))) == 50
        assert max(outcome.at for outcome in outcomes) - killed < PROMPT
        assert servers["a"].statistics().in_flight == 0


async def test_the_tools_of_the_others_stay_when_a_server_fails() -> None:
    """S3-20: the failure of one server removes only its own tools."""
    async with open_servers(server("a", restarts=NEVER), server("b", restarts=NEVER)) as servers:
        number, pid = len(servers.tools), pid_of(servers["b"])
        kill(servers["a"])
        await servers["a"].wait_state("failed")
        assert {tool.server for tool in servers.tools} == {"b"}
        assert len(servers.tools) == number / 2
        assert await served_pid(servers, "b") == pid


async def test_the_calls_of_the_others_go_on_when_a_server_dies(tmp_path: Path) -> None:
    """A-04: no caller takes the death of a server for a cancellation."""
    log = tmp_path / "log"
    async with open_servers(server("a", restarts=AT_ONCE), server("b", "--log-file", str(log))) as servers:
        async with calls(5, servers["b"].call_tool, "sleep", {"seconds": 0.3}) as outcomes:
            await wait_calls(log, 5)
            kill(servers["a"])
        assert [text_of(outcome.value) for outcome in outcomes] == ["slept 0.3"] * 5


async def test_a_server_that_closes_its_stdout_and_lives_is_lost_and_ended(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """A-07: a server that cannot answer is lost, and its process is stopped."""
    pids = tmp_path / "pids"
    flags = ("--close-stdout", "--ignore-eof", "--pid-file", str(pids))
    async with open_servers(server("a", *flags, restarts=NEVER, stop_timeout=0.5)) as servers:
        with pytest.raises(ConnectionLost):
            await servers["a"].call_tool("echo", {"text": "x"})
        with trio.fail_after(BOUND):
            await servers["a"].wait_state("failed")
        assert "closed its stdout" in str(servers.errors["a"])
        await wait_ended(pids_in(pids))


async def test_children_of_a_killed_server_are_killed_too(tmp_path: Path) -> None:
    """A-08: a server that is killed leaves no grandchild."""
    pids = tmp_path / "pids"
    async with open_servers(server("a", "--spawn-grandchild", "--pid-file", str(pids), restarts=NEVER)) as servers:
        leader, grandchild = pids_in(pids)
        assert set(group_members(leader)) == {leader, grandchild}
        kill(servers["a"])
        with trio.fail_after(BOUND):
            await servers["a"].wait_state("failed")
        await wait_ended([leader, grandchild])


async def test_children_of_a_server_are_killed_when_the_group_is_left(tmp_path: Path) -> None:
    """A-08: neither does one that was stopped."""
    pids = tmp_path / "pids"
    async with open_servers(server("a", "--spawn-grandchild", "--pid-file", str(pids))):
        assert len(pids_in(pids)) == 2
    await wait_ended(pids_in(pids))


async def test_a_server_that_fails_while_it_lists_its_tools_is_a_failed_connect() -> None:
    """A-10: what fails at list time is a bad server, its exit is in the error, and the others serve."""
    configs = [
        server("dies", "--die-on-list", restarts=NEVER),
        server("fine"),
        server("refuses", "--error-on-list", restarts=NEVER),
    ]
    async with open_servers(*configs) as servers:
        assert [ref.name for ref in servers.active] == ["fine"]
        died, refused = servers.errors["dies"], servers.errors["refuses"]
        assert isinstance(died, ConnectFailed)
        assert isinstance(refused, ConnectFailed)
        assert (died.phase, died.exit_code) == ("list_tools", 7)
        assert refused.phase == "list_tools"
        assert "the list of tools is lost" in str(refused)
        with pytest.raises(ServerUnavailable, match="exited with code 7"):
            await servers["dies"].call_tool("echo", {"text": "x"})


async def test_a_server_killed_while_it_is_asked_for_its_tools_is_tried_again(tmp_path: Path) -> None:
    """A-03: a connect does not hang when its server dies under it."""
    log, pids = tmp_path / "log", tmp_path / "pids"
    flags = ("--hang-on-list", "--log-file", str(log), "--pid-file", str(pids))
    config = server("a", *flags, restarts=NEVER, required=True)
    failure: list[tuple[BaseException, float]] = []

    async def open_it() -> None:
        with pytest.raises(ConnectFailed) as caught:
            async with open_servers(config):
                raise AssertionError("it cannot be ready")
        failure.append((caught.value, trio.current_time()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_it)
        await wait_for_line(log, "tools/list")
        [pid] = pids_in(pids)
        killed = trio.current_time()
        os.kill(pid, signal.SIGKILL)
    [(error, at)] = failure
    assert isinstance(error, ConnectFailed)
    assert (error.phase, error.exit_code) == ("list_tools", -signal.SIGKILL)
    assert at - killed < PROMPT
