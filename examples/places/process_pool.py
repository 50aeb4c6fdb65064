"""A pool of processes: each opens servers in its initializer, which is a function of a module.

Run it with ``python process_pool.py``. With the start methods ``spawn`` and ``forkserver`` a new process imports this
module, and finds `start` by its name: a lambda or a method of an object that holds servers cannot be passed to it.

Prints::

    Europe/Paris ... ok
    Asia/Tokyo ... ok
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing.util import Finalize

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))

servers: SyncServerGroup


def start() -> None:
    """Open the servers of this process, and close them at its end."""
    global servers
    stack = ExitStack()
    servers = stack.enter_context(open_servers(TIME, drain_timeout=5))
    Finalize(None, stack.close, exitpriority=1)  # a process of a pool runs no `atexit`


def now(zone: str) -> str:
    try:
        time = servers["time"].call("get_current_time", timezone=zone)
    except ServerError as error:
        return f"{zone} {error}"
    return f"{zone} {time['datetime']} ok"


def main(method: str, *zones: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the pool would stay
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context, initializer=start) as pool:
        for answer in pool.map(now, zones):
            print(answer, flush=True)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["spawn", "Europe/Paris", "Asia/Tokyo"]))
