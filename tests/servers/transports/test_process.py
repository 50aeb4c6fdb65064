"""Stopping a server process and everything it started, however it behaves."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors.config import Stdio
from mcp_actors.transports import open_link
from mcp_actors.transports.stdio import _link, _process
from mcp_actors.transports.stdio._link import StdioLink
from mcp_actors.transports.stdio._process import EOF_SHARE, REAP_FLOOR, TERM_SHARE, ServerProcess
from tests.idle_clock import IdleClock

from ...messages import Said
from ..links import MARGIN, hanging_look_up, never_lost, open_session, scripted, shell, streams_of, wait_for_line
from ..processes import BOUND, child_pids, eventually, group_members, state_of, wait_ended

MISBEHAVIORS = [
    (),
    ("--never-answer",),
    ("--ignore-sigterm",),
    ("--ignore-eof",),
    ("--ignore-eof", "--ignore-sigterm"),
    ("--spawn-grandchild",),
    ("--grandchild-keeps-stdout",),
    ("--grandchild-keeps-stdout", "--ignore-eof", "--ignore-sigterm"),
    ("--flood-at-eof",),
    ("--stderr-flood", "1000000"),
    ("--garbage", "--exit-at-start", "1"),
    ("--exit-at-start", "0", "--grandchild-keeps-stdout"),
    ("--start-delay", "60"),
]


HOWS: Final = ("left", "failed", "cancelled")

ENDS: Final = [
    (flags, how)
    for number, flags in enumerate(MISBEHAVIORS)
    for how in (HOWS if flags in ((), ("--ignore-eof", "--ignore-sigterm")) else (HOWS[number % 3],))
]
"""Each misbehavior with one end of the block, and two with all: what stops a process does not know how it was left."""


@pytest.mark.parametrize(("flags", "how"), ENDS, ids=lambda each: each if isinstance(each, str) else " ".join(each))
async def test_no_process_is_left_of_a_server_however_it_misbehaves(
    flags: tuple[str, ...], how: str, tmp_path: Path, idle_clock: IdleClock
) -> None:
    """S2-13, A-08, S4-21."""
    pid_file = tmp_path / "pids"
    before = child_pids()
    config = scripted(*flags, "--pid-file", str(pid_file), stop_timeout=1.0)
    left_at, leader = float("inf"), 0
    with trio.CancelScope() as scope:
        try:
            async with open_link(config, on_lost=lambda: None) as link:
                assert link.pid is not None
                leader = link.pid
                if "--start-delay" not in flags:
                    await eventually(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
                left_at = trio.current_time()
                if how == "failed":
                    raise ValueError("the block failed")
                if how == "cancelled":
                    scope.cancel("the block was cancelled")
                    await trio.lowlevel.checkpoint()
        except ValueError:
            assert how == "failed"
    assert scope.cancelled_caught == (how == "cancelled")
    assert trio.current_time() - left_at < config.stop_timeout + MARGIN
    assert state_of(leader) == "gone"
    assert child_pids() == before
    pids = [int(pid) for pid in pid_file.read_text().split()] if pid_file.exists() else []
    assert len(pids) == (0 if "--start-delay" in flags else 2 if "grandchild" in " ".join(flags) else 1)
    await wait_ended(pids)
    assert group_members(leader) == []


async def test_a_server_that_exits_when_its_stdin_is_closed_stops_at_once(tmp_path: Path) -> None:
    """S2-13."""
    log = tmp_path / "log"
    async with open_link(scripted("--log-file", str(log), stop_timeout=60.0), on_lost=never_lost) as link:
        async with open_session(link):
            pass
        left_at = trio.current_time()
    assert trio.current_time() - left_at < MARGIN
    assert log.read_text().splitlines()[-1] == "eof"


async def test_a_server_that_floods_stdout_when_its_stdin_is_closed_stops_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = scripted("--flood-at-eof", "--log-file", str(log), stop_timeout=60.0)
    async with open_link(config, on_lost=never_lost) as link:
        async with open_session(link):
            pass
        left_at = trio.current_time()
    assert trio.current_time() - left_at < MARGIN
    assert log.read_text().splitlines()[-2:] == ["eof", "flooded"]


async def test_a_stop_closes_stdin_then_sends_sigterm_then_sigkill_and_logs_each_step(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, said: Said, idle_clock: IdleClock
) -> None:
    """S2-13."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    log = tmp_path / "log"
    config = scripted("--ignore-eof", "--ignore-sigterm", "--log-file", str(log), stop_timeout=60.0)
    async with open_link(config, on_lost=never_lost) as link, open_session(link):
        pass
    assert "eof" in log.read_text().splitlines()
    term, kill = (record.getMessage() for record in caplog.records if record.name == "mcp_actors.servers")
    said("process still running after stdin was closed", term, pid=link.pid)
    said("process still running after SIGTERM", kill, pid=link.pid)


async def test_sigterm_goes_to_the_whole_process_group(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, idle_clock: IdleClock
) -> None:
    """S2-13: the server exits after its child; both got the signal, and neither had to be killed."""
    heard, gone = tmp_path / "heard", tmp_path / "gone"
    os.mkfifo(gone)
    stay = "echo '{}'; sleep 1000 & wait"
    child = f'trap \'echo child >> "{heard}"; echo > "{gone}"; exit\' TERM; {stay}'
    leader = f'trap \'read line < "{gone}"; echo leader >> "{heard}"; exit\' TERM; {stay}'
    config = shell(f"({child}) & {leader}", stop_timeout=60.0)
    async with open_link(config, on_lost=never_lost) as link:
        reader, _ = streams_of(link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.receive)
            await eventually(lambda: link.malformed_lines == 2)
            nursery.cancel_scope.cancel("both are ready to be asked")
    assert heard.read_text().split() == ["child", "leader"]
    assert "sending SIGKILL" not in caplog.text


