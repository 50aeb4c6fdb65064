"""One battery for programs that do jobs: Celery, APScheduler, pools of processes, pytest, the first of a container."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_actors import ConnectionLost, RequestTimedOut
from tests.source import EXAMPLES

from .ledger import BOUND
from .program import Program, dear, running
from .test_web import BUSY, DRAIN, STOP

CALLS: Final = [f"Call/{number}" for number in range(50)]
HELD: Final = ["Held/1", "Held/2"]
ENDS: Final = DRAIN + STOP + BUSY
"""The sum that the table on the page gives, on a busy machine."""

CELERY: Final = 15.0
"""Seconds that Celery takes by itself to end."""


# --- Celery -----------------------------------------------------------------------------------------------------------


@contextmanager
def worker(folder: Path, pool: str, option: str = "") -> Iterator[tuple[Program, Callable[[str], Any]]]:
    """Run a worker of Celery, with a folder in place of a broker; yield it, and what sends it a task."""
    text = (EXAMPLES / "places" / "celery_app.py").read_text()
    (folder / "celery_app.py").write_text(text.replace('Stdio("mcp-server-time")', f'Stdio("mcp-server-time"){option}'))
    celery = pytest.importorskip("celery", reason="Celery: needs celery; install the extra 'places'")
    for name in ("data_in", "results"):
        (folder / name).mkdir()
    (folder / "data_out").symlink_to("data_in")
    results = f"file://{folder}/results"
    client = celery.Celery(broker="filesystem://", backend=results)
    tasks = str(folder / "data_in")
    client.conf.broker_transport_options = {
        "data_folder_in": tasks,
        "data_folder_out": tasks,
        "control_folder": str(folder / "control"),
    }
    command = f"celery --app celery_app worker --pool {pool} --concurrency 2 --loglevel INFO"
    variables = {"CELERY_BROKER_URL": "filesystem://", "CELERY_RESULT_BACKEND": results}
    with running(folder, command.split(), [], variables) as program:
        program.wait_log("ready")
        yield program, lambda zone: client.send_task("celery_app.now", args=[zone])
    client.close()


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_each_task_of_celery_is_done_once_or_names_its_reason(pool: str, tmp_path: Path) -> None:
    with worker(tmp_path, pool) as (program, send):
        sent = [send(zone) for zone in CALLS]
        assert [each.get(BOUND)["timezone"] for each in sent] == CALLS
        held = HELD[:1] if pool == "solo" else HELD
        sent = [send(zone) for zone in held]
        program.ledger.signal(signal.SIGKILL, *program.ledger.wait_called({*held}))
        for each in sent:
            with pytest.raises(ConnectionLost) as caught:
                each.get(BOUND)
            assert caught.value.outcome == "unknown"
        assert send("After/the kill").get(BOUND)["timezone"] == "After/the kill"
        last = send("Held/last")
        program.ledger.wait_called({"Held/last"})
        program.signal(signal.SIGTERM)
        program.ledger.release()
        assert last.get(BOUND)["timezone"] == "Held/last"
        assert program.end(ENDS + CELERY) == 0
    assert max(program.ledger.calls().values()) == 1


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_ctrl_c_ends_celery_in_time_although_a_server_never_answers(pool: str, tmp_path: Path) -> None:
    with worker(tmp_path, pool, ", request_timeout=2") as (program, send):
        sent = send("Held/1")
        program.ledger.wait_called({"Held/1"})
        program.signal(signal.SIGINT, group=True)
        assert program.end(2.0 + ENDS + CELERY) in {0, 1}  # 1 if a task has failed meanwhile
        with pytest.raises(RequestTimedOut):
            sent.get(BOUND)
    assert [*program.ledger.calls().values()] == [1]


# --- APScheduler ------------------------------------------------------------------------------------------------------


def test_each_job_of_apscheduler_is_done_once_or_names_its_reason(tmp_path: Path) -> None:
    pytest.importorskip("apscheduler", reason="APScheduler: needs apscheduler; install the extra 'places'")
    command = [sys.executable, "apscheduler_jobs.py", *CALLS, *HELD]
    with running(tmp_path, command, ["places/apscheduler_jobs.py"]) as program:
        pids = program.ledger.wait_called({*CALLS, *HELD})
        for zone in CALLS:
            program.wait_log(f"{zone}: 2026")
        program.ledger.signal(signal.SIGKILL, *pids)
        program.wait_log("Held/.:? server.*connection lost", len(HELD))
        program.signal(signal.SIGTERM)
        assert program.end(ENDS) == 0
    assert max(program.ledger.calls().values()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("answers", [True, False])
def test_a_signal_lets_jobs_of_apscheduler_finish_in_time(number: int, answers: bool, tmp_path: Path) -> None:
    pytest.importorskip("apscheduler", reason="APScheduler: needs apscheduler; install the extra 'places'")
    command = [sys.executable, "apscheduler_jobs.py", *HELD]
    with running(tmp_path, command, ["places/apscheduler_jobs.py"]) as program:
        program.ledger.wait_called({*HELD})
        program.signal(number, group=number == signal.SIGINT)
        if answers:
            program.ledger.release()
        assert program.end(ENDS) == 0
        program.wait_log("Held/.: 2026" if answers else "Held/.: .*was stopped during", len(HELD))


# --- Pools of processes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=dear)])
def test_each_call_of_a_pool_of_processes_is_made_once_or_names_its_reason(method: str, tmp_path: Path) -> None:
    command = [sys.executable, "process_pool.py", method, *CALLS, *HELD]
    with running(tmp_path, command, ["places/process_pool.py"]) as program:
        program.ledger.signal(signal.SIGKILL, *program.ledger.wait_called({*HELD}))
        assert program.end(BOUND) == 0
        program.wait_log("^Call/.* ok$", len(CALLS))
        program.wait_log("Held/.:? server.*connection lost", len(HELD))
    assert max(program.ledger.calls().values()) == 1


@dear
def test_sigterm_lets_a_pool_of_processes_finish(tmp_path: Path) -> None:
    command = [sys.executable, "process_pool.py", "spawn", *HELD]
    with running(tmp_path, command, ["places/process_pool.py"]) as program:
        program.ledger.wait_called({*HELD})
        program.signal(signal.SIGTERM)
        program.ledger.release()
        assert program.end(ENDS) == 143
    assert [*program.ledger.calls().values()] == [1, 1]


@dear
def test_ctrl_c_ends_a_pool_of_processes_although_a_server_never_answers(tmp_path: Path) -> None:
    command = [sys.executable, "process_pool.py", "spawn", *HELD]
    with running(tmp_path, command, ["places/process_pool.py"]) as program:
        program.ledger.wait_called({*HELD})
        program.signal(signal.SIGINT, group=True)
        assert program.end(ENDS) == -signal.SIGINT
    assert {*program.ledger.of("end")} == {*program.ledger.of("start")}


# --- pytest -----------------------------------------------------------------------------------------------------------

SCOPES: Final = ("function", "class", "module", "package", "session")
PYTEST: Final = (sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider")


def test_a_fixture_of_each_scope_opens_servers(tmp_path: Path) -> None:
    text = (EXAMPLES / "places" / "test_time.py").read_text()
    for scope in SCOPES:
        (tmp_path / f"test_{scope}.py").write_text(text.replace('scope="session"', f'scope="{scope}"'))
    with running(tmp_path, [*PYTEST, *(f"test_{scope}.py" for scope in SCOPES)], []) as program:
        assert program.end(BOUND) == 0, program.log
        program.wait_log(f"^{2 * len(SCOPES)} passed")
    assert len(program.ledger.of("end")) == len(program.ledger.of("start")) == 2 * len(SCOPES)


@dear
def test_ctrl_c_in_a_test_runs_the_end_of_its_fixture(tmp_path: Path) -> None:
    text = (EXAMPLES / "places" / "test_time.py").read_text()
    (tmp_path / "test_time.py").write_text(text.replace("Europe/Paris", "Held/1"))
    with running(tmp_path, [*PYTEST, "test_time.py"], []) as program:
        program.ledger.wait_called({"Held/1"})
        program.signal(signal.SIGINT, group=True)
        assert program.end(ENDS) == pytest.ExitCode.INTERRUPTED
    assert {*program.ledger.of("end")} == {*program.ledger.of("start")}


# --- The first process of a container ---------------------------------------------------------------------------------

ALONE: Final = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.fixture
def container() -> list[str]:
    """Return the beginning of a command line whose program is the first process of a namespace."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a container's first process: needs unshare, and a kernel that lets it make namespaces")
    return ALONE


@pytest.mark.parametrize("answers", [True, pytest.param(False, marks=dear)])
def test_the_first_process_of_a_container_finishes_calls_at_sigterm(
    container: list[str], answers: bool, tmp_path: Path
) -> None:
    command = [*container, sys.executable, "pid_one.py", "Call/1", "Held/1"]
    with running(tmp_path, command, ["places/pid_one.py"]) as program:
        program.ledger.wait_called({"Held/1"})
        [first] = [pid for pid, words in program.family() if "pid_one.py" in words and "unshare" not in words]
        program.ledger.signal(signal.SIGTERM, first)
        if answers:
            for pid, words in program.family():
                if "time_server.py" in words:
                    program.ledger.signal(signal.SIGUSR1, pid)
        assert program.end(ENDS) == 143
        program.wait_log("^Call/1: 2026")
    assert [*program.ledger.calls().values()] == [1, 1]
