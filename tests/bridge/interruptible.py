"""An asyncio program that uses the scripted server, for tests that end it: ``python -m tests.bridge.interruptible``.

Its arguments are where Trio runs, what runs the event loop, what the program does, and the flags of the server. It says
on stdout when it has come to where it is to be ended.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

import trio
import uvloop

from mcp_actors.bridge import AsyncioServerRef, Host, open_servers
from tests.servers.groups import server
from tests.servers.interruptible import PatientClock

Main = Coroutine[Any, Any, None]


async def call_for_ever(ref: AsyncioServerRef) -> None:
    """Keep a server, and everything between, busy."""
    while True:
        await ref.call_tool("echo", {"text": "busy"})


async def main(host: Host, what: str, *flags: str) -> None:
    """Come to a certain point and stay there."""
    async with open_servers(server("a", *flags), host=host) as servers:
        print("ready", flush=True)
        match what:
            case "load":
                async with asyncio.TaskGroup() as group:
                    for _ in range(16):
                        group.create_task(call_for_ever(servers["a"]))
            case "call elsewhere":  # the kernel gives a signal to another thread
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                await servers["a"].call_tool("sleep", {"seconds": 600})
            case "call":
                await servers["a"].call_tool("sleep", {"seconds": 600})
            case "idle":
                await asyncio.Event().wait()
        print("leaving", flush=True)


def run_bare(main: Main) -> None:
    """Run a program as before there was `asyncio.run`, without cancelling its tasks."""
    asyncio.new_event_loop().run_until_complete(main)


def run_until_called(loop: asyncio.AbstractEventLoop, main: Main) -> asyncio.Task[None]:
    """Run an event loop until the server has the call that never ends; return the task that still waits."""
    task, log = loop.create_task(main), Path(sys.argv[sys.argv.index("--log-file") + 1])
    while not (log.exists() and "tools/call sleep" in log.read_text()):
        loop.run_until_complete(asyncio.wait([task], timeout=0.05))
        assert not task.done()
    return task


def run_and_drop(main: Main) -> None:
    """Close the event loop while its task still waits."""
    loop = asyncio.new_event_loop()
    task = run_until_called(loop, main)
    loop.close()
    print("closed", task, flush=True)


def run_and_forget(main: Main) -> None:
    """Stop the event loop while its task still waits, and never close it."""
    loop = asyncio.new_event_loop()
    task = run_until_called(loop, main)
    sys.modules["tests"].kept = loop, task  # type: ignore[attr-defined]  # so that nothing is collected before the end


RUNNERS: dict[str, Callable[[Main], None]] = {
    "run": asyncio.run,
    "bare": run_bare,
    "uvloop": uvloop.run,
    "drop": run_and_drop,
    "forget": run_and_forget,
}

if __name__ == "__main__":
    logging.getLogger("mcp_actors").addHandler(logging.NullHandler())  # the tests look at stderr
    clock = PatientClock()
    trio.run = partial(trio.run, clock=clock)  # type: ignore[assignment]  # the bridge runs it with its own arguments
    trio.lowlevel.start_guest_run = partial(trio.lowlevel.start_guest_run, clock=clock)
    host, runner, *rest = sys.argv[1:]
    RUNNERS[runner](main(cast("Host", host), *rest))
