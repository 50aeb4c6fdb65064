"""A greenhouse: actors that send each other messages.

Prints::

    22 degrees
    25 degrees
    window: open
    28 degrees
    weather: the wire is dead
    window: closed
    22 degrees
    ...
    supervisor/climate was running and is stopped
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    Call,
    ChildSpec,
    Down,
    Message,
    handles,
    open_supervisor,
)


class Thermometer:
    """Stands for a device: it becomes warmer, and after three answers it is silent."""

    def __init__(self) -> None:
        self._answers = iter([22, 25, 28])

    async def read(self) -> int:
        await trio.sleep(0.01)
        for degrees in self._answers:
            return degrees
        raise ConnectionError("the wire is dead")


@frozen
class Read(Call[int]):
    """To the weather: answered with degrees Celsius."""


@frozen
class Measure(Message):
    """To the climate, from its timer."""


class Weather(Actor[Read]):
    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self._thermometer = Thermometer()
        yield

    @handles(Read)
    async def read(self, message: Read) -> int:
        return await self._thermometer.read()

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, ConnectionError)


@frozen
class SetWindow(Call[None]):
    """To the window."""

    open: bool


class Window(Actor[SetWindow]):
    def __init__(self) -> None:
        self._open = False

    @handles(SetWindow)
    def move(self, message: SetWindow) -> None:
        if message.open != self._open:
            self._open = message.open
            print("window:", "open" if message.open else "closed")


class Climate(Actor[Measure | Down]):
    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        assert self.supervisor is not None
        self._weather = self.supervisor.child("weather", Weather)
        self._window = self.supervisor.child("window", Window)
        self.watch(self._weather)
        self.every(0.1, Measure())
        yield

    @handles(Measure)
    async def measure(self, message: Measure) -> None:
        try:
            degrees = await self._weather.call(Read())
        except ConnectionError:
            return  # the weather has crashed, and a Down comes
        print(degrees, "degrees")
        await self._window.call(SetWindow(open=degrees > 24))

    @handles(Down)
    async def weather_is_down(self, message: Down) -> None:
        print("weather:", message.error)
        await self._window.call(SetWindow(open=False))
        if message.comes_back:
            self.watch(self._weather)


async def main() -> None:
    async with open_supervisor(
        ChildSpec("weather", Weather),
        ChildSpec("window", Window),
        ChildSpec("climate", Climate),
        max_restarts=3,
    ) as supervisor:
        climate = supervisor.child("climate")
        await trio.sleep(1)
        before = climate.state
    print(climate.path, "was", before, "and is", climate.state)


trio.run(main)
