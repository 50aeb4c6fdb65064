"""Start a program of ``examples/`` as its users do, and see what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest

from tests.source import EXAMPLES

from .ledger import BOUND, Ledger

SERVER: Final = Path(__file__).with_name("time_server.py")
SCRIPTS: Final = Path(sys.executable).parent

dear: Final = pytest.mark.skipif("PLACES" not in os.environ, reason="for nox -s places only")
"""Marks the tests that need no framework, and whose kind other tests of the suite have."""


class Answer(NamedTuple):
    """The answer to an HTTP request, or the error of the connection, with the status 0."""

    status: int
    text: str

    def data(self) -> Any:
        """Return the answer as JSON."""
        return json.loads(self.text)


class Program:
    """A program in a session of its own, with an empty home, and ``mcp-server-time`` on its ``PATH``.

    Attributes:
        log: the lines that it has written.
        port: a free one, for its command line.
    """

    def __init__(
        self, folder: Path, ledger: Ledger, command: Sequence[str], files: Sequence[str], **variables: str
    ) -> None:
        self.folder = folder
        self.ledger = ledger
        self.port = free_port()
        self.log: list[str] = []
        self._changed = threading.Condition()
        commands = folder / "bin"
        commands.mkdir(parents=True)
        words = [sys.executable, "-SE", str(SERVER), ledger.address]
        (commands / "mcp-server-time").write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
        (commands / "mcp-server-time").chmod(0o700)
        for file in files:
            shutil.copy(EXAMPLES / file, folder)
        path = os.pathsep.join([str(commands), str(SCRIPTS), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        self.environment = {**kept, "HOME": str(folder), "PATH": path, "PYTHONUNBUFFERED": "1"}
        self.environment |= {name: value.format(port=self.port) for name, value in variables.items()}
        self.command = [word.format(port=self.port) for word in command]
        self.process = subprocess.Popen(
            self.command,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.log.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.log.append("(end)")
            self._changed.notify_all()

    def wait_log(self, pattern: str, times: int = 1) -> None:
        """Wait until the program has written what matches, so many times; threads may write on one line."""

        def count() -> int:
            return len(re.findall(pattern, "\n".join(self.log), re.MULTILINE))

        with self._changed:
            self._changed.wait_for(lambda: count() >= times or self.log[-1:] == ["(end)"], BOUND)
        assert count() >= times, f"the program has not written {pattern!r}:\n" + "\n".join(self.log)

    def wait_serving(self, servers: int) -> None:
        """Wait until so many servers have started, and the program accepts connections."""
        self.ledger.wait(lambda: len(self.ledger.of("start")) >= servers, f"{servers} servers have started")
        deadline = time.monotonic() + BOUND
        while self.process.poll() is None and time.monotonic() < deadline:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.01)  # nothing else says that a port is open
        raise AssertionError(f"{self.command} does not serve:\n" + "\n".join(self.log))

    def signal(self, number: int, group: bool = False) -> None:
        """Send a signal to the program, or to its process group, as a terminal does at Ctrl-C."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self, seconds: float) -> int:
        """Wait for the end of the program, and of all that it has started; return its exit code."""
        deadline = time.monotonic() + seconds
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} has not ended in {seconds:g} s:\n" + "\n".join(self.log)) from None
        for pid, command in self.family():
            with suppress(ProcessLookupError), opened_pidfd(pid) as descriptor:
                left = max(0.0, deadline - time.monotonic())
                ready, _, _ = select.select([descriptor], [], [], left)
                assert ready, f"left behind: {pid} {command}\n" + "\n".join(self.log)
        return code

    def family(self) -> Iterator[tuple[int, str]]:
        """Yield the processes that have the home of this program, each with its command line."""
        mark = f"HOME={self.folder}".encode()
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")

    def close(self) -> None:
        """Kill all that is left, for a test that has failed."""
        for pid, _ in self.family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ask(self, zone: str) -> Answer:
        """Ask the program for the time in a zone, over HTTP."""
        return self.get(f"/now/{quote(zone)}")

    def get(self, path: str) -> Answer:
        """Send a request to the program."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=BOUND)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode())
        except (OSError, HTTPException) as error:
            return Answer(0, f"{type(error).__name__}: {error}")
        finally:
            connection.close()


@contextmanager
def opened_pidfd(pid: int) -> Iterator[int]:
    """Open a descriptor that is readable when a process has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(
    folder: Path, command: Sequence[str], files: Sequence[str], variables: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Run a program while the block does."""
    with Ledger() as ledger:
        program = Program(folder, ledger, command, files, **(variables or {}))
        try:
            yield program
        finally:
            program.close()
