"""Run Python programs in forks of a process that has already imported the SDK.

A new interpreter needs more than a second to import the SDK and this package, a fork a few milliseconds; about two
hundred tests run a program. The process that forks is started by the first of them, once per test process, and ends
with it. It is neither a child of the tests nor anything they have open, so tests that look at both do not see it.

A fork has its own standard streams, environment, folder, session and signals, and it ends as an interpreter does. What
it cannot show is the import itself, so tests of imports, and the one of the README's demo, start interpreters. Servers
of the SDK log as they do where `rich` is not installed: with it each traceback takes most of a second.
Where a shell or a program starts Python, `interpreter` is what it starts: a process that has its program run in a fork.
``COLD=1`` makes all tests do so, as on systems without ``pidfd_open``.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import marshal
import os
import pickle
import runpy
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, NoReturn, Self, TypeAlias

import mcp_actors
from mcp_actors.config import _template

from . import certificates
from .source import PACKAGE, ROOT, python_files

COLD: Final = bool(os.environ.get("COLD")) or sys.platform != "linux"

IMPORTED: Final = (
    *("mcp.server", "uvicorn", "anyio._backends._trio", "h11", "httpcore2", "jsonschema"),
    *("rich.logging", "truststore", "uvicorn.lifespan.on", "uvicorn.protocols.http.h11_impl", "encodings.idna"),
    *(name for name in ("mcp_server_time.server",) if find_spec(name.partition(".")[0])),
)
"""Modules that every fork has imported, besides those of this package. Importing them has no side effects. anyio's
backend on asyncio is not one of them: if trio-asyncio is imported after it, the end of a loop turns for ever."""

NOT_IMPORTED: Final = ("__main__.py", "_pytest_plugin.py", "adapters", "hosts")
"""The parts of the package that are for frameworks, or programs."""

FRAMEWORKS: Final = ("agents", "pydantic_ai", "anthropic", "langchain.agents", "agent_framework")
"""Large modules that the programs of several tests import; to import them all takes three seconds."""

running: Final[list[int]] = []
"""The processes that fork, once they have been started. All forks are their children."""

LONG: Final = 120.0
"""Seconds in which a process that forks has imported everything. It takes one or two."""

LONGEST: Final = 2**20
"""Bytes that a request, most of which is the environment, may have."""


class Request(NamedTuple):
    """A program to run. The files of its standard streams are sent along with it.

    Attributes:
        arguments: those of an interpreter.
        folder: the current one.
        environment: all of it.
        new_session: whether it leads one.
        prepare: a pickled function to call first, or nothing.
        executable: the interpreter that it believes to run in.
        streams: the standard streams that are open.
        ignored: the signals that it is started to ignore.
    """

    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    new_session: bool
    prepare: bytes
    executable: str
    streams: Sequence[int]
    ignored: Sequence[int]


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
            with suppress(ProcessLookupError):  # its end is known to the process that forks, and not here yet
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
    executable: str = sys.executable,
    imported: tuple[str, ...] = (),
    cold: bool = False,
) -> Program:
    """Start a program as ``python *arguments`` does, with open files as its standard streams.

    The arguments may begin with ``-W error``; then comes a file, ``-m MODULE`` or ``-c CODE``, and what the program
    gets. There is nothing to read without `stdin`. `preexec_fn` must be one that can be pickled. `executable` is what
    the program finds as `sys.executable`. A fork has also `imported` these modules, which are large and which several
    tests need. A new interpreter is started if the program is to be `cold`.
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
    prepare = b"" if preexec_fn is None else pickle.dumps(preexec_fn)
    request: Any = Request(words, str(cwd), environment, start_new_session, prepare, executable, (0, 1, 2), ())
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.connect(_address(*imported))
        with open(os.devnull) as nothing:
            files = (nothing if stdin is None else stdin, stdout, stderr)
            numbers = [file if isinstance(file, int) else file.fileno() for file in files]
            socket.send_fds(server, [marshal.dumps(tuple(request))], numbers)
        return Forked(server, int(server.recv(16)))
    except BaseException:
        server.close()
        raise


def run_python(*arguments: str | Path, cwd: Path, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program as ``python *arguments`` does, without input; return its exit code and what it has written.

    `options` are those of `start_python`.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        with start_python(*arguments, cwd=cwd, stdout=stdout, stderr=stderr, **options) as program:
            try:
                code = program.wait(timeout)
            finally:
                program.kill()
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())


