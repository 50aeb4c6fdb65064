"""Activities of Temporal that call tools: what may be retried, and what may not.

Logs::

    server 'sums': connection lost: its process exited with code 1 while it was connected

Prints::

    5
    ServerUnavailable: retried
    ConnectionLost: not retried
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp import MCPError
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from mcp_actors import McpActorsError, ServerConfig, Stdio
from mcp_actors.bridge import AsyncioServerGroup, open_servers

MORTAL = Path(__file__).parents[1] / "servers" / "mortal.py"
SUMS = ServerConfig("sums", Stdio(sys.executable, (str(MORTAL),)))


class Tools:
    """The activities of a worker process, which opens the servers once."""

    def __init__(self, servers: AsyncioServerGroup) -> None:
        self._servers = servers

    @activity.defn
    async def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Any:
        try:
            return await self._servers[server].call(tool, **arguments)
        except (McpActorsError, MCPError) as error:
            raise failure(error) from error


def failure(error: Exception) -> ApplicationError:
    """Let Temporal retry only a call that was not sent."""
    not_sent = getattr(error, "outcome", "unknown") == "not_sent"
    kind = type(error).__name__
    return ApplicationError(str(error), type=kind, non_retryable=not not_sent)


async def show(tools: Tools, tool: str) -> None:
    try:
        await ActivityEnvironment().run(tools.call, "sums", tool, {})
    except ApplicationError as error:
        print(f"{error.type}: {'not retried' if error.non_retryable else 'retried'}")


async def main() -> None:
    async with open_servers(SUMS) as servers:
        tools = Tools(servers)
        arguments = {"a": 2, "b": 3}
        print(await ActivityEnvironment().run(tools.call, "sums", "add", arguments))
        await servers["sums"].stop()
        await show(tools, "add")
        await servers["sums"].start()
        await show(tools, "die")


asyncio.run(main())
