"""Load servers from a configuration file of other programs; an error in one entry does not stop the others.

The file is `mcp.json` in the folder of this program. One of its servers is disabled, and one has a misspelled key.

Prints::

    active: kitchen
    cellar: ...mcp.json: mcpServers.cellar: neither 'command' nor 'url' is given; ...(did you mean 'command'?)
    one omelette
"""

from __future__ import annotations

import logging
from pathlib import Path

import trio

from mcp_actors import open_servers, result_value

FILE = Path(__file__).with_name("mcp.json")


async def main() -> None:
    """Say what is in the file, and have an omelette."""
    async with open_servers(FILE) as servers:
        print("active:", *(server.name for server in servers.active))
        for name, error in servers.errors.items():
            print(f"{name}: {error}")
        print(
            result_value(
                await servers["kitchen"].call_tool("cook", {"dish": "omelette"})
            )
        )


# Errors of a file are also logged; here they are printed instead.
logging.getLogger("mcp_actors.servers").setLevel(logging.ERROR)
trio.run(main)