async def test_a_process_that_cannot_be_killed_is_reported_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, said: Said, idle_clock: IdleClock
) -> None:
    monkeypatch.setattr(os, "killpg", lambda pid, number: None)
    async with open_link(scripted("--ignore-eof", stop_timeout=0.2), on_lost=never_lost) as link, open_session(link):
        left_at = trio.current_time()
    assert trio.current_time() - left_at < 0.2 + REAP_FLOOR + MARGIN
    assert isinstance(link, StdioLink)
    said("process still running after SIGKILL", caplog.messages[-1], pid=link.pid)
    os.kill(link.pid, signal.SIGKILL)
    await link._process.wait()


async def test_a_cancellation_during_the_stop_neither_shortens_nor_lengthens_it(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """A-08."""
    log = tmp_path / "log"
    config = scripted("--ignore-eof", "--ignore-sigterm", "--log-file", str(log), stop_timeout=BOUND)
    pids: list[int | None] = []
    left_at = 0.0

    async def serve(scope: trio.CancelScope) -> None:
        nonlocal left_at
        with scope:
            async with open_link(config, on_lost=never_lost) as link, open_session(link):
                pids.append(link.pid)
                left_at = trio.current_time()

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, scope)
        await wait_for_line(log, "eof")
        scope.cancel("while it is being stopped")
    assert (EOF_SHARE + TERM_SHARE) * BOUND <= trio.current_time() - left_at < BOUND + MARGIN
    assert [state_of(pid) for pid in pids] == ["gone"]


@pytest.mark.parametrize("steps", range(12))
async def test_a_start_that_is_cancelled_leaves_no_process(steps: int) -> None:
    """S4-19."""
    before = child_pids()
    scope = trio.CancelScope()

    async def cancel_soon() -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        scope.cancel("while it starts")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_soon)
        with scope:
            async with open_link(scripted(), on_lost=never_lost):
                await trio.sleep_forever()
    assert scope.cancelled_caught
    assert child_pids() == before


async def test_a_start_that_is_cancelled_while_the_process_is_created_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S4-19."""
    spawned: list[subprocess.Popen[bytes]] = []
    begun, cancelled, popen = trio.Event(), Event(), subprocess.Popen
    token = trio.lowlevel.current_trio_token()

    def spawn(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        token.run_sync_soon(begun.set)
        assert cancelled.wait(timeout=60)
        spawned.append(popen(*args, **options))
        return spawned[-1]

    async def cancel(scope: trio.CancelScope) -> None:
        await begun.wait()
        scope.cancel("while it is created")
        await wait_all_tasks_blocked()
        cancelled.set()

    monkeypatch.setattr(_process, "Popen", spawn)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel, scope)
            async with open_link(scripted("--ignore-eof", stop_timeout=0.5), on_lost=never_lost):
                await trio.lowlevel.checkpoint()
                pytest.fail("it went on")
    assert scope.cancelled_caught
    [process] = spawned
    assert process.returncode is not None


async def test_a_start_that_is_cancelled_during_the_look_up_ends_at_once_and_never_spawns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S4-19: the file server with the program does not respond."""
    spawned: list[object] = []
    ended = trio.Event()
    token, run = trio.lowlevel.current_trio_token(), _process._Start.run

    def note_end(self: _process._Start) -> None:
        run(self)
        token.run_sync_soon(ended.set)

    async def cancel(scope: trio.CancelScope) -> None:
        await begun.wait()
        scope.cancel("while it looks")

    monkeypatch.setattr(_process, "Popen", lambda *args, **options: spawned.append(args))
    monkeypatch.setattr(_process._Start, "run", note_end)
    with hanging_look_up(monkeypatch) as begun:
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel, scope)
                async with open_link(scripted(), on_lost=never_lost):
                    pytest.fail("it went on")
        assert scope.cancelled_caught
    await ended.wait()
    assert spawned == []


def test_ctrl_c_stops_the_server_and_is_raised_as_a_bare_keyboard_interrupt() -> None:
    """A-08."""
    pids: list[int | None] = []

    async def main() -> None:
        async with open_link(scripted("--spawn-grandchild"), on_lost=never_lost) as link:
            pids.append(link.pid)
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert [state_of(pid) for pid in pids] == ["gone"]


def test_ctrl_c_right_after_the_start_of_the_process_does_not_leak_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A-08."""
    pids: list[int] = []
    start: Callable[..., Awaitable[ServerProcess]] = _process.start_process

    async def interrupted(*args: object) -> ServerProcess:
        process = await start(*args)
        pids.append(process.pid)
        signal.raise_signal(signal.SIGINT)
        return process

    async def main() -> None:
        async with open_link(scripted(), on_lost=never_lost):
            await trio.sleep_forever()

    monkeypatch.setattr(_link, "start_process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert [state_of(pid) for pid in pids] == ["gone"]


async def test_a_group_is_never_signaled_after_its_leader_was_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have given its number to a stranger by then."""
    signaled: list[int] = []
    process = await _process.start_process("a", Stdio("true"), {})
    monkeypatch.setattr(os, "killpg", lambda group, number: signaled.append(group))
    assert await process.wait() == 0
    assert process.poll() == 0
    assert await process.wait() == 0
    process.close_pipes()
    assert signaled == [process.pid]
