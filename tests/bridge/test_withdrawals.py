"""Callers on asyncio that leave while they are interrupted: the program ends, and so does every request."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, TypeAlias

import pytest
import trio

from mcp_actors import bridge
from mcp_actors.bridge import _bridge
from mcp_actors.kernel import _serving
from mcp_actors.servers.connection import _direct
from mcp_actors.servers.ref import _caller
from mcp_actors.transports.stdio import _pipes
from tests.interrupter import run_interrupted_at
from tests.programs import FULL_SIZE
from tests.servers.wire_pipes import SMALLEST, Machine, needs_linux

Run: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, object]]], None]

INTERRUPTS: Final = 300 if FULL_SIZE else 5


def run_with_runner(main: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run a program on asyncio, whose handler cancels it."""
    asyncio.run(main())


def run_bare(main: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run a program as before there was `asyncio.run`, with Python's own handler, which raises anywhere."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # a task that was interrupted would be logged
    try:
        loop.run_until_complete(main())
    finally:
        with suppress(KeyboardInterrupt):  # from a task that gets it from another
            loop.run_until_complete(cancel_others())
        loop.close()


async def cancel_others() -> None:
    for task in (others := asyncio.all_tasks() - {asyncio.current_task()}):
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@needs_linux
@pytest.mark.parametrize("run", [run_with_runner, run_bare])
@pytest.mark.parametrize("module", [_bridge, _caller, _direct, _pipes, _serving])
def test_ctrl_c_in_a_withdrawal_leaves_and_doubles_nothing(module: ModuleType, run: Run) -> None:
    """A-08: with a guest, whatever line it hits while callers begin, leave a full pipe, or get their answers."""
    machines: list[Machine] = []
    blocks: list[Any] = []

    async def call_and_leave() -> None:
        machines.append(machine := Machine("legacy", SMALLEST))
        config = machine.config(stop_timeout=0.1, request_timeout=None)
        with machine.installed():
            blocks.append(block := bridge.open_servers(config, host="guest"))
            async with block as servers:
                await call(servers["a"], 0)
                machine.now.freeze()
                tasks = [asyncio.create_task(call(servers["a"], number)) for number in range(1, 6)]
                await asyncio.sleep(0.001)
                for task in tasks[:3]:
                    task.cancel()
                await asyncio.sleep(0)
                machine.now.thaw()
                await asyncio.gather(*tasks, return_exceptions=True)

    path = str(module.__file__)
    lines, nothing = run_interrupted_at(None, call_and_leave, path, run=run)
    assert nothing is None
    step = -(-lines // INTERRUPTS)
    for at in range(random.randint(1, step), lines + 1, step):
        ran, end = run_interrupted_at(at, call_and_leave, path, run=run)
        assert end is KeyboardInterrupt or ran < at, at
        if trio.lowlevel.in_trio_run():  # it was interrupted when it left the block
            blocks[-1]._run.at_exit()
        for process in machines[-1].processes:
            assert process.has_exited()
            whole = [json.loads(line) for line in bytes(process.received).split(b"\n")[:-1]]
            numbers = [each["params"]["arguments"]["number"] for each in whole if each.get("method") == "tools/call"]
            assert len(numbers) == len(set(numbers)), at


async def call(ref: Any, number: int) -> None:
    """Make a call with a line that fills half of the pipe."""
    await ref.call_tool("echo", {"number": number, "padding": "x" * 1500})