def frameworks() -> tuple[str, ...]:
    """Return the frameworks that are installed, for forks that have imported them: one process does it for all."""
    return tuple(name for name in FRAMEWORKS if find_spec(name.partition(".")[0]))


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


def interpreter(*imported: str) -> str:
    """Return an executable file that runs Python programs as `sys.executable` does, each in a fork.

    The forks have also imported these modules, as those of `start_python`.

    What starts it gets a child that passes signals on and ends as the program does. With flags that only an interpreter
    understands, the child is one. Its folder also has the servers and the command that pip has installed, which run in
    forks too.
    """
    return sys.executable if COLD else str(_folder(_address(*imported)) / "python")


def _folder(address: str) -> Path:
    """Return the folder of the interpreter that asks at an abstract address, which begins with a null."""
    return Path(tempfile.gettempdir()) / address[1:]


SCRIPT: Final = """\
{begin}import sys
sys.path.append({folder!r})
from forked_python import main
main({address!r})
"""


@cache
def _address(*imported: str) -> str:
    """Start a process that forks, and return the abstract address where it listens.

    One that has imported more than the first one is a fork of it.
    """
    address = f"\0mcp_actors-tests-{secrets.token_hex(8)}"
    words = ("-m", __name__, address[1:], str(os.getpid()), *imported)
    started = run_python(*words, cwd=ROOT, timeout=LONG, cold=not imported)
    if started.returncode:
        raise RuntimeError(started.stderr)
    running.append(int(started.stdout))
    return address


class Server:
    """Forks for each request, and tells who asked for it when the fork has ended.

    Args:
        address: where to listen.
        owner: the process with whose end this one ends.
    """

    def __init__(self, address: str, owner: int) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(address)
        self._listener.listen()
        self._address = address
        self._owner = os.pidfd_open(owner)
        self._forks: dict[int, tuple[int, socket.socket]] = {}
        self._clients: dict[socket.socket, int] = {}

    def serve(self) -> Request:
        """Serve until the tests have ended. This returns in every fork, and only there, with what is to be run."""
        while True:
            sources: list[Any] = [self._listener, self._owner, *self._forks, *self._clients]
            ready, _, _ = select.select(sources, [], [])
            if self._owner in ready:
                shutil.rmtree(_folder(self._address))
                os._exit(0)
            for gone in self._clients.keys() & ready:  # they send nothing more
                os.kill(self._clients.pop(gone), signal.SIGKILL)
            for ended in self._forks.keys() & ready:
                self._reap(ended)
            if self._listener in ready and (request := self._fork()) is not None:
                return request

    def _fork(self) -> Request | None:
        client, _ = self._listener.accept()
        message, files, _, _ = socket.recv_fds(client, LONGEST, 3)
        if not message:
            client.close()
            return None
        if (pid := os.fork()) == 0:
            request = Request(*marshal.loads(message))
            os.closerange(0, 3)
            for number, file in zip(request.streams, files, strict=True):
                os.dup2(file, number)
            self._close(client, *files)
            return request
        for file in files:
            os.close(file)
        self._forks[os.pidfd_open(pid)] = pid, client
        self._clients[client] = pid
        with suppress(OSError):  # the client has gone
            client.send(b"%d" % pid)
        return None

    def _reap(self, ended: int) -> None:
        pid, client = self._forks.pop(ended)
        self._clients.pop(client, None)
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


def become(request: Request) -> NoReturn:
    """Run a program in place of this one, and end as its interpreter would."""
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    if request.new_session:
        os.setsid()
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    if request.prepare:
        pickle.loads(request.prepare)()
    sys.executable = request.executable
    scripts_run_in(request.executable)
    encoding, _, errors = request.environment.get("PYTHONIOENCODING", "").partition(":")
    errors = errors or ("strict" if encoding else sys.stdout.errors or "")
    stream = partial(_stream, request.streams, encoding or sys.stdout.encoding)
    sys.stdin, sys.stdout, sys.stderr = stream(0, errors), stream(1, errors), stream(2, "backslashreplace")
    sys.path[1:1] = filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))
    _end(_outcome([*request.arguments]))


def scripts_run_in(python: str) -> None:
    """Let this package run scripts in an interpreter. It looks once which one that is: when it is imported."""
    interpreters: Any = _template.INTERPRETERS
    interpreters[".py"] = python


