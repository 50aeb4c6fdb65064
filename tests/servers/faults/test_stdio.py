"""Processes that misbehave."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest
import trio

from mcp_actors import ConnectFailed, ConnectionLost, LimitExceeded
from mcp_actors.transports.stdio import _link, _process
from tests.idle_clock import IdleClock

from ..fleet import PROMPT, STARTED, calls, kill, pid_of, wait_calls
from ..groups import BOUND, NEVER, pids_in, server
from ..links import MARGIN, text_of
from ..processes import freeze, group_members
from .cells import Cell, fault, raise_failure_of

STOP: Final = 0.5
"""A stop time-out that tests can wait for."""

LONG_STOP: Final = 30.0
"""One that is not over in the time that a stop may take on a loaded machine."""

LIMIT: Final = 64 * 1024 * 1024
"""The default of ``max_line_bytes``."""

LONG: Final = {"seconds": 600}


@fault("killed in a call", "stdio")
async def test_killed_in_a_call(cell: Cell, tmp_path: Path) -> None:
    """The caller hears of it at once, and what the call may have done is unknown."""
    log = tmp_path / "log"
    faulty = server("faulty", "--log-file", str(log), restarts=NEVER)
    async with cell.open(faulty) as ref, calls(1, ref.call_tool, "sleep", LONG) as [call]:
        await wait_calls(log, 1)
        with cell.fails(ConnectionLost, phase="call", within=PROMPT) as caught:
            kill(ref)
            await call.result()
    assert caught.value.outcome == "unknown"
    assert "its process was killed by SIGKILL" in str(caught.value)


@fault("killed while idle", "stdio")
async def test_killed_while_idle(cell: Cell) -> None:
    """It is noticed without any traffic, and the very first error says how it ended."""
    async with cell.open(server("faulty", restarts=NEVER)) as ref:
        with cell.fails(ConnectionLost, phase="idle", within=PROMPT) as caught:
            kill(ref)
            await raise_failure_of(ref)
    assert str(caught.value) == "server 'faulty': its process was killed by SIGKILL while it was connected"


@fault("killed at start", "stdio")
async def test_killed_at_start(cell: Cell) -> None:
    """The error has the exit code and the last words."""
    faulty = server("faulty", "--exit-at-start", "3", "--stderr", "no such database", restarts=NEVER)
    async with cell.open(faulty) as ref:
        with cell.fails(ConnectFailed, phase="connect", within=STARTED) as caught:
            await raise_failure_of(ref)
    assert (caught.value.phase, caught.value.exit_code) == ("negotiate", 3)
    assert caught.value.stderr_tail == "no such database"


@fault("exits 0 while idle", "stdio")
async def test_exits_0_while_idle(cell: Cell) -> None:
    """An exit code of 0 is a failure too, because the server was not asked to stop."""
    async with cell.open(server("faulty", "--exit-on-sigterm", "0", restarts=NEVER)) as ref:
        with cell.fails(ConnectionLost, phase="idle", within=PROMPT) as caught:
            os.kill(pid_of(ref), signal.SIGTERM)
            await raise_failure_of(ref)
    assert str(caught.value) == "server 'faulty': its process exited with code 0 while it was connected"


@fault("hangs at start", "stdio")
async def test_hangs_at_start(cell: Cell, tmp_path: Path, idle_clock: IdleClock) -> None:
    """It has `connect_timeout`, and is ended then."""
    pids = tmp_path / "pids"
    flags = ("--never-answer", "--ignore-eof", "--ignore-sigterm", "--stderr", "warming up", "--pid-file", str(pids))
    limits = {"connect_timeout": LONG_STOP, "startup_timeout": LONG_STOP}
    faulty = server("faulty", *flags, restarts=NEVER, stop_timeout=STOP, **limits)
    async with cell.open(faulty) as ref:
        idle_clock.skips = False  # the sibling sleeps
        with cell.fails(ConnectFailed, phase="connect", within=LONG_STOP + STOP + MARGIN) as caught:
            await raise_failure_of(ref)
        cell.watch(*pids_in(pids))
    assert (caught.value.phase, caught.value.exit_code, caught.value.stderr_tail) == ("negotiate", None, "warming up")
    assert "while negotiating the protocol" in str(caught.value)


@fault("never answers", "stdio")
async def test_never_answers(cell: Cell) -> None:
    """The caller's own deadline ends the call; the connection and its other calls go on."""
    async with cell.open(server("faulty")) as ref, cell.calls_beside(ref):
        with cell.fails(trio.TooSlowError, phase="call", within=PROMPT), trio.fail_after(0.1):
            await ref.call_tool("mute")


