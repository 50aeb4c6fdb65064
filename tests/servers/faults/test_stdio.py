"""Processes that misbehave."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mcp_actors import ConnectFailed, ConnectionLost

from ..fleet import PROMPT, calls, kill, wait_calls
from ..groups import NEVER, server
from .cells import Cell, fault, raise_failure_of

LONG: Final = {"seconds": 600}


@fault("killed in a call", "stdio")
async def test_killed_in_a_call(cell: Cell, tmp_path: Path) -> None:
    """The caller hears of it at once, and what the call may have done is unknown."""
    log = tmp_path / "log"
    faulty = server("faulty", "--log-file", str(log), restart=NEVER)
    async with cell.open(faulty) as ref, calls(1, ref.call_tool, "sleep", LONG) as [call]:
        await wait_calls(log, 1)
        with cell.fails(ConnectionLost, phase="call", within=PROMPT) as caught:
            kill(ref)
            await call.result()
        assert caught.value.outcome == "unknown"


@fault("killed while idle", "stdio")
async def test_killed_while_idle(cell: Cell) -> None:
    """It is noticed without any traffic."""
    async with cell.open(server("faulty", restart=NEVER)) as ref:
        with cell.fails(ConnectionLost, phase="idle", within=PROMPT):
            kill(ref)
            await raise_failure_of(ref)


@fault("killed at start", "stdio")
async def test_killed_at_start(cell: Cell) -> None:
    """The error has the exit code and the last words."""
    faulty = server("faulty", "--exit-at-start", "3", "--stderr", "no such database", restart=NEVER)
    async with cell.open(faulty) as ref:
        with cell.fails(ConnectFailed, phase="connect", within=PROMPT) as caught:
            await raise_failure_of(ref)
    assert (caught.value.phase, caught.value.exit_code) == ("negotiate", 3)
    assert caught.value.stderr_tail == "no such database"