def _outcome(words: list[str]) -> int:
    """Run what the words of a command line ask for, and return its exit code, or minus the signal that ends it."""
    ours = {*vars(sys.modules["__main__"])}
    code = 0
    try:
        _run(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    for name in vars(sys.modules["__main__"]).keys() - ours:
        del vars(sys.modules["__main__"])[name]  # as an interpreter frees the variables of a program
    return code


def _end(code: int) -> NoReturn:
    """End as an interpreter does, but for the modules: to free them would copy all that the forks share.

    That would be nine tenths of the time of a short program.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads; an interpreter calls it, too
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            code = code or 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _stream(streams: Sequence[int], encoding: str, number: int, errors: str) -> Any:
    """Open a standard stream as an interpreter does, for which one that is closed is None."""
    if number not in streams:
        return None
    mode, buffering = "w" if number else "r", 1 if number == 2 else -1
    return open(number, mode, buffering, encoding=encoding, errors=errors, newline="\n", closefd=False)


def _run(words: list[str]) -> None:
    """Run what the words of a command line ask for."""
    while (flag := words[0][:2]) in {"-W", "-u"}:
        if flag == "-u":
            # The buffer below keeps what is written through, but for whole lines.
            out: Any = sys.stdout
            out.reconfigure(write_through=True, line_buffering=True)
        else:
            warnings.simplefilter(words[0][2:] or words.pop(1))  # type: ignore[arg-type]  # it is a text here
        del words[0]
    if flag == "-m":
        module = words[0][2:] or words.pop(1)
        sys.path[0], sys.argv = os.getcwd(), [module, *words[1:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif flag == "-c":
        code = words[0][2:] or words.pop(1)
        sys.path[0], sys.argv = "", ["-c", *words[1:]]
        exec(code, vars(sys.modules["__main__"]))
    else:
        sys.path[0], sys.argv = str(Path(words[0]).resolve().parent), words
        runpy.run_path(words[0], run_name="__main__")


def begin_script(python: str | Path, *flags: str) -> str:
    """Return the first lines of a script that an interpreter runs.

    A ``#!`` line holds no blank and, on some systems, no more than 127 bytes. So a shell starts an interpreter in such
    a path; to Python these lines are a string.
    """
    words = [str(python), *flags]
    line = f"#!{' '.join(words)}\n"
    if " " not in words[0] and len(os.fsencode(line)) <= 127:
        return line
    return f"#!/bin/sh\n'''exec' {shlex.join(words)} \"$0\" \"$@\"\n' '''\n"


def write_scripts(folder: Path, address: str) -> None:
    """Write the interpreter, and the servers and the command that pip has installed as scripts for it."""
    python = SCRIPT.format(
        begin=begin_script(sys.executable, "-SE"), folder=str(Path(__file__).parent), address=address
    )
    scripts = {"python": python, "python3": python}
    for path in Path(sys.executable).parent.glob("mcp-[as]*"):
        scripts[path.name] = begin_script(folder / "python") + path.read_text()
    folder.mkdir()
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)


def modules_of_the_package() -> Iterator[str]:
    """Yield the names of all modules that programs may import, so that no command has to import its own."""
    for path in python_files(PACKAGE):
        if path.relative_to(PACKAGE).parts[0] not in NOT_IMPORTED:
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def log_plainly(level: str = "INFO") -> None:
    """Configure logging as the SDK does for its servers where `rich` is not installed."""
    logging.basicConfig(level=level, format="%(message)s")


def main(address: str, owner: str, *imported: str) -> None:
    """Listen, import, and let the tests go on; then fork."""
    address = f"\0{address}"
    server = Server(address, int(owner))
    write_scripts(_folder(address), address)
    gc.disable()  # collections that find nothing would take a fifth of the time
    for name in mcp_actors.__all__:
        getattr(mcp_actors, name)
    for name in (*modules_of_the_package(), *IMPORTED, *imported):
        importlib.import_module(name)
    certificates.share()
    commands: Any = importlib.import_module("mcp_actors.cli._app")
    commands.make_app()  # every command line would take a hundredth of a second to do so
    servers: Any = importlib.import_module("mcp.server.mcpserver.server")
    servers.configure_logging = log_plainly
    gc.collect()
    gc.enable()
    gc.freeze()  # so that no fork looks at, and copies, what all of them share
    if pid := os.fork():
        os.write(1, b"%d" % pid)
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)
    become(server.serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
