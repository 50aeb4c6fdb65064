"""Groups whose gateway is a process that is killed, frozen, or attacked."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import pytest
import trio

from mcp_actors import (
    Backoff,
    ConnectionLost,
    HealthPolicy,
    RestartPolicy,
    ServerConfig,
    ServerRef,
    Socket,
    StateChanged,
    open_servers,
)
from mcp_actors.transports.socket._handshake import MAX_LINE, Proof

from ..servers.processes import freeze
from .daemons import SECRET, Daemon, counting, daemon, written
from .hosts import BOUND

CALLERS: Final = 16
KILLS: Final = 2
IN_FLIGHT: Final = 8
AT_ONCE: Final = RestartPolicy(
    max_restarts=10**6, backoff=Backoff(first=0, initial=0.01, maximum=0.05, factor=1), window=10**5
)

KINDS: Final = pytest.mark.parametrize("kind", ["unix", "tcp"])


def free_port() -> int:
    """Return a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def served(kind: str, folder: Path) -> Iterator[Daemon]:
    """Run a gateway with one server, which keeps a ledger."""
    with daemon(folder, free_port() if kind == "tcp" else None, a=counting(folder / "a")) as each:
        yield each


def transport(kind: str, each: Daemon) -> Socket:
    """Return how a group reaches it."""
    return Socket(each.path, secret_file=str(each.secret) if kind == "tcp" else None)


class Callers:
    """Calls again and again, each with an id of its own.

    Args:
        ref: the server.
        pause: the seconds between two calls of a task.

    Attributes:
        answered, unknown, not_sent: the ids by their outcome.
    """

    def __init__(self, ref: ServerRef, pause: float = 0.0) -> None:
        self._ref = ref
        self._pause = pause
        self._ids = count()
        self.answered: set[int] = set()
        self.unknown: set[int] = set()
        self.not_sent: set[int] = set()
        self.news = trio.Event()

    async def call_on(self) -> None:
        """Call until this is cancelled."""
        while True:
            id = next(self._ids)
            try:
                result = await self._ref.call_tool("run", {"id": id})
            except ConnectionLost as exc:
                (self.unknown if exc.outcome == "unknown" else self.not_sent).add(id)
            else:
                assert result.content[0].text == str(id)  # type: ignore[union-attr]  # it is text
                self.answered.add(id)
            self.news.set()
            await trio.sleep(self._pause)

    async def wait_answers(self, more: int) -> None:
        """Wait for so many further answers."""
        wanted = len(self.answered) + more
        with trio.fail_after(BOUND):
            while len(self.answered) < wanted:
                self.news = trio.Event()
                await self.news.wait()


@KINDS
async def test_a_killed_gateway_costs_the_calls_in_flight_and_no_other(kind: str, tmp_path: Path) -> None:
    """Those have the outcome unknown; the queued ones are carried on by the next gateway, and none is doubled."""
    with served(kind, tmp_path) as gateway:
        config = ServerConfig(
            "a",
            transport(kind, gateway),
            required=True,
            max_in_flight=IN_FLIGHT,
            restarts=AT_ONCE,
            request_timeout=None,
        )
        async with open_servers(config) as group, trio.open_nursery() as nursery:
            callers = Callers(group["a"])
            for _ in range(CALLERS):
                nursery.start_soon(callers.call_on)
            for _ in range(KILLS):
                await callers.wait_answers(200)
                before = len(callers.unknown)
                await trio.to_thread.run_sync(gateway.kill)  # while the callers call on
                await trio.to_thread.run_sync(gateway.start)
                await callers.wait_answers(2 * CALLERS)
                assert len(callers.unknown) - before <= IN_FLIGHT
            nursery.cancel_scope.cancel()
        gateway.server_pids()
    await gateway.wait_servers_ended()
    ledger = written(tmp_path / "a")
    assert callers.answered <= ledger.keys()
    assert max(ledger.values()) == 1
    assert 0 < len(callers.unknown) <= KILLS * IN_FLIGHT
    assert callers.not_sent == set()


