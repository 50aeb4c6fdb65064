"""A service that finishes its calls and ends when it gets SIGTERM, and reads its file again at SIGHUP.

Prints::

    job 1: Europe/Paris
    job 2: Europe/Paris
    all servers have stopped
    exit code: 143
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from itertools import count
from pathlib import Path

import trio

from mcp_actors import ServerGroup, open_servers


async def main(file: Path) -> None:
    try:
        async with open_servers(
            file, stop_on=signal.SIGTERM, reload_on=signal.SIGHUP
        ) as servers:
            await work(servers)
    finally:
        print("all servers have stopped")


async def work(servers: ServerGroup) -> None:
    for number in count(1):
        if number == 2:
            os.kill(
                os.getpid(), signal.SIGTERM
            )  # as systemd, Docker or Kubernetes does it
        result = await servers["time"].call_tool(
            "get_current_time", {"timezone": "Europe/Paris"}
        )
        assert result.structured_content is not None
        print(f"job {number}: {result.structured_content['timezone']}")
        await trio.sleep(0.1)


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "servers.json")
    file.write_text(
        json.dumps({"mcpServers": {"time": {"command": "mcp-server-time"}}})
    )
    try:
        trio.run(main, file)
    except SystemExit as end:
        print("exit code:", end.code)
