"""A program that may open no more files when it needs a server: ``python -m tests.servers.out_of_files WHAT``.

WHAT is ``stdio``, or the port of a server that speaks HTTP. The program prints what it sees of the server: without a
single file left to open, then with enough of them.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

import trio

from mcp_actors import Backoff, RestartPolicy, open_servers

from .fleet import http_config
from .groups import server

POLICY = RestartPolicy(max_restarts=1, backoff=Backoff(), park_retry=0.2)


async def main(what: str) -> None:
    """Use up all files, open a group, give the files back."""
    config = server("a", restart=POLICY) if what == "stdio" else http_config(int(what), "a", restart=POLICY)
    with ExitStack() as files:
        try:
            while True:
                files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        async with open_servers(config) as servers:
            await servers["a"].wait_state("failed")
            print("failed:", servers.errors["a"], flush=True)
            print("retry:", servers.status()["a"].retry_at is not None, flush=True)
            files.close()
            await servers["a"].wait_state("ready")
            print("ready", flush=True)


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    trio.run(main, sys.argv[1])
