"""``status``, ``logs``, ``restart``, ``stop``, ``start`` and ``reload``, with daemons in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import join
from typing import TypeAlias

import pytest

from ..forkserver import Program, start_python
from ..messages import Said
from ..source import ROOT
from .conftest import Run
from .terminal import PATIENCE, is_running, scripted, started, wait_for_text, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

Start: TypeAlias = Callable[..., Program]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the sockets; its path is short enough for them."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        (Path(folder) / "mcp-actors").mkdir(0o700)
        yield Path(folder) / "mcp-actors"


@pytest.fixture
def start(tmp_path: Path, runtime: Path) -> Iterator[Start]:
    """Start a daemon of ``.mcp.json``; by default that file is what it serves."""
    with ExitStack() as stack:

        def start(name: str = "a", file: str = "") -> Program:
            file = file or os.path.realpath(tmp_path / ".mcp.json")
            return stack.enter_context(running(file, runtime / f"{name}.ctl"))

        yield start


@contextmanager
def running(file: str, path: Path) -> Iterator[Program]:
    """Run a daemon until the block ends."""
    said, say = os.pipe()
    with open(said) as printed:
        try:
            daemon = start_python("-m", "tests.gateway.control_daemon", file, str(path), cwd=ROOT, stdout=say, stderr=2)
        finally:
            os.close(say)
        with daemon:
            try:
                assert printed.readline() == "ready\n"
                yield daemon
            finally:
                daemon.kill()


@contextmanager
def silent(path: Path, answer: bytes = b"") -> Iterator[None]:
    """Listen on a socket, and answer each connection with these bytes and nothing else."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            while True:
                connection, _ = listening.accept()
                with connection:
                    if not connection.recv(4096):
                        return
                    connection.sendall(answer)
                    if not answer:
                        connection.recv(1)  # until the command gives up

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
            thread.join()


