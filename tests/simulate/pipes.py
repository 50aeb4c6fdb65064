"""The simulated servers at the other end of pipes, as a process would be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import trio

from mcp_actors import Stdio

from ..servers.wire_pipes import WireProcess
from .worker import Json, Worker

if TYPE_CHECKING:
    from .servers import House


class PipeMachine:
    """Runs one process after the other."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._process: PipeProcess | None = None

    def transport(self) -> Stdio:
        return Stdio("simulated")

    async def start(self) -> WireProcess:
        """Start one, in place of `start_process`."""
        await trio.lowlevel.checkpoint()
        self._process = PipeProcess(self._house)
        if self._house.down:
            self._process.kill()
        return self._process

    def crash(self) -> None:
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        if self._process is not None:
            self._process.freeze()

    def thaw(self) -> None:
        if self._process is not None:
            self._process.thaw()

    def change(self) -> None:
        if self._process is not None and not self._process.has_exited():
            self._process.worker.notify()

    def cut(self) -> None:
        """Do nothing: there is no network."""

    def lose(self) -> None:
        """Do nothing: there is no network."""

    def sign_in(self) -> None:
        """Do nothing: there are no credentials."""


class PipeProcess(WireProcess):
    """One process."""

    def __init__(self, house: House) -> None:
        super().__init__(house.plan.era, None)
        self.worker = PipeWorker(house, self)
        self.server = self.worker  # type: ignore[assignment]  # what is asked of it is `take`

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
        self._process.kill()

    def send(self, message: Json) -> None:
        self._process.put(json.dumps(message).encode() + b"\n")
