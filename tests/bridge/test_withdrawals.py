"""Callers on asyncio that leave while they are interrupted: the program ends, and so does every request."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from mcp_actors import bridge
from tests.interrupter import run_interrupted_at
from tests.programs import FULL_SIZE
from tests.servers.wire_pipes import SMALLEST, Machine, needs_linux

INTERRUPTS: Final = 300 if FULL_SIZE else 12


def run(main: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run a program on asyncio."""
    asyncio.run(main())


@needs_linux
@pytest.mark.parametrize("path", ["/mcp_actors/bridge/_bridge.py", "/servers/ref/_caller.py"])
def test_ctrl_c_in_a_withdrawal_leaves_and_doubles_nothing(path: str) -> None:
    """A-08: with a guest, whatever line it hits while callers leave a full pipe, or get their answers."""
    machines: list[Machine] = []

    async def call_and_leave() -> None:
        machines.append(machine := Machine("legacy", SMALLEST))
        config = machine.config(stop_timeout=0.1)
        with machine.installed():
            async with bridge.open_servers(config, host="guest") as servers:
                await call(servers["a"], 0)
                machine.now.freeze()
                tasks = [asyncio.create_task(call(servers["a"], number)) for number in range(1, 6)]
                await asyncio.sleep(0.001)
                for task in tasks[:3]:
                    task.cancel()
                await asyncio.sleep(0)
                machine.now.thaw()
                await asyncio.gather(*tasks, return_exceptions=True)

    lines, nothing = run_interrupted_at(None, call_and_leave, path, run=run)
    assert nothing is None
    step = -(-lines // INTERRUPTS)
    for at in range(random.randint(1, step), lines + 1, step):
        ran, end = run_interrupted_at(at, call_and_leave, path, run=run)
        assert end is KeyboardInterrupt or ran < at, at
        for process in machines[-1].processes:
            assert process.has_exited()
            whole = [json.loads(line) for line in bytes(process.received).split(b"\n")[:-1]]
            numbers = [each["params"]["arguments"]["number"] for each in whole if each.get("method") == "tools/call"]
            assert len(numbers) == len(set(numbers)), at


async def call(ref: Any, number: int) -> None:
    """Make a call with a line that fills half of the pipe."""
    await ref.call_tool("echo", {"number": number, "padding": "x" * 1500})
