"""Many clients call through a daemon while it and its servers are killed; the servers' ledgers have the truth."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define, field

from ..programs import FULL_SIZE, SEED
from .daemons import Daemon, counting, daemon, written
from .hosts import outcome_of

CALLS: Final = 100_000 if FULL_SIZE else 1500

SESSIONS: Final = 50 if FULL_SIZE else 10

AT_ONCE: Final = 8
"""Calls of one session in flight, at most. Some of them may be sent to a server whose end is not noticed yet."""

KILLS: Final = 40 if FULL_SIZE else 6

DYING: Final = frozenset(range(7, CALLS, CALLS // 20))
"""The calls in which a server ends once it has carried them out, without an answer."""

SERVERS: Final[dict[str, dict[str, Any]]] = {
    "a": {},
    "hasty": {"when_down": "fail"},
    "narrow": {"max_in_flight": 4, "mailbox_size": 4, "overflow": "fail"},
}
"""The servers, with their options. One refuses calls while it is down, and one that are too many for its queue."""


@define
class Report:
    """The ids of the calls by their outcome, and the kills.

    Attributes:
        answered, unknown, not_sent: the ids.
        refused: how many calls were not sent for which reason.
        kills: how many of the daemon, and how many of servers.
        in_flight: the calls without an answer at the kills.
    """

    answered: set[int] = field(factory=set)
    unknown: set[int] = field(factory=set)
    not_sent: set[int] = field(factory=set)
    refused: Counter[str] = field(factory=Counter)
    kills: dict[str, int] = field(factory=lambda: {"daemon": 0, "server": 0})
    in_flight: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.answered)} answered, {len(self.unknown)} unknown, {len(self.not_sent)} not sent "
            f"({', '.join(f'{number} {error}' for error, number in self.refused.items())}); "
            f"kills: {self.kills}, with {self.in_flight} calls in flight"
        )


class Storm:
    """Lets sessions make the calls, and kills the daemon and its servers in turns."""

    def __init__(self, served: Daemon) -> None:
        self.report = Report()
        self._daemon = served
        self._ids = iter(range(CALLS))
        self._pending: set[int] = set()
        self._draw = random.Random(SEED)
        self._progress = trio.Event()

    async def rage(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kill_again_and_again)
            async with trio.open_nursery() as sessions:
                for _ in range(SESSIONS):
                    sessions.start_soon(self._call_again_and_again)
            nursery.cancel_scope.cancel("all calls were made")

    async def _call_again_and_again(self) -> None:
        """Connect, call until the connection ends, and connect again."""
        while True:
            try:
                stream = await trio.open_unix_socket(self._daemon.path)
            except OSError:
                await trio.sleep(0.02)  # the daemon is being started again
                continue
            async with stream:
                with suppress(trio.BrokenResourceError):
                    if await self._call(stream):
                        return

    async def _call(self, stream: trio.SocketStream) -> bool:
        """Make calls, some at a time; return True when there are none left, and False when the connection has ended."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await stream.send_all(_line({"id": "begin", "method": "initialize", "params": params}))
        waiting: set[int] = set()
        rest = b""
        try:
            while True:
                if len(waiting) <= AT_ONCE // 2:
                    ids = list(islice(self._ids, self._draw.randint(1, AT_ONCE - len(waiting))))
                    if not ids and not waiting:
                        return True
                    waiting.update(ids)
                    self._pending.update(ids)
                    await stream.send_all(b"".join(map(self._line, ids)))
                data = await stream.receive_some()
                if not data:
                    return False
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line), waiting)
        finally:
            self.report.unknown |= waiting
            self._pending -= waiting

    def _line(self, id: int) -> bytes:
        name = f"{self._draw.choice([*SERVERS])}_run"
        return _line(
            {"id": id, "method": "tools/call", "params": {"name": name, "arguments": {"id": id, "die": id in DYING}}}
        )

    def _take(self, message: dict[str, Any], waiting: set[int]) -> None:
        id = message.get("id")
        if id not in waiting:
            assert id == "begin" or "method" in message, message
            return
        waiting.remove(id)
        self._pending.remove(id)
        if "result" in message:
            assert message["result"]["content"][0]["text"] == str(id)
            self.report.answered.add(id)
        else:
            outcome, error = outcome_of(message["error"])
            if outcome == "not_sent":
                self.report.not_sent.add(id)
                self.report.refused[error] += 1
            else:
                assert outcome == "unknown"
                self.report.unknown.add(id)
        self._progress.set()

    async def _kill_again_and_again(self) -> None:
        """Kill one of them after each part of the calls, and wait for an answer before the next part."""
        for number in range(1, KILLS + 1):
            while self._done() < number * CALLS // (KILLS + 2):
                self._progress = trio.Event()
                await self._progress.wait()
            await trio.sleep(self._draw.random() * 0.01)
            if number % 2:
                self._kill_server()
            else:
                self._daemon.kill()
                self.report.kills["daemon"] += 1
                self.report.in_flight += len(self._pending)
                await trio.to_thread.run_sync(self._daemon.start)
        await trio.sleep_forever()

    def _kill_server(self) -> None:
        pids = self._daemon.server_pids()
        if pids:
            self.report.kills["server"] += 1
            self.report.in_flight += len(self._pending)
            with suppress(ProcessLookupError):
                os.kill(self._draw.choice(pids), signal.SIGKILL)

    def _done(self) -> int:
        return len(self.report.answered) + len(self.report.unknown) + len(self.report.not_sent)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


async def test_a_call_is_carried_out_once_if_answered_and_never_if_not_sent(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Half of the kills hit the daemon, and half a server; others end by themselves in the middle of a call."""
    ledgers = [tmp_path / name for name in SERVERS]
    entries = {ledger.name: counting(ledger, **SERVERS[ledger.name]) for ledger in ledgers}
    with daemon(tmp_path, **entries) as served:
        storm = Storm(served)
        await storm.rage()
        served.server_pids()
    await served.wait_servers_ended()
    report, ledger = storm.report, written(*ledgers)
    record_property("note", str(report))
    assert len(report.answered) + len(report.unknown) + len(report.not_sent) == CALLS
    assert min(report.kills.values()) >= KILLS // 2 - 1
    assert report.answered <= ledger.keys() <= report.answered | report.unknown
    assert max(ledger.values()) == 1
    assert report.not_sent.isdisjoint(ledger)
    assert {"LimitExceeded", "ServerUnavailable"} <= report.refused.keys()
    assert DYING & ledger.keys() <= report.unknown
    assert len(DYING & ledger.keys()) > len(DYING) // 3
    assert len(report.unknown) <= (sum(report.kills.values()) + len(DYING)) * SESSIONS * AT_ONCE
