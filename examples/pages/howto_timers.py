"""A thermometer that measures every minute, until it has not been read for an hour.

Prints::

    0.0
    30.0
    not read for an hour: measuring has stopped
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
import trio.testing
from attrs import frozen

from mcp_actors.kernel import Actor, Call, Message, handles, open_actor


@frozen
class Read(Call[float]):
    """Answered with the temperature that was measured last."""


@frozen
class Measure(Message):
    """Sent by the thermometer to itself."""


@frozen
class NotRead(Message):
    """The same."""


class Thermometer(Actor):
    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self._temperature = 0.0
        self._measuring = self.every(60, Measure())
        self._not_read = self.after(3600, NotRead())
        yield

    @handles(Measure)
    async def measure(self, message: Measure) -> None:
        self._temperature += 1.0

    @handles(Read)
    async def read(self, message: Read) -> float:
        self._not_read.cancel()
        self._not_read = self.after(3600, NotRead())
        return self._temperature

    @handles(NotRead)
    async def not_read(self, message: NotRead) -> None:
        print("not read for an hour: measuring has stopped")
        self._measuring.cancel()


async def main() -> None:
    async with open_actor(Thermometer(), name="thermometer") as thermometer:
        print(await thermometer.call(Read()))
        await trio.sleep(1801)
        print(await thermometer.call(Read()))
        await trio.sleep(7200)


trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
