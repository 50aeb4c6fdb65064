"""A gateway over HTTP, and a program that uses it.

Prints::

    time_convert_time, time_get_current_time
    Europe/Paris
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from subprocess import DEVNULL, PIPE

import trio

from mcp_actors import Http, ServerConfig, open_servers


async def use_it(url: str, token: str) -> None:
    config = ServerConfig("all", Http(f"{url}mcp", auth=token))
    async with open_servers(config) as servers:
        print(*sorted(tool.name for tool in servers.tools), sep=", ")
        now = await servers["all"].call(
            "time_get_current_time", timezone="Europe/Paris"
        )
        print(now["timezone"])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, tokens = trio.Path(folder, "servers.json"), trio.Path(folder, "tokens")
        entries = {"time": {"command": "mcp-server-time"}}
        await file.write_text(json.dumps({"mcpServers": entries}))
        flags = [
            "--config",
            str(file),
            "--http",
            "127.0.0.1:0",
            "--token-file",
            str(tokens),
        ]
        command = ["mcp-actors", "serve", *flags]
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(
                    trio.run_process, command, stdout=PIPE, stderr=DEVNULL, check=False
                )
            )
            said = b""
            async for part in process.stdout:
                said += part
                if said.endswith(b"\n"):
                    break
            url, _, token = said.decode().strip().partition("#token=")
            await use_it(url, token)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
