"""An asyncio program whose Trio run crashes: ``python -m tests.bridge.trio_dies HOST``.

There is no decent way to crash it, so its I/O manager is made to raise. The wreck of Trio writes to stderr.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import trio

from mcp_actors.bridge import AsyncioActorRef, Host, open_supervisor
from mcp_actors.kernel import ActorStopped, ChildSpec

from .actors import Count, Echo, Nap, Worker

DEATH = (OSError, trio.TrioInternalError)
"""The error of a crashed run; a guest run wraps it."""


def kill_trio() -> None:
    """Make the next turn of Trio fail."""

    def get_events(self: object, timeout: float) -> None:
        raise OSError("the system is gone")

    io_manager: Any = trio._core._run.TheIOManager  # type: ignore[attr-defined]  # it is private
    io_manager.get_events = get_events


async def main(host: Host) -> None:
    """Crash Trio while calls wait, and while the block waits for something else."""
    ref: AsyncioActorRef | None = None
    try:
        async with open_supervisor(ChildSpec("worker", Worker), host=host) as supervisor:
            ref = supervisor.child("worker")
            calls = [asyncio.create_task(ref.call(Nap()))]
            while await ref.call(Count()) != (1, 0):
                pass
            supervisor._bridge.to_trio(kill_trio)
            calls.append(asyncio.create_task(ref.call(Nap())))  # so that Trio has something to do
            try:
                await asyncio.Event().wait()
            finally:
                for call in calls:
                    try:
                        await call
                    except ActorStopped as exc:
                        print("a call ends, and says why:", isinstance(exc.__cause__, DEATH))
    except DEATH:
        print("the block ends")
        assert ref is not None
        try:
            await ref.call(Echo(1))
        except ActorStopped:
            print("later calls are refused")


if __name__ == "__main__":
    asyncio.run(main(cast("Host", sys.argv[1])))
