"""Filter the tools of a server by name and by agent, and approve tools that have changed.

The first server is `servers/mail.py`. Its tools are checked whenever they are listed: when it is connected, and when it
announces a change. A new or changed tool stays hidden until it is approved. The second server, an object in this
process, does not list its tools at all.

Prints::

    in the catalogue: read, update, send
    for a guest: read, query
    server 'mail': tool 'wipe' is hidden by its ToolFilter; ...
    changed: send (Send a mail, and a copy to the author of this server.)
    in the catalogue: read, update
    in the catalogue: read, update, send
    the archive is degraded, and shows query
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

import trio
from mcp import MCPError
from mcp.server import Server
from mcp.types import INTERNAL_ERROR, ListToolsResult

from mcp_actors import (
    CatalogTool,
    InProcess,
    ServerConfig,
    ServerRef,
    Stdio,
    ToolFilter,
    ToolNotFound,
    open_servers,
)
from mcp_actors.config import ToolContext
from mcp_actors.servers import ToolsDiffer


def shown_to(tool: CatalogTool, context: ToolContext) -> bool:
    """Return whether an agent is shown a tool; guests may only read."""
    return context.agent != "guest" or tool.name == "read"


MAIL = ServerConfig(
    "mail",
    Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "mail.py")]),
    tool_filter=ToolFilter(deny=["wipe"], predicate=shown_to),
    on_tool_change="block",
)


async def lose_list(context: object, params: object) -> ListToolsResult:
    """Answer, but not with a list of tools."""
    raise MCPError(INTERNAL_ERROR, "the list is lost")


ARCHIVE = ServerConfig(
    "archive",
    InProcess(Server("archive", on_list_tools=lose_list)),
    static_tools=[{"name": "query", "inputSchema": {"type": "object"}}],
)


def names(tools: Iterable[CatalogTool]) -> str:
    """The names of tools, as their server calls them."""
    return ", ".join(tool.name for tool in tools)


async def look_at_changes(mail: ServerRef) -> None:
    """Approve the tools that wait for it; a real program would ask a person."""
    changes = mail.tool_changes
    for tool in changes.tools:
        print(f"changed: {tool.name} ({tool.description})")
    await mail.approve_tools(changes)


async def main() -> None:
    """See which tools there are, before and after the server was updated."""
    async with open_servers(MAIL, ARCHIVE) as servers, servers.watch_events() as events:
        mail, archive = servers.configured
        print("in the catalogue:", names(servers.tools.of("mail")))
        print("for a guest:", names(await servers.list_tools(ToolContext("guest"))))
        try:
            await mail.call_tool("wipe")
        except ToolNotFound as refusal:
            print(refusal)
        await mail.call_tool("update")
        async for event in events:
            if isinstance(event, ToolsDiffer):
                hidden = names(servers.tools.of("mail"))
                await look_at_changes(mail)
                print("in the catalogue:", hidden)
                print("in the catalogue:", names(servers.tools.of("mail")))
                break
        shown = names(servers.tools.of("archive"))
        print(f"the archive is {archive.state}, and shows {shown}")


# A program would configure logging.
logging.getLogger("mcp_actors").addHandler(logging.NullHandler())
trio.run(main)