class TestDaemon:
    def test_status_is_a_table_with_the_errors(self, tmp_path: Path, run: Run, start: Start) -> None:
        write(tmp_path, {"time": scripted(), "gone": {"command": "/nowhere/at-all"}})
        daemon = start()
        done = run("status")
        first, heading, time, gone, error = done.stdout.splitlines()
        assert (done.returncode, done.stderr) == (0, "")
        assert first == f"{os.path.realpath(tmp_path)}/.mcp.json  pid {daemon.pid}"
        assert heading.split() == ["name", "state", "pid", "in", "flight", "queued", "restarts", "tools"]
        assert heading.index("state") == time.index("ready") == gone.index("failed")
        assert time.split()[:2] == ["time", "ready"]
        assert gone.split()[:2] == ["gone", "failed"]
        assert error.startswith("  error: server 'gone': command '/nowhere/at-all' not found")

    def test_status_in_json_is_a_list_of_daemons(self, tmp_path: Path, run: Run, start: Start) -> None:
        write(tmp_path, {"time": scripted()})
        first, second = start("a"), start("b")
        found = json.loads(run("status", "time", "--json").stdout)
        assert [each["pid"] for each in found] == [first.pid, second.pid]
        assert found[0]["servers"]["time"]["state"] == "ready"
        assert found[0].keys() == {"file", "pid", "ready", "missing", "servers", "sources"}

    @pytest.mark.parametrize("named", ["{folder}/.mcp.json", "~/.mcp.json"])
    def test_a_service_is_found_if_its_control_socket_is_in_the_folder(
        self, tmp_path: Path, run: Run, runtime: Path, named: str
    ) -> None:
        """As in the unit on the page about the gateway; its exit code is about the daemon, not about its servers."""
        write(tmp_path, {"time": scripted(), "gone": {"command": "/nowhere/at-all"}})
        file = named.format(folder=tmp_path)
        words = ("--socket", str(runtime.parent / "g.sock"), "--control", str(runtime / "mine.ctl"))
        said, say = os.pipe()
        with open(said) as printed, (tmp_path / "log").open("w") as log:
            try:
                service = start_python(
                    *("-m", "mcp_actors", "serve", "--config", file, *words),
                    cwd=ROOT,
                    stdout=say,
                    stderr=log,
                    env={**os.environ, "HOME": str(tmp_path)},
                )
            finally:
                os.close(say)
            with service:
                try:
                    assert printed.readline() == "ready\n"
                    deadline = time.monotonic() + PATIENCE
                    states = dict[str, str]()
                    while states != {"time": "ready", "gone": "failed"}:
                        assert time.monotonic() < deadline, states
                        done = run("status", "--config", str(tmp_path / ".mcp.json"), "--json")
                        assert done.returncode == 0
                        servers = json.loads(done.stdout)[0]["servers"]
                        states = {name: server["state"] for name, server in servers.items()}
                    service.send_signal(signal.SIGTERM)
                    code = service.wait(PATIENCE)
                finally:
                    service.kill()
        assert code == 0
        assert run("status", "--config", str(tmp_path / ".mcp.json")).returncode == 1

    def test_a_restart_gives_a_server_a_new_process(self, tmp_path: Path, run: Run, start: Start) -> None:
        pids = tmp_path / "pids"
        write(tmp_path, {"my/time": scripted("--pid-file", str(pids)), "docs": scripted()})
        start()
        done = run("restart", "my/time", "--config", ".mcp.json")
        assert (done.returncode, done.stdout, done.stderr) == (0, "my_time  ready\n", "")
        old, new = map(int, pids.read_text().split())
        assert not is_running(old)
        assert is_running(new)
        assert json.loads(run("restart", "docs", "--json").stdout) == [
            {"server": "docs", "state": "ready", "error": None}
        ]

    def test_a_server_that_does_not_come_back_is_an_error(self, tmp_path: Path, run: Run, start: Start) -> None:
        write(tmp_path, {"gone": {"command": "/nowhere/at-all"}})
        start()
        for words in (["restart"], ["start", "gone"]):
            done = run(*words)
            assert done.returncode == 1
            assert done.stdout.startswith("gone  failed  server 'gone': command '/nowhere/at-all' not found")

    def test_servers_stop_and_start(self, tmp_path: Path, run: Run, start: Start) -> None:
        write(tmp_path, {"time": scripted()})
        start()
        assert run("stop", "time").stdout == "time  stopped\n"
        assert run("start", "time").stdout == "time  ready\n"

    def test_stop_without_a_server_waits_for_the_end_of_the_daemon(
        self, tmp_path: Path, run: Run, start: Start
    ) -> None:
        write(tmp_path, {"time": scripted("--pid-file", str(tmp_path / "pids"))})
        daemon = start()
        done = run("stop")
        assert (done.returncode, done.stdout) == (0, f"stopped the daemon of {os.path.realpath(tmp_path)}/.mcp.json\n")
        assert not is_running(int((tmp_path / "pids").read_text()))
        assert daemon.wait(PATIENCE) == 0
        assert run("stop").returncode == 1

    def test_reload_says_what_has_changed(self, tmp_path: Path, run: Run, start: Start) -> None:
        write(tmp_path, {"time": scripted(), "old": scripted()})
        start()
        write(tmp_path, {"time": scripted(), "new": scripted(), "bad": {}})
        done = run("reload")
        assert done.returncode == 1
        assert done.stdout.splitlines() == ["added: new", "removed: old", "unchanged: time"]
        assert "mcpServers.bad: neither 'command' nor 'url' is given" in done.stderr
        (tmp_path / ".mcp.json").write_text("{")
        done = run("reload", "--config", ".mcp.json")
        assert done.returncode == 1
        assert "is not valid JSON" in done.stderr

    def test_logs_are_those_of_the_daemon_and_its_servers(
        self, tmp_path: Path, run: Run, start: Start, runtime: Path
    ) -> None:
        write(tmp_path, {"time": scripted("--stderr", "warming up")})
        (runtime / "a.log").write_text("it listens\n")
        start()
        assert run("logs").stdout.splitlines() == ["time  warming up", f"{runtime}/a.log  it listens"]
        assert json.loads(run("logs", "--json").stdout)[-1] == {"log": f"{runtime}/a.log", "text": "it listens\n"}
        assert run("logs", "time").stdout == "time  warming up\n"

    def test_only_the_daemon_of_the_file_is_asked(self, tmp_path: Path, run: Run, start: Start) -> None:
        write(tmp_path, {"time": scripted()})
        other = start("a", f"{os.path.realpath(tmp_path)}/.mcp.json#time")
        mine = start("b")
        assert [each["pid"] for each in json.loads(run("status", "--json").stdout)] == [mine.pid]
        one = run("status", "--json", "--config", f"{tmp_path}/.mcp.json#time")
        assert [each["pid"] for each in json.loads(one.stdout)] == [other.pid]

    def test_an_unknown_server_is_named(self, tmp_path: Path, run: Run, start: Start) -> None:
        write(tmp_path, {"time": scripted()})
        start()
        done = run("restart", "tine")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "error: server 'tine' not found in this group; its servers are: time\n"

    def test_ctrl_c_leaves_and_the_restart_goes_on(self, tmp_path: Path, start: Start, runtime: Path) -> None:
        go, pids = tmp_path / "go", tmp_path / "pids"
        go.touch()
        entry = scripted("--pid-file", str(pids))
        words = join((entry["command"], *entry["args"]))
        script = f"touch started; while [ ! -e '{go}' ]; do sleep 0.01; done; exec {words}"
        write(tmp_path, {"slow": {**entry, "command": "sh", "args": ["-c", script]}})
        start()
        go.unlink()
        (tmp_path / "started").unlink()
        with started(tmp_path, "restart", "slow", "--config", ".mcp.json") as restarting:
            wait_for_text(tmp_path / "started", "")
            restarting.send_signal(signal.SIGINT)
            assert restarting.communicate(timeout=PATIENCE) == ("", "cancelled\n")
        assert restarting.returncode == 130
        go.touch()
        while len(pids.read_text().split()) < 2:
            wait_for_text(pids, "\n")


