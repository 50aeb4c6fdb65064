"""Two gateways behind a balancer, of which one is killed again and again; the servers' ledgers have the truth."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import trio
from mcp import MCPError

from mcp_actors import Backoff, Http, McpActorsError, RestartPolicy, ServerConfig, open_servers

from ...forkserver import Program, start_python
from ...programs import FULL_SIZE
from ...servers.processes import eventually, processes, wait_ended
from ...source import ROOT
from ..daemons import counting, written

CALLS: Final = 10_000 if FULL_SIZE else 300
CALLERS: Final = 16
KILLS: Final = 40 if FULL_SIZE else 2
AGAIN: Final = RestartPolicy(max_restarts=10**6, backoff=Backoff(first=0, initial=0.01, maximum=0.05, factor=1))


class Backend:
    """A gateway, which may be killed and started again."""

    def __init__(self, folder: Path, name: str) -> None:
        self.ledger = folder / f"ledger-{name}"
        self.pids: set[int] = set()
        self.port = 0
        self._log = folder / f"log-{name}"
        self._file = folder / f"{name}.json"
        self._file.write_text(json.dumps({"mcpServers": {"s": counting(self.ledger)}}))
        self._program: Program | None = None

    def start(self) -> None:
        """Start it, and wait until it listens; always at the same port."""
        words = ["-m", "mcp_actors", "serve", "--config", f"{self._file}#s", "--http", f"127.0.0.1:{self.port}"]
        said, say = os.pipe()
        with open(said) as printed, self._log.open("ab") as log:
            try:
                self._program = start_python(*words, "--no-token", cwd=ROOT, stdout=say, stderr=log)
            finally:
                os.close(say)
            url = printed.readline().strip()
        assert url.startswith("http://127.0.0.1:"), self._log.read_text()
        self.port = int(url.strip("/").rpartition(":")[2])

    def kill(self) -> None:
        """Kill it. Its server ends when it has read what is in its pipe."""
        if self._program is not None:
            pid = self._program.pid
            self.pids.update(each.pid for each in processes() if each.parent == pid and not each.zombie)
            with self._program as program:
                program.send_signal(signal.SIGKILL)


async def balance(backends: list[Backend], *, task_status: trio.TaskStatus[int]) -> None:
    """Pass each connection to the next backend that takes it, and bytes both ways. It repeats nothing."""
    turns = cycle(range(len(backends)))

    async def pump(source: trio.SocketStream, to: trio.SocketStream, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await to.send_all(data)
        scope.cancel("one side has left")

    async def serve(client: trio.SocketStream) -> None:
        first = next(turns)
        for backend in (backends[first], backends[first - 1]):
            with suppress(OSError):
                async with await trio.open_tcp_stream("127.0.0.1", backend.port) as there, trio.open_nursery() as both:
                    both.start_soon(pump, client, there, both.cancel_scope)
                    both.start_soon(pump, there, client, both.cancel_scope)
                return

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        task_status.started(listeners[0].socket.getsockname()[1])


class Tally:
    """The outcome of each call."""

    def __init__(self) -> None:
        self.ended: dict[int, str] = {}
        self._ids = iter(range(CALLS))

    async def call(self, server: Any) -> None:
        """Make calls, one after the other, until all are made."""
        for number in self._ids:
            try:
                result = await server.call_tool("run", {"id": number})
            except McpActorsError as exc:
                outcome = str(getattr(exc, "outcome", type(exc).__name__))
            except MCPError as exc:
                outcome = exc.data["mcp_actors"]["outcome"]
            else:
                outcome = "answered" if result.content[0].text == str(number) else "wrong"
            assert number not in self.ended
            self.ended[number] = outcome

    def of(self, outcome: str) -> set[int]:
        """Return the calls with an outcome."""
        return {number for number, each in self.ended.items() if each == outcome}


async def test_each_call_has_one_named_outcome_and_none_is_carried_out_twice(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    backends = [Backend(tmp_path, name) for name in "ab"]
    tally, kills = Tally(), 0
    for each in backends:
        await trio.to_thread.run_sync(each.start)
    try:
        async with trio.open_nursery() as nursery:
            port = await nursery.start(balance, backends)
            config = ServerConfig(
                "all",
                Http(f"http://127.0.0.1:{port}/mcp"),
                protocol="2026-07-28",
                restarts=AGAIN,
                max_in_flight=CALLERS,
            )
            async with open_servers(config) as servers, trio.open_nursery() as callers:
                for _ in range(CALLERS):
                    callers.start_soon(tally.call, servers["all"])
                for kills in range(1, KILLS + 1):
                    part = kills * CALLS // (KILLS + 1)
                    await eventually(lambda part=part: len(tally.ended) >= part, within=300)  # type: ignore[misc]  # bound
                    victim = backends[kills % 2]
                    victim.kill()
                    await trio.to_thread.run_sync(victim.start)
            nursery.cancel_scope.cancel()
    finally:
        for each in backends:
            each.kill()
    await wait_ended(backends[0].pids | backends[1].pids)
    ledger = written(*(each.ledger for each in backends))
    answered, unknown, not_sent = map(tally.of, ("answered", "unknown", "not_sent"))
    record_property(
        "note", f"{len(answered)} answered, {len(unknown)} unknown, {len(not_sent)} not sent; {kills} kills"
    )
    assert len(answered) + len(unknown) + len(not_sent) == CALLS, {*tally.ended.values()}
    assert answered <= ledger.keys() <= answered | unknown
    assert max(ledger.values()) == 1
    assert len(unknown) <= KILLS * CALLERS
