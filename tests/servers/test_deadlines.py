"""Deadlines and cancellations around starting, serving and stopping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from trio.lowlevel import current_task
from trio.testing import MockClock

from mcp_actors import ConnectFailed, InProcess, RequestTimedOut, ServerConfig, ServerError, open_servers
from mcp_actors.kernel import GaveUp, Restarting, StartFailed, StopFailed, Stopped, Stopping
from mcp_actors.kernel._incarnation import Incarnation
from tests.idle_clock import IdleClock

from .fleet import PROMPT, pid_of
from .groups import BOUND, LATER, NEVER, Events, Fault, expire_once, has_lines, pids_in, server, shell
from .links import MARGIN, text_of, wait_for_line
from .processes import state_of


class Strange(BaseException):
    """Ends the program, and is not an `Exception`."""


STOP = 0.5
"""A stop time-out that tests can wait for."""

STUBBORN = ("--ignore-eof", "--ignore-sigterm")


def stubborn(name: str, pids: Path, *flags: str, stop_timeout: float = STOP, required: bool = False) -> ServerConfig:
    """Configure a server that only SIGKILL ends."""
    return server(
        name,
        *STUBBORN,
        "--pid-file",
        str(pids),
        *flags,
        restarts=LATER,
        stop_timeout=stop_timeout,
        required=required,
    )


def gone(pids: Path, number: int = 1) -> bool:
    """Return True if so many processes were started and none of them is left."""
    started = pids_in(pids)
    return len(started) == number and {state_of(pid) for pid in started} == {"gone"}


# --- while servers start --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "required"),
    [(("--never-answer",), False), (("--hang-on-list",), True), (("--start-delay", "600"), False)],
)
async def test_a_deadline_around_a_start_that_hangs_fires(
    tmp_path: Path, flags: tuple[str, ...], required: bool, idle_clock: IdleClock
) -> None:
    """A-27: at the deadline plus the stop bound, and no process is left."""
    log = tmp_path / "log"
    config = server("a", *flags, "--log-file", str(log), stop_timeout=STOP, required=required)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(BOUND) as deadline:
            nursery.start_soon(expire_once, deadline, lambda: has_lines(log, 1 if "--start-delay" in flags else 2))
            async with open_servers(config):
                raise AssertionError("it cannot be ready")
        assert deadline.cancelled_caught
        assert trio.current_time() - deadline.deadline < STOP + MARGIN
    [start] = log.read_text().splitlines()[:1]
    assert state_of(int(start.split()[1])) == "gone"


async def test_a_deadline_around_a_start_waits_for_the_stop_bound_and_no_longer(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """A-27: also if the server has to be killed, and although another one serves already."""
    pids, fine = tmp_path / "pids", tmp_path / "fine"
    configs = [stubborn("mute", pids, "--never-answer"), server("fine", "--pid-file", str(fine))]
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(BOUND) as deadline:
            nursery.start_soon(expire_once, deadline, lambda: has_lines(pids) and has_lines(fine))
            async with open_servers(*configs):
                raise AssertionError("it cannot be ready")
        assert deadline.cancelled_caught
        assert trio.current_time() - deadline.deadline < STOP + MARGIN
    assert gone(pids)
    assert gone(fine)


async def test_a_cancellation_from_outside_ends_a_start(tmp_path: Path, idle_clock: IdleClock) -> None:
    """S4-19: a cancelled start leaves nothing, and the next try is fresh."""
    pids, log = tmp_path / "pids", tmp_path / "log"
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_for_ever, stubborn("a", pids, "--never-answer", "--log-file", str(log)))
            await wait_for_line(log, "initialize")
            cancelled = trio.current_time()
            scope.cancel("somebody changed their mind")
    assert scope.cancelled_caught
    assert trio.current_time() - cancelled < STOP + MARGIN
    assert gone(pids)
    async with open_servers(server("a", "--pid-file", str(pids))) as servers:
        assert servers["a"].statistics().incarnation == 1
        assert text_of(await servers["a"].call_tool("echo", {"text": "fresh"})) == "fresh"


async def open_for_ever(*configs: ServerConfig) -> None:
    async with open_servers(*configs):
        await trio.sleep_forever()


@pytest.mark.parametrize("steps", [0, 1, 3, 8, 21, 89, 233, 610, 1597, 4181])
async def test_a_cancellation_after_any_number_of_steps_leaves_nothing(tmp_path: Path, steps: int) -> None:
    """S1-16: wherever in a start the cancellation falls, everything that was begun is cleaned up."""
    pids = tmp_path / "pids"
    configs = [server("a", "--pid-file", str(pids)), server("b", "--pid-file", str(pids))]
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_for_ever, *configs)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel("wherever it is")
    assert scope.cancelled_caught
    assert {state_of(pid) for pid in pids_in(pids)} <= {"gone"}


@pytest.mark.parametrize(
    ("flags", "phase", "doing"),
    [
        (("--never-answer",), "negotiate", "negotiating the protocol"),
        (("--start-delay", "600"), "negotiate", "negotiating the protocol"),
        (("--hang-on-list",), "list_tools", "listing its tools"),
    ],
)
async def test_a_connect_timeout_is_an_error_that_says_what_was_waited_for(
    flags: tuple[str, ...], phase: str, doing: str, idle_clock: IdleClock
) -> None:
    """S1-05: the owner's own timer, and only that, becomes a time-out error; a hanging start ends in time."""
    limits = {"connect_timeout": 30.0, "startup_timeout": 30.0, "stop_timeout": STOP}
    config = server("a", *flags, "--stderr", "still warming up", required=True, **limits)
    began = trio.current_time()
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(config):
            raise AssertionError("it cannot be ready")
    assert 30 <= trio.current_time() - began < 30 + STOP + MARGIN
    assert caught.value.phase == phase
    assert f"while {doing}" in str(caught.value)


