"""A circuit breaker: after failures in a row, calls are refused for a while.

Prints::

    1: the service is down
    2: the service is down
    3: the circuit is open
    4: the answer
    the service was asked 3 times
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, Call, Message, handles, open_actor

COOL_DOWN = 0.5


@frozen
class Fetch(Call[str]):
    """Ask the service, if the circuit is closed."""


@frozen
class Try(Message):
    """Let one call through again."""


class CircuitOpen(Exception):
    """The service was not asked."""


class Breaker(Actor[Fetch | Try]):
    def __init__(self, service: Callable[[], Awaitable[str]], *, limit: int) -> None:
        self._service, self._limit = service, limit
        self._failures = 0

    @handles(Fetch)
    async def fetch(self, message: Fetch) -> str:
        if self._failures >= self._limit:
            raise CircuitOpen("the circuit is open")
        try:
            answer = await self._service()
        except OSError:
            self._failures += 1
            if self._failures == self._limit:
                self.after(COOL_DOWN, Try())
            raise
        self._failures = 0
        return answer

    @handles(Try)
    def try_again(self, message: Try) -> None:
        self._failures = self._limit - 1  # the next failure opens the circuit at once


async def main() -> None:
    asked = 0

    async def service() -> str:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise OSError("the service is down")
        return "the answer"

    async with open_actor(Breaker(service, limit=2), name="breaker") as breaker:
        for number in range(1, 5):
            if number == 4:
                await trio.sleep(1.2 * COOL_DOWN)
            try:
                print(f"{number}:", await breaker.call(Fetch()))
            except (OSError, CircuitOpen) as error:
                print(f"{number}: {error}")
    print(f"the service was asked {asked} times")


trio.run(main)
