"""Read the instructions of servers, for a system prompt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ._offer import Offer

if TYPE_CHECKING:
    from ..bridge import AsyncioServerGroup
    from ..config import ToolContext


async def server_instructions(
    group: AsyncioServerGroup, *, servers: Iterable[str] | None = None, context: ToolContext | None = None
) -> str:
    """Return what the servers of a group say about the use of their tools, for the system prompt of an agent.

    A model follows these texts as it follows yours, so add only those of servers that you trust. A server is left out
    if it has no instructions, if it never was connected, or if none of its tools is offered. No request is sent.

    Args:
        group: the group that `mcp_actors.bridge.open_servers` yields.
        servers: the names of the servers. Default None: all.
        context: the agent and run, for the predicates of `ToolFilter`. Default None: no particular one.

    Returns:
        The instructions of each server under a line with its name, in configured order; empty if there are none.

    Raises:
        ConfigError: a server's ToolFilter has a predicate, and there is no context.
        ServerUnavailable: the block of the group has exited.
        TypeError: `group` is not a group of the bridge.
        KeyError: the group has no such server.
    """
    offer = Offer.of(group, servers)
    return offer.instructions(await offer.known_tools(context))
