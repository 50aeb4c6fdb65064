"""The storm: many callers, many calls, and a ``kill -9`` of their server again and again."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio
from attrs import define, field

from mcp_actors import Backoff, ConnectionLost, RestartPolicy, ServerConfig, ServerRef, Stdio, open_servers

from ..programs import SEED
from ..soak.census import memory
from . import counting_server

CALLERS: Final = 1000
IN_FLIGHT: Final = 64
EVERY: Final = 4000
"""Answers from one kill to the next. A server that is killed every second may answer nothing on a busy machine."""

AT_ONCE: Final = RestartPolicy(max_restarts=10**9, backoff=Backoff())

WAYS: Final = (None, {"k": 1})
"""The ``_meta`` of a call. Without one it goes directly, and with one through the SDK's session."""

WARM_UP: Final = 0.25
"""The part of the calls after which memory is measured first: by then everything there is has been used."""


@define
class Report:
    """The outcomes of all calls.

    Attributes:
        calls: how many were made.
        outcomes: how many ended in which way: ``"answered"``, or the name of an error.
        kills: how often the server was killed.
        executed: how many different calls the server carried out.
        duplicates: calls that were carried out more than once.
        unheard: calls that were answered, but never carried out.
        grown: bytes by which this process grew after its warm-up.
    """

    calls: int
    outcomes: Counter[str] = field(factory=Counter)
    kills: int = 0
    executed: int = 0
    duplicates: int = 0
    unheard: int = 0
    grown: int = 0

    def __str__(self) -> str:
        how = ", ".join(f"{number} {name}" for name, number in sorted(self.outcomes.items()))
        return (
            f"{self.calls} calls, {self.kills} kills: {how}; {self.executed} carried out, {self.duplicates} of them "
            f"more than once; {self.unheard} answered and not carried out; grown by {self.grown / 2**20:.1f} MiB"
        )


class Storm:
    """Makes the calls, and keeps one byte per call: whatever it keeps must not look like a leak."""

    def __init__(self, calls: int, every: int = EVERY) -> None:
        self.report = Report(calls)
        self._every = every
        self._due = trio.Event()
        self._ids = iter(range(calls))
        self._answered = bytearray(calls)
        self._warm = int(calls * WARM_UP)
        self._memory = 0
        self._draw = random.Random(SEED)

    async def run(self, folder: Path) -> Report:
        """Let it rage; the server counts in a file of that folder."""
        counts = folder / "counts"
        server = Stdio(sys.executable, (counting_server.__file__, str(counts)))
        config = ServerConfig(
            "counting", server, protocol="legacy", restarts=AT_ONCE, request_timeout=None, max_in_flight=IN_FLIGHT
        )
        async with open_servers(config) as servers, trio.open_nursery() as nursery:
            nursery.start_soon(self._kill, servers["counting"])
            async with trio.open_nursery() as callers:
                for _ in range(CALLERS):
                    callers.start_soon(self._call, servers["counting"])
            nursery.cancel_scope.cancel("all calls were made")
        self.report.grown = memory() - self._memory
        self._compare(counts)
        return self.report

    async def _call(self, ref: ServerRef) -> None:
        for id in self._ids:
            try:
                await ref.call_tool("run", {"id": id}, meta=self._draw.choice(WAYS))
            except ConnectionLost as exc:
                self.report.outcomes[type(exc).__name__] += 1
            else:
                self.report.outcomes["answered"] += 1
                self._answered[id] = 1
                if self.report.outcomes["answered"] % self._every == 0:
                    self._due.set()
            if id == self._warm:
                self._memory = memory()

    async def _kill(self, ref: ServerRef) -> None:
        while True:
            await self._due.wait()
            self._due = trio.Event()
            await trio.sleep(self._draw.random() * 0.01)
            pid = ref.statistics().pid
            with suppress(ProcessLookupError):  # it may be that the last kill is not yet over
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    self.report.kills += 1

    def _compare(self, counts: Path) -> None:
        """Compare the executed calls with the answered ones."""
        times = bytearray(self.report.calls)
        with counts.open("rb") as lines:
            for line in lines:
                times[int(line)] = min(255, times[int(line)] + 1)
        self.report.executed = self.report.calls - times.count(0)
        self.report.duplicates = sum(each > 1 for each in times)
        self.report.unheard = sum(answered and not done for answered, done in zip(self._answered, times, strict=True))
