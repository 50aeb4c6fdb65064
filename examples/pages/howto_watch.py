"""A group that follows its configuration file.

Prints::

    serving: time
    rejected: ...mcp.json: the file is not valid JSON: ...
    still serving: time
    ServerAdded: clock
    now serving: time clock
"""

from __future__ import annotations

import json
import logging
import tempfile

import trio

from mcp_actors import open_servers
from mcp_actors.kernel import EventStream
from mcp_actors.servers import (
    ConfigChanged,
    ConfigRejected,
    ServerAdded,
    ServerRemoved,
)

TIME = {"command": "mcp-server-time", "mcp_actors": {"connect": "lazy"}}


async def report(events: EventStream) -> None:
    async for event in events:
        match event:
            case ServerAdded() | ServerRemoved() | ConfigChanged():
                print(f"{type(event).__name__}: {event.server}")
                return
            case ConfigRejected(error=error):
                print(f"rejected: {error}")
                return
            case _:
                pass


async def serve(file: trio.Path) -> None:
    async with (
        open_servers(file, watch=True) as servers,
        servers.watch_events() as events,
    ):
        print("serving:", *servers)
        await file.write_text('{"mcpServers": ')
        await report(events)
        print("still serving:", *servers)
        await file.write_text(json.dumps({"mcpServers": {"time": TIME, "clock": TIME}}))
        await report(events)
        print("now serving:", *servers)


async def main() -> None:
    logging.getLogger("mcp_actors.servers").setLevel(logging.ERROR)  # it prints events
    with tempfile.TemporaryDirectory() as folder:
        file = trio.Path(folder, "mcp.json")
        await file.write_text(json.dumps({"mcpServers": {"time": TIME}}))
        await serve(file)


trio.run(main)
