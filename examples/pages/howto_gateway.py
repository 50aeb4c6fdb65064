"""One process serves all servers of a file to a client; a program serves a group to another group.

Prints::

    time_convert_time, time_get_current_time
    Europe/Paris
"""

from __future__ import annotations

import json
import tempfile
from functools import partial

import trio

from mcp_actors import ServerConfig, Socket, Stdio, open_servers
from mcp_actors.gateway import serve

TIME = ServerConfig("time", Stdio("mcp-server-time"))


async def use_a_file(file: trio.Path) -> None:
    entries = {"time": {"command": "mcp-server-time"}}
    await file.write_text(json.dumps({"mcpServers": entries}))
    served = Stdio("mcp-actors", ("serve", "--config", str(file), "--stdio"))
    async with open_servers(ServerConfig("all", served)) as servers:
        print(*sorted(tool.name for tool in servers.tools), sep=", ")
        await servers["all"].call("time_get_current_time", timezone="Europe/Paris")


async def serve_a_group(socket: trio.Path) -> None:
    async with (
        open_servers(TIME, naming="{server}_{tool}") as servers,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(partial(serve, servers, path=socket))
        await use_a_socket(str(socket))
        nursery.cancel_scope.cancel()


async def use_a_socket(socket: str) -> None:
    async with open_servers(ServerConfig("time", Socket(socket))) as servers:
        now = await servers["time"].call("get_current_time", timezone="Europe/Paris")
        print(now["timezone"])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await use_a_file(trio.Path(folder, "servers.json"))
        await serve_a_group(trio.Path(folder, "servers.sock"))


if __name__ == "__main__":
    trio.run(main)
