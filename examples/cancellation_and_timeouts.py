"""Cancellation and timeouts: callers decide how long they wait, and a cancelled call leaves nothing behind.

Calls take no timeout argument. Use Trio's own `fail_after` and `move_on_after` around one call, many calls, or the
whole block.

Prints::

    pizza: too slow
    the kitchen has thrown away: pizza
    what was ready in time: salad, toast
    the kitchen has thrown away: pizza, stew, turkey
    time is up in the middle of the block
    and yet the last wish is granted: one tea
    the block is left, the kitchen is stopped
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from mcp_actors import ServerConfig, ServerRef, Stdio, open_servers

KITCHEN = Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")])
FOR_EVER = 1000.0


async def ask(kitchen: ServerRef, tool: str, **arguments: str | float) -> str:
    """Call a tool and return its text."""
    result = await kitchen.call_tool(tool, arguments)
    return " ".join(getattr(part, "text", "") for part in result.content)


async def one_call(kitchen: ServerRef) -> None:
    """A deadline around one call. The caller returns at once, and the server is asked to cancel the request."""
    try:
        with trio.fail_after(0.5):
            print(await ask(kitchen, "cook", dish="pizza", seconds=FOR_EVER))
    except trio.TooSlowError:
        print("pizza: too slow")
    print("the kitchen has thrown away:", await ask(kitchen, "clean_up"))


async def many_calls(kitchen: ServerRef) -> None:
    """A deadline around many calls. Finished calls keep their results, the others are cancelled together."""
    ready: list[str] = []

    async def cook(dish: str, seconds: float) -> None:
        await ask(kitchen, "cook", dish=dish, seconds=seconds)
        ready.append(dish)

    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            for dish, seconds in {
                "toast": 0.1,
                "stew": FOR_EVER,
                "salad": 0.0,
                "turkey": FOR_EVER,
            }.items():
                nursery.start_soon(cook, dish, seconds)
    print("what was ready in time:", ", ".join(sorted(ready)))
    print("the kitchen has thrown away:", await ask(kitchen, "clean_up"))


async def whole_block() -> None:
    """A deadline around everything. The block ends first, including its clean-up; only then is the server stopped."""
    with trio.move_on_after(60) as deadline:
        async with open_servers(
            ServerConfig("kitchen", KITCHEN, required=True)
        ) as servers:
            kitchen = servers["kitchen"]
            await one_call(kitchen)
            await many_calls(kitchen)
            deadline.deadline = trio.current_time() + 0.1
            try:
                await ask(kitchen, "cook", dish="wedding cake", seconds=FOR_EVER)
            finally:
                print("time is up in the middle of the block")
                with trio.CancelScope(deadline=trio.current_time() + 5, shield=True):
                    print(
                        "and yet the last wish is granted:",
                        await ask(kitchen, "cook", dish="tea"),
                    )
    print("the block is left, the kitchen is", kitchen.state)  # pyright: ignore[reportPossiblyUnboundVariable]  # it was opened


trio.run(whole_block)
