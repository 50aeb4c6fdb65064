"""A Trio program whose actors run code on asyncio that calls actors. Prints what came of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from attrs import frozen

from mcp_actors.bridge import AsyncioLoop, open_asyncio_loop
from mcp_actors.kernel import Actor, ActorError, ActorRef, Call, open_actor


@frozen(eq=False)
class Run(Call[Any]):
    """Has code run on asyncio, and waits for it."""

    fn: Callable[[], Awaitable[Any]]


class Runner(Actor):
    def __init__(self, loop: AsyncioLoop) -> None:
        self._loop = loop

    async def handle(self, message: Run) -> Any:
        return await self._loop.run(message.fn)


async def answer() -> str:
    return "answered"


async def main() -> None:
    async with (
        open_asyncio_loop() as loop,
        open_actor(Runner(loop), name="p", mailbox_size=1) as p,
        open_actor(Runner(loop), name="q") as q,
    ):
        tasks: list[asyncio.Task[Any]] = []

        async def call(ref: ActorRef, fn: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await loop.view(ref).call(Run(fn))
            except ActorError as exc:
                return str(exc)

        async def leave_a_task() -> Any:
            async def later() -> Any:
                await asyncio.sleep(0.01)
                return await call(p, answer)

            tasks.append(asyncio.get_running_loop().create_task(later()))
            return await call(q, answer)

        async def wait_for_the_task() -> Any:
            return await tasks[0]

        async def tell_twice() -> Any:
            """The second message finds the mailbox full, and everybody who could make room waits for this."""
            view = loop.view(p)
            await view.tell(Run(answer))
            try:
                await view.tell(Run(answer))
            except ActorError as exc:
                return type(exc).__name__

        with trio.fail_after(60):
            print("another:", await p.call(Run(leave_a_task)))
            print("later:", await loop.run(wait_for_the_task))
            print("tell:", await p.call(Run(tell_twice)))
            print("back:", await p.call(Run(partial(call, q, partial(call, p, answer)))))


if __name__ == "__main__":
    trio.run(main)
