"""List the tools of servers again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp import MCPError

from ..._errors import McpActorsError
from ..._foreign import Log
from ..._text import problem_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._views import AsyncioServerRef

logger = Log("mcp_actors.bridge")


async def list_tools_again(servers: Iterable[AsyncioServerRef]) -> None:
    """List the tools of servers, concurrently. If one does not answer, that is logged, and its last list stays."""
    import asyncio

    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            tasks.create_task(_list_tools(server), name=f"{server.name}:tools/list")


async def _list_tools(server: AsyncioServerRef) -> None:
    try:
        await server.list_tools()
    except (McpActorsError, MCPError) as exc:
        problem = problem_of(exc)
        logger.warning("server %r: tools/list failed: %s; the catalogue keeps its last list", server.name, problem)
