"""Stop, start and restart a server, and reload a configuration file on SIGHUP.

Prints::

    stopped: server 'time'...
    ready
    serving: time
    not reloaded: ...servers.json: ...
    serving: time clock
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from pathlib import Path

import trio
import trio.testing

from mcp_actors import (
    LoadedConfig,
    ServerGroup,
    ServerUnavailable,
    load_config,
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


async def serve(file: Path, work: Callable[[ServerGroup], Awaitable[None]]) -> None:
    """Work with the servers of a file; on SIGHUP, begin again with the new file."""
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        loaded = load_config(file)
        while True:
            async with open_servers(loaded) as servers, trio.open_nursery() as nursery:
                nursery.start_soon(work, servers)
                loaded = await wait_changed(file, hangups)
                nursery.cancel_scope.cancel()


async def wait_changed(file: Path, hangups: AsyncIterable[int]) -> LoadedConfig:
    """Return the configuration of a file after a SIGHUP, unless it has errors."""
    async for _ in hangups:
        loaded = load_config(file)
        if not loaded.errors:
            return loaded
        print("not reloaded:", *loaded.errors)
    raise AssertionError("signals do not end")


async def work(file: Path, done: trio.CancelScope, servers: ServerGroup) -> None:
    print("serving:", *servers)
    if "clock" in servers:
        done.cancel()
        return
    both = {"mcpServers": {"time": TIME, "clock": TIME}}
    for text in ('{"mcpServers": ', json.dumps(both)):
        await trio.Path(file).write_text(text)
        os.kill(os.getpid(), signal.SIGHUP)
        await trio.testing.wait_all_tasks_blocked(cushion=0.1)


async def main() -> None:
    async with open_servers({"mcpServers": {"time": TIME}}) as servers:
        await pause(servers)
    with tempfile.TemporaryDirectory() as folder, trio.CancelScope() as done:
        file = Path(folder, "servers.json")
        await trio.Path(file).write_text(json.dumps({"mcpServers": {"time": TIME}}))
        await serve(file, partial(work, file, done))


trio.run(main)
