"""The outcomes of calls while the server dies, comes back, and is stopped.

Logs::

    server 'time': connection lost: its process was killed by SIGKILL while it was connected

Prints::

    it is ...
    asked, but the server died before it answered
    it is ...
    the server is stopped
"""

from __future__ import annotations

import os
import signal

import trio
import trio.testing

from mcp_actors import (
    ConnectionLost,
    ServerConfig,
    ServerGroup,
    ServerUnavailable,
    Stdio,
    open_servers,
)


async def what_time_is_it(servers: ServerGroup) -> str:
    try:
        with trio.fail_after(30):
            result = await servers["time"].call_tool(
                "get_current_time", {"timezone": "Europe/Paris"}
            )
    except ConnectionLost:
        return "asked, but the server died before it answered"
    except ServerUnavailable as error:
        return f"the server is {error.state}"
    assert result.structured_content is not None
    return f"it is {result.structured_content['datetime']}"


async def ask(servers: ServerGroup) -> None:
    print(await what_time_is_it(servers))


async def main() -> None:
    async with open_servers(ServerConfig("time", Stdio("mcp-server-time"))) as servers:
        await ask(servers)
        pid = servers.status()["time"].pid
        assert pid is not None
        async with trio.open_nursery() as nursery:
            os.kill(pid, signal.SIGSTOP)  # so it cannot answer
            nursery.start_soon(ask, servers)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(pid, signal.SIGKILL)
        await ask(servers)
        await servers["time"].stop()
        await ask(servers)


trio.run(main)