@KINDS
async def test_health_checks_notice_a_frozen_gateway(kind: str, tmp_path: Path) -> None:
    states: list[str] = []
    news = trio.Event()

    def watch(event: object) -> None:
        if isinstance(event, StateChanged):
            states.append(event.new)
            news.set()

    # Three failed checks take longer than what a gateway notices as a gap, so it does not begin what was given up.
    health = HealthPolicy(interval=0.1, timeout=0.4, warn_after=1, unhealthy_after=2, restart_after=3)
    with served(kind, tmp_path) as gateway:
        config = ServerConfig("a", transport(kind, gateway), required=True, health=health, restarts=AT_ONCE)
        async with open_servers(config, observers=[watch]) as group:
            await freeze(gateway.pid)
            try:
                with trio.fail_after(BOUND), pytest.raises(ConnectionLost, match="health check timed out"):
                    await group["a"].call_tool("run", {"id": 1})
            finally:
                os.kill(gateway.pid, signal.SIGCONT)
            with trio.fail_after(BOUND):
                result = await group["a"].call_tool("run", {"id": 2})
            assert result.content[0].text == "2"  # type: ignore[union-attr]  # it is text
    await gateway.wait_servers_ended()
    assert written(tmp_path / "a") == {2: 1}


# --- peers that do not prove the secret -------------------------------------------------------------------------------


@asynccontextmanager
async def at_work(gateway: Daemon) -> AsyncIterator[Callers]:
    """Let a group call through the gateway during the block; it must be served until its end, and lose nothing."""
    config = ServerConfig("a", transport("tcp", gateway), required=True)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        callers = Callers(group["a"], 0.02)
        nursery.start_soon(callers.call_on)
        await callers.wait_answers(10)
        yield callers
        await callers.wait_answers(10)
        assert callers.unknown == set()
        nursery.cancel_scope.cancel()


async def rest_of(stream: trio.SocketStream) -> bytes:
    """Return what comes until the connection ends, which it must."""
    data = b""
    with trio.fail_after(BOUND):
        try:
            async for piece in stream:
                data += piece
        except trio.BrokenResourceError:
            pass  # it was closed with something unread
    return data


async def test_a_recorded_handshake_is_refused_on_another_connection(tmp_path: Path) -> None:
    with served("tcp", tmp_path) as gateway:
        host, port = gateway.path.split(":")
        async with at_work(gateway), await trio.open_tcp_stream(host, int(port)) as first:
            recorded = Proof("a", SECRET.encode()).line((await first.receive_some())[:-1])
            await first.send_all(recorded)
            assert (await first.receive_some()).endswith(b" ok\n")
            async with await trio.open_tcp_stream(host, int(port)) as second:
                await second.receive_some()
                await second.send_all(recorded)
                assert await rest_of(second) == b"mcp-actors/1 - refused\n"
    assert "it has another secret" in gateway.log.read_text()


async def test_a_peer_that_sends_a_megabyte_before_the_proof_is_refused(tmp_path: Path) -> None:
    with served("tcp", tmp_path) as gateway:
        host, port = gateway.path.split(":")
        async with at_work(gateway), await trio.open_tcp_stream(host, int(port)) as peer:
            with trio.fail_after(BOUND), suppress(trio.BrokenResourceError):
                await peer.send_all(b"x" * 1024 * 1024)
            assert (await rest_of(peer)).count(b"\n") <= 2
    assert "sent something else than one line" in gateway.log.read_text()


async def test_a_peer_that_says_nothing_is_disconnected_after_five_seconds(tmp_path: Path) -> None:
    with served("tcp", tmp_path) as gateway:
        host, port = gateway.path.split(":")
        async with at_work(gateway), await trio.open_tcp_stream(host, int(port)) as silent:
            began = trio.current_time()
            async with await trio.open_tcp_stream(host, int(port)) as slow:
                for _ in range(MAX_LINE // 2):
                    try:
                        await slow.send_all(b"x")
                    except trio.BrokenResourceError:
                        break
                    await trio.sleep(0.1)
                assert (await rest_of(silent)).count(b"\n") == 1
                assert 4 < trio.current_time() - began < BOUND
    # The first one of a minute has a line at once, the other one at the end, unless the process has no time for that.
    assert gateway.log.read_text().count("it has not proven the secret within 5 s") in (1, 2)
