"""A program that uses the scripted server, for tests that interrupt it: ``python -m tests.servers.interruptible WHAT``.

It says on stdout when it has come to where it is to be interrupted. No time-out expires before a test lets it skip
waits (`PatientClock`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import trio

from mcp_actors import ServerRef, open_servers
from tests.idle_clock import IdleClock

from .groups import server

SLOW_TO_STOP: Final = ("--ignore-eof", "--ignore-sigterm")


class PatientClock(IdleClock):
    """Skips waits only once the file that follows ``--skip-file`` in the program's arguments exists."""

    def __init__(self) -> None:
        super().__init__()
        at = sys.argv.index("--skip-file")
        self._file = Path(sys.argv[at + 1])
        del sys.argv[at : at + 2]

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Look at the file every few milliseconds."""
        self.skips = self._file.exists()
        return min(super().deadline_to_sleep_time(deadline), 0.01)


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
    async with open_servers(server("a", *flags)) as servers:
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
    clock = PatientClock()
    trio.run(main, sys.argv[1], sys.argv[2:], clock=clock)
