"""The process of one host: ``python -m tests.benchmarks.bridge_host HOST`` prints the ratios of each round, as JSON.

A round is some calls from Trio, and right after them the same calls from asyncio.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final, cast

import trio

from mcp_actors import kernel
from mcp_actors.bridge import AsyncioSupervisorRef, Host, open_asyncio_loop, open_supervisor
from mcp_actors.kernel import ChildSpec

from .actors import Ask, Echo, WideEcho

ROUNDS: Final = 21
CALLS: Final = 400
CALLERS: Final = 200
CALLS_EACH: Final = 5
"""What is measured are calls; that tasks are started for them should not count much."""

SPECS: Final = (ChildSpec("echo", Echo), ChildSpec("wide", WideEcho))

Ref = Any
Run = Callable[[Ref], Awaitable[None]]


async def ask(ref: Ref, times: int) -> None:
    """Call again and again."""
    for number in range(times):
        await ref.call(Ask(number))


async def together_in_trio(ref: Ref) -> None:
    """Call from many tasks of Trio's."""
    async with trio.open_nursery() as nursery:
        for _ in range(CALLERS):
            nursery.start_soon(ask, ref, CALLS_EACH)


async def together_in_asyncio(ref: Ref) -> None:
    """Call from many tasks of asyncio's."""
    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(ask(ref, CALLS_EACH))


async def timed(run: Run, ref: Ref) -> float:
    """Run a part of a round; return its seconds."""
    began = perf_counter()
    await run(ref)
    return perf_counter() - began


async def play(supervisor: AsyncioSupervisorRef) -> dict[str, list[float]]:
    """Play all rounds, on the event loop."""
    ratios: dict[str, list[float]] = {"1": [], str(CALLERS): []}
    contests: list[tuple[str, str, Run, Run]] = [
        ("1", "echo", lambda ref: ask(ref, CALLS), lambda ref: ask(ref, CALLS)),
        (str(CALLERS), "wide", together_in_trio, together_in_asyncio),
    ]
    for number in range(ROUNDS + 1):
        for label, child, in_trio, in_asyncio in contests:
            view = supervisor.child(child)
            yardstick = await in_trio_timed(view, in_trio)
            seconds = await timed(in_asyncio, view)
            if number:  # the first round pays for what happens only once
                ratios[label].append(seconds / yardstick)
    return ratios


async def in_trio_timed(view: Any, run: Run) -> float:
    """Run a part of a round on Trio's side."""
    return cast("float", await view._bridge.call(view, lambda: timed(run, view._target)))


async def on_asyncio(host: Host) -> dict[str, list[float]]:
    """Play with asyncio as the outer one."""
    async with open_supervisor(*SPECS, host=host) as supervisor:
        return await play(supervisor)


async def on_trio() -> dict[str, list[float]]:
    """Play with Trio as the outer one."""
    async with kernel.open_supervisor(*SPECS) as supervisor, open_asyncio_loop() as loop:
        return await loop.run(play, loop.view(supervisor))


def main(host: str) -> None:
    """Play on one host."""
    ratios = trio.run(on_trio) if host == "trio-asyncio" else asyncio.run(on_asyncio(cast("Host", host)))
    print(json.dumps(ratios))


if __name__ == "__main__":
    main(*sys.argv[1:])
