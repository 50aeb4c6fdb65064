"""A program that uses the scripted server, for tests that interrupt it: ``python -m tests.servers.interruptible WHAT``.

It says on stdout when it has come to where it is to be interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import trio

from mcp_actors import ServerRef, open_servers

from .groups import BOUND, server

SLOW_TO_STOP = ("--ignore-eof", "--ignore-sigterm")

SLOW_STOP = 2.0
"""How long a server that is slow to stop has, of which it needs a moment to note the end of its input."""


def stop_timeout(flags: Sequence[str]) -> float:
    """Return the time for a server with some flags: any other leaves by itself, however busy the machine is."""
    return SLOW_STOP if set(SLOW_TO_STOP) <= set(flags) else BOUND


async def call_for_ever(ref: ServerRef) -> None:
    """Keep a server, and everything between, busy."""
    while True:
        await ref.call_tool("echo", {"text": "busy"})


async def load(ref: ServerRef) -> None:
    """Call from many tasks. The group that their nursery makes of an interrupt is this program's own."""
    interrupted = False
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(call_for_ever, ref)
    except* KeyboardInterrupt:
        interrupted = True
    if interrupted:
        raise KeyboardInterrupt


async def main(what: str, flags: list[str]) -> None:
    """Come to a certain point and stay there."""
    async with open_servers(server("a", *flags, stop_timeout=stop_timeout(flags))) as servers:
        print("ready", flush=True)
        match what:
            case "load":
                await load(servers["a"])
            case "call":
                await servers["a"].call_tool("sleep", {"seconds": 600})
            case "idle":
                await trio.sleep_forever()
        print("leaving", flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2:])
