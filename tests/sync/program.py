"""A program without an event loop that uses the scripted server: ``python -m tests.sync.program WHAT [FLAGS…]``."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from mcp_actors import ServerUnavailable
from mcp_actors.sync import SyncServerGroup, open_servers
from tests.servers.groups import server

kept: list[Any] = []
"""Nothing here is collected before the end."""


def fork(servers: SyncServerGroup) -> None:
    """Use and leave the block in a fork, then use it here."""
    pid = os.fork()
    if pid == 0:
        try:
            servers["a"].call("echo", text="mine")
        except RuntimeError as refusal:
            print("the fork is refused:", refusal, flush=True)
        kept[0].__exit__(None, None, None)
        print("the fork has left the block", flush=True)
        sys.exit(3)
    print("the fork has ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    servers["a"].call("echo", text="busy")
    print("the server serves", flush=True)
    kept[0].__exit__(None, None, None)


def in_process(servers: SyncServerGroup) -> None:
    """Use the servers in a process of multiprocessing that is forked."""

    def use() -> None:
        try:
            servers["a"].call("echo", text="mine")
        except Exception as exc:
            print("refused:", type(exc).__name__, flush=True)

    child = multiprocessing.get_context("fork").Process(target=use)
    child.start()
    child.join()
    servers["a"].call("echo", text="busy")
    print("the server serves", flush=True)
    kept[0].__exit__(None, None, None)


def daemon(servers: SyncServerGroup) -> None:
    """End while a daemon thread is in a call."""

    def call() -> None:
        with suppress(ServerUnavailable):
            servers["a"].call("sleep", seconds=600)

    threading.Thread(target=call, daemon=True).start()
    while not servers["a"].statistics().in_flight:
        time.sleep(0.001)
    print("leaving", flush=True)


def worker(servers: SyncServerGroup) -> None:
    """End while a thread of a pool is in a call; Python waits for that."""
    kept.append(pool := ThreadPoolExecutor())
    pool.submit(servers["a"].call_tool, "sleep", {"seconds": 0.2})
    print("leaving", flush=True)


def dropped(servers: SyncServerGroup) -> None:
    """End while the block is in a cycle."""
    cycle: list[Any] = [kept.pop()]
    cycle.append(cycle)
    print("leaving", flush=True)


class WebServer(ThreadingMixIn, WSGIServer):
    """Serves each request in a thread."""


def web(servers: SyncServerGroup) -> None:
    """Serve requests over HTTP, although nothing but the group is left of the block."""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [servers["a"].call("echo", text=environ["PATH_INFO"][1:]).encode()]

    def get(number: int) -> str:
        with urlopen(f"http://127.0.0.1:{port}/{number}") as response:
            return str(response.read().decode())

    kept.clear()
    gc.collect()
    kept.append(servers)  # as a global name of a module
    with make_server("127.0.0.1", 0, app, WebServer, Quiet) as site, ThreadPoolExecutor() as pool:
        port = site.server_port
        threading.Thread(target=site.serve_forever).start()
        print("answers:", *pool.map(get, range(10)), flush=True)
        site.shutdown()
    print("leaving", flush=True)


class Quiet(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, *_: object) -> None: ...


def handle_signals(servers: SyncServerGroup) -> None:
    """Reload in the handler of a signal, and end by another one, each during a call of the main thread."""

    def reload(*_: object) -> None:
        servers.reload(server("a", *sys.argv[2:]))
        print("reloaded in the call", flush=True)

    def send(number: int) -> None:
        while not servers["a"].statistics().in_flight:
            time.sleep(0.001)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGHUP, reload)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    threading.Thread(target=send, args=(signal.SIGHUP,)).start()
    servers["a"].call("sleep", seconds=0.5)
    print("answered", flush=True)
    threading.Thread(target=send, args=(signal.SIGTERM,)).start()
    servers["a"].call("sleep", seconds=600)


LEAVES_OPEN: dict[str, Callable[[SyncServerGroup], object]] = {
    "fork": fork,
    "multiprocessing": in_process,
    "open": lambda servers: print("leaving", flush=True),
    "daemon": daemon,
    "worker": worker,
    "dropped": dropped,
    "web": web,
}
LEAVES: dict[str, Callable[[SyncServerGroup], object]] = {
    "exit": lambda servers: sys.exit(5),
    "handlers": handle_signals,
}


def main(what: str, *flags: str) -> None:
    """Open a block, and do something in it; some things are done without leaving the block."""
    block = open_servers(server("a", *flags))
    if what in LEAVES:
        with block as servers:
            LEAVES[what](servers)
    else:
        kept.append(block)
        LEAVES_OPEN[what](block.__enter__())


if __name__ == "__main__":
    main(*sys.argv[1:])
