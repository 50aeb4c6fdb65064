"""Servers from a file that other programs read too.

Logs::

    server 'docs': has failed and is not retried: environment variable 'DOCS_TOKEN' is not set ...

Prints::

    mcp__time__get_current_time - Get current time in a specific timezone
    mcp__time__convert_time - Convert time between timezones
    docs does not serve: server 'docs': environment variable 'DOCS_TOKEN' is not set ...
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import trio

from mcp_actors import open_servers

FILE = """{
  "mcpServers": {
    "time": {"command": "mcp-server-time"},
    "docs": {
      "url": "https://example.com/mcp",
      "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}
    }
  }
}
"""


async def main() -> None:
    async with open_servers(".mcp.json") as servers:
        for tool in servers.tools:
            print(tool.public_name, "-", tool.description)
        for name, error in servers.errors.items():
            print(name, "does not serve:", error)


with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
    Path(".mcp.json").write_text(FILE)
    trio.run(main)
