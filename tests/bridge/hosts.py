"""The hosts: how a scenario is run on each. ``python -m tests.bridge.hosts FOLDER`` runs all on trio-asyncio."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

import mcp_actors
from mcp_actors import bridge, kernel
from mcp_actors.bridge import AsyncioLoop, Host, open_asyncio_loop

from .scenarios import SCENARIOS

Scenario = Callable[[Any], Awaitable[None]]


@frozen
class TrioProgram:
    """A program on Trio."""

    folder: Path

    def open_servers(self, *configs: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return mcp_actors.open_servers(*configs, **options)

    def open_supervisor(self, *specs: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return kernel.open_supervisor(*specs, **options)


@frozen
class AsyncioProgram:
    """A program on asyncio."""

    folder: Path
    host: Host

    def open_servers(self, *configs: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return bridge.open_servers(*configs, host=self.host, **options)

    def open_supervisor(self, *specs: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return bridge.open_supervisor(*specs, host=self.host, **options)


@frozen
class TrioAsyncioProgram:
    """The asyncio part of a program on Trio. What it uses is opened for it by the Trio part."""

    folder: Path
    loop: AsyncioLoop
    nursery: trio.Nursery

    def open_servers(self, *configs: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return self._open(lambda: mcp_actors.open_servers(*configs, **options))

    def open_supervisor(self, *specs: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return self._open(lambda: kernel.open_supervisor(*specs, **options))

    @asynccontextmanager
    async def _open(self, door: Callable[[], AbstractAsyncContextManager[Any]]) -> AsyncIterator[Any]:
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        closed = asyncio.Event()
        scope, leave = trio.CancelScope(), trio.Event()

        async def hold() -> None:
            try:
                with scope:
                    async with door() as thing:
                        opened.set_result(thing)
                        await leave.wait()
            finally:
                closed.set()

        self.nursery.start_soon(hold)
        try:
            yield self.loop.view(await opened)
        except asyncio.CancelledError:
            scope.cancel("the block was cancelled")
            raise
        finally:
            leave.set()
            await closed.wait()


def on_trio(scenario: Scenario, folder: Path) -> None:
    trio.run(scenario, TrioProgram(folder))


def on_asyncio(host: Host, run: Callable[[Any], None] = asyncio.run) -> Callable[[Scenario, Path], None]:
    return lambda scenario, folder: run(scenario(AsyncioProgram(folder, host)))


def on_trio_asyncio(scenario: Scenario, folder: Path) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery, open_asyncio_loop() as loop:
            await loop.run(scenario, TrioAsyncioProgram(folder, loop, nursery))

    trio.run(main)


def run_all(folder: Path) -> None:
    """Run every scenario on trio-asyncio, and print how each ended. That host changes asyncio for the process."""
    ends = {}
    for name, scenario in SCENARIOS.items():
        place = folder / name
        place.mkdir()
        try:
            on_trio_asyncio(scenario, place)
        except BaseException:
            ends[name] = traceback.format_exc()
        else:
            ends[name] = "fine"
    print(json.dumps(ends))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
