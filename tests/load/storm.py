"""The storm: many callers, many calls, and a ``kill -9`` of their servers again and again.

There is one server, or there are so many hosts: child processes that are gateways, each with such a server. Then the
kills hit a host and a server behind one in turns.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define, field

from mcp_actors import Backoff, ConnectionLost, RestartPolicy, ServerConfig, ServerRef, Stdio, open_servers

from ..programs import SEED
from ..servers.processes import parents, wait_ended
from ..soak.census import memory
from ..source import ROOT
from . import counting_server

CALLERS: Final = 1000
IN_FLIGHT: Final = 64
EVERY: Final = 4000
"""Answers from one kill to the next. A server that is killed every second may answer nothing on a busy machine."""

SECONDS: Final = 3.0
"""From one kill of hosts to the next."""

AT_ONCE: Final = RestartPolicy(max_restarts=10**9, backoff=Backoff())

WAYS: Final = (None, {"k": 1})
"""The ``_meta`` of a call. Without one it goes directly, and with one through the SDK's session."""

WARM_UP: Final = 0.25
"""The part of the calls after which memory is measured first: by then everything there is has been used."""

RESTARTS: Final = {"max_restarts": 10**9, "backoff": {"first": 0, "initial": 0.01, "maximum": 0.05, "factor": 1}}
"""Those of a server behind a host."""


def direct(ledger: Path) -> Stdio:
    """Return the server, which counts in a file."""
    return Stdio(sys.executable, ("-S", "-E", counting_server.__file__, str(ledger)))


def hosted(ledger: Path) -> Stdio:
    """Return a host, which has the server behind it."""
    server = direct(ledger)
    ours: dict[str, Any] = {"protocol": "legacy", "restarts": RESTARTS, "request_timeout": None}
    entry = {"command": server.command, "args": server.args, "mcp_actors": ours}
    file = ledger.with_suffix(".json")
    file.write_text(json.dumps({"mcpServers": {"counting": entry}}))
    serve = ("-m", "mcp_actors", "serve", "--stdio", "--config", f"{file}#counting")
    return Stdio(sys.executable, serve, cwd=ROOT, trust_outcomes=True)


def _started_for(ledger: Path) -> list[int]:
    """List the servers that count in a file. Where programs run in forks, they are not children of their hosts."""
    word = b"\0%s\0" % os.fsencode(ledger)
    return [pid for pid in parents() if word in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it ended while we looked


@define
class Report:
    """The outcomes of all calls.

    Attributes:
        calls: how many were made.
        outcomes: how many ended in which way: ``"answered"``, or the name of an error.
        kills: how often a server or host was killed.
        behind: how often that was a server behind a host.
        executed: how many different calls the server carried out.
        duplicates: calls that were carried out more than once.
        unheard: calls that were answered, but never carried out.
        grown: bytes by which this process grew after its warm-up.
    """

    calls: int
    outcomes: Counter[str] = field(factory=Counter)
    kills: int = 0
    behind: int = 0
    executed: int = 0
    duplicates: int = 0
    unheard: int = 0
    grown: int = 0

    def kept(self) -> bool:
        """Return True if each call had one outcome and one effect at most, and no more are unknown than were sent."""
        lost = self.outcomes["ConnectionLost"]
        return (
            self.outcomes["answered"] + lost == self.calls
            and lost <= self.kills * IN_FLIGHT
            and self.duplicates == self.unheard == 0
        )

    def __str__(self) -> str:
        how = ", ".join(f"{number} {name}" for name, number in sorted(self.outcomes.items()))
        return (
            f"{self.calls} calls, {self.kills} kills ({self.behind} behind hosts): {how}; {self.executed} carried out, "
            f"{self.duplicates} of them more than once; {self.unheard} answered and not carried out; "
            f"grown by {self.grown / 2**20:.1f} MiB"
        )


class Storm:
    """Makes the calls, and keeps one byte per call: whatever it keeps must not look like a leak.

    Args:
        calls: how many.
        every: answers from one kill to the next, if not so many seconds pass.
        hosts: how many hosts there are.
        seconds: from one kill to the next; None if answers count.
    """

    def __init__(self, calls: int, every: int = EVERY, *, hosts: int = 0, seconds: float | None = None) -> None:
        self.report = Report(calls)
        self._every = every
        self._hosts = hosts
        self._seconds = seconds
        self._due = trio.Event()
        self._ids = iter(range(calls))
        self._answered = bytearray(calls)
        self._warm = int(calls * WARM_UP)
        self._memory = 0
        self._draw = random.Random(SEED)
        self._started: set[int] = set()

    async def run(self, folder: Path) -> Report:
        """Let it rage; the servers count in files of that folder."""
        ledgers = [folder / f"counts{number}" for number in range(self._hosts or 1)]
        async with open_servers(*map(self._config, ledgers)) as servers, trio.open_nursery() as nursery:
            refs = [*servers.values()]
            if self._hosts:
                nursery.start_soon(self._kill_hosts, refs, ledgers)
            else:
                nursery.start_soon(self._kill, refs)
            async with trio.open_nursery() as callers:
                for number in range(CALLERS):
                    callers.start_soon(self._call, refs[number % len(refs)])
            nursery.cancel_scope.cancel("all calls were made")
        await wait_ended(self._started)  # a server whose host was killed has read the end of its input by now
        self.report.grown = memory() - self._memory
        self._compare(ledgers)
        return self.report

    def _config(self, ledger: Path) -> ServerConfig:
        transport = hosted(ledger) if self._hosts else direct(ledger)
        return ServerConfig(
            ledger.name,
            transport,
            protocol="auto" if self._hosts else "legacy",
            restarts=AT_ONCE,
            request_timeout=None,
            max_in_flight=IN_FLIGHT,
        )

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

    async def _kill(self, refs: Sequence[ServerRef]) -> None:
        """Kill the one server after so many answers."""
        while True:
            await self._due.wait()
            self._due = trio.Event()
            await trio.sleep(self._draw.random() * 0.01)
            self._kill_process(refs[0].statistics().pid)

    async def _kill_hosts(self, refs: Sequence[ServerRef], ledgers: Sequence[Path]) -> None:
        """Kill a server behind a host, and then a host, and so on."""
        for number in count():
            if self._seconds is None:
                await self._due.wait()
                self._due = trio.Event()
            else:
                await trio.sleep(self._seconds)
            hosts = [pid for ref in refs if (pid := ref.statistics().pid) is not None]
            behind = [pid for ledger in ledgers for pid in _started_for(ledger)]
            self._started.update(behind)
            if choice := hosts if number % 2 else behind:
                self._kill_process(self._draw.choice(choice))
                self.report.behind += choice is behind

    def _kill_process(self, pid: int | None) -> None:
        with suppress(ProcessLookupError):  # it may be that the last kill is not yet over
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.report.kills += 1

    def _compare(self, ledgers: Sequence[Path]) -> None:
        """Compare the executed calls with the answered ones."""
        times = bytearray(self.report.calls)
        for ledger in ledgers:
            with ledger.open("rb") as lines:
                for line in lines:
                    times[int(line)] = min(255, times[int(line)] + 1)
        self.report.executed = self.report.calls - times.count(0)
        self.report.duplicates = sum(each > 1 for each in times)
        self.report.unheard = sum(answered and not done for answered, done in zip(self._answered, times, strict=True))
