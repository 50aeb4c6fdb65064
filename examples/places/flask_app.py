"""Flask: the first request of each worker process opens servers, once.

Run it with ``flask --app flask_app run``, with ``--debug`` or without; or with gunicorn, whose hooks are in
``gunicorn_conf.py``.
"""

from __future__ import annotations

from contextlib import ExitStack
from threading import Lock
from typing import Any

from flask import Flask

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))

app = Flask(__name__)


class Servers:
    """The servers of this process, which the first thread that needs them opens."""

    def __init__(self) -> None:
        self._lock = Lock()  # fifty first requests at once open one group
        self._stack = ExitStack()
        self._group: SyncServerGroup | None = None

    def get(self) -> SyncServerGroup:
        with self._lock:
            if self._group is None:
                block = open_servers(TIME, drain_timeout=5)
                self._group = self._stack.enter_context(block)
            return self._group

    def close(self) -> None:
        self._stack.close()


servers = Servers()


@app.get("/now/<path:zone>")
def now(zone: str) -> Any:
    return servers.get()["time"].call("get_current_time", timezone=zone)


@app.errorhandler(ServerError)
def unavailable(error: ServerError) -> tuple[dict[str, str], int]:
    return {"error": str(error)}, 503
