"""A server that is not there, with and without ``strict``; and one that is not started again.

Prints::

    WARNING server 'search': has failed and is not retried: command 'no-such-server' not found; ...
    without strict: ['time'] serve
    with strict: server 'search': command 'no-such-server' not found; install it or set an absolute path
    WARNING server 'scratch': connection lost: its process ... while it was connected
    WARNING server 'scratch': has failed and is not retried: its process ...
    server 'scratch' has failed: ...
"""

from __future__ import annotations

import logging
import os
import signal
import sys

import trio

from mcp_actors import (
    Backoff,
    ConnectFailed,
    RestartPolicy,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    open_servers,
)

time = ServerConfig("time", Stdio("mcp-server-time"))
search = ServerConfig("search", Stdio("no-such-server"))


async def start() -> None:
    async with open_servers(time, search) as servers:
        print("without strict:", [server.name for server in servers.connected], "serve")
    try:
        async with open_servers(time, search, strict=True):
            print("this is never reached")
    except ConnectFailed as error:
        print("with strict:", error)


patient = ServerConfig(
    "indexer",
    Stdio("indexer-server", ["--index", "/srv/index"]),
    connect_timeout=120,
    restarts=RestartPolicy(
        max_restarts=20, backoff=Backoff(first=5, initial=10, maximum=300, jitter=0.2)
    ),
)
never_again = ServerConfig(
    "scratch", Stdio("mcp-server-time"), restarts=RestartPolicy(max_restarts=0)
)


async def kill() -> None:
    async with open_servers(never_again) as servers:
        scratch = servers["scratch"]
        pid = scratch.statistics().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await scratch.wait_state("failed")
        try:
            await scratch.call_tool("get_current_time", {"timezone": "Europe/Paris"})
        except ServerUnavailable as error:
            print(error)


logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
trio.run(start)
trio.run(kill)
