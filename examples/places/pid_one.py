"""A container: the program is its first process, stops at SIGTERM and reads its configuration again at SIGHUP.

``ENTRYPOINT ["python", "pid_one.py"]``, and ``docker run --init``: as the first process this program does not reap what
servers leave behind. Without ``stop_on`` the kernel ignores SIGTERM, because the first process has no default action.
"""

from __future__ import annotations

import signal
import sys

import trio

from mcp_actors import ServerConfig, ServerError, Stdio, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


async def main(*zones: str) -> None:
    """Report the time in some zones until the container is stopped."""
    async with open_servers(TIME, drain_timeout=5, stop_on=signal.SIGTERM) as servers:
        while True:
            for zone in zones:
                try:
                    time = await servers["time"].call("get_current_time", timezone=zone)
                except ServerError as error:
                    print(f"{zone}: {error}", flush=True)
                else:
                    print(f"{zone}: {time['datetime']}", flush=True)
            await trio.sleep(3600)


if __name__ == "__main__":
    trio.run(main, *(sys.argv[1:] or ["Europe/Paris", "Asia/Tokyo"]))
