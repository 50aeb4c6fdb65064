"""Ctrl-C, as a program that uses servers gets it: SIGINT to a real process, in every phase of its life."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import ServerRef, open_servers, servers, transports
from mcp_actors._collapse import collapse
from mcp_actors.kernel import _incarnation
from mcp_actors.servers import _dispatcher
from mcp_actors.servers.connection import _direct
from mcp_actors.servers.requests import _request
from mcp_actors.transports import _request_table
from mcp_actors.transports.stdio import _pipes, _process
from tests.forkserver import Forked, start_python
from tests.interrupter import run_interrupted_at
from tests.programs import FULL_SIZE
from tests.source import ROOT

from .fleet import wait_calls
from .groups import LATER, pids_in, server
from .interruptible import SLOW_TO_STOP
from .links import wait_for_line
from .processes import eventually, wait_ended
from .wire_pipes import SMALLEST, Machine, WireProcess, needs_linux

INTERRUPTS: Final = 500 if FULL_SIZE else 5
"""At how many lines of each part it is interrupted; from which on is drawn anew each time."""

OWNER: Final = _incarnation.__file__
"""What calls the code of a connection, in the task that owns it."""


class Program:
    """A run of the program, and what it leaves."""

    def __init__(self, folder: Path) -> None:
        self.pids, self.log, self.said, self.complained = (folder / name for name in ("pids", "log", "out", "err"))
        self.skip = folder / "skip"
        self.process: subprocess.Popen[bytes] | Forked

    async def wait_said(self, word: str) -> None:
        """Wait until it has said something."""
        await wait_for_line(self.said, word)

    def interrupt(self) -> None:
        """Do what a terminal does at Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def skip_waits(self) -> None:
        """Let its time-outs expire as soon as all processes are idle."""
        self.skip.touch()

    async def ended(self) -> int:
        """Wait for its end, and return its exit code."""
        await eventually(lambda: self.process.poll() is not None)
        return self.process.wait()

    async def ends_as_interrupted(self, *, short: bool = True) -> None:
        """Wait for its end, which must be that of any Python program at Ctrl-C.

        Where tasks of ours compute, the interrupt may come out of one of them, and its traceback tells of that, as do
        Python's warnings behind the traceback. Where all of them wait, it is as `short` as it would be without us.
        """
        code = await self.ended()
        stderr = self.complained.read_text()
        assert code == -signal.SIGINT, stderr
        _, ending, warnings = stderr.rpartition("\nKeyboardInterrupt\n")
        assert ending, stderr
        assert not short or not warnings, stderr
        assert all("RuntimeWarning: " in line or line.startswith("  ") for line in warnings.splitlines()), stderr
        assert not short or ("Exception Group" not in stderr and "Cancelled" not in stderr), stderr
        await wait_ended(pids_in(self.pids))


@asynccontextmanager
async def program(folder: Path, *arguments: str, module: str = "tests.servers.interruptible") -> AsyncIterator[Program]:
    """Run the program in a process group of its own."""
    it = Program(folder)
    files = ("--pid-file", str(it.pids), "--log-file", str(it.log), "--skip-file", str(it.skip))
    command = ["-m", module, *arguments, *files]
    with (
        it.said.open("w") as said,
        it.complained.open("w") as complained,
        start_python(*command, cwd=ROOT, stdout=said, stderr=complained, start_new_session=True) as it.process,
    ):
        try:
            yield it
        finally:
            it.process.kill()


async def test_ctrl_c_while_a_server_starts(tmp_path: Path) -> None:
    """A-08: no process is left, and what leaves is a bare KeyboardInterrupt."""
    async with program(tmp_path, "idle", "--never-answer", "--spawn-grandchild") as it:
        await wait_for_line(it.log, "initialize")
        it.interrupt()
        await it.ends_as_interrupted()


async def test_ctrl_c_while_a_process_is_being_started(tmp_path: Path) -> None:
    """A-08: also in the first moments of a process."""
    async with program(tmp_path, "idle") as it:
        await eventually(it.log.exists)
        it.interrupt()
        await it.ends_as_interrupted(short=False)


async def test_ctrl_c_while_sixteen_tasks_call_a_server(tmp_path: Path) -> None:
    """A-08: whatever line of whatever task it hits."""
    async with program(tmp_path, "load", "--spawn-grandchild") as it:
        await it.wait_said("ready")
        it.interrupt()
        await it.ends_as_interrupted(short=False)


