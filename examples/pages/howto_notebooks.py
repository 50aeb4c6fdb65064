"""The cells of a notebook, run one after the other as a notebook runs them: each in a task of its own.

Prints::

    ready
    {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
    stopped
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from types import FunctionType
from typing import Any

CELLS = [
    """
from contextlib import AsyncExitStack

from mcp_actors import ServerConfig, Stdio
from mcp_actors.bridge import open_servers

stack = AsyncExitStack()
time = ServerConfig("time", Stdio("mcp-server-time"))
servers = await stack.enter_async_context(open_servers(time))
print(servers["time"].state)
""",
    """
paris = {"timezone": "Europe/Paris"}
result = await servers["time"].call_tool("get_current_time", paris)
print(result.structured_content)
""",
    """
await stack.aclose()
print(servers["time"].state)
""",
]


async def run(cell: str, variables: dict[str, Any]) -> None:
    code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = FunctionType(code, variables)()
    if inspect.isawaitable(result):
        await result


async def main() -> None:
    variables: dict[str, Any] = {}
    for cell in CELLS:
        await asyncio.create_task(run(cell, variables))


asyncio.run(main())
