"""Real servers that are connected and do not answer, and servers that only seem so."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
from mcp.types import INTERNAL_ERROR

from mcp_actors import (
    Backoff,
    ConnectionLost,
    HealthPolicy,
    RequestTimedOut,
    RetryPolicy,
    ServerConfig,
    Stdio,
    open_servers,
)
from mcp_actors.kernel import Started
from tests.idle_clock import IdleClock

from .fleet import calls, http_config, http_server, kill, pid_of, wait_calls
from .groups import AT_ONCE, BOUND, Events, command_with, lines_of, pids_in, reach, server, shell, state
from .links import text_of
from .processes import eventually, freeze, state_of, wait_ended
from .scripted_server import command

QUICK: Final = HealthPolicy(interval=10, timeout=10, silence=3600)
"""A frozen server is unhealthy after 40 s, and is restarted for nothing but being stopped.

All of these times are skipped by the clock: a busy machine would exceed times that a test can wait for.
"""

SILENT: Final = HealthPolicy(interval=10, timeout=10, silence=25)
"""… and restarted after 60 s."""

PATIENT: Final = HealthPolicy(interval=3600, timeout=20)
"""Nothing happens but for a reason."""

UNTIL_TIMEOUT: Final = 60.0
"""Seconds that a request would wait for its answer."""

STOP: Final = 0.5


def leaving_a_child(*flags: str) -> str:
    """Return a line of shell that is a server whose child holds its pipes, as that of a plain `subprocess.Popen` does.

    The child is older than the server here; what it holds is the same.
    """
    return f"exec 3<&0; sleep 600 <&3 & exec {command_with(*flags)}"


def wrapped(*flags: str) -> str:
    """Return a line of shell that is to a server what ``npx`` is: it starts it as a child, and waits for it."""
    return f"exec 3<&0; {command_with(*flags)} <&3 & wait"


async def test_a_server_that_was_killed_is_noticed_although_its_child_holds_its_pipes(idle_clock: IdleClock) -> None:
    """B-05: idle. There is no end of its stdout, and it would take a request all its time to find out."""
    events = Events()
    config = shell("a", leaving_a_child(), health=PATIENT, restarts=AT_ONCE, stop_timeout=STOP)
    async with open_servers(config, observers=[events]) as servers:
        pid = pid_of(servers["a"])
        async with servers.watch_events() as stream:
            os.kill(pid, signal.SIGKILL)
            with trio.fail_after(BOUND):
                while not (isinstance(event := await anext(stream), Started) and event.actor == "a"):
                    pass
        assert events.states("a")[2:] == ["unhealthy", "backoff", "connecting", "ready"]
        assert isinstance(servers["a"].statistics().last_error, ConnectionLost)
        assert "killed by SIGKILL" in str(servers["a"].statistics().last_error)
        assert state_of(pid) == "gone"


async def test_calls_to_a_killed_server_fail_before_their_timeout(idle_clock: IdleClock) -> None:
    """B-05: not idle. What is with it is lost, as nothing is left that could answer."""
    config = shell("a", leaving_a_child(), health=PATIENT, restarts=AT_ONCE, stop_timeout=STOP)
    async with open_servers(config) as servers:
        async with calls(3, servers["a"].call_tool, "sleep", {"seconds": 600}) as outcomes:
            await eventually(lambda: servers["a"].statistics().in_flight == 3)
            killed = trio.current_time()
            kill(servers["a"])
        assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 3
        assert max(outcome.at for outcome in outcomes) - killed < UNTIL_TIMEOUT


async def test_a_wrapper_that_exits_while_its_server_serves_on_is_not_mistaken() -> None:
    """B-05: the server answers, so nothing happens."""
    events = Events()
    config = shell("a", wrapped(), health=PATIENT, stop_timeout=STOP)
    async with open_servers(config, observers=[events]) as servers:
        wrapper, serving = pid_of(servers["a"]), int(text_of(await servers["a"].call_tool("pid")))
        assert wrapper != serving
        os.kill(wrapper, signal.SIGKILL)
        await eventually(lambda: servers["a"].statistics().health.last_check is not None)
        assert int(text_of(await servers["a"].call_tool("pid"))) == serving
        check = servers["a"].statistics().health.last_check
        assert check is not None
        assert check.status == "healthy"
        assert events.states("a") == ["connecting", "ready"]
    # It is not a child of this process, so stopping cannot wait for its end.
    await eventually(lambda: state_of(serving) != "running", within=BOUND)


@pytest.mark.parametrize("evidence", ["check", "call"])
async def test_a_server_that_dies_after_its_wrapper_is_noticed_at_the_first_evidence(
    evidence: str, idle_clock: IdleClock
) -> None:
    """C-06: a helper holds the pipes, so neither the exit of the server nor the end of its stdout is reported."""
    config = shell(
        "a",
        f"exec 3<&0; sleep 600 <&3 & {command_with()} <&3 & wait",
        health=HealthPolicy(interval=600),
        restarts=AT_ONCE,
        request_timeout=30,
        stop_timeout=STOP,
    )
    async with open_servers(config) as servers:
        wrapper, serving = pid_of(servers["a"]), int(text_of(await servers["a"].call_tool("pid")))
        os.kill(wrapper, signal.SIGKILL)
        await eventually(lambda: servers["a"].statistics().health.last_check is not None)
        await servers["a"].wait_ready()
        assert int(text_of(await servers["a"].call_tool("pid"))) == serving
        # The look for a successor follows the check, in a thread: the server must live until it is found.
        await eventually(lambda: servers["a"]._record.connections[0].health._has_successor)
        os.kill(serving, signal.SIGKILL)
        await wait_ended([serving])
        if evidence == "call":
            with pytest.raises((ConnectionLost, RequestTimedOut)):
                await servers["a"].call_tool("echo", {"text": "?"})
        else:
            assert (await servers["a"].check_health()).status == "unhealthy"
        known_at = trio.current_time()
        await reach(servers, "a", "backoff", "connecting")
        assert trio.current_time() - known_at < 15
        with trio.fail_after(BOUND):
            await servers["a"].wait_ready()


async def test_a_process_that_is_stopped_becomes_unhealthy_and_is_restarted_at_once(idle_clock: IdleClock) -> None:
    """B-06: in spite of a long silence that is allowed, and of a request that has time."""
    events = Events()
    config = server("a", health=QUICK, restarts=AT_ONCE, request_timeout=None, stop_timeout=STOP)
    async with open_servers(config, observers=[events]) as servers:
        pid = pid_of(servers["a"])
        async with calls(1, servers["a"].call_tool, "sleep", {"seconds": 600}) as outcomes:
            await eventually(lambda: servers["a"].statistics().in_flight == 1)
            await freeze(pid)
            await reach(servers, "a", "unhealthy")
            assert (servers.active, servers.connected) == ((), servers.configured)
            await reach(servers, "a", "backoff", "connecting")
        assert isinstance(outcomes[0].error, ConnectionLost)
        with trio.fail_after(BOUND):
            await servers["a"].wait_ready()
        assert pid_of(servers["a"]) != pid
        assert events.states("a")[2:5] == ["degraded", "unhealthy", "backoff"]
        assert state_of(pid) == "gone"


async def test_a_server_that_thaws_in_time_serves_on(idle_clock: IdleClock) -> None:
    """B-06, S2-25."""
    never = HealthPolicy(interval=10, timeout=10, restart_after=1000, fail_after=1000)
    async with open_servers(server("a", health=never)) as servers:
        pid = pid_of(servers["a"])
        await freeze(pid)
        await reach(servers, "a", "unhealthy")
        assert (await servers["a"].check_health()).status == "unhealthy"
        os.kill(pid, signal.SIGCONT)
        await reach(servers, "a", "ready")
        assert (await servers["a"].check_health()).status == "healthy"
        assert pid_of(servers["a"]) == pid


async def test_a_server_that_reads_nothing_any_more_is_restarted_after_its_silence(idle_clock: IdleClock) -> None:
    """B-06: it is not stopped, it only never answers."""
    events = Events()
    config = server("a", health=SILENT, restarts=AT_ONCE, stop_timeout=STOP)
    async with open_servers(config, observers=[events]) as servers:
        pid = pid_of(servers["a"])
        assert text_of(await servers["a"].call_tool("deaf")) == "what?"
        await reach(servers, "a", "backoff", "connecting")
        with trio.fail_after(BOUND):
            await servers["a"].wait_ready()
        assert pid_of(servers["a"]) != pid
        assert events.states("a")[2:5] == ["degraded", "unhealthy", "backoff"]


async def test_a_single_threaded_server_in_a_long_tool_is_left_alone(tmp_path: Path, idle_clock: IdleClock) -> None:
    """B-07: it answers nothing meanwhile, past its silence and far down the ladder."""
    events, over = Events(), tmp_path / "over"
    config = server("a", health=SILENT, restarts=AT_ONCE, request_timeout=None)
    async with open_servers(config, observers=[events]) as servers:
        async with calls(1, servers["a"].call_tool, "block", {"path": str(over)}) as outcomes:
            await reach(servers, "a", "unhealthy")
            await trio.sleep(10 * SILENT.timeout)
            assert servers["a"].statistics().health.failures > SILENT.restart_after
            over.touch()
        assert outcomes[0].error is None
        await reach(servers, "a", "ready")
    assert events.states("a")[2:5] == ["degraded", "unhealthy", "ready"]


async def test_a_wrapped_server_in_a_long_tool_outlives_its_wrapper(tmp_path: Path, idle_clock: IdleClock) -> None:
    """B-05, B-07: it cannot answer at the moment, and is what wrote all that was read so far."""
    over = tmp_path / "over"
    config = shell("a", wrapped(), health=PATIENT, request_timeout=None, stop_timeout=STOP)
    async with open_servers(config) as servers:
        async with calls(1, servers["a"].call_tool, "block", {"path": str(over)}) as outcomes:
            await eventually(lambda: servers["a"].statistics().in_flight == 1)
            os.kill(pid_of(servers["a"]), signal.SIGKILL)
            await reach(servers, "a", "unhealthy")
            over.touch()
        assert outcomes[0].error is None
        assert state(servers, "a") == "ready"


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_an_http_server_that_accepts_and_never_answers_is_unhealthy_and_connected_anew(
    protocol: str, idle_clock: IdleClock
) -> None:
    """B-06: its socket still takes connections. In either era the question is one that the server knows."""
    events = Events()
    with http_server() as (port, process):
        config = http_config(port, "a", protocol=protocol, health=SILENT, restarts=AT_ONCE, stop_timeout=STOP)
        async with open_servers(config, observers=[events]) as servers:
            assert (await servers["a"].check_health()).status == "healthy"
            await freeze(process.pid)
            await reach(servers, "a", "unhealthy")
            assert (servers.active, servers.connected) == ((), servers.configured)
            await reach(servers, "a", "backoff", "connecting")
            process.send_signal(signal.SIGCONT)
            with trio.fail_after(BOUND):
                await servers["a"].wait_ready()
    assert events.states("a")[2:5] == ["degraded", "unhealthy", "backoff"]


async def test_calls_that_time_out_over_http_are_evidence(idle_clock: IdleClock) -> None:
    """B-06, A-13: within three time-outs, and long before a check is due."""
    with http_server() as (port, process):
        health = HealthPolicy(interval=3600, timeout=60)
        async with open_servers(http_config(port, "a", health=health, request_timeout=30)) as servers:
            await freeze(process.pid)
            for _ in range(3):
                with pytest.raises(RequestTimedOut):
                    await servers["a"].call_tool("pid")
            assert state(servers, "a") == "unhealthy"
            process.send_signal(signal.SIGCONT)
            await reach(servers, "a", "ready")


async def test_a_request_that_times_out_is_not_evidence_if_the_server_sent_anything_meanwhile(
    idle_clock: IdleClock,
) -> None:
    """A-13: the server reported progress, so it is slow and not frozen."""

    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        pass

    async with open_servers(server("a", "--progress", "1", health=PATIENT, request_timeout=BOUND)) as servers:
        with pytest.raises(RequestTimedOut):
            await servers["a"].call_tool("mute", progress=ignore)
        await servers["a"].list_tools()  # a check, if one was asked for, is over by now
        assert servers["a"].statistics().health.last_check is None


@pytest.mark.parametrize(("era", "asked"), [("legacy", "ping"), ("modern", "server/discover")])
async def test_a_check_uses_the_method_of_the_servers_era(era: str, asked: str, tmp_path: Path) -> None:
    """B-06: a ping is gone since 2026-07-28."""
    program, args = command("--era", era, "--log-file", str(tmp_path / "log"))
    async with open_servers(ServerConfig("a", Stdio(program, args), health=PATIENT)) as servers:
        before = len(lines_of(tmp_path / "log"))
        assert (await servers["a"].check_health()).status == "healthy"
        assert lines_of(tmp_path / "log")[before:] == [asked]


async def test_an_isolated_retry_whose_process_was_killed_fails_before_its_timeout(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """B-05: its connection is checked like any other."""
    first, pids, log = tmp_path / "first", tmp_path / "pids", tmp_path / "log"
    second = leaving_a_child("--pid-file", str(pids), "--log-file", str(log))
    refusing = command_with("--error-on-call", str(INTERNAL_ERROR), "busy")
    config = shell(
        "a",
        f"if [ -e '{first}' ]; then {second}; fi; touch '{first}'; exec {refusing}",
        health=PATIENT,
        retry=RetryPolicy(attempts=2, backoff=Backoff(), isolated=True),
        stop_timeout=STOP,
    )
    async with open_servers(config) as servers:
        ref = servers["a"]
        async with calls(1, partial(ref.call_tool, idempotent=True), "sleep", {"seconds": 600}) as [outcome]:
            await wait_calls(log, 1)
            killed = trio.current_time()
            os.kill(pids_in(pids)[0], signal.SIGKILL)
    assert isinstance(outcome.error, ConnectionLost)
    assert "killed by SIGKILL" in str(outcome.error)
    assert outcome.at - killed < UNTIL_TIMEOUT
