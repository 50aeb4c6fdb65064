"""Run ``mcp-actors serve --socket`` in a process of its own, with servers that write down the calls they carry out."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from ..forkserver import Program, start_python
from ..load import counting_server
from ..servers.processes import processes, wait_ended
from ..source import ROOT
from .hosts import LEGACY, Host

SECRET: Final = "the secret of these tests"

RESTARTS: Final = {"max_restarts": 10**6, "backoff": {"first": 0, "initial": 0.01, "maximum": 0.05, "factor": 1}}


def counting(ledger: Path, **options: Any) -> dict[str, Any]:
    """Return the entry of a server that writes the id of each call into a file before it answers."""
    args = ["-S", "-E", counting_server.__file__, str(ledger)]
    options = {"protocol": "legacy", "restarts": RESTARTS, **options}
    return {"command": sys.executable, "args": args, "mcp_actors": options}


def written(*ledgers: Path) -> Counter[int]:
    """Return how often each id is in the ledgers."""
    return Counter(int(line) for ledger in ledgers if ledger.exists() for line in ledger.read_bytes().split())


class Daemon:
    """A daemon, which may be killed and started again.

    Args:
        folder: where its file and its socket are.
        port: the port that it serves at, in place of a unix socket.
        entries: the servers of its file.

    Attributes:
        path: the path of its socket, or its host and port.
        secret: the file with the secret that clients at the port must prove.
    """

    def __init__(self, folder: Path, port: int | None = None, /, **entries: dict[str, Any]) -> None:
        self.path = str(folder / "g.sock") if port is None else f"127.0.0.1:{port}"
        self.secret = folder / "secret"
        self._proof: tuple[str, ...] = ()
        if port is not None:
            self.secret.write_text(f"{SECRET}\n")
            self.secret.chmod(0o600)
            self._proof = ("--secret-file", str(self.secret))
        self.servers: set[int] = set()
        self._file = folder / "servers.json"
        self._file.write_text(json.dumps({"mcpServers": entries}))
        self._program: Program | None = None
        self.log = folder / "log"

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._program is not None
        return self._program.pid

    def start(self) -> None:
        """Start it, and wait until clients can connect."""
        said, say = os.pipe()
        words = ("-m", "mcp_actors", "serve", "--config", str(self._file), "--socket", self.path, *self._proof)
        with open(said) as printed, self.log.open("ab") as log:
            try:
                self._program = start_python(*words, cwd=ROOT, stdout=say, stderr=log)
            finally:
                os.close(say)
            assert printed.readline() == (f"ready {self.path}\n" if self._proof else "ready\n")

    def server_pids(self) -> list[int]:
        """Return the processes of its servers that run."""
        pids = [each.pid for each in processes() if each.parent == self.pid and not each.zombie]
        self.servers.update(pids)
        return pids

    def kill(self) -> None:
        """Kill it. Its servers end when they have read what is in their pipes."""
        self.server_pids()
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal."""
        if self._program is not None:
            with self._program as program:
                program.send_signal(signal.SIGCONT)
                program.send_signal(number)

    async def wait_servers_ended(self) -> None:
        """Wait until all its servers have ended, so that their ledgers are complete."""
        await wait_ended(self.servers)


@contextmanager
def daemon(folder: Path, port: int | None = None, /, **entries: dict[str, Any]) -> Iterator[Daemon]:
    """Run a daemon during a block. Its socket is in a folder of its own, because a path of one must be short."""
    with tempfile.TemporaryDirectory() as short:
        each = Daemon(Path(short), port, **entries)
        each.log = folder / "daemon.log"
        each.start()
        try:
            yield each
        finally:
            each.end()


class Clients:
    """Connects clients to a daemon, in tasks of a nursery."""

    def __init__(self, daemon: Daemon, nursery: trio.Nursery) -> None:
        self.hosts: list[Host] = []
        self.nursery = nursery
        self._daemon = daemon

    async def connect(self, version: str = LEGACY, *, pings: bool = True) -> Host:
        """Connect a client that answers pings unless it is not to."""
        host = Host(await trio.open_unix_socket(self._daemon.path), version)
        self.hosts.append(host)
        if pings:
            host.answer_pings()
        self.nursery.start_soon(host.read)
        await host.begin()
        return host


@asynccontextmanager
async def open_clients(daemon: Daemon) -> AsyncIterator[Clients]:
    """Let clients connect during a block. They leave at its end."""
    async with trio.open_nursery() as nursery:
        clients = Clients(daemon, nursery)
        try:
            yield clients
        finally:
            for host in clients.hosts:
                await trio.aclose_forcefully(host.stream)
            nursery.cancel_scope.cancel()
