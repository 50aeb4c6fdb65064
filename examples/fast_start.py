"""A program that starts before its servers do: it shows their tools as it knows them from its last run.

The kitchen is a program that takes a second to start. The first run has to wait for it. The second does not, and a call
that comes too early waits for the kitchen, and no longer than that.

Prints::

    first run: the kitchen is ready, and offers cook, clean_up
    second run: the kitchen is connecting, and offered cook, clean_up
    called nevertheless: one soup
    by now: the kitchen is ready, and offers cook, clean_up
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import trio

from mcp_actors import ServerConfig, ServerGroup, Stdio, open_servers

kitchen = ServerConfig(
    "kitchen",
    Stdio(sys.executable, [str(Path(__file__).parent / "servers" / "kitchen.py")]),
)


def print_tools(when: str, servers: ServerGroup) -> None:
    """Print what is known of the kitchen, and whether it has said so itself in this run."""
    tools = servers.tools.of("kitchen")
    verb = "offered" if any(tool.deferred for tool in tools) else "offers"
    names = ", ".join(tool.name for tool in tools)
    print(f"{when}: the kitchen is {servers['kitchen'].state}, and {verb} {names}")


async def main() -> None:
    """Run twice."""
    with tempfile.TemporaryDirectory() as cache:
        async with open_servers(kitchen, catalog_store=cache, start_gate=0) as servers:
            print_tools("first run", servers)

        async with open_servers(kitchen, catalog_store=cache, start_gate=0) as servers:
            print_tools("second run", servers)
            result = await servers.call_tool("mcp__kitchen__cook", {"dish": "soup"})
            print(
                "called nevertheless:",
                *(getattr(part, "text", part) for part in result.content),
            )
            print_tools("by now", servers)


trio.run(main)
