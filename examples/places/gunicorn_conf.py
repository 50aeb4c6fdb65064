"""gunicorn: each worker process opens servers after the fork, before its first request.

Run it with ``gunicorn flask_app:app --config gunicorn_conf.py``, with ``--preload`` or without.
"""

from __future__ import annotations

from typing import Any

workers = 2
worker_class = "gthread"  # or "sync"; "gevent" and "eventlet" are refused
threads = 8
graceful_timeout = 30  # longer than drain_timeout and stop_timeout together


def post_worker_init(worker: Any) -> None:
    """Open the servers of a worker process.

    The import belongs here: at the top of this file it would run before the fork. In
    `post_fork`, gunicorn would not notice a SIGTERM while servers start. gunicorn
    passes arguments, so `servers.get` itself cannot be the hook.
    """
    from flask_app import servers

    servers.get()


def worker_exit(server: Any, worker: Any) -> None:
    """Close them: calls in flight are finished first."""
    from flask_app import servers

    servers.close()
