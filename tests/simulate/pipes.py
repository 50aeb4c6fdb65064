"""The simulated servers at the other end of pipes, as a process would be."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

import trio

from mcp_actors import Stdio

from ..servers.wire_pipes import WireProcess
from .worker import Json, Worker

if TYPE_CHECKING:
    from .servers import House


class PipeMachine:
    """Runs one process after the other, or several at a time.

    Attributes:
        processes: all that were started.
    """

    def __init__(self, house: House) -> None:
        self.processes: list[PipeProcess] = []
        self._house = house
        self._turns = count()

    def transport(self) -> Stdio:
        return Stdio("simulated")

    async def start(self) -> WireProcess:
        """Start one, in place of `start_process`."""
        await trio.lowlevel.checkpoint()
        self.processes.append(process := PipeProcess(self._house))
        if self._house.down:
            process.crash()
        return process

    @property
    def running(self) -> list[PipeProcess]:
        """Those that have not exited."""
        return [process for process in self.processes if not process.has_exited()]

    def _next(self) -> list[PipeProcess]:
        """Return one of those that run, each in turn; none if none runs."""
        running, turn = self.running, next(self._turns)
        return [running[turn % len(running)]] if running else []

    def crash(self) -> None:
        for process in self.running if self._house.down else self._next():
            process.crash()

    def freeze(self) -> None:
        for process in self._next():
            process.freeze()

    def thaw(self) -> None:
        for process in self.running:
            process.thaw()

    def change(self) -> None:
        for process in self.running:
            process.worker.notify()

    def update(self) -> None:
        for process in self.running:
            process.worker.update()

    def cut(self) -> None:
        """Do nothing: there is no network."""

    def lose(self) -> None:
        """Do nothing: there is no network."""

    def sign_in(self) -> None:
        """Do nothing: there are no credentials."""


class PipeProcess(WireProcess):
    """One process.

    Attributes:
        worker: its server.
        crashed: True if it has ended by itself, and not because the client has closed its pipes.
    """

    def __init__(self, house: House) -> None:
        super().__init__(house.plan.era, None)
        self.crashed = False
        self.worker = PipeWorker(house, self)
        self.server = self.worker  # type: ignore[assignment]  # what is asked of it is `take`

    def crash(self) -> None:
        """End by itself."""
        self.crashed = not self.has_exited()
        self.kill()

    def _exit(self, code: int) -> None:
        super()._exit(code)
        self.worker.end()


class PipeWorker(Worker):
    """Its server."""

    def __init__(self, house: House, process: PipeProcess) -> None:
        super().__init__(house)
        self._process = process

    @property
    def ended(self) -> bool:
        return self._process.has_exited()

    def crash(self) -> None:
        self._process.crash()

    def send(self, message: Json) -> None:
        self._process.put(json.dumps(message).encode() + b"\n")
