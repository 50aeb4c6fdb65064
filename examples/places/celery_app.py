"""Celery: the first task of each worker process opens servers, once.

Run it with ``celery --app celery_app worker``, with ``--pool prefork``, ``threads`` or ``solo``; ``gevent`` and
``eventlet`` are refused. ``CELERY_BROKER_URL`` names the broker.
"""

from __future__ import annotations

from contextlib import ExitStack
from threading import Lock
from typing import Any

from celery import Celery
from celery.signals import worker_process_shutdown, worker_shutdown

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))

app = Celery("celery_app")


class Servers:
    """The servers of this process, which the first thread that needs them opens.

    Not in `worker_process_init`: a pool of threads does not send it, and a worker process that starts for longer than
    four seconds is killed.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._stack = ExitStack()
        self._group: SyncServerGroup | None = None

    def get(self) -> SyncServerGroup:
        with self._lock:
            if self._group is None:
                block = open_servers(TIME, drain_timeout=5)
                self._group = self._stack.enter_context(block)
            return self._group

    def close(self, **_: Any) -> None:
        self._stack.close()


servers = Servers()
worker_process_shutdown.connect(servers.close)  # prefork
worker_shutdown.connect(servers.close)  # threads and solo


@app.task(bind=True, max_retries=3)
def now(self: Any, zone: str) -> Any:
    try:
        return servers.get()["time"].call("get_current_time", timezone=zone)
    except ServerError as error:
        if getattr(error, "outcome", "unknown") != "not_sent":
            raise  # the tool may have run
        raise self.retry(exc=error, countdown=1) from error
