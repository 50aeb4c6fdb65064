"""One process serves all servers of a file to a client, and a program serves a group.

Logs::

    ... INFO server 'time': connected, 2 tools

Prints::

    time_convert_time, time_get_current_time
    True
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

import trio

from mcp_actors import ServerConfig, Stdio, open_servers
from mcp_actors.gateway import serve

TIME = ServerConfig("time", Stdio("mcp-server-time"))


async def use_a_file(file: Path) -> None:
    entries = {"time": {"command": "mcp-server-time"}}
    file.write_text(json.dumps({"mcpServers": entries}))
    served = Stdio("mcp-actors", ("serve", "--config", str(file), "--stdio"))
    async with open_servers(ServerConfig("all", served)) as servers:
        print(*sorted(tool.name for tool in servers.tools), sep=", ")
        await servers["all"].call("time_get_current_time", timezone="Europe/Paris")


async def serve_a_group(socket: Path) -> None:
    async with (
        open_servers(TIME, naming="{server}_{tool}") as servers,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(partial(serve, servers, path=socket))
        print(socket.is_socket())
        nursery.cancel_scope.cancel()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await use_a_file(Path(folder, "servers.json"))
        await serve_a_group(Path(folder, "servers.sock"))


if __name__ == "__main__":
    trio.run(main)
