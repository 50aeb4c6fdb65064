"""Asyncio programs that end by Ctrl-C or with their event loop leave no process behind.

Each test is about a real process, and about both places in which Trio may run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.forkserver import run_python
from tests.messages import Said
from tests.servers.fleet import wait_calls
from tests.servers.groups import BOUND, pids_in
from tests.servers.interruptible import SLOW_TO_STOP
from tests.servers.links import wait_for_line
from tests.servers.processes import wait_ended
from tests.servers.test_interrupt import Program, program
from tests.source import ROOT

HOSTS = ["thread", "guest"]


@asynccontextmanager
async def asyncio_program(folder: Path, *arguments: str) -> AsyncIterator[Program]:
    async with program(folder, *arguments, module="tests.bridge.interruptible") as it:
        yield it


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("runner", ["run", "bare", "uvloop"])
async def test_ctrl_c_during_a_call(host: str, runner: str, tmp_path: Path) -> None:
    async with asyncio_program(tmp_path, host, runner, "call", "--spawn-grandchild") as it:
        await wait_calls(it.log, 1)
        it.interrupt()
        await it.ends_as_interrupted(short=False)
        assert "eof" in it.log.read_text().splitlines()


@pytest.mark.parametrize(("runner", "host"), [("run", "thread"), ("bare", "guest"), ("uvloop", "guest")])
async def test_ctrl_c_that_the_kernel_gives_to_another_thread(host: str, runner: str, tmp_path: Path) -> None:
    """It wakes the event loop, whose thread alone runs Python's handler."""
    async with asyncio_program(tmp_path, host, runner, "call elsewhere") as it:
        await wait_calls(it.log, 1)
        it.interrupt()
        await it.ends_as_interrupted(short=False)


@pytest.mark.parametrize("host", HOSTS)
async def test_ctrl_c_while_a_server_starts(host: str, tmp_path: Path) -> None:
    async with asyncio_program(tmp_path, host, "run", "idle", "--never-answer") as it:
        await wait_for_line(it.log, "initialize")
        it.interrupt()
        await it.ends_as_interrupted(short=False)


@pytest.mark.parametrize("host", HOSTS)
async def test_ctrl_c_while_sixteen_tasks_call_a_server(host: str, tmp_path: Path) -> None:
    async with asyncio_program(tmp_path, host, "run", "load") as it:
        await it.wait_said("ready")
        it.interrupt()
        await it.ends_as_interrupted(short=False)


@pytest.mark.parametrize("host", HOSTS)
async def test_ctrl_c_and_a_server_that_does_not_want_to_stop(host: str, tmp_path: Path) -> None:
    async with asyncio_program(tmp_path, host, "bare", "idle", *SLOW_TO_STOP) as it:
        await it.wait_said("ready")
        it.interrupt()
        await wait_for_line(it.log, "eof")
        it.skip_waits()
        await it.ends_as_interrupted(short=False)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("runner", ["drop", "forget"])
async def test_an_event_loop_that_ends_while_a_call_is_pending(host: str, runner: str, tmp_path: Path) -> None:
    async with asyncio_program(tmp_path, host, runner, "call", *SLOW_TO_STOP) as it:
        await wait_for_line(it.log, "eof")
        it.skip_waits()
        code = await it.ended()
        assert code == 0, it.complained.read_text()
        await wait_ended(pids_in(it.pids))


@pytest.mark.parametrize("host", HOSTS)
def test_the_death_of_trio_ends_the_block_and_all_that_waits(host: str) -> None:
    finished = run_python("-m", "tests.bridge.trio_dies", host, cwd=ROOT, timeout=BOUND)
    assert finished.stdout.splitlines() == [
        "a call ends, and says why: True",
        "a call ends, and says why: True",
        "the block ends",
        "later calls are refused",
    ], finished.stderr


A_TURN_FAILS = """
import asyncio
from mcp_actors.bridge import open_supervisor

def fail():
    raise OSError("in the midst of a turn")

async def main():
    block = open_supervisor(host="guest")
    try:
        async with block:
            block._run._schedule(asyncio.get_running_loop().call_soon, fail)
            await asyncio.Event().wait()
    except OSError as exc:
        print("the block ends:", exc)

asyncio.run(main())
"""


def test_a_turn_of_a_guest_that_fails_ends_the_block() -> None:
    """Ctrl-C may hit Trio between two tasks, and then Trio schedules no further turn."""
    finished = run_python("-c", A_TURN_FAILS, cwd=ROOT, timeout=BOUND)
    assert finished.stdout == "the block ends: in the midst of a turn\n", finished.stderr


@pytest.mark.parametrize("host", HOSTS)
def test_a_fork_is_refused_and_its_end_leaves_the_servers_of_the_program_alone(host: str, said: Said) -> None:
    finished = run_python("-m", "tests.bridge.forked", host, cwd=ROOT, timeout=BOUND)
    refused, *rest = finished.stdout.splitlines()
    said("use in a forked process", refused.removeprefix("the fork is refused: "))
    assert rest == ["the fork has ended with 3", "the server serves"], finished.stderr
    assert finished.returncode == 0