async def test_a_long_start_logs_once_for_whom_it_waits(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """D-86: optional or required, and not for a server that is there."""
    slow = [
        ServerConfig(f"slow{number}", InProcess(MCPServer("slow", lifespan=slow_start)), required=number % 2 == 0)
        for number in range(10)
    ]
    began = trio.current_time()
    async with open_servers(ServerConfig("quick", InProcess(MCPServer("quick"))), *slow):
        assert trio.current_time() - began == 20
    named = ", ".join(f"'slow{number}'" for number in range(8))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"open_servers(): still waiting after 5 s for {named} and 2 more; to wait less, lower connect_timeout, or set "
        "connect='lazy'"
    ]
    caplog.clear()
    async with open_servers(ServerConfig("quick", InProcess(MCPServer("quick")))):
        await trio.sleep(60)
    assert "waiting" not in caplog.text


async def test_a_program_that_is_not_a_server_is_recognized_by_its_output(idle_clock: IdleClock) -> None:
    """S2-11: what was skipped is counted, and that is said when the connect fails."""
    limits = {"connect_timeout": 30.0, "startup_timeout": 30.0, "stop_timeout": 0.3}
    config = shell("a", "echo usage: frobnicate FILE; exec sleep 600", restarts=NEVER, **limits)
    async with open_servers(config) as servers:
        assert str(servers.errors["a"]).endswith("; lines on stdout that are not MCP messages: 1")


@asynccontextmanager
async def slow_start(_: object) -> AsyncIterator[None]:
    await trio.sleep(20)
    yield


async def test_a_slow_start_within_its_time_succeeds(autojump_clock: MockClock) -> None:
    """S1-05: the timer of a connect has no effect on what comes after it."""
    here = MCPServer("here", lifespan=slow_start)

    @here.tool()
    async def sleep(seconds: float) -> None:
        await trio.sleep(seconds)

    config = ServerConfig("a", InProcess(here), connect_timeout=30, request_timeout=None, restarts=NEVER)
    async with open_servers(config) as servers:
        await servers["a"].call_tool("sleep", {"seconds": 60})
        assert servers["a"].state == "ready"
        assert servers["a"].statistics().incarnation == 1


