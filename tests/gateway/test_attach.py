"""`attach` passes messages between a client on stdio and a daemon, and survives the daemon.

The daemon is ``line_server.py``, which does what the messages say and keeps a ledger of all that it has read.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import mcp
import pytest
import trio
from mcp.client.stdio import StdioServerParameters, stdio_client

import mcp_actors
from mcp_actors.gateway import _daemon, _relay, attach

from ..servers import scripted_server, wire_server
from ..source import ROOT

PROGRAM: Final = Path(attach.__file__)
SERVER: Final = Path(__file__).with_name("line_server.py")

WITH_LINE_SERVER: Final = f"""
import sys
attached = sys.modules["attached"] = type(sys)("attached")
attached.__path__ = [{str(PROGRAM.parent)!r}]
from attached import _relay
ledger, mode, *words = sys.argv[1:]
python = [sys.executable, "-I", "-S", {str(SERVER)!r}]
sys.exit(_relay.main(words, lambda names: [*python, names.socket, ledger, mode]))
"""

PATIENCE: Final = 60.0
"""Seconds that a process may take for anything on a machine that is busy."""

INITIALIZE: Final = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
INITIALIZED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_CHANGED: Final = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]


class Attached:
    """An `attach` process, and what the client at its pipes does."""

    def __init__(self, command: list[str], environ: dict[str, str], **options: Any) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            bufsize=0,
            **options,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._read = b""

    def send(self, *messages: object) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            while data:
                data = data[self._stdin.write(data) or 0 :]

    def request(self, id: object, method: str = "tools/call", **params: object) -> None:
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    def receive_line(self) -> bytes:
        """Return the next line, without its end; empty at the end of the stream."""
        while b"\n" not in self._read:
            assert select.select([self._stdout], [], [], PATIENCE)[0], "no line came"
            if not (data := os.read(self._stdout.fileno(), 1024 * 1024)):
                assert self._read == b""
                return b""
            self._read += data
        line, self._read = self._read.split(b"\n", 1)
        return line

    def receive(self) -> Any:
        return json.loads(self.receive_line())

    def call(self, id: object, **params: object) -> Any:
        """Return the answer to a call."""
        self.request(id, "tools/call", **params)
        return self.receive()

    def start_session(self) -> None:
        self.send(INITIALIZE)
        assert self.receive()["result"] == {"method": "initialize"}
        self.send(INITIALIZED)

    @property
    def unread(self) -> int:
        """How many bytes wait in its stdin."""
        return int.from_bytes(fcntl.ioctl(self._stdin, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self) -> int:
        """Close stdin, and return the exit code."""
        self._stdin.close()
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        """Return what it has written to stderr; it must have ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


class Place:
    """A folder with a configuration file, and one for the files of daemons, whose path is short."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.config = folder / "mcp.json"
        self.config.write_text("{}")
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.ledger = folder / "ledger"
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)}
        self._stack = stack

    def attach(self, mode: str = "plain", config: object = None, **options: Any) -> Attached:
        """Start a client, with a line server as its daemon."""
        words = [str(self.ledger), mode, "--config", str(config or self.config)]
        command = [sys.executable, "-I", "-S", "-c", WITH_LINE_SERVER, *words]
        return self.start(command, self.environ, **options)

    def start(self, command: list[str], environ: dict[str, str], **options: Any) -> Attached:
        attached = Attached(command, environ, **options)
        self._stack.callback(end, attached.process)
        return attached

    @property
    def starts(self) -> list[int]:
        """The daemons that have listened: their process ids."""
        with suppress(FileNotFoundError):
            return [int(line) for line in Path(f"{self.ledger}.starts").read_text().split()]
        return []

    def read_by(self, daemon: int) -> list[Any]:
        """Return the messages that a daemon has read."""
        lines = map(json.loads, self.ledger.read_text().splitlines())
        return [message for pid, message in lines if pid == self.starts[daemon]]

    @property
    def directories(self) -> list[Any]:
        """What clients have said about where they work."""
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in Path(f"{self.ledger}.directories").read_text().splitlines()]
        return []

    def file(self, end: str) -> Path:
        (found,) = (self.runtime / "mcp-actors").glob(f"*.{end}")
        return found

    def kill_daemons(self) -> None:
        for lock in (self.runtime / "mcp-actors").glob("*.lock"):
            if (held := lock.read_text()).isdigit():
                with suppress(ProcessLookupError):
                    os.kill(int(held), signal.SIGKILL)
                wait_until(partial(has_left, lock, held))


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="attach-"))  # tmp_path is too long for a socket
        stack.callback(wait_until, partial(is_removed, folder))
        place = Place(folder, stack)
        stack.callback(place.kill_daemons)
        yield place


def outcome(answer: Any) -> str:
    """Return the outcome that an error of ours names."""
    assert answer["error"]["data"]["mcp_actors"]["error"] == "ConnectionLost"
    named: str = answer["error"]["data"]["mcp_actors"]["outcome"]
    return named


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def is_removed(folder: Path) -> bool:
    """Remove a folder. The server of a killed daemon may still write into it, until it notices that."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def has_left(lock: Path, held: str) -> bool:
    """Return True if a daemon does not hold its lock any more. A client may have started another one already."""
    with lock.open() as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return lock.read_text() != held


# --- The files of a daemon --------------------------------------------------------------------------------------------


