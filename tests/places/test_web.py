"""One battery for all web servers: requests at once, a server that is killed, signals in a request, a reload."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from .program import Answer, Program, running

GRACE: Final = 5.0
"""What the command lines below give to requests at the end."""

DRAIN: Final = 5.0
"""The ``drain_timeout`` of all programs."""

STOP: Final = 5.0
"""The default ``stop_timeout``."""

BUSY: Final = 5.0
"""Seconds more, for a machine that is busy with other things."""


@frozen(kw_only=True)
class Place:
    """A program, and how its users run it.

    Attributes:
        id: the web server and the framework.
        program: the file in ``examples``.
        command: the words of the command line.
        needs: the modules that must be installed.
        seconds: the sum that the table on the page gives.
        at_once: the requests that reach a server at the same time.
        servers: how many are started before the first request: one in each worker process.
        at_sigterm: the status of a request that was in flight; 0 if its connection is closed.
        reloads: whether it restarts when its file has changed.
        files: other files that it needs.
        hidden: a module that it must not find.
        codes: the exit codes after SIGTERM and Ctrl-C.
    """

    id: str
    program: str
    command: str
    needs: tuple[str, ...] = ()
    seconds: float = GRACE + DRAIN + STOP
    at_once: int = 5
    servers: int = 1
    at_sigterm: int = 200
    reloads: bool = False
    files: tuple[str, ...] = ()
    hidden: str = ""
    codes: tuple[int, int] = (0, 0)

    def start(self, folder: Path) -> AbstractContextManager[Program]:
        """Start the program."""
        if self.hidden:
            (folder / f"{self.hidden}.py").write_text("")
        return running(folder, self.command.split(), [self.program, *self.files])


UVICORN: Final = "uvicorn {} --port {{port}} --timeout-graceful-shutdown 5"
HYPERCORN: Final = "hypercorn {} --bind 127.0.0.1:{{port}} --graceful-timeout 5"
GUNICORN: Final = "gunicorn {} --bind 127.0.0.1:{{port}} --graceful-timeout 5"
HOOKS: Final = f"{GUNICORN.format('flask_app:app')} --config gunicorn_conf.py"

KILLED: Final = -signal.SIGTERM

FASTAPI: Final = "places/fastapi_app.py"
FLASK: Final = "places/flask_app.py"
DJANGO: Final = "places/django_site.py"
CONFIGURATION: Final = ("places/gunicorn_conf.py",)

PLACES: Final = [
    Place(
        id="uvicorn, Starlette",
        program="pages/howto_fastapi.py",
        command=UVICORN.format("howto_fastapi:app"),
        needs=("starlette", "uvicorn"),
        codes=(KILLED, 0),
    ),
    Place(
        id="uvicorn, FastAPI",
        program=FASTAPI,
        command=UVICORN.format("fastapi_app:app"),
        needs=("fastapi", "uvicorn"),
        codes=(KILLED, 0),
    ),
    Place(
        id="uvicorn --workers, FastAPI",
        program=FASTAPI,
        command=UVICORN.format("fastapi_app:app") + " --workers 2",
        needs=("fastapi", "uvicorn"),
        servers=2,
    ),
    Place(
        id="uvicorn --reload, FastAPI",
        program=FASTAPI,
        command=UVICORN.format("fastapi_app:app") + " --reload",
        needs=("fastapi", "uvicorn"),
        reloads=True,
    ),
    Place(
        id="hypercorn, FastAPI",
        program=FASTAPI,
        command=HYPERCORN.format("fastapi_app:app"),
        needs=("fastapi", "hypercorn"),
    ),
    Place(
        id="gunicorn's uvicorn workers, FastAPI",
        program=FASTAPI,
        command=GUNICORN.format("fastapi_app:app") + " --workers 2 --worker-class uvicorn_worker.UvicornWorker",
        seconds=GRACE,
        needs=("fastapi", "gunicorn", "uvicorn_worker"),
        servers=2,
    ),
    Place(
        id="hypercorn, Quart",
        program="places/quart_app.py",
        command=HYPERCORN.format("quart_app:app"),
        needs=("hypercorn", "quart"),
    ),
    Place(
        id="hypercorn --reload, Quart",
        program="places/quart_app.py",
        command=HYPERCORN.format("quart_app:app") + " --reload",
        needs=("hypercorn", "quart"),
        reloads=True,
    ),
    Place(
        id="uvicorn, Litestar",
        program="places/litestar_app.py",
        command=UVICORN.format("litestar_app:app"),
        needs=("litestar", "uvicorn"),
        codes=(KILLED, 0),
    ),
    Place(
        id="flask run",
        program=FLASK,
        command="flask --app flask_app run --port {port}",
        needs=("flask",),
        seconds=STOP,
        servers=0,
        at_sigterm=0,
        codes=(KILLED, 0),
    ),
    Place(
        id="flask run --debug",
        program=FLASK,
        command="flask --app flask_app run --debug --port {port}",
        hidden="watchdog",  # which Streamlit brings along; it follows this whole checkout
        needs=("flask",),
        seconds=STOP,
        servers=0,
        at_sigterm=0,
        reloads=True,
    ),
    Place(
        id="gunicorn's sync workers, Flask",
        program=FLASK,
        command=f"{HOOKS} --worker-class sync",
        seconds=GRACE,
        needs=("flask", "gunicorn"),
        servers=2,
        at_once=2,
        files=CONFIGURATION,
    ),
    Place(
        id="gunicorn's threads, Flask",
        program=FLASK,
        command=HOOKS,
        seconds=GRACE,
        needs=("flask", "gunicorn"),
        servers=2,
        files=CONFIGURATION,
    ),
    Place(
        id="gunicorn --preload, Flask",
        program=FLASK,
        command=f"{HOOKS} --preload",
        seconds=GRACE,
        needs=("flask", "gunicorn"),
        servers=2,
        files=CONFIGURATION,
    ),
    Place(
        id="runserver, Django",
        program=DJANGO,
        command=f"{sys.executable} django_site.py runserver {{port}}",
        needs=("django",),
        seconds=STOP,
        servers=0,
        at_sigterm=0,
        reloads=True,
    ),
    Place(
        id="gunicorn without hooks, Django",
        program=DJANGO,
        command=GUNICORN.format("django_site:application") + " --threads 8",
        seconds=GRACE,
        needs=("django", "gunicorn"),
        servers=0,
    ),
    Place(
        id="uvicorn, Django with async views",
        program="places/django_async.py",
        command=UVICORN.format("django_async:application"),
        needs=("django", "uvicorn"),
        codes=(KILLED, 0),
    ),
]


def parameters() -> list[pytest.ParameterSet]:
    """Return all places; those whose framework is missing are skipped for one reason each."""
    found = []
    for place in PLACES:
        missing = [name for name in place.needs if find_spec(name) is None]
        reason = f"{place.id}: needs {', '.join(missing)}; install the extra 'places'"
        found.append(pytest.param(place, id=place.id, marks=pytest.mark.skipif(bool(missing), reason=reason)))
    return found


@pytest.mark.parametrize("place", parameters())
def test_every_request_is_answered_or_names_its_reason_and_none_is_carried_out_twice(
    place: Place, tmp_path: Path
) -> None:
    with place.start(tmp_path) as program, ThreadPoolExecutor(50) as threads:
        program.wait_serving(place.servers)
        fifty_at_once(program, threads)
        a_server_is_killed(program, threads, place.at_once)
        if place.reloads:
            reload(program, tmp_path / Path(place.program).name)
        last = threads.submit(program.ask, "Held/last")
        program.ledger.wait_called({"Held/last"})
        program.signal(signal.SIGTERM)
        if place.at_sigterm == 200:
            program.ledger.release()
        assert last.result().status == place.at_sigterm, last.result()
        assert program.end(place.seconds + BUSY) == place.codes[0]
    assert max(program.ledger.calls().values()) == 1


@pytest.mark.parametrize("place", parameters())
def test_ctrl_c_ends_the_program_in_time_although_a_server_never_answers(place: Place, tmp_path: Path) -> None:
    with place.start(tmp_path) as program, ThreadPoolExecutor(1) as threads:
        program.wait_serving(place.servers)
        asked = threads.submit(program.ask, "Held/for ever")
        program.ledger.wait_called({"Held/for ever"})
        program.signal(signal.SIGINT, group=True)
        assert program.end(place.seconds + BUSY) == place.codes[1]
        assert asked.result().status in {0, 500, 503}, asked.result()
    assert max(program.ledger.calls().values()) == 1


def fifty_at_once(program: Program, threads: ThreadPoolExecutor) -> None:
    zones = [f"Call/{number}" for number in range(50)]
    answers = [*threads.map(program.ask, zones)]
    assert [answer for answer in answers if answer.status != 200] == []
    assert [answer.data()["timezone"] for answer in answers] == zones
    program.ledger.wait_called({*zones})


def a_server_is_killed(program: Program, threads: ThreadPoolExecutor, at_once: int) -> None:
    """Each request that it had names the reason, and the next ones are answered."""
    zones = [f"Held/{number}" for number in range(at_once)]
    asked = [threads.submit(program.ask, zone) for zone in zones]
    program.ledger.signal(signal.SIGKILL, *program.ledger.wait_called({*zones}))
    answers = [each.result() for each in asked]
    assert [answer for answer in answers if not is_named(answer)] == []
    assert program.ask("After/the kill").status == 200


def is_named(answer: Answer) -> bool:
    return answer.status == 503 and "connection lost" in answer.text


def reload(program: Program, file: Path) -> None:
    """After its file has changed, the servers of before are gone, and others answer.

    A request that the old process takes at its end is refused by name.
    """
    before = {*program.ledger.of("start")}
    with file.open("a") as source:
        source.write("# changed\n")
    program.ledger.wait(lambda: {*program.ledger.of("end")} >= before - program.ledger.killed, "all have ended")
    numbers = count()
    while (answer := program.ask(f"Change/{next(numbers)}")).status != 200:
        assert not answer.text or answer.status == 0 or "block has exited" in answer.text, answer
        assert program.process.poll() is None
    assert {*program.ledger.of("start")} - before
