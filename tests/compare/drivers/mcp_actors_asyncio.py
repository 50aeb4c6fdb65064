"""mcp_actors on asyncio, through its bridge: docs/howto/asyncio.md."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp_actors.bridge import open_servers

from ..driver import Servers
from .mcp_actors_trio import Group, configure


@asynccontextmanager
async def connect(servers: Servers) -> AsyncIterator[Group]:
    """Open a group."""
    async with open_servers(*configure(servers)) as group:
        yield Group(group)
