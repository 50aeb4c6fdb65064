"""Run Python programs in forks of a process that has already imported the SDK.

A new interpreter needs more than a second to import the SDK and this package, a fork a few milliseconds; about two
hundred tests run a program. The process that forks is started by the first of them, once per test process, and ends
with it. It is neither a child of the tests nor anything they have open, so tests that look at both do not see it.

A fork has its own standard streams, environment, folder, session and signals, and it ends as an interpreter does. What
it cannot show is the import itself, so tests of imports, and the one of the README's demo, start interpreters.
``COLD=1`` makes all tests do so, as on systems without ``pidfd_open``.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import pickle
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Literal, Self, TypeAlias

from attrs import frozen

import mcp_actors

from .source import ROOT

COLD: Final = bool(os.environ.get("COLD")) or sys.platform != "linux"

IMPORTED: Final = ("mcp.server", "mcp_actors.bridge", "mcp_actors.cli._app", "mcp_actors.kernel", "uvicorn")
"""Modules that every fork has imported, besides all names of `mcp_actors`. Importing them has no side effects."""

LONGEST: Final = 2**20
"""Bytes that a request, most of which is the environment, may have."""


@frozen(kw_only=True)
class Request:
    """A program to run: its arguments are those of an interpreter, its files are sent along with it."""

    arguments: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    new_session: bool
    prepare: Callable[[], None] | None


class Forked:
    """A program in a fork. Its methods are those of `subprocess.Popen`."""

    def __init__(self, server: socket.socket, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the program runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program has ended, and return its exit code."""
        if self.returncode is None:
            self._server.settimeout(timeout)
            try:
                self.returncode = int(self._server.recv(16))
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("a forked program", timeout or 0.0) from None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the program unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the program unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.wait()
        self._server.close()


Program: TypeAlias = subprocess.Popen[bytes] | Forked
File: TypeAlias = IO[Any] | int


def start_python(
    *arguments: str | Path,
    cwd: Path,
    stdout: File,
    stderr: File,
    stdin: File | None = None,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
    preexec_fn: Callable[[], None] | None = None,
    cold: bool = False,
) -> Program:
    """Start a program as ``python *arguments`` does, with open files as its standard streams.

    The arguments may begin with ``-W error``; then comes a file, ``-m MODULE`` or ``-c CODE``, and what the program
    gets. There is nothing to read without `stdin`. `preexec_fn` must be one that can be pickled. A new interpreter is
    started if the program is to be `cold`.
    """
    environment = dict(os.environ if env is None else env)
    words = tuple(map(str, arguments))
    if COLD or cold:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=start_new_session,
            preexec_fn=preexec_fn,
        )
    request = Request(
        arguments=words, folder=str(cwd), environment=environment, new_session=start_new_session, prepare=preexec_fn
    )
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.connect(_address())
        with open(os.devnull) as nothing:
            files = (nothing if stdin is None else stdin, stdout, stderr)
            numbers = [file if isinstance(file, int) else file.fileno() for file in files]
            socket.send_fds(server, [pickle.dumps(request)], numbers)
        return Forked(server, int(server.recv(16)))
    except BaseException:
        server.close()
        raise


def run_python(
    *arguments: str | Path, cwd: Path, timeout: float, env: Mapping[str, str] | None = None, cold: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program as ``python *arguments`` does, without input; return its exit code and what it has written."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        with start_python(*arguments, cwd=cwd, env=env, stdout=stdout, stderr=stderr, cold=cold) as program:
            try:
                code = program.wait(timeout)
            finally:
                program.kill()
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())


@contextmanager
def serve_python(*arguments: str | Path) -> Iterator[tuple[Program, int]]:
    """Run a server as ``python *arguments`` does until the block ends; yield it and its port, which it prints."""
    said, say = os.pipe()
    with open(said) as printed:
        try:
            program = start_python(*arguments, cwd=ROOT, stdout=say, stderr=2)
        finally:
            os.close(say)
        with program:
            try:
                yield program, int(printed.readline())
            finally:
                program.kill()


@cache
def _address() -> str:
    """Start the process that forks, and return the abstract address where it listens."""
    address = f"\0mcp_actors-tests-{secrets.token_hex(8)}"
    command = [sys.executable, "-m", __name__, address[1:], str(os.getpid())]
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
    return address


class Server:
    """Forks for each request, and tells who asked for it when the fork has ended.

    Args:
        address: where to listen.
        owner: the process with whose end this one ends.
    """

    def __init__(self, address: str, owner: int) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{address}")
        self._listener.listen()
        self._owner = os.pidfd_open(owner)
        self._forks: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> Request:
        """Serve until the tests have ended. This returns in every fork, and only there, with what is to be run."""
        while True:
            ready, _, _ = select.select([self._listener.fileno(), self._owner, *self._forks], [], [])
            if self._owner in ready:
                os._exit(0)
            for ended in self._forks.keys() & ready:
                self._reap(ended)
            if self._listener.fileno() in ready and (request := self._fork()) is not None:
                return request

    def _fork(self) -> Request | None:
        client, _ = self._listener.accept()
        message, files, _, _ = socket.recv_fds(client, LONGEST, 3)
        if (pid := os.fork()) == 0:
            for number, file in enumerate(files):
                os.dup2(file, number)
            self._close(client, *files)
            request: Request = pickle.loads(message)
            return request
        for file in files:
            os.close(file)
        self._forks[os.pidfd_open(pid)] = pid, client
        client.send(b"%d" % pid)
        return None

    def _reap(self, ended: int) -> None:
        pid, client = self._forks.pop(ended)
        os.close(ended)
        _, status = os.waitpid(pid, 0)
        with client, suppress(OSError):  # the client has gone
            client.send(b"%d" % os.waitstatus_to_exitcode(status))

    def _close(self, client: socket.socket, *files: int) -> None:
        """Close in a fork what is the server's."""
        for each in (self._listener, client, *(other for _, other in self._forks.values())):
            each.close()
        for number in (self._owner, *self._forks, *files):
            os.close(number)


def become(request: Request) -> None:
    """Run a program in place of this one. It ends as its interpreter would, by what leaves this."""
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    if request.new_session:
        os.setsid()
    if request.prepare is not None:
        request.prepare()
    sys.stdin = _stream(0, "r", sys.stdin.errors)
    sys.stdout = _stream(1, "w", sys.stdout.errors)
    sys.stderr = _stream(2, "w", sys.stderr.errors)
    sys.stderr.reconfigure(line_buffering=True)
    words = list(request.arguments)
    while words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]  # it is a text here
        del words[:2]
    if words[0] == "-m":
        sys.path[0], sys.argv = request.folder, words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *words[2:]]
        exec(words[1], vars(sys.modules["__main__"]))
    else:
        sys.path[0], sys.argv = str(Path(words[0]).resolve().parent), words
        runpy.run_path(words[0], run_name="__main__")


def _stream(number: int, mode: Literal["r", "w"], errors: str | None) -> io.TextIOWrapper:
    return open(number, mode, encoding=sys.stdout.encoding, errors=errors, newline="\n", closefd=False)


def main(address: str, owner: str) -> None:
    """Listen, import, and let the tests go on; then fork."""
    server = Server(address, int(owner))
    for name in mcp_actors.__all__:
        getattr(mcp_actors, name)
    for name in IMPORTED:
        importlib.import_module(name)
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)
    gc.collect()
    gc.freeze()  # so that no fork looks at, and copies, what all of them share
    become(server.serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
