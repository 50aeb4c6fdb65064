"""Several servers, one of which the program cannot do without, and one that is not there.

Logs::

    server 'docs': has failed and is not retried: environment variable 'DOCS_TOKEN' is not set ...

Prints::

    mcp__time__get_current_time - Get current time in a specific timezone
    mcp__time__convert_time - Convert time between timezones
    mcp__git__git_status - Shows the working tree status
    ...
    docs does not serve: server 'docs': environment variable 'DOCS_TOKEN' is not set ...
"""

from __future__ import annotations

import trio

from mcp_actors import Http, ServerConfig, Stdio, open_servers


async def main() -> None:
    async with open_servers(
        ServerConfig("time", Stdio("mcp-server-time")),
        ServerConfig("git", Stdio("mcp-server-git"), required=True),
        ServerConfig(
            "docs",
            Http(
                "https://example.com/mcp",
                headers={"Authorization": "Bearer ${DOCS_TOKEN}"},
            ),
        ),
    ) as servers:
        for tool in servers.tools:
            print(tool.public_name, "-", tool.description)
        for name, error in servers.errors.items():
            print(name, "does not serve:", error)


trio.run(main)
