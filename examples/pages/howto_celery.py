"""Worker processes that are forked, as Celery's prefork pool does it: each opens servers of its own.

Prints::

    worker 1: {'timezone': 'Europe/Paris', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
    worker 2: {'timezone': 'Asia/Tokyo', 'datetime': '...', 'day_of_week': '...', 'is_dst': ...}
"""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack
from typing import Any

from mcp_actors import ServerConfig, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))


class Worker:
    """The servers of this worker process: opened after the fork, closed at its end."""

    servers: SyncServerGroup

    def __init__(self) -> None:
        self._stack = ExitStack()

    def start(self, **_: Any) -> None:
        self.servers = self._stack.enter_context(open_servers(TIME))

    def stop(self, **_: Any) -> None:
        self._stack.close()


worker = Worker()


def what_time_is_it(zone: str) -> Any:
    """The task: it uses the servers of the worker process in which it runs."""
    return worker.servers["time"].call("get_current_time", timezone=zone)


def run(number: int, zone: str) -> None:
    worker.start()
    try:
        print(f"worker {number}: {what_time_is_it(zone)}", flush=True)
    finally:
        worker.stop()


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    for number, zone in enumerate(["Europe/Paris", "Asia/Tokyo"], start=1):
        process = fork.Process(target=run, args=(number, zone))
        process.start()
        process.join()
