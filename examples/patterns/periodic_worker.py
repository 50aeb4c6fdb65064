"""A periodic worker: its rounds never overlap, and one that fails does not end the next.

Logs::

    actor 'cleaner': handling Clean failed, and no caller gets the error...

Prints::

    round 1: failed
    round 2: cleaned
    round 3: cleaned
    periods were skipped: True
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from mcp_actors.kernel import Actor, Message, handles, open_actor


@frozen
class Clean(Message):
    pass


class Cleaner(Actor[Clean]):
    def __init__(self, rounds: int) -> None:
        self._rounds, self._round = rounds, 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self.timer = self.every(0.01, Clean())
        yield

    @handles(Clean)
    async def clean(self, message: Clean) -> None:
        self._round += 1
        if self._round == 1:
            print("round 1: failed")
            raise OSError("the disk is busy")
        await trio.sleep(0.05)  # longer than a period
        print(f"round {self._round}: cleaned")
        if self._round == self._rounds:
            self.stop()


async def main() -> None:
    worker = Cleaner(rounds=3)
    async with open_actor(worker, name="cleaner") as cleaner:
        await cleaner.wait_stopped()
    print("periods were skipped:", worker.timer.skipped > 0)


trio.run(main)
