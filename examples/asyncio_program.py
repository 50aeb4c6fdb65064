"""A program on asyncio that uses servers running on Trio in a thread of their own.

`mcp_actors.bridge.open_servers` takes the same arguments as `mcp_actors.open_servers`. The group and its servers are
awaited on the program's own event loop; cancellation, timeouts and progress work across both.

Prints::

    kitchen is ready
    one omelette and one soup
    no time for a roast
    thrown away: roast
    asked from a thread: one tea
    kitchen is stopped
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp_actors import ServerConfig, Stdio, result_value
from mcp_actors.bridge import AsyncioServerRef, open_servers

KITCHEN = Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")])


async def cook(kitchen: AsyncioServerRef, dish: str, seconds: float = 0.0) -> str:
    """Have a dish."""
    return str(
        result_value(
            await kitchen.call_tool("cook", {"dish": dish, "seconds": seconds})
        )
    )


def call_from_a_thread(
    loop: asyncio.AbstractEventLoop, kitchen: AsyncioServerRef
) -> Any:
    """Have the event loop make a call, and wait for what comes of it."""
    return asyncio.run_coroutine_threadsafe(
        kitchen.call_tool("cook", {"dish": "tea"}), loop
    ).result()


async def main() -> None:
    """Have several dishes at the same time, and one that takes too long."""
    async with open_servers(ServerConfig("kitchen", KITCHEN, required=True)) as servers:
        kitchen = servers["kitchen"]
        print(f"{kitchen.name} is {kitchen.state}")
        async with asyncio.TaskGroup() as tasks:
            dishes = [
                tasks.create_task(cook(kitchen, dish)) for dish in ("omelette", "soup")
            ]
        print(" and ".join(dish.result() for dish in dishes))

        try:
            async with asyncio.timeout(0.2):
                await cook(kitchen, "roast", seconds=60)
        except TimeoutError:
            print("no time for a roast")
        print("thrown away:", result_value(await kitchen.call_tool("clean_up")))

        tea = await asyncio.to_thread(
            call_from_a_thread, asyncio.get_running_loop(), kitchen
        )
        print("asked from a thread:", result_value(tea))
    print(f"{kitchen.name} is {kitchen.state}")


asyncio.run(main())
