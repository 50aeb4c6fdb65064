"""A program on Trio whose asyncio code opens doors that are for Trio. Prints what came of it."""

from __future__ import annotations

import trio
import trio.lowlevel

from mcp_actors.bridge import open_asyncio_loop

from .test_misuse import TRIO_DOORS


async def on_asyncio() -> None:
    for name, (door, remedy) in TRIO_DOORS.items():
        try:
            async with door():
                print(name, "opened")
        except RuntimeError as error:
            print(name, "refused" if remedy in str(error) else error)


async def main() -> None:
    async with open_asyncio_loop() as loop:
        await loop.run(on_asyncio)
        try:
            await loop.run(on_asyncio())  # type: ignore[arg-type]  # the mistake
        except TypeError as error:
            print(error)
    await trio.lowlevel.checkpoint()
    print("went on")


trio.run(main)
