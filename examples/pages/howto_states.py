"""A health endpoint that is made of the views of a group.

Prints::

    200 everything is fine
    503 server 'time': its process was killed by SIGKILL while it was connected
    200 everything is fine
"""

from __future__ import annotations

import logging
import os
import signal

import trio

from mcp_actors import (
    Backoff,
    RestartPolicy,
    ServerConfig,
    ServerGroup,
    Stdio,
    open_servers,
)


def health(servers: ServerGroup) -> str:
    if not servers.errors:
        return "200 everything is fine"
    return "503 " + "; ".join(map(str, servers.errors.values()))


async def main() -> None:
    soon = RestartPolicy(backoff=Backoff(first=0.5))
    async with open_servers(
        ServerConfig("time", Stdio("mcp-server-time"), restarts=soon)
    ) as servers:
        print(health(servers))
        pid = servers.status()["time"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await servers["time"].wait_state("backoff")
        print(health(servers))
        await servers.wait_ready()
        print(health(servers))


logging.getLogger("mcp_actors").setLevel(logging.ERROR)
trio.run(main)