@pytest.fixture
def names(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the place of a daemon's files for a configuration and some variables."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))

    def names(config: object = place.config, **variables: str) -> str:
        with monkeypatch.context() as context:
            for name, value in variables.items():
                context.setenv(name, value)
            return attach.names_for(str(config)).socket.removesuffix(".sock")

    return names


def test_the_version_is_that_of_the_package() -> None:
    assert mcp_actors.__version__ == _daemon.PACKAGE_VERSION


def test_a_file_has_one_daemon_by_any_path(place: Place, names: Callable[..., str]) -> None:
    link = place.folder / "link.json"
    link.symlink_to(place.config)
    assert names(link) == names(place.folder / "." / "mcp.json") == names()
    assert re.fullmatch(rf"{place.runtime}/mcp-actors/[0-9a-f]{{16}}", names())


def test_another_file_server_or_version_is_another_daemon(
    place: Place, names: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = place.folder / "other.json"
    other.write_text("{}")
    found = {names(), names(other), names(f"{place.config}#time"), names(f"{place.config}#docs")}
    monkeypatch.setattr(_daemon, "PACKAGE_VERSION", "0.0.0")
    assert len(found | {names()}) == 5


def test_a_server_is_separated_from_the_path_unless_the_path_contains_the_mark(place: Place) -> None:
    file = place.folder / "my#file"
    file.write_text("{}")
    assert attach.file_and_server(f"{place.config}#time") == (str(place.config), "time")
    assert attach.file_and_server(str(file)) == (str(file), "")
    assert attach.file_and_server(f"{file}#time") == (str(file), "time")


@pytest.mark.parametrize(
    ("text", "matters"),
    [
        ('{"env": {"A": "${ONE}"}}', True),
        ('{"env": {"A": "Bearer ${env:ONE}!"}}', True),
        ('{"env": {"A": "${OTHER:-${ONE:-x}}"}}', True),
        ('{"env_from": ["OTHER", "ONE"]}', True),
        ("env_vars = ['OTHER', 'ONE']", True),
        ('bearer_token_env_var = "ONE"', True),
        ("bearer_token_env_var='ONE'", True),
        ('{"bearer_token_env_var": "ONE"}', True),
        ('env_http_headers = {X-A = "OTHER", "X-B" = "ONE"}', True),
        ('[mcp_servers.a.env_http_headers]\nX-A = "OTHER"\nX-B = "ONE"\n[other]\nx = "y"', True),
        ('{"env_http_headers": {"X-A": "OTHER", "X-B": "ONE"}}', True),
        ('{"env": {"A": "$${ONE}"}}', False),
        ('{"env": {"A": "${ONE_MORE} $ONE"}}', False),
        ("{}", False),
    ],
)
def test_the_values_of_the_variables_in_the_file_decide_about_the_daemon(
    text: str, matters: bool, place: Place, names: Callable[..., str]
) -> None:
    place.config.write_text(text)
    assert (names(ONE="1") != names(ONE="2")) is matters
    assert (names(ONE="") != names()) is matters
    assert names(ONE="1") == names(ONE="1", UNUSED="1")


def test_variables_are_found_in_utf_16_too(place: Place, names: Callable[..., str]) -> None:
    place.config.write_text('{"env": {"A": "${ONE}"}, "env_from": ["TWO"]}', encoding="utf-16")
    assert len({names(ONE="1"), names(ONE="2"), names(TWO="1")}) == 3


def test_the_folder_is_made_for_this_user_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    assert attach.folder() == f"{place.runtime}/mcp-actors"
    assert (place.runtime / "mcp-actors").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("runtime", ["", "relative", "/does/not/exist", "/dev/null"])
def test_without_a_runtime_folder_the_files_are_in_the_cache(
    runtime: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("HOME", str(place.folder))
    assert attach.folder() == f"{place.folder}/.cache/mcp-actors"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_of_another_user_is_not_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(place.runtime, 12345, -1)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    monkeypatch.setenv("HOME", str(place.folder))
    assert attach.folder() == f"{place.folder}/.cache/mcp-actors"


def test_a_folder_that_others_can_use_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    path = place.runtime / "mcp-actors"
    path.mkdir(mode=0o755)
    problem = f"{path} is not a folder of this user alone (drwxr-xr-x, uid {os.geteuid()}); run: chmod 700 {path}"
    with pytest.raises(attach.DaemonRefused, match=re.escape(problem)):
        attach.folder()
    path.rmdir()
    path.symlink_to(place.folder)
    with pytest.raises(attach.DaemonRefused, match=r"alone \(lrwxrwxrwx"):
        attach.folder()
    path.unlink()
    path.write_text("")
    with pytest.raises(attach.DaemonRefused, match=r"alone \(-rw"):
        attach.folder()
    path.unlink()
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(attach.DaemonRefused, match="uid 12345"):
            attach.folder()


def test_a_folder_that_cannot_be_made_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("HOME", str(place.config))
    with pytest.raises(attach.DaemonRefused, match=r"cannot be made \(Not a directory\); set XDG_RUNTIME_DIR"):
        attach.folder()


def test_a_path_that_is_too_long_for_a_socket_is_refused(
    place: Place, names: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = place.folder / ("x" * 80)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(attach.DaemonRefused, match=r"at most 107 bytes, .* has more; set XDG_RUNTIME_DIR to a folder"):
        names()


def test_only_a_socket_of_this_user_is_used(place: Place) -> None:
    path = place.folder / "socket"
    assert not attach.check_socket(str(path))
    path.write_text("")
    with pytest.raises(attach.DaemonRefused, match=r"is not a socket of this user \(-rw.*\); remove it"):
        attach.check_socket(str(path))
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert attach.check_socket(str(path))
        link = place.folder / "link"
        link.symlink_to(path)
        with pytest.raises(attach.DaemonRefused, match=r"is not a socket of this user \(l"):
            attach.check_socket(str(link))
        if os.geteuid() == 0:
            os.chown(path, 12345, -1)
            with pytest.raises(attach.DaemonRefused, match="uid 12345"):
                attach.check_socket(str(path))


LISTEN_AS_ANOTHER: Final = """
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.setuid(12345)
listener.listen()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_socket_on_which_another_user_listens_is_refused(place: Place) -> None:
    path = str(place.folder / "socket")
    command = [sys.executable, "-I", "-S", "-c", LISTEN_AS_ANOTHER, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            with pytest.raises(
                attach.DaemonRefused, match=re.escape(f"another user (uid 12345) listens on {path}; remove")
            ):
                _daemon.connect(path)
        finally:
            other.kill()


def test_the_uid_of_a_peer_is_known() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert attach.peer_uid(one) == os.geteuid()


# --- Starting a daemon ------------------------------------------------------------------------------------------------


def test_messages_pass_both_ways_and_a_second_client_uses_the_same_daemon(place: Place) -> None:
    first, second = place.attach(), place.attach()
    answers = [first.call(1), second.call("1")]
    assert [answer["id"] for answer in answers] == [1, "1"]
    assert {answer["result"]["pid"] for answer in answers} == {*place.starts}
    assert len(place.starts) == 1
    assert [first.close(), second.close()] == [0, 0]
    assert first.errors() == second.errors() == ""


def test_many_clients_at_once_start_one_daemon(place: Place) -> None:
    clients = [place.attach("slow0.3") for _ in range(12)]
    for client in clients:
        client.request(1)
    assert {client.receive()["result"]["pid"] for client in clients} == {*place.starts}
    assert len(place.starts) == 1


def test_a_daemon_that_listens_since_the_last_look_is_not_started_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over NFS a daemon does not inherit the lock, which is free once the client that starts it has seen it ready."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.runtime))
    names = attach.names_for(str(place.config))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(names.socket)
        listener.listen()
        with _daemon._start(names, ["/does/not/exist"], time.time(), lambda: None) as connection:
            assert connection.getpeername() == names.socket


def test_a_daemon_that_is_starting_is_not_started_again_if_its_client_is_killed(place: Place) -> None:
    first = place.attach("slow0.5")
    wait_until(lambda: [*place.runtime.glob("*/*.lock")] and place.file("lock").read_text())
    first.process.kill()
    second = place.attach("slow0.5")
    assert second.call(1)["result"]["pid"] == int(place.file("lock").read_text())
    assert len(place.starts) == 1


def test_the_socket_of_a_daemon_that_was_killed_is_replaced(place: Place) -> None:
    place.attach().call(1)
    place.kill_daemons()
    assert place.file("sock").is_socket()
    place.attach().call(1)
    assert len(place.starts) == 2


def test_the_daemon_is_independent_of_the_client_that_started_it(place: Place) -> None:
    client = place.attach()
    pid = client.call(1)["result"]["pid"]
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == str(place.folder)
    opened = {number: os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
    assert opened["0"] == "/dev/null"
    assert opened["2"] == str(place.file("log"))
    assert opened["3"] == str(place.file("lock"))
    pipes = [number for number, target in opened.items() if target.startswith("pipe:")]
    assert pipes == ["4"]
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"PPid:\t{client.process.pid}\n" not in status
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(PATIENCE) == -signal.SIGTERM
    assert place.attach().call(1)["result"]["pid"] == pid


def test_a_descriptor_that_the_client_has_inherited_is_not_kept_by_the_daemon(place: Place) -> None:
    reads, writes = os.pipe()
    with open(reads, "rb") as ours, open(writes, "wb") as theirs:
        client = place.attach(pass_fds=(writes,))
        client.call(1)
        theirs.close()
        assert client.close() == 0
        assert select.select([ours], [], [], PATIENCE)[0]
        assert ours.read() == b""


def test_the_command_of_the_daemon_imports_nothing_from_its_working_directory(place: Place) -> None:
    names = attach.Names("/x/mcp.json", "time", "/run/n")
    assert names.folder == "/x"
    assert _daemon.daemon_command(names) == [
        *(sys.executable, "-P", f"{PROGRAM.parents[1]}/__main__.py", "serve", "--config", "/x/mcp.json#time"),
        *("--socket", "/run/n.sock", "--control", "/run/n.ctl", "--idle", "60"),
    ]


def refusal(place: Place, client: Attached) -> str:
    """Return the sentence that a client gets, and check that it is everywhere where it has to be."""
    client.send(INITIALIZE)
    answer = client.receive()
    assert answer["id"] == 0
    assert answer["error"]["code"] == -32000
    assert outcome(answer) == "not_sent"
    sentence: str = answer["error"]["message"].removeprefix("mcp-actors: ")
    sentence = sentence.removesuffix("; the request was not sent")
    client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert client.call("a", hang=True)["error"] == answer["error"]  # and it has not ended
    assert client.close() == 1
    assert client.errors() == f"mcp-actors attach: {sentence}\n"
    return sentence


def test_a_daemon_that_does_not_start_is_reported_with_the_end_of_its_log(place: Place) -> None:
    problem = f"the daemon of {place.config} did not start: first line; error: the file is  [31mwrong [0m; fix that"
    assert refusal(place, place.attach("fail")) == f"{problem} and try again"
    assert place.starts == []


def test_the_failure_of_one_start_is_that_of_all_clients_that_have_waited_for_it(place: Place) -> None:
    clients = [place.attach("fail") for _ in range(20)]
    assert len({refusal(place, client) for client in clients}) == 1
    assert place.file("log").read_text().count("first line") < 10


def test_an_interpreter_without_the_package_is_reported(place: Place) -> None:
    words = [sys.executable, "-I", "-S", str(PROGRAM), "--config", str(place.config)]
    client = place.start(words, {**place.environ, "PYTHONHOME": "/nowhere"})  # which -I ignores, but not the daemon
    assert "did not start: " in refusal(place, client)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("mcp.json", "--config needs the absolute path of a file, not 'mcp.json'; write the whole path"),
        ("~/mcp.json", "--config needs the absolute path of a file, not '~/mcp.json'; write the whole path"),
        ("{}/missing", "{}/missing cannot be read (No such file or directory); check the path and its permissions"),
        ("{}/missing#x", "{}/missing cannot be read (No such file or directory); check the path and its permissions"),
        ("{}", "{} cannot be read (Is a directory); check the path and its permissions"),
        ("{}/pipe", "{}/pipe is not a configuration file; check the path and its permissions"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(config: str, problem: str, place: Place) -> None:
    os.mkfifo(place.folder / "pipe")
    client = place.attach(config=config.format(place.folder))
    assert refusal(place, client) == problem.format(place.folder)
    assert place.starts == []


def test_the_command_becomes_the_program(place: Place) -> None:
    command = [sys.executable, "-m", "mcp_actors", "attach", "--config", f"{place.folder}/missing"]
    client = place.start(command, place.environ)
    assert refusal(place, client).startswith(f"{place.folder}/missing cannot be read (No such file or directory)")


def test_a_missing_option_is_reported(place: Place) -> None:
    client = place.start([sys.executable, "-I", "-S", str(PROGRAM)], place.environ)
    assert refusal(place, client) == "--config needs the absolute path of a file, not ''; write the whole path"


def test_a_planted_socket_is_refused(place: Place) -> None:
    place.attach().call(1)
    place.kill_daemons()
    path = place.file("sock")
    path.unlink()
    path.symlink_to("/dev/null")
    assert refusal(place, place.attach()).startswith(f"{path} is not a socket of this user (lrwxrwxrwx, uid ")
    path.unlink()
    path.write_text("precious")
    assert refusal(place, place.attach()).endswith("; remove it")
    assert path.read_text() == "precious"
    assert len(place.starts) == 1


@pytest.mark.parametrize("end", ["lock", "log"])
def test_a_planted_link_is_not_followed(end: str, place: Place) -> None:
    place.attach().call(1)
    place.kill_daemons()
    path, target = place.file(end), place.folder / "target"
    target.write_text("precious")
    path.unlink()
    path.symlink_to(target)
    assert str(path) in refusal(place, place.attach())
    assert target.read_text() == "precious"
    path.unlink()


def test_the_older_half_of_a_long_log_is_dropped(place: Place) -> None:
    place.attach().call(1)
    place.kill_daemons()
    log = place.file("log")
    with log.open("w") as file:
        file.writelines(f"line {number:05}\n" for number in range(100_000))
    place.attach().call(1)
    lines = log.read_text().splitlines()
    assert lines[-1] == "line 99999"
    assert lines[0] == f"line {100_000 - len(lines):05}"
    assert 500_000 < log.stat().st_size <= _daemon.MAX_LOG // 2


# --- Passing messages -------------------------------------------------------------------------------------------------


def test_large_messages_pass_both_ways(place: Place) -> None:
    client = place.attach()
    answer = client.call(1, big=5_000_000, argument="ü" * 2_000_000)
    assert len(answer["result"]["big"]) == 5_000_000
    (message,) = place.read_by(0)
    assert message["params"]["argument"] == "ü" * 2_000_000


def test_lines_pass_byte_by_byte(place: Place) -> None:
    client = place.attach()
    line = b'{ "id" :  1, "method":"tools/call", "jsonrpc":"2.0", "params":{"say":["  { \\"odd\\": 1e5 }"]}}\r\n'
    for byte in b"\n \n" + line:
        client.send(bytes([byte]))
    assert client.receive_line() == b'  { "odd": 1e5 }'
    assert client.receive()["id"] == 1


def test_a_line_of_a_daemon_that_is_not_a_message_is_left_out(place: Place) -> None:
    client = place.attach()
    said = ["nonsense", "[1]", "7", "[" * 5000, "", '{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}']
    client.request(1, say=said)
    assert client.receive()["id"] == 1


def test_a_line_that_is_not_a_message_passes(place: Place) -> None:
    client = place.attach()
    client.send(b"[1]\n")  # which ends the connection of the line server
    client.send(b'"word"\n')
    client.process.stdin.close() if client.process.stdin else None
    assert client.process.wait(PATIENCE) == 0


def test_a_client_that_does_not_read_is_not_read_from_and_costs_little_memory(place: Place) -> None:
    client = place.attach()
    client.call(0)
    for id in range(1, 41):
        client.request(id, big=1_000_000)
    wait_until(lambda: len(place.ledger.read_text().splitlines()) > 3)
    time.sleep(0.5)
    assert memory(client) < 20_000
    for id in range(1, 41):
        assert client.receive()["id"] == id


def test_a_daemon_that_does_not_read_is_not_written_to_and_costs_little_memory(place: Place) -> None:
    client = place.attach()
    client.call(0)
    os.kill(place.starts[0], signal.SIGSTOP)
    try:
        assert client.process.stdin is not None
        os.set_blocking(client.process.stdin.fileno(), False)
        written, line = 0, json.dumps({"jsonrpc": "2.0", "method": "x", "params": "y" * 4000}).encode() + b"\n"
        while select.select([], [client.process.stdin], [], 0.5 if written > _relay.LIMIT else PATIENCE)[1]:
            written += client.process.stdin.write(line) or 0
        assert _relay.LIMIT < written < 3 * _relay.LIMIT
        assert memory(client) < 12_000
    finally:
        os.kill(place.starts[0], signal.SIGCONT)


def memory(client: Attached) -> int:
    """Return the memory of a client in kB."""
    rollup = Path(f"/proc/{client.process.pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss: +(\d+) kB$", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_a_message_over_the_limit_ends_the_connection(place: Place) -> None:
    client = place.attach()
    client.call(1)
    with pytest.raises(BrokenPipeError):
        client.send(b"x" * (_relay.MAX_MESSAGE + 200_000))
    assert client.process.wait(PATIENCE) == 1
    assert client.errors() == (
        "mcp-actors attach: a message of the client has more than 16 MiB; make its requests smaller\n"
    )


# --- Losing the daemon ------------------------------------------------------------------------------------------------


def test_a_request_in_flight_when_the_daemon_dies_has_an_unknown_outcome(place: Place) -> None:
    client = place.attach()
    client.request(1, hang=True)
    client.request("1", hang=True)
    client.request(2, die=True)
    lost = [client.receive() for _ in range(3)]
    assert [answer["id"] for answer in lost] == [1, "1", 2]
    assert {outcome(answer) for answer in lost} == {"unknown"}
    assert "it may have taken effect; check that first" in lost[0]["error"]["message"]
    assert client.call(3)["result"]["pid"] == place.starts[1]
    assert [message["id"] for message in place.read_by(1)] == [3]
    assert client.close() == 0
    assert client.errors() == (
        f"mcp-actors attach: the daemon of {place.config} has ended; the next message starts it again\n"
    )


def test_an_answer_is_taken_by_the_id_of_the_message_and_by_no_other(place: Place) -> None:
    client = place.attach()
    client.request(1, hang=True)
    assert client.call("ü")["id"] == "ü"  # the answer has it as "\\u00fc"
    client.request("a,b", hang=True)
    client.request('q"\\ü', hang=True)
    client.request(-7, hang=True)
    inner = '{"jsonrpc":"2.0","id":1,"result":{"id":1}}'
    said = [
        f'{{"jsonrpc":"2.0","id":9,"result":{inner}}}',
        f'{{"jsonrpc":"2.0","method":"notifications/message","params":{inner}}}',
        f'{{"result":{inner},"jsonrpc":"2.0","id":"a,b"}}',
        '{"jsonrpc":"2.0","id":"q\\"\\\\\\u00fc","error":{"code":1,"message":"m"}}',
        '{"jsonrpc": "2.0", "id": -7, "result": {}}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"id: 1"}}',
    ]
    client.request(9, say=said, die=True)
    assert [client.receive_line().decode() for _ in said] == said
    lost = client.receive()
    assert (lost["id"], outcome(lost)) == (1, "unknown")
    assert client.call(3)["id"] == 3


def test_no_answer_to_a_cancelled_request_is_made_up(place: Place) -> None:
    client = place.attach()
    client.request(1, hang=True)
    client.request(2, hang=True)
    client.request(5, hang=True)
    wait_until(lambda: place.ledger.exists() and len(place.read_by(0)) == 3)
    for id in (1, 5):
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    said = '{"jsonrpc":"2.0","id":1,"result":{}}'
    client.request(3, say=[said], die=True)
    assert client.receive_line().decode() == said  # one of the daemon passes
    assert [client.receive()["id"] for _ in range(2)] == [2, 3]
    client.request(4, die=True)
    assert client.receive()["id"] == 4
    assert [message.get("id") for message in place.read_by(0)] == [1, 2, 5, None, None, 3]


def test_no_answer_to_a_request_that_was_cancelled_before_it_was_written_is_made_up(place: Place) -> None:
    client = place.attach()
    client.request(1, nap=0.5)
    client.request(2, argument="x" * 900_000, hang=True)
    client.request(3, hang=True)
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})
    assert client.receive()["id"] == 1
    client.request(4, die=True)
    assert [client.receive()["id"] for _ in range(2)] == [2, 4]
    assert client.call(5)["id"] == 5


def test_what_was_not_written_goes_to_the_next_daemon_in_order(place: Place) -> None:
    client = place.attach()
    client.request(1, nap=0.5, die=True)
    client.request(2, argument="x" * 3_000_000)  # more than fits into the socket
    client.request(3)
    lost = client.receive()
    assert (lost["id"], outcome(lost)) == (1, "unknown")
    assert [client.receive()["id"] for _ in range(2)] == [2, 3]
    assert [message["id"] for message in place.read_by(0)] == [1]
    assert [message["id"] for message in place.read_by(1)] == [2, 3]


def test_the_next_daemon_gets_the_session_and_the_client_a_hint_that_lists_have_changed(place: Place) -> None:
    client = place.attach()
    client.start_session()
    for id, method, params in (
        ("level", "logging/setLevel", {"level": "info"}),
        ("level 2", "logging/setLevel", {"level": "error"}),
        ("a", "resources/subscribe", {"uri": "x:a"}),
        ("b", "resources/subscribe", {"uri": "x:b"}),
        ("not a", "resources/unsubscribe", {"uri": "x:a"}),
    ):
        client.request(id, method, **params)
        assert client.receive()["id"] == id
    client.request(1, die=True)
    assert client.receive()["id"] == 1
    client.request(2, say=['{"jsonrpc":"2.0","method":"notifications/message"}'])
    messages = [client.receive() for _ in range(5)]
    assert [message.get("method") for message in messages] == [*LIST_CHANGED, "notifications/message", None]
    assert messages[-1]["id"] == 2
    again = [message.get("id", message["method"]) for message in place.read_by(1)]
    assert again == [0, "notifications/initialized", "level 2", "b", 2]
    client.request(3, die=True)
    assert client.receive()["id"] == 3
    client.request(4)
    assert [client.receive() for _ in range(4)][-1]["id"] == 4
    assert place.read_by(2)[:4] == place.read_by(1)[:4]


def test_what_a_daemon_has_refused_is_not_repeated_to_the_next_one(place: Place) -> None:
    client = place.attach()
    client.start_session()
    for id, method, params in (
        ("level", "logging/setLevel", {"level": "info"}),
        ("no level", "logging/setLevel", {"level": "loud", "refuse": True}),
        ("a", "resources/subscribe", {"uri": "x:a"}),
        ("not b", "resources/subscribe", {"uri": "x:b", "refuse": True}),
    ):
        client.request(id, method, **params)
        assert client.receive()["id"] == id
    client.request(1, die=True)
    assert client.receive()["id"] == 1
    client.request(2)
    assert [client.receive().get("id") for _ in range(4)] == [None, None, None, 2]
    again = [message.get("id", message["method"]) for message in place.read_by(1)]
    assert sorted(map(str, again)) == sorted(map(str, [0, "notifications/initialized", "level", "a", 2]))


def test_each_daemon_hears_first_where_the_client_works(place: Place) -> None:
    folder = place.folder / "projéct"
    folder.mkdir()
    client = place.attach(cwd=folder)
    client.start_session()
    assert place.directories == [{"path": str(folder)}]
    client.request(1, die=True)
    assert client.receive()["id"] == 1
    client.request(2)
    assert [client.receive() for _ in range(4)][-1]["id"] == 2
    assert place.directories == [{"path": str(folder)}] * 2


def test_a_client_whose_directory_has_no_name_in_utf_8_or_was_removed_does_not_say_it(place: Place) -> None:
    odd = os.fsencode(place.folder) + b"/\xff"
    os.mkdir(odd)
    assert place.attach(cwd=odd).call(1)["id"] == 1
    removed = place.folder / "removed"
    removed.mkdir()
    words = [sys.executable, "-I", "-S", "-c", WITH_LINE_SERVER, str(place.ledger), "plain", "--config", place.config]
    command = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *map(str, words)]
    assert place.start(command, place.environ, cwd=removed).call(2)["id"] == 2
    assert place.directories == []


def test_a_session_that_a_daemon_has_got_in_part_is_given_to_the_next_one_as_a_whole(place: Place) -> None:
    client = place.attach("second reads nothing")
    client.start_session()
    long = [f"x:{letter * 300_000}" for letter in "abc"]  # the socket takes less
    for uri in long:
        client.request(uri[2], "resources/subscribe", uri=uri)
        assert client.receive()["id"] == uri[2]
    place.kill_daemons()
    assert [client.receive()["method"] for _ in LIST_CHANGED] == LIST_CHANGED
    place.kill_daemons()
    assert [client.receive()["method"] for _ in LIST_CHANGED] == LIST_CHANGED
    assert client.call(1)["id"] == 1
    assert [message.get("id") for message in place.read_by(2)] == [0, None, "a", "b", "c", 1]


def test_a_client_that_waits_for_updates_of_resources_gets_the_next_daemon_at_once(place: Place) -> None:
    client = place.attach()
    client.start_session()
    client.request("a", "resources/subscribe", uri="x:a")
    assert client.receive()["id"] == "a"
    place.kill_daemons()
    assert [client.receive()["method"] for _ in LIST_CHANGED] == LIST_CHANGED
    wait_until(lambda: len(place.starts) == 2 and len(place.read_by(1)) == 3)
    assert client.close() == 0


def test_a_client_of_the_modern_era_gets_no_hint(place: Place) -> None:
    client = place.attach()
    client.request(1, die=True)
    assert client.receive()["id"] == 1
    assert client.call(2)["id"] == 2


def test_a_request_that_changes_nothing_is_sent_again(place: Place) -> None:
    client = place.attach()
    client.send(INITIALIZE, INITIALIZED)
    client.request("discover", "server/discover", hang=True)
    client.request("list", "tools/list", hang=True)
    client.request("call", hang=True)
    client.request("cancelled", "tools/list", hang=True)
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "cancelled"}})
    assert client.receive()["id"] == 0
    client.request("die", die=True)
    assert [(answer["id"], outcome(answer)) for answer in (client.receive(), client.receive())] == [
        ("call", "unknown"),
        ("die", "unknown"),
    ]
    wait_until(lambda: len(place.starts) == 2 and len(place.read_by(1)) == 4)
    assert [message.get("id") for message in place.read_by(1)] == [0, None, "discover", "list"]


def test_an_initialize_without_an_answer_is_answered_by_the_next_daemon(place: Place) -> None:
    client = place.attach("refuse")
    client.request(0, "initialize")
    answer = client.receive()
    assert answer["id"] == 0
    assert outcome(answer) == "not_sent"
    assert "has ended 4 times within 60 s: its log is empty; fix that" in answer["error"]["message"]


def test_the_daemon_is_not_restarted_without_end(place: Place) -> None:
    client = place.attach()
    for id in range(4):
        assert outcome(client.call(id, die=True)) == "unknown"
    refused = client.call(9)
    assert outcome(refused) == "not_sent"
    assert re.search(r"has ended 4 times within 60 s: .*; fix that and try again", refused["error"]["message"])
    assert client.call(10)["error"] == refused["error"]
    assert len(place.starts) == 4


# --- Requests of the daemon -------------------------------------------------------------------------------------------

QUESTION: Final = '{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"message":"id 5?"}}'
ODD_QUESTION: Final = '{"method": "roots/list", "jsonrpc": "2.0", "id": "five"}'


def test_a_question_and_its_answer_pass(place: Place) -> None:
    client = place.attach()
    client.request(1, say=[QUESTION, ODD_QUESTION])
    questions = [client.receive(), client.receive()]
    assert [question["method"] for question in questions] == ["elicitation/create", "roots/list"]
    assert questions[0]["params"] == {"message": "id 5?"}
    assert client.receive()["id"] == 1
    client.send(b'{"result":{"id":3.50},"jsonrpc":"2.0","id":%d}\n' % questions[0]["id"])
    client.send(b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"no"}}\n' % questions[1]["id"])
    assert client.call(2)["id"] == 2
    assert place.read_by(0)[1:3] == [
        {"jsonrpc": "2.0", "id": 5, "result": {"id": 3.5}},
        {"jsonrpc": "2.0", "id": "five", "error": {"code": 1, "message": "no"}},
    ]


def test_a_question_is_withdrawn_by_the_id_that_the_client_knows(place: Place) -> None:
    client = place.attach()
    withdrawn = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"late"}}'
    other = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}'
    client.request(1, say=[QUESTION, withdrawn, other])
    question, cancellation = client.receive(), client.receive()
    assert cancellation["params"] == {"requestId": question["id"], "reason": "late"}
    client.send({"jsonrpc": "2.0", "id": question["id"], "result": {}})
    assert client.receive()["id"] == 1
    client.call(2)
    assert [message["id"] for message in place.read_by(0)] == [1, 2]


def test_a_question_of_a_daemon_that_has_died_is_withdrawn_and_a_late_answer_dropped(place: Place) -> None:
    client = place.attach()
    client.request(1, say=[QUESTION], die=True)
    question, lost, cancellation = (client.receive() for _ in range(3))
    assert lost["id"] == 1
    assert cancellation == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": question["id"], "reason": "the connection to the server was lost"},
    }
    client.request(2, say=[QUESTION])  # with the id of the first one
    again = client.receive()
    assert again["id"] != question["id"]
    client.send({"jsonrpc": "2.0", "id": question["id"], "result": "of the first"})
    client.send({"jsonrpc": "2.0", "id": again["id"], "result": "of the second"})
    assert client.receive()["id"] == 2
    client.call(3)
    assert place.read_by(1)[1:2] == [{"jsonrpc": "2.0", "id": 5, "result": "of the second"}]


def test_an_answer_that_the_dead_daemon_did_not_read_is_not_for_the_next_one(place: Place) -> None:
    client = place.attach()
    client.request(1, say=[QUESTION], nap=600)
    question = client.receive()
    client.request(2, argument="x" * 900_000)  # more than fits into the socket, less than is kept
    client.send({"jsonrpc": "2.0", "id": question["id"], "result": {}})
    wait_until(lambda: client.unread == 0)
    place.kill_daemons()
    assert [client.receive()["id"] for _ in range(2)] == [1, 2]
    assert [message["id"] for message in place.read_by(1)] == [2]


def test_a_fence_is_answered_behind_all_that_the_client_has_written(place: Place) -> None:
    client = place.attach()
    client.call(0)
    client.process.send_signal(signal.SIGSTOP)
    fence = '{"jsonrpc":"2.0","id":"mcp-actors:fence:1","method":"ping"}'
    client.request(1, say=[fence])
    client.process.send_signal(signal.SIGCONT)
    assert client.receive()["id"] == 1
    client.process.send_signal(signal.SIGSTOP)
    client.request(2, say=[fence.replace(":1", ":2")], argument="x" * 50_000)
    client.request(3)
    client.process.send_signal(signal.SIGCONT)
    assert [client.receive()["id"] for _ in range(2)] == [2, 3]
    wait_until(lambda: len(place.read_by(0)) == 6)
    assert [message["id"] for message in place.read_by(0)] == [
        *(0, 1, "mcp-actors:fence:1", 2, 3, "mcp-actors:fence:2"),
    ]
    assert place.read_by(0)[2] == {"jsonrpc": "2.0", "id": "mcp-actors:fence:1", "result": {}}


def test_a_fence_of_a_daemon_that_has_died_is_not_answered_to_the_next_one(place: Place) -> None:
    """The fences of the next one have the same ids."""
    client = place.attach()
    client.request(1, nap=0.5)
    client.request(2, say=['{"jsonrpc":"2.0","id":"mcp-actors:fence:1","method":"ping"}'], nap=0.5, die=True)
    for id in range(3, 7):
        client.request(id, argument="x" * 900_000)  # more than is kept, so the fence has to wait
    answers = [client.receive() for _ in range(6)]
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert outcome(answers[1]) == "unknown"
    client.call(7)  # an answer would be in front of it
    assert [message["id"] for message in place.read_by(1)] == [3, 4, 5, 6, 7]


def test_a_fence_is_answered_behind_what_the_client_is_just_writing(place: Place) -> None:
    """A client whose pipe was full writes the rest a moment later. Another process may delay it, but not often."""
    client = place.attach()

    def last_read() -> list[object]:
        return [message["id"] for message in place.read_by(0)]

    for attempt in range(5):
        fence = f"mcp-actors:fence:{attempt}"
        client.request(attempt, say=[json.dumps({"jsonrpc": "2.0", "id": fence, "method": "ping"})])
        for number in range(100):
            time.sleep(0.002)
            client.request(f"{attempt}.{number}", hang=True)
        assert client.receive()["id"] == attempt
        expected = {fence, f"{attempt}.99"}
        while not expected <= {*last_read()}:
            time.sleep(0.01)
        if last_read()[-1] == fence:
            return
    pytest.fail("the fence was answered too early each time")


# --- The end ----------------------------------------------------------------------------------------------------------


def test_answers_pass_after_the_client_has_closed_its_side(place: Place) -> None:
    client = place.attach()
    client.request(1, nap=0.2)
    client.request(2, big=2_000_000)
    client.send(b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{}}')  # without the end of the line
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert [client.receive()["id"] for _ in range(3)] == [1, 2, 3]
    assert client.receive_line() == b""
    assert client.process.wait(PATIENCE) == 0


def test_the_daemon_sees_that_the_client_has_closed_its_side(place: Place) -> None:
    client = place.attach()
    client.request(1, at_end=True)
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert client.receive()["id"] == 1
    assert client.process.wait(PATIENCE) == 0


def test_a_client_that_has_closed_its_side_does_not_wait_long(place: Place) -> None:
    client = place.attach()
    client.call(1)
    client.request(2, nap=30)
    before = time.monotonic()
    assert client.close() == 0
    assert time.monotonic() - before < 10


def test_a_client_without_a_daemon_is_answered_after_it_has_closed_its_side(place: Place) -> None:
    """D-87: and the program ends with 1."""
    client = place.attach("fail")
    client.request(1)
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert outcome(client.receive()) == "not_sent"
    assert client.process.wait(PATIENCE) == 1


def test_a_daemon_that_dies_after_the_client_has_closed_its_side_is_not_started_again(place: Place) -> None:
    client = place.attach()
    client.request("list", "tools/list", hang=True)
    client.request("call", nap=0.2, die=True)
    assert client.process.stdin is not None
    client.process.stdin.close()
    assert [(answer["id"], outcome(answer)) for answer in (client.receive(), client.receive())] == [
        ("call", "unknown"),
        ("list", "not_sent"),
    ]
    assert client.process.wait(PATIENCE) == 0
    assert len(place.starts) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once(number: signal.Signals, place: Place) -> None:
    client = place.attach()
    client.call(1)
    client.request(2, hang=True)
    client.process.send_signal(number)
    assert client.process.wait(PATIENCE) in (-number, 128 + number)
    assert client.errors() == ""


def test_it_ends_when_nothing_reads_its_answers(place: Place) -> None:
    client = place.attach()
    client.call(1)
    assert client.process.stdout is not None
    client.process.stdout.close()
    assert client.process.wait(PATIENCE) == 0


# --- The real daemon --------------------------------------------------------------------------------------------------


Mode: TypeAlias = Literal["legacy", "auto"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_of_the_sdk_goes_on_after_the_daemon_was_killed(mode: Mode, place: Place) -> None:
    log = place.folder / "wire"
    command, args = wire_server.command("modern", str(log))
    place.config.write_text(json.dumps({"mcpServers": {"wire": {"command": command, "args": args}}}))
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", str(PROGRAM), "--config", str(place.config)],
        env={**place.environ, "PYTHONPATH": str(ROOT)},
    )
    lost: list[Any] = []

    async def call_mute(client: mcp.Client) -> None:
        with pytest.raises(mcp.MCPError) as raised:
            await client.call_tool("wire_mute", {})
        lost.append(raised.value.error.data)

    with trio.fail_after(PATIENCE):
        async with mcp.Client(stdio_client(parameters), mode=mode) as client:
            assert "wire_echo" in [tool.name for tool in (await client.list_tools()).tools]
            daemon = int(place.file("lock").read_text())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call_mute, client)
                await trio.to_thread.run_sync(wait_until, lambda: '"mute"' in log.read_text())
                os.kill(daemon, signal.SIGKILL)
            assert lost == [{"mcp_actors": {"outcome": "unknown", "error": "ConnectionLost"}}]
            assert not (await client.call_tool("wire_echo", {"text": "again"})).is_error
            assert int(place.file("lock").read_text()) != daemon


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_server_of_a_client_works_where_the_client_works(mode: Mode, place: Place) -> None:
    """The daemon works in the folder of the file, and so do shared servers; a configured directory counts first."""
    fixed = place.folder / "fixed"
    folders = [place.folder / name for name in ("first", "second")]
    for each in (fixed, *folders):
        each.mkdir()
    program, args = scripted_server.command()
    entry = {"command": program, "args": list(args)}
    own = {"mcp_actors": {"isolation": "per-session"}}
    entries = {"own": {**entry, **own}, "fixed": {**entry, **own, "cwd": str(fixed)}, "shared": entry}
    place.config.write_text(json.dumps({"mcpServers": entries}))
    found: list[list[str]] = []
    with trio.fail_after(PATIENCE):
        for folder in folders:
            parameters = StdioServerParameters(
                command=sys.executable,
                args=["-I", "-S", str(PROGRAM), "--config", str(place.config)],
                env={**place.environ, "PYTHONPATH": str(ROOT)},
                cwd=folder,
            )
            async with mcp.Client(stdio_client(parameters), mode=mode) as client:
                await client.list_tools()
                results: list[Any] = [await client.call_tool(f"{name}_pid", {}) for name in entries]
                found.append([os.readlink(f"/proc/{each.content[0].text}/cwd") for each in results])
    assert found == [[str(folder), str(fixed), str(place.folder)] for folder in folders]


# --- What it costs ----------------------------------------------------------------------------------------------------


def test_thirteen_clients_are_small(place: Place) -> None:
    place.attach().call(0)
    clients = [place.attach() for _ in range(13)]
    for client in clients:
        client.call(0)
    assert sum(map(memory, clients)) / 13 < 6_000
