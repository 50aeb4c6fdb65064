"""A service that stops its servers and ends normally when it gets SIGTERM.

Prints::

    serving
    got SIGTERM
    all servers have stopped
"""

from __future__ import annotations

import os
import signal

import trio

from mcp_actors import ServerConfig, ServerGroup, Stdio, open_servers


async def main() -> None:
    time = ServerConfig("time", Stdio("mcp-server-time"))
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with open_servers(time) as servers, trio.open_nursery() as nursery:
            nursery.start_soon(serve, servers)
            async for number in signals:
                print("got", signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                break
    print("all servers have stopped")


async def serve(servers: ServerGroup) -> None:
    await servers["time"].call_tool("get_current_time", {"timezone": "Europe/Paris"})
    print("serving")
    os.kill(os.getpid(), signal.SIGTERM)  # as systemd, Docker or Kubernetes does it
    await trio.sleep_forever()


trio.run(main)
