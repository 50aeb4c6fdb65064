"""Workers of gunicorn and Celery that gevent has patched are refused by name, and not left to wait for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from .ledger import BOUND
from .program import running

REFUSED = "not supported in a program that gevent has patched"


def test_gunicorn_with_gevent_does_not_start(tmp_path: Path) -> None:
    for name in ("flask", "gevent", "gunicorn"):
        pytest.importorskip(name, reason=f"gunicorn with gevent: needs {name}; install the extra 'places'")
    command = "gunicorn flask_app:app --config gunicorn_conf.py --bind 127.0.0.1:{port} --worker-class gevent"
    with running(tmp_path, command.split(), ["places/flask_app.py", "places/gunicorn_conf.py"]) as program:
        assert program.end(BOUND) == 3  # gunicorn's code for workers that do not boot
        program.wait_log(REFUSED)
    assert program.ledger.entries == []


def test_a_task_of_celery_with_gevent_fails_by_name(tmp_path: Path) -> None:
    from .test_jobs import worker

    pytest.importorskip("gevent", reason="Celery with gevent: needs gevent; install the extra 'test'")
    with worker(tmp_path, "gevent") as (program, send):
        with pytest.raises(RuntimeError, match=REFUSED):
            send("Call/1").get(BOUND)
        program.signal(15)
        program.end(BOUND)
    assert program.ledger.entries == []
