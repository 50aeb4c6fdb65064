"""The same actor, which a supervisor replaces when it crashes.

Prints::

    event: weather Started
    event: supervisor Started
    22.0
    21.0
    20.0
    not this time: the wire is dead
    event: weather Restarting
    event: weather Started
    22.0
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    Backoff,
    Call,
    ChildSpec,
    Event,
    Restarting,
    Started,
    handles,
    open_supervisor,
)


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
        yield

    @handles(Read)
    async def read(self, message: Read) -> float:
        return await self._thermometer.read()

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ConnectionError)


def tell(event: Event) -> None:
    if isinstance(event, Started | Restarting):
        print("event:", event.actor, type(event).__name__)


async def main() -> None:
    spec = ChildSpec("weather", Weather)
    async with open_supervisor(
        spec, max_restarts=3, backoff=Backoff(initial=0.1), observers=[tell]
    ) as supervisor:
        weather = supervisor.child("weather", Weather)
        for _ in range(5):
            try:
                print(await weather.call(Read()))
            except ConnectionError as error:
                print("not this time:", error)


trio.run(main)
