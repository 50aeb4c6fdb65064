"""An alarm that watches the pump of a house.

Prints::

    house/heating/pump: crashed (OSError('blocked')), comes back: True
    house/heating/pump: shutdown (None), comes back: False
    house/       running
    ├─ heating/  running
    │  └─ pump   stopped   1 restart, last error: OSError('blocked')
    └─ alarm     running
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import trio
import trio.testing
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    Down,
    Supervisor,
    SupervisorRef,
    handles,
    open_supervisor,
)


@frozen
class Turn(Call[None]):
    pass


class Pump(Actor):
    @handles(Turn)
    async def turn(self, message: Turn) -> None:
        raise OSError("blocked")

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, OSError)


class Alarm(Actor):
    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        assert self.supervisor is not None
        self.watch(self.supervisor.find("heating/pump"))
        yield

    @handles(Down)
    async def down(self, down: Down) -> None:
        what = f"{down.reason} ({down.error!r}), comes back: {down.comes_back}"
        print(f"{down.ref.path}: {what}")
        if down.comes_back:
            self.watch(down.ref)


async def main() -> None:
    async with open_supervisor(
        ChildSpec("heating", lambda: Supervisor(ChildSpec("pump", Pump))),
        ChildSpec("alarm", Alarm),
        name="house",
    ) as house:
        heating = house.child("heating", SupervisorRef)
        pump = heating.child("pump")
        async with pump.watch() as monitor:
            with suppress(OSError):
                await pump.call(Turn())
            await monitor.wait()
        await pump.wait_state("running")
        async with pump.watch() as monitor:
            await heating.stop_child("pump")
            await monitor.wait()
        await trio.testing.wait_all_tasks_blocked()
        print(house.tree())


trio.run(main)