class TestNoDaemon:
    @pytest.mark.parametrize("do", ["status", "logs", "restart", "stop", "reload"])
    def test_it_says_what_starts_one(self, tmp_path: Path, run: Run, runtime: Path, do: str, said: Said) -> None:
        write(tmp_path, {})
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(runtime / "killed.ctl"))  # and it does not listen
        done = run(do)
        assert (done.returncode, done.stdout) == (1, "")
        said("no daemon", done.stderr, folder=os.path.realpath(tmp_path))
        assert "error" in json.loads(run(do, "--json").stdout)

    def test_start_needs_a_server(self, tmp_path: Path, run: Run, runtime: Path, said: Said) -> None:
        write(tmp_path, {})
        done = run("start")
        assert done.returncode == 2
        said("start without a server", done.stderr)

    def test_a_daemon_that_hangs_is_reported_within_seconds(
        self, tmp_path: Path, run: Run, runtime: Path, said: Said, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mcp_actors.cli._control.DAEMON_TIMEOUT", 0.2)
        write(tmp_path, {})
        (runtime / "a.lock").write_text("4711")
        with silent(runtime / "a.ctl"):
            began = time.monotonic()
            done = run("status")
        assert time.monotonic() - began < PATIENCE / 2
        assert done.returncode == 1
        said("a daemon that hangs", done.stderr, folder=runtime)

    def test_a_daemon_of_this_file_answers_while_another_one_hangs(
        self, tmp_path: Path, run: Run, start: Start, runtime: Path, said: Said, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path, {"time": scripted()})
        monkeypatch.setattr("mcp_actors.cli._control.DAEMON_TIMEOUT", 2.0)
        start("b")
        with silent(runtime / "a.ctl"):
            done = run("status")
        assert done.returncode == 0
        assert "time  ready" in done.stdout
        said("another daemon hangs", done.stderr, folder=runtime)

    def test_a_daemon_that_dies_in_the_midst_is_an_error(
        self, tmp_path: Path, run: Run, runtime: Path, said: Said
    ) -> None:
        write(tmp_path, {})
        with silent(runtime / "a.ctl", b'{"waiting": ["time"]}\n'):
            done = run("restart", "time")
        assert done.returncode == 1
        said("a daemon that dies", done.stderr, folder=runtime)

    def test_what_is_not_a_socket_of_this_user_is_refused(self, tmp_path: Path, run: Run, runtime: Path) -> None:
        write(tmp_path, {})
        (runtime / "a.ctl").touch()
        assert run("status").stderr.startswith(f"error: {runtime}/a.ctl is not a socket")
        (runtime / "a.ctl").unlink()
        runtime.chmod(0o755)
        assert run("status").stderr.startswith(f"error: {runtime} is not a folder of this user alone")

    @pytest.mark.parametrize(("word", "command"), [("ps", "status"), ("log", "logs"), ("kill", "stop")])
    def test_words_of_others_suggest_ours(self, run: Run, word: str, command: str) -> None:
        done = run(word)
        assert done.returncode == 2
        assert f"did you mean {command!r}?" in done.stderr
