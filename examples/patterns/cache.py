"""A cache with single flight: callers of the same key share one request.

Prints::

    anna: ANNA ANNA ANNA
    requests: 1
    anna: ANNA
    requests: 1
    eve: no such user
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import copy

import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    Later,
    LaterQueue,
    handles,
    open_actor,
)


@frozen
class Get(Call[str]):
    key: str


class Cache(Actor[Get]):
    def __init__(self, fetch: Callable[[str], Awaitable[str]]) -> None:
        self._fetch = fetch
        self._values: dict[str, str] = {}
        self._waiting: dict[str, LaterQueue[str]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with trio.open_nursery() as self._nursery:
            yield
            self._nursery.cancel_scope.cancel()

    @handles(Get)
    async def get(self, message: Get) -> str | Later[str]:
        key = message.key
        if key in self._values:
            return self._values[key]
        if key not in self._waiting:
            self._waiting[key] = LaterQueue()
            self._nursery.start_soon(self._fill, key)
        return self._waiting[key].add(self.defer(message, keep_slot=False))

    async def _fill(self, key: str) -> None:
        # It goes on if a caller leaves, because others may wait.
        try:
            value = self._values[key] = await self._fetch(key)
        except Exception as error:
            for later in self._waiting.pop(key):
                later.fail(copy(error))  # an object for each caller
            return
        for later in self._waiting.pop(key):
            later.reply(value)


async def look_up(cache: ActorRef[Get], key: str, found: list[str]) -> None:
    found.append(await cache.call(Get(key)))


async def main() -> None:
    requests = 0

    async def fetch(key: str) -> str:
        nonlocal requests
        requests += 1
        await trio.sleep(0.01)
        if key != "anna":
            raise LookupError("no such user")
        return "ANNA"

    async with open_actor(Cache(fetch), name="cache") as cache:
        for callers in (3, 1):
            found: list[str] = []
            async with trio.open_nursery() as nursery:
                for _ in range(callers):
                    nursery.start_soon(look_up, cache, "anna", found)
            print("anna:", *found)
            print("requests:", requests)
        try:
            await cache.call(Get("eve"))
        except LookupError as error:
            print("eve:", error)


trio.run(main)
