"""The server of `wire_server` in this process, at the other end of real pipes.

So a test decides how many bytes it reads and when, sees each byte that it was sent, and runs under a mock clock.
Everything on this side of the pipes is the package's own: only the process is replaced.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from unittest.mock import patch

import pytest
import trio

from mcp_actors import ServerConfig, Stdio

from .wire_server import Json, Server

SMALLEST: Final = 4096
"""The smallest capacity of a pipe on Linux: a page."""

STDIO: Final = "mcp_actors.transports.stdio"

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the capacity of a pipe cannot be set elsewhere")


class WireProcess:
    """A server that looks like a `ServerProcess`, and reads only while it is not frozen.

    Attributes:
        server: what answers.
        received: all bytes that it was sent, also those that it had not read when it was killed.
        read: the messages that it has read.
        frozen: True while it reads nothing by itself.
        slow: True if it writes one byte at a time.
        rest: what it writes before anything else: the rest of a line.
    """

    def __init__(self, era: str, capacity: int | None, *, slow: bool = False) -> None:
        self.server = Server(era, self.put)
        self.received = bytearray()
        self.read: list[Json] = []
        self.frozen = False
        self.slow = slow
        self.rest = b""
        self.pid, self.code_unknown = 1, False
        self._code: int | None = None  # of its exit
        self._exited = trio.Event()
        self._change = trio.Event()
        self._line = self._out = b""
        self._input, stdin = os.pipe()
        stdout, self._output = os.pipe()
        stderr, closed = os.pipe()
        os.close(closed)
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        if capacity is not None:
            fcntl.fcntl(stdin, fcntl.F_SETPIPE_SZ, capacity)
        self.stdin, self.stdout, self.stderr = map(trio.lowlevel.FdStream, (stdin, stdout, stderr))
        trio.lowlevel.spawn_system_task(self._read_all)
        trio.lowlevel.spawn_system_task(self._write_all)

    # --- the server -------------------------------------------------------------------------------------------------

    def put(self, data: bytes) -> None:
        """Write to stdout."""
        self._out += self.rest + data
        self.rest = b""
        self._wake()

    def freeze(self) -> None:
        """Read nothing from now on."""
        self.frozen = True

    def thaw(self) -> None:
        """Read again."""
        self.frozen = False
        self._wake()

    def read_some(self, number: int) -> None:
        """Read so many bytes at most."""
        with suppress(BlockingIOError):
            if data := os.read(self._input, number):
                self._take(data)
            else:
                self._exit(0)

    def kill(self) -> None:
        """End without a further word."""
        self._exit(-9)

    def has_exited(self) -> bool:
        """Return True once it has exited."""
        return self._code is not None

    def _wake(self) -> None:
        self._change.set()
        self._change = trio.Event()

    def _take(self, data: bytes) -> None:
        self.received += data
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.read.append(message)
            self.server.take(message)

    async def _read_all(self) -> None:
        with suppress(trio.ClosedResourceError):
            while not self.has_exited():
                if self.frozen:
                    await self._change.wait()
                else:
                    await trio.lowlevel.wait_readable(self._input)
                if not self.frozen and not self.has_exited():
                    self.read_some(2**16)

    async def _write_all(self) -> None:
        with suppress(trio.ClosedResourceError, BrokenPipeError):
            while not self.has_exited():
                if not self._out:
                    await self._change.wait()
                    continue
                await trio.lowlevel.wait_writable(self._output)
                if self.has_exited():  # in the same tick, so its descriptors are closed
                    return
                self._out = self._out[os.write(self._output, self._out[:1] if self.slow else self._out) :]

    def _exit(self, code: int) -> None:
        if self.has_exited():
            return
        self._code = code
        with suppress(BlockingIOError):
            while data := os.read(self._input, 2**16):
                self.received += data
        for each in (self._input, self._output):
            trio.lowlevel.notify_closing(each)
            os.close(each)
        self._exited.set()
        self._wake()

    # --- what the link asks of a process ----------------------------------------------------------------------------

    def watch(self, background: object, on_exit: object) -> None:
        """Do nothing: its exit is the end of its stdout."""

    def poll(self) -> int | None:
        """Return its exit code."""
        return self._code

    async def wait(self) -> int | None:
        """Wait for its exit."""
        await self._exited.wait()
        return self._code

    @property
    def stopped(self) -> bool:
        """True while it is suspended."""
        return self.frozen

    def has_successor(self, written: int) -> bool:
        """Return False: it has no children."""
        return False

    async def stop(self, seconds: float) -> None:
        """Close its stdin, and kill it if it does not exit."""
        self.stdin.close()
        with trio.move_on_after(seconds):
            await self.wait()
        self.kill()

    def close_pipes(self) -> None:
        """Close our ends."""
        for each in (self.stdin, self.stdout, self.stderr):
            each.close()


class Machine:
    """Starts a server for each connection, one after the other.

    Args:
        era: of the protocol.
        capacity: that of the pipe to the server, in bytes; None is the system's default.
        slow: True for servers that write one byte at a time.

    Attributes:
        processes: all that were started.
    """

    def __init__(self, era: str, capacity: int | None = None, *, slow: bool = False) -> None:
        self._era = era
        self._slow = slow
        self._capacity = capacity
        self.processes: list[WireProcess] = []

    @property
    def now(self) -> WireProcess:
        """The latest one."""
        return self.processes[-1]

    def config(self, **options: Any) -> ServerConfig:
        """Configure it; `options` are those of `ServerConfig`."""
        protocol = "legacy" if self._era == "legacy" else "2026-07-28"
        return ServerConfig("a", Stdio("wire"), **({"protocol": protocol} | options))

    async def start(self, *_: object) -> WireProcess:
        """Start one, in place of `start_process`."""
        await trio.lowlevel.checkpoint()
        self.processes.append(WireProcess(self._era, self._capacity, slow=self._slow))
        return self.now

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Start its processes instead of real ones."""
        with patch(f"{STDIO}._link.start_process", self.start):
            yield
