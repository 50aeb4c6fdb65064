"""Trio programs whose asyncio side fails, or leaves a call behind: ``python -m tests.bridge.loop_fails``.

Says what leaves their blocks.
"""

from __future__ import annotations

import asyncio
import logging

import trio
from mcp.server.mcpserver import MCPServer

from mcp_actors import InProcess, ServerConfig, open_servers
from mcp_actors.bridge import open_asyncio_loop

from .actors import Boom, Fatal


def boom() -> None:
    raise Boom


async def post_boom() -> None:
    """Have the event loop fail, a little later."""
    asyncio.get_running_loop().call_soon(boom)


async def fail(*, block_too: bool) -> None:
    """Have the event loop fail, and perhaps the block on it as well."""
    async with open_asyncio_loop() as loop:
        await loop.run(post_boom)
        try:
            await trio.sleep_forever()
        finally:
            if block_too:
                raise Fatal


async def leave_a_call_behind() -> None:
    """Leave the event loop with a call that no task there waits for or withdraws."""
    here, begun, withdrawn = MCPServer("here"), trio.Event(), trio.Event()

    async def nap() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            withdrawn.set()

    here.add_tool(nap)
    async with open_servers(ServerConfig("here", InProcess(here))) as servers:
        async with open_asyncio_loop() as loop:
            call = loop.view(servers)["here"].call_tool("nap")

            async def begin() -> None:
                call.send(None)

            await loop.run(begin)
            await begun.wait()
        with trio.fail_after(60):
            await withdrawn.wait()
        await servers["here"].stop()
        print("here is", servers["here"].state)
    call.close()


async def main() -> None:
    """Run the programs one after the other."""
    await leave_a_call_behind()
    for block_too in (False, True):
        try:
            await fail(block_too=block_too)
        except Boom:
            print("Boom alone")
        except BaseExceptionGroup as group:
            print("together:", *(type(exc).__name__ for exc in group.exceptions))
    with trio.CancelScope() as scope:
        try:
            async with open_asyncio_loop():
                scope.cancel()
                raise Fatal
        except Fatal:
            print("Fatal alone")


if __name__ == "__main__":
    logging.disable()  # asyncio logs the failed callback
    trio.run(main)