@fault("banner on stdout", "stdio")
async def test_banner_on_stdout(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    async with cell.open(server("faulty", "--garbage")) as ref, cell.calls_beside(ref):
        with cell.works(phase="connect", within=STARTED):
            await ref.wait_ready()
    assert "server 'faulty': skipped a line on stdout that is not an MCP message (31 bytes: b'Welcome" in caplog.text


@fault("garbage line", "stdio")
async def test_garbage_line(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    """Only the line is lost: the call during which it arrived is answered, and so are the others."""
    async with cell.open(server("faulty")) as ref, cell.calls_beside(ref):
        with cell.works(phase="call", within=PROMPT):
            assert text_of(await ref.call_tool("print_raw", {"text": '{"jsonrpc": "2.0", "id": 1,'})) == "None"
    assert "skipped a line on stdout" in caplog.text


@fault("invalid UTF-8", "stdio")
async def test_invalid_utf_8(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    """A bad byte in the name of a method costs its line, although all else in it is right."""
    line = '{"jsonrpc": "2.0", "method": "notifications/\xff", "params": {"level": "info", "data": "x"}}'
    async with cell.open(server("faulty")) as ref, cell.calls_beside(ref):
        with cell.works(phase="call", within=PROMPT):
            assert text_of(await ref.call_tool("print_raw", {"text": line})) == "None"
    assert "skipped a line on stdout" in caplog.text


@fault("duplicate and unknown ids", "stdio")
async def test_duplicate_and_unknown_ids(cell: Cell) -> None:
    """The first answer counts; answers without a request are dropped."""
    async with cell.open(server("faulty")) as ref, cell.calls_beside(ref):
        with cell.works(phase="call", within=PROMPT):
            assert text_of(await ref.call_tool("stray")) == "first"


@fault("20 000 notifications before the answer", "stdio")
async def test_many_notifications_before_the_answer(cell: Cell) -> None:
    """They are read at a pace that costs others little, and none is lost, nor is the answer."""
    async with cell.open(server("faulty")) as ref:
        with cell.works(phase="call", within=BOUND):
            assert text_of(await ref.call_tool("chatter", {"number": 20_000})) == "None"


@fault("64 MiB in one line", "stdio")
async def test_a_line_as_long_as_the_limit(cell: Cell) -> None:
    async with cell.open(server("faulty")) as ref:
        with cell.works(phase="call", within=BOUND):
            assert len(text_of(await ref.call_tool("line", {"bytes": LIMIT}))) > LIMIT - 100


@fault("one byte over 64 MiB", "stdio")
async def test_a_line_one_byte_over_the_limit(cell: Cell) -> None:
    """B-14."""
    async with cell.open(server("faulty", restarts=NEVER)) as ref:
        with cell.fails(LimitExceeded, phase="call", within=BOUND) as caught:
            await ref.call_tool("line", {"bytes": LIMIT + 1})
        for words in (f"'line': the response is too large (more than {LIMIT} bytes)", "raise max_line_bytes"):
            assert words in str(caught.value)


@fault("stops reading, full pipe", "stdio")
async def test_stops_reading(cell: Cell) -> None:
    """A full pipe delays no deadline, whether a request was written, half written or not written."""
    async with cell.open(server("faulty", stop_timeout=STOP)) as ref:
        await ref.call_tool("deaf")
        with cell.fails(trio.TooSlowError, phase="call", within=PROMPT), trio.fail_after(0.2):
            async with calls(30, ref.call_tool, "echo", {"text": "x" * 100_000}):
                pass


@fault("floods stderr", "stdio")
async def test_floods_stderr(cell: Cell) -> None:
    """Stderr is read, or the server would block; only its end is kept."""
    faulty = server("faulty", "--stderr-flood", "1000000", "--exit-at-start", "3", restarts=NEVER)
    async with cell.open(faulty) as ref:
        with cell.fails(ConnectFailed, phase="connect", within=STARTED) as caught:
            await raise_failure_of(ref)
    assert caught.value.exit_code == 3
    assert caught.value.stderr_tail == "x" * 65536
    assert len(str(caught.value)) < 1000


@fault("ignores EOF", "stdio")
async def test_ignores_eof(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended by SIGTERM, long before SIGKILL is due."""
    monkeypatch.setattr(_process, "EOF_SHARE", 0.01)
    async with cell.open(server("faulty", "--ignore-eof", stop_timeout=LONG_STOP)) as ref:
        with cell.works(phase="stop", within=PROMPT):
            await ref.stop()


@fault("ignores SIGTERM", "stdio")
async def test_ignores_sigterm(cell: Cell) -> None:
    async with cell.open(server("faulty", "--ignore-eof", "--ignore-sigterm", stop_timeout=STOP)) as ref:
        with cell.works(phase="stop", within=STOP + MARGIN):
            await ref.stop()


@fault("SIGSTOPped", "stdio")
async def test_sigstopped(cell: Cell) -> None:
    """The process does nothing and no signal but SIGKILL reaches it; its callers can leave at any time."""
    async with cell.open(server("faulty", stop_timeout=STOP)) as ref:
        await freeze(pid_of(ref))
        with cell.fails(trio.TooSlowError, phase="call", within=PROMPT), trio.fail_after(0.1):
            await ref.call_tool("pid")


@fault("leaves a grandchild", "stdio")
async def test_leaves_a_grandchild(cell: Cell) -> None:
    """The server leaves politely; what it had started goes with it."""
    async with cell.open(server("faulty", "--spawn-grandchild", stop_timeout=LONG_STOP)) as ref:
        assert len(group_members(pid_of(ref))) == 2
        with cell.works(phase="stop", within=PROMPT):
            await ref.stop()


@fault("closes stdout but lives", "stdio")
async def test_closes_stdout_but_lives(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot answer any more, so it is ended."""
    monkeypatch.setattr(_link, "EXIT_WAIT", STOP)
    async with cell.open(server("faulty", "--close-stdout", "--ignore-eof", stop_timeout=STOP, restarts=NEVER)) as ref:
        with cell.fails(ConnectionLost, phase="call", within=PROMPT) as caught:
            await ref.call_tool("echo", {"text": "?"})
    assert "its process closed its stdout while it was connected" in str(caught.value)
