"""Stop, start, restart, add and remove servers, and reload a configuration file on SIGHUP.

Prints::

    stopped: server 'time'...
    ready
    time clock
    time
    ready
    serving: time
    not reloaded: ...servers.json: ...
    added: clock; removed: nothing
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import trio
import trio.testing

from mcp_actors import (
    ConfigError,
    ConnectFailed,
    ServerConfig,
    ServerGroup,
    ServerUnavailable,
    Stdio,
    open_servers,
)

TIME = {"command": "mcp-server-time"}


async def pause(servers: ServerGroup) -> None:
    time = servers["time"]
    await time.stop()
    try:
        await time.call_tool("get_current_time", {"timezone": "Europe/Paris"})
    except ServerUnavailable as error:
        print(f"{time.state}: {error}")
    await time.start()
    print(time.state)
    await time.restart()  # resolves its variables again


async def change(servers: ServerGroup) -> None:
    clock = await servers.add(ServerConfig("clock", Stdio("mcp-server-time")))
    await clock.call_tool("get_current_time", {"timezone": "Europe/Paris"})
    print(*servers)
    await servers.remove("clock")
    print(*servers)


async def hold(stop: trio.Event, *, task_status: trio.TaskStatus[ServerGroup]) -> None:
    async with open_servers(ServerConfig("time", Stdio("mcp-server-time"))) as servers:
        task_status.started(servers)
        await stop.wait()


async def use() -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        servers = await nursery.start(hold, stop)
        print(servers["time"].state)
        stop.set()  # from any task: calls are finished, then the servers are stopped


async def reload_on_hangup(servers: ServerGroup, report: Callable[[str], None]) -> None:
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        async for _ in hangups:
            try:
                done = await servers.reload()
            except (ConfigError, ConnectFailed) as error:
                report(f"not reloaded: {error}")
            else:
                added, removed = done.added or ["nothing"], done.removed or ["nothing"]
                report(f"added: {', '.join(added)}; removed: {', '.join(removed)}")


async def serve(file: Path) -> None:
    reports, received = trio.open_memory_channel[str](10)
    async with open_servers(file) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(reload_on_hangup, servers, reports.send_nowait)
        print("serving:", *servers)
        await trio.testing.wait_all_tasks_blocked()
        both = {"mcpServers": {"time": TIME, "clock": TIME}}
        for text in ('{"mcpServers": ', json.dumps(both)):
            await trio.Path(file).write_text(text)
            os.kill(os.getpid(), signal.SIGHUP)
            print(await received.receive())
        await servers.wait_ready()
        nursery.cancel_scope.cancel()


async def main() -> None:
    async with open_servers({"mcpServers": {"time": TIME}}) as servers:
        await pause(servers)
        await change(servers)
    await use()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "servers.json")
        await trio.Path(file).write_text(json.dumps({"mcpServers": {"time": TIME}}))
        await serve(file)


trio.run(main)
