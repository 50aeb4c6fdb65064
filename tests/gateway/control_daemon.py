"""A daemon that has a control socket and nothing else: ``control_daemon.py FILE SOCKET``."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from functools import partial

import trio

from mcp_actors import open_servers
from mcp_actors.gateway._control import serve_control
from mcp_actors.gateway._front import Front
from mcp_actors.gateway._listen import KeptSocket


async def main(*words: str) -> None:
    file, path = words
    ended = trio.Event()
    with closing(KeptSocket(path)) as acceptor:
        async with trio.open_nursery() as nursery:
            async with open_servers(file.partition("#")[0]) as group:
                nursery.start_soon(partial(serve_control, Front(group, "{tool}"), acceptor, file=file, stop=ended.set))
                os.write(1, b"ready\n")
                await ended.wait()
            nursery.cancel_scope.cancel("the daemon is asked to stop")


trio.run(main, *sys.argv[1:])
