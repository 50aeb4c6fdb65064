"""Count calls, and show what Prometheus and an orchestrator would read.

Logs::

    server 'time': connection lost: ...

Prints::

    readyz 200
    calls 2.0
    readyz 503
    time: backoff ...
"""

from __future__ import annotations

import os
import signal

import trio

from mcp_actors import Backoff, RestartPolicy, ServerConfig, Stdio, open_servers
from mcp_actors.observe import Metrics, answer, missing

TIME = ServerConfig(
    "time",
    Stdio("mcp-server-time"),
    required=True,
    restarts=RestartPolicy(backoff=Backoff(first=60)),
)


async def main() -> None:
    metrics = Metrics()
    async with open_servers(TIME, observers=[metrics]) as servers:
        time = servers["time"]
        for zone in ("Europe/Paris", "Asia/Tokyo"):
            await time.call("get_current_time", timezone=zone)
        print("readyz", answer(servers, "/readyz").status)
        for line in metrics.text(servers).splitlines():
            if line.startswith("mcp_client_attempts_total{"):
                print("calls", float(line.split()[-1]))
        pid = servers.status()["time"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await time.wait_state("backoff")
        print("readyz", answer(servers, "/readyz").status)
        for name, found in missing(servers).items():
            print(f"{name}: {found['state']} since {found['since']}")


trio.run(main)