async def test_ctrl_c_during_a_call(tmp_path: Path) -> None:
    """A-08: the request is cancelled at the server, and the server is stopped."""
    async with program(tmp_path, "call") as it:
        await wait_calls(it.log, 1)
        it.interrupt()
        await it.ends_as_interrupted()
        assert "eof" in it.log.read_text().splitlines()


async def test_ctrl_c_during_the_stop(tmp_path: Path) -> None:
    """A-08: the stop is not cut short, the interrupt comes after it."""
    async with program(tmp_path, "stop", *SLOW_TO_STOP) as it:
        await it.wait_said("leaving")
        await wait_for_line(it.log, "eof")
        it.interrupt()
        it.skip_waits()
        await it.ends_as_interrupted()


async def test_ctrl_c_twice(tmp_path: Path) -> None:
    """A-08: the second one does not cut short the stop that the first one began."""
    async with program(tmp_path, "idle", *SLOW_TO_STOP) as it:
        await it.wait_said("ready")
        it.interrupt()
        await wait_for_line(it.log, "eof")
        it.interrupt()
        it.skip_waits()
        await it.ends_as_interrupted()


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/contextlib.py", OWNER),
        (str(Path(servers.__file__).parent), OWNER),
        (str(Path(transports.__file__).parent), ""),
        (_dispatcher.__file__, ""),
        (_process.__file__, ""),
    ],
)
def test_ctrl_c_in_the_code_of_a_connection_is_lost_nowhere(path: str, below: str) -> None:
    """A-08: whatever line it hits while a server starts, dies, and is left: it leaves, and nothing is left behind."""

    async def lose_a_server() -> None:
        async with open_servers(server("a", restarts=LATER)) as group:
            pid = group.status()["a"].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await group["a"].wait_state("backoff")

    lines, nothing = run_interrupted_at(None, lose_a_server, path, below=below)
    assert nothing is None
    step = -(-lines // INTERRUPTS)
    for at in range(random.randint(1, step), lines + 1, step):
        ran, end = run_interrupted_at(at, lose_a_server, path, below=below)
        assert end is KeyboardInterrupt or ran < at, at  # not every run has as many lines


@needs_linux
@pytest.mark.own_way
@pytest.mark.parametrize("path", [_direct.__file__, _request_table.__file__, _pipes.__file__, _request.__file__])
def test_ctrl_c_in_a_request_without_a_task_tears_and_doubles_nothing(path: str) -> None:
    """A-08: whatever line it hits while calls fill a pipe, are left, are answered, and lose their server."""
    processes: list[WireProcess] = []

    async def call(ref: ServerRef, number: int) -> None:
        await ref.call_tool("echo", {"number": number, "padding": "x" * 1500})

    async def fill_and_leave() -> None:
        machine = Machine("legacy", SMALLEST)
        with machine.installed():
            async with open_servers(machine.config(restarts=LATER, stop_timeout=0.1)) as servers:
                processes[:] = machine.processes
                await call(servers["a"], 0)
                machine.now.freeze()
                async with bare_nursery() as nursery:
                    for number in range(1, 6):
                        nursery.start_soon(call, servers["a"], number)
                    await wait_all_tasks_blocked()
                    nursery.cancel_scope.cancel()
                machine.now.thaw()
                async with bare_nursery() as nursery:
                    for number in range(6, 9):
                        nursery.start_soon(call, servers["a"], number)
                machine.now.kill()
                await servers["a"].wait_state("backoff")

    lines, nothing = run_interrupted_at(None, fill_and_leave, path)
    assert nothing is None
    step = -(-lines // (200 if FULL_SIZE else 4))
    for at in range(random.randint(1, step), lines + 1, step):
        ran, end = run_interrupted_at(at, fill_and_leave, path)
        assert end is KeyboardInterrupt or ran < at, at
        for process in processes:
            whole = [json.loads(line) for line in bytes(process.received).split(b"\n")[:-1]]
            numbers = [each["params"]["arguments"]["number"] for each in whole if each.get("method") == "tools/call"]
            assert len(numbers) == len(set(numbers)), at


@asynccontextmanager
async def bare_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that an interrupt leaves without a group."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        raise collapse(group) from None