async def test_a_cancellation_from_outside_is_not_reported_as_a_timeout(tmp_path: Path) -> None:
    """S1-05, S1-07: it leaves as what it is, and nothing is recorded as a failed connect."""
    log, events = tmp_path / "log", Events()

    async def open_it() -> None:
        config = server("a", "--never-answer", "--log-file", str(log), required=True, stop_timeout=STOP)
        async with open_servers(config, observers=[events]):
            raise AssertionError("it cannot be ready")

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it)
            await wait_for_line(log, "initialize")
            scope.cancel("somebody changed their mind")
    assert scope.cancelled_caught
    assert [event for event in events if isinstance(event, (StartFailed, Restarting, GaveUp))] == []


@pytest.mark.parametrize("required", [True, False])
async def test_a_base_exception_that_is_not_an_exit_is_a_failed_connect(required: bool) -> None:
    """B-34: of that server alone."""
    fault, error = Fault(), asyncio.CancelledError("from the depth")
    fault.on_enter = error  # type: ignore[assignment]  # worse than what the fault is made for
    raised: list[BaseException] = []
    try:
        async with open_servers(server("a"), fault.config(required=required)) as servers:
            assert [each.name for each in servers.active] == ["a"]
            raised.extend(servers.errors.values())
    except ConnectFailed as exc:
        raised.append(exc)
    (failure,) = raised
    assert isinstance(failure, ConnectFailed)
    assert failure.__cause__ is error


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, pytest.fail.Exception, Strange])
async def test_an_exit_never_becomes_a_failed_connect(
    kind: type[BaseException], required: bool, tmp_path: Path
) -> None:
    """S1-07, C-41: it ends the start of the group, as itself, and after a complete clean-up."""
    fault, pids = Fault(), tmp_path / "pids"
    fault.on_enter = kind("from the depth")  # type: ignore[assignment]  # worse than what the fault is made for
    with pytest.raises(kind, match="from the depth"):
        async with open_servers(server("a", "--pid-file", str(pids)), fault.config(required=required)):
            raise AssertionError("it cannot be ready")
    assert {state_of(pid) for pid in pids_in(pids)} <= {"gone"}


# --- while the block runs, and after it -----------------------------------------------------------------------------


async def test_a_deadline_in_the_block_leaves_as_what_it_is(tmp_path: Path) -> None:
    """S1-07: an outer cancellation is not swallowed, neither by a call nor on the way out."""
    pids = tmp_path / "pids"
    with trio.move_on_after(BOUND) as deadline:
        async with open_servers(server("a", "--pid-file", str(pids))) as servers:
            deadline.deadline = trio.current_time() + 0.1
            await servers["a"].call_tool("sleep", {"seconds": 600})
    assert deadline.cancelled_caught
    assert trio.current_time() - deadline.deadline < MARGIN
    assert gone(pids)


async def test_a_cleanup_call_in_the_block_is_answered_after_a_cancellation() -> None:
    answers = []
    with trio.CancelScope() as deadline:
        async with open_servers(server("a")) as servers:
            deadline.deadline = trio.current_time() + 0.1
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    answers.append(text_of(await servers["a"].call_tool("echo", {"text": "clean"})))
    assert deadline.cancelled_caught
    assert answers == ["clean"]


