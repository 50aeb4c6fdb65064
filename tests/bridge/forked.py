"""An asyncio program that forks while it uses the scripted server: ``python -m tests.bridge.forked HOST``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import cast

from mcp_actors.bridge import Host, open_servers
from tests.servers.groups import server


def main(host: Host) -> None:
    """The fork calls the server, leaves the block and ends as programs do; then the server is used."""
    loop = asyncio.new_event_loop()
    door = open_servers(server("a"), host=host)
    servers = loop.run_until_complete(door.__aenter__())
    pid = os.fork()
    if pid == 0:
        try:
            loop.run_until_complete(servers["a"].call_tool("echo", {"text": "mine"}))
        except RuntimeError as refusal:
            print("the fork is refused:", refusal, flush=True)
        loop.run_until_complete(door.__aexit__(None, None, None))
        sys.exit(3)
    print("the fork has ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    loop.run_until_complete(servers["a"].call_tool("echo", {"text": "busy"}))
    print("the server serves", flush=True)
    loop.run_until_complete(door.__aexit__(None, None, None))
    loop.close()


if __name__ == "__main__":
    main(cast("Host", sys.argv[1]))
