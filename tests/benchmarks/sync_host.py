"""The process of calls without an event loop: ``python -m tests.benchmarks.sync_host`` prints ratios as JSON.

All contestants call a tool of the same server over stdio, in turns, each on a connection of its own. What counts is the
processor time of this process, with all of its threads.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from time import process_time
from typing import Any, Final

from anyio.from_thread import start_blocking_portal

import mcp_actors
from mcp_actors import ServerConfig, Stdio, bridge, sync

from .peers import quick_server

ROUNDS: Final = 15
CALLS: Final = 800
THREADS: Final = 8
COMMAND, *ARGS = quick_server.command()
SERVER: Final = ServerConfig("quick", Stdio(COMMAND, ARGS), protocol="legacy")
Call = Callable[[], object]
Run = Callable[[], None]


def repeat(call: Call, times: int) -> None:
    """Call again and again."""
    for _ in range(times):
        call()


def in_threads(threads: ThreadPoolExecutor, call: Call) -> None:
    """Share the calls of a round among threads."""
    list(threads.map(partial(repeat, call), [CALLS // THREADS] * THREADS))


def timed(run: Run) -> float:
    """Run a part of a round; return its processor time."""
    began = process_time()
    run()
    return process_time() - began


def main() -> None:
    """Play all rounds."""
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(THREADS))
        ours: Any = stack.enter_context(sync.open_servers(SERVER))["quick"]
        portal = stack.enter_context(start_blocking_portal(backend="trio"))
        opened = portal.wrap_async_context_manager(mcp_actors.open_servers(SERVER))
        on_trio = stack.enter_context(opened)["quick"]
        runner = stack.enter_context(asyncio.Runner())
        door = bridge.open_servers(SERVER)
        on_asyncio: Any = runner.run(door.__aenter__())["quick"]
        stack.callback(lambda: runner.run(door.__aexit__(None, None, None)))

        async def ask_on_asyncio() -> None:
            for _ in range(CALLS):
                await on_asyncio.call_tool("echo", {"text": "x"})

        call = partial(ours.call_tool, "echo", {"text": "x"})
        through_portal = partial(portal.call, on_trio.call_tool, "echo", {"text": "x"})
        runs: dict[str, Run] = {
            "sync, 1": partial(repeat, call, CALLS),
            "asyncio, 1": lambda: runner.run(ask_on_asyncio()),
            "portal, 1": partial(repeat, through_portal, CALLS),
            f"sync, {THREADS}": partial(in_threads, threads, call),
            f"portal, {THREADS}": partial(in_threads, threads, through_portal),
        }
        for run in runs.values():
            run()
        gc.collect()
        print(json.dumps([{name: timed(run) for name, run in runs.items()} for _ in range(ROUNDS)]))


if __name__ == "__main__":
    main()
