"""A server hangs: its health checks fail, and it is replaced.

Its process is suspended, so no check is answered. The intervals are short, to see it soon.

Logs::

    server 'time': degraded: 2 failures in a row, ...
    server 'time': unhealthy: 3 failures in a row, ...
    server 'time': connection lost: no response to 5 health checks in a row ...
    server 'time': process ... is still running after SIGTERM; sending SIGKILL

Prints::

    healthy
    unhealthy
    ready -> degraded
    degraded -> unhealthy
    unhealthy -> backoff
    backoff -> connecting
    connecting -> ready
    healthy
"""

from __future__ import annotations

import os
import signal

import trio

from mcp_actors import (
    Backoff,
    HealthPolicy,
    RestartPolicy,
    ServerConfig,
    StateChanged,
    Stdio,
    open_servers,
)

TIME = ServerConfig(
    "time",
    Stdio("mcp-server-time"),
    health=HealthPolicy(interval=60, timeout=0.5),
    restarts=RestartPolicy(backoff=Backoff(first=0)),
)


async def main() -> None:
    async with open_servers(TIME) as servers, servers.watch_events() as events:
        time = servers["time"]
        print((await time.check_health()).status)
        pid = servers.status()["time"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        print((await time.check_health()).status)
        async for event in events:
            if isinstance(event, StateChanged):
                print(event.old, "->", event.new)
                if event.new == "ready":
                    break
        print((await time.check_health()).status)


trio.run(main)
