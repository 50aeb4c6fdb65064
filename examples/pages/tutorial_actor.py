"""An actor of one's own, without a supervisor.

Prints::

    connected
    22.0
    21.0
    disconnected
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, Call, handles, open_actor


class Thermometer:
    """Stands for a device: after three answers it is silent for good."""

    def __init__(self) -> None:
        self._left = 3

    async def read(self) -> float:
        await trio.sleep(0.01)
        self._left -= 1
        if self._left < 0:
            raise ConnectionError("the wire is dead")
        return 20.0 + self._left


@frozen
class Read(Call[float]):
    """Answered with degrees Celsius."""


class Weather(Actor[Read]):
    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self._thermometer = Thermometer()
        print("connected")
        yield
        print("disconnected")

    @handles(Read)
    async def read(self, message: Read) -> float:
        return await self._thermometer.read()


async def main() -> None:
    async with open_actor(Weather(), name="weather") as weather:
        print(await weather.call(Read()))
        print(await weather.call(Read()))


trio.run(main)