async def test_servers_that_have_to_be_killed_are_stopped_side_by_side_within_the_bound(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """S4-21: close is bounded, whatever the servers do."""
    pids, events = tmp_path / "pids", Events()
    names = [f"s{number}" for number in range(6)]
    async with open_servers(*(stubborn(name, pids) for name in names), observers=[events]) as servers:
        assert len(servers.active) == 6
        left = trio.current_time()
    assert trio.current_time() - left < STOP + MARGIN
    asked = [event.time for event in events.of(Stopping, *names)]
    assert len(asked) == 6
    assert max(asked) < min(event.time for event in events.of(Stopped, *names))
    assert gone(pids, 6)


async def test_each_limit_is_kept_by_the_task_that_the_guarantee_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_clock: IdleClock
) -> None:
    """S1-05, B-41: the owner keeps the connect's, the group's timer those of requests, its supervisor the stop's."""
    keepers: dict[str, str | None] = {}
    make, kill = ServerError.__init__, Incarnation.kill

    def noted_error(error: ServerError, message: str, *, server: str) -> None:
        keepers.setdefault(type(error).__name__, current_task().name)
        make(error, message, server=server)

    def noted_kill(incarnation: Incarnation, why: str) -> None:
        keepers.setdefault(f"kill {incarnation.record.name}", current_task().name)
        kill(incarnation, why)

    monkeypatch.setattr(ServerError, "__init__", noted_error)
    monkeypatch.setattr(Incarnation, "kill", noted_kill)
    mute = server("mute", "--never-answer", connect_timeout=0.3, stop_timeout=STOP, restarts=NEVER)
    here = MCPServer("here", lifespan=never_ends)
    here.add_tool(hang, description="Never answer.")
    slow = ServerConfig("slow", InProcess(here), request_timeout=0.3, stop_timeout=STOP)
    async with open_servers(mute, slow) as servers:
        with pytest.raises(RequestTimedOut):
            await servers["slow"].call_tool("hang")
    assert keepers == {"ConnectFailed": "mute", "RequestTimedOut": "servers:deadlines", "kill slow": "servers:sweeper"}


async def hang() -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def never_ends(_: object) -> AsyncIterator[None]:
    yield
    with trio.CancelScope(shield=True):
        await trio.sleep(3 * STOP)


async def test_a_server_that_ignores_the_end_of_its_input_is_ended_by_a_signal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, idle_clock: IdleClock
) -> None:
    """S4-21: and that takes less than the bound, for it does not ignore the signal."""
    pids = tmp_path / "pids"
    with caplog.at_level(logging.INFO, "mcp_actors.servers"):
        async with open_servers(server("a", "--ignore-eof", "--pid-file", str(pids), stop_timeout=60.0)):
            left = trio.current_time()
    assert trio.current_time() - left >= 0.4 * 60.0
    assert "sending SIGTERM" in caplog.text
    assert "sending SIGKILL" not in caplog.text
    assert gone(pids)


async def test_a_deadline_that_falls_into_the_stop_does_not_cut_it_short(tmp_path: Path, idle_clock: IdleClock) -> None:
    """S1-16: the clean-up is complete, and bounded by the stop time-out, not by who waits."""
    pids = tmp_path / "pids"
    with trio.CancelScope() as scope:
        async with open_servers(stubborn("a", pids)) as servers:
            pid = pid_of(servers["a"])
            scope.deadline = trio.current_time() + 0.1
            left = trio.current_time()
    assert trio.current_time() - left < STOP + MARGIN
    assert pids_in(pids) == [pid]
    assert gone(pids)


async def test_servers_are_closed_in_reverse_even_if_one_fails_to(tmp_path: Path) -> None:
    """S1-06: clean-up goes on across ordinary failures, here of a server that raises on its way out."""
    fault, pids, events = Fault(), tmp_path / "pids", Events()
    fault.on_exit = ValueError("it does not want to go")
    configs = [server("a", "--pid-file", str(pids)), fault.config("fault"), server("b", "--pid-file", str(pids))]
    async with open_servers(*configs, observers=[events]):
        pass
    asked = [event.actor for event in events.of(Stopping) if event.actor.endswith(":supervisor")]
    assert asked == ["b:supervisor", "fault:supervisor", "a:supervisor"]
    assert [event.actor for event in events.of(StopFailed)] == ["fault"]
    assert gone(pids, 2)


async def test_a_stop_takes_no_longer_than_its_callers_patience(tmp_path: Path, idle_clock: IdleClock) -> None:
    """S4-21: who asked for a stop may leave at once; the stop goes on."""
    pids = tmp_path / "pids"
    async with open_servers(stubborn("a", pids, stop_timeout=60.0)) as servers:
        began = trio.current_time()
        with trio.move_on_after(0.05) as patience:
            await servers["a"].stop()
        assert patience.cancelled_caught
        assert trio.current_time() - began < PROMPT
        with trio.fail_after(60.0 + MARGIN):
            await servers["a"].wait_state("stopped")
        assert gone(pids)
