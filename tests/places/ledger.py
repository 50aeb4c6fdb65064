"""The ledger of the servers of a place: what each of them has started, carried out and ended."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self

BOUND: Final = 30.0
"""Seconds for a step that takes one or two; a machine that is busy with other things may need more."""


class Entry(NamedTuple):
    """An event that a server reports."""

    pid: int
    event: str
    zone: str = ""


class Ledger:
    """Receives the reports of all servers of a place, in a thread, so that no server waits for a test.

    Attributes:
        entries: all reports, in their order.
        killed: the servers that a test has killed.
    """

    def __init__(self) -> None:
        self.address: Final = f"mcp_actors-places-{secrets.token_hex(8)}"
        self.entries: list[Entry] = []
        self.killed: set[int] = set()
        self._changed = threading.Condition()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{self.address}")
        self._thread = threading.Thread(target=self._receive)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", f"\0{self.address}")
        self._thread.join()
        self._socket.close()

    def _receive(self) -> None:
        while line := self._socket.recv(4096).decode():
            pid, *words = line.split(" ", 2)
            with self._changed:
                self.entries.append(Entry(int(pid), *words))
                self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the ledger is as a condition says."""
        with self._changed:
            if not self._changed.wait_for(condition, BOUND):
                raise AssertionError(f"{what}: not after {BOUND:g} s; the ledger is {self.entries}")

    def calls(self) -> Counter[str]:
        """Return how often each call was carried out."""
        return Counter(entry.zone for entry in self.entries if entry.event == "call")

    def wait_called(self, zones: set[str]) -> set[int]:
        """Wait until all of these calls are with a server; return the servers."""
        self.wait(lambda: zones <= self.calls().keys(), f"{sorted(zones)} are with a server")
        return {entry.pid for entry in self.entries if entry.event == "call" and entry.zone in zones}

    def of(self, event: str) -> list[int]:
        """Return the servers that have reported an event."""
        return [entry.pid for entry in self.entries if entry.event == event]

    def signal(self, number: int, *pids: int) -> None:
        """Send a signal to some servers, or to all that have started."""
        if number == signal.SIGKILL:
            self.killed.update(pids)
        for pid in pids or self.of("start"):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def release(self) -> None:
        """Have all servers answer what they hold."""
        self.signal(signal.SIGUSR1)
