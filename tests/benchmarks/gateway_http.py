"""Measure what a gateway computes for each call over HTTP: ours, and the proxy of fastmcp.

The client is this process. It has so many connections, keeps each open, and has one call in flight on each: one write
and, mostly, one read. It checks each answer. Ours gets requests of 2026-07-28 with a token; that of fastmcp gets those
of sessions, because it shows modern clients no tools of legacy servers. Our own direct call is over stdio, as in
`gateway`.

The other figures are of a gateway with a thousand sessions and a thousand connections, and of one with a client that
reads slowly, never ends its requests, or floods: how long others wait for their answers then (`neighbours`).
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from .figures import Figure
from .gateway import CALLERS, DIRECT, FASTMCP, INTRODUCTION, MISSING, OURS, Direct, installed, processor_time
from .measuring import ROOT, TIMEOUT, median_ratio
from .peers.contest import enter

BOUNDS: Final = {FASTMCP: (1 / 5, 1 / 12, 1 / 12), DIRECT: (2.5, 2.5, 2.5)}
"""For each number of connections, how much ours may compute in comparison."""

CALLS: Final = {OURS: 1024, DIRECT: 1024, FASTMCP: 128}
"""Per round."""

ROUNDS: Final = 11

CROWD: Final = 1000

TOKEN: Final = "a-token-for-the-benchmark"

VERSION: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Client:
    """A connection to a gateway, and one request at a time on it.

    Args:
        address: the host and the port.
        token: is sent with each request.
        modern: whether each request is alone; else this begins a session.
    """

    def __init__(self, address: tuple[str, int], token: str = "", *, modern: bool = True) -> None:
        self.modern = modern
        self.socket = socket.create_connection(address, TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address
        self._common = (
            f"POST /mcp HTTP/1.1\r\nhost: {host}:{port}\r\nuser-agent: bench\r\n"
            f"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
        )
        if token:
            self._common += f"authorization: Bearer {token}\r\n"
        self._buffer = b""
        self.session = ""
        if not modern:
            self.ask("initialize", INTRODUCTION)

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self.socket.fileno()

    def head(self, size: int, method: str, name: str | None) -> str:
        """Return the head of a request with a body of this size."""
        head = f"{self._common}mcp-protocol-version: {VERSION if self.modern else '2025-06-18'}\r\n"
        if self.modern:
            head += f"mcp-method: {method}\r\n"
            if name is not None:
                head += f"mcp-name: {name}\r\n"
        if self.session:
            head += f"mcp-session-id: {self.session}\r\n"
        return f"{head}content-length: {size}\r\n\r\n"

    def request(self, method: str, number: int, params: dict[str, Any]) -> bytes:
        """Return a whole request."""
        params = {**params, "_meta": META} if self.modern else params
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        body = json.dumps(message, separators=(",", ":")).encode()
        return self.head(len(body), method, params.get("name")).encode() + body

    def send(self, method: str, number: int, params: dict[str, Any]) -> None:
        """Send a request in one write."""
        self.socket.sendall(self.request(method, number, params))

    def receive(self) -> Any:
        """Wait for the answer, and return its message."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._fill()
        head, self._buffer = self._buffer[:end].lower(), self._buffer[end + 4 :]
        assert head.startswith(b"http/1.1 200"), head + self._buffer
        if b"mcp-session-id: " in head:
            self.session = head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()
        if b"chunked" in head:
            while b"\r\n0\r\n\r\n" not in self._buffer:
                self._fill()
            events, self._buffer = self._buffer, b""
            [data] = [line for line in events.split(b"\n") if line.startswith(b'data: {"') and b'"id"' in line]
            return json.loads(data[6:])
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(self._buffer) < size:
            self._fill()
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        return json.loads(body)

    def _fill(self) -> None:
        data = self.socket.recv(64 * 1024)
        if not data:
            raise RuntimeError("the gateway has closed a connection")
        self._buffer += data

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, and return its result."""
        self.send(method, 0, params)
        return self.receive()["result"]

    def close(self) -> None:
        """Leave."""
        self.socket.close()


class Gateway:
    """A gateway over HTTP, and its clients.

    Args:
        name: what errors call it.
        pid: its process.
        address: where it listens.
        token: what it wants.

    Attributes:
        echo: the tool that is called.
        waited: the seconds that calls have taken.
    """

    def __init__(self, name: str, pid: int, address: tuple[str, int], token: str) -> None:
        self._name = name
        self.pid = pid
        self.waited: list[float] = []
        self._address = address
        self._token = token
        self._clients: list[Client] = []
        client = self.connect()
        until = time.monotonic() + TIMEOUT
        while not (found := [each["name"] for each in self._tools(client) if each["name"].endswith("echo")]):
            if time.monotonic() > until:
                raise RuntimeError(f"{name} has no tools")
            time.sleep(0.1)
        [self.echo] = found
        client.close()

    @staticmethod
    def _tools(client: Client) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = client.ask("tools/list", {})["tools"]
        return tools

    def connect(self, *, modern: bool | None = None) -> Client:
        """Return a new connection."""
        return Client(self._address, self._token, modern=self._name == OURS if modern is None else modern)

    def play(self, callers: int, times: int) -> float:
        """Make so many calls over so many connections; return the processor time of the gateway.

        Raises:
            RuntimeError: an answer is wrong.
        """
        while len(self._clients) < callers:
            self._clients.append(self.connect())
        poll, by_descriptor = select.epoll(), {}
        for client in self._clients[:callers]:
            poll.register(client, select.EPOLLIN)
            by_descriptor[client.fileno()] = client
        before = processor_time(self.pid)
        numbers = iter(range(10_000, 10_000 + times))
        waiting: dict[Client, tuple[int, float]] = {}
        for client in by_descriptor.values():
            self._call(client, numbers, waiting)
        while waiting:
            for descriptor, _ in poll.poll(TIMEOUT):
                client = by_descriptor[descriptor]
                (number, began), message = waiting.pop(client), client.receive()
                self.waited.append(time.perf_counter() - began)
                if message["result"]["content"][0]["text"] != f"hello {number}":
                    raise RuntimeError(f"{self._name} gave a wrong answer: {message}")
                self._call(client, numbers, waiting)
        return processor_time(self.pid) - before

    def _call(self, client: Client, numbers: Iterator[int], waiting: dict[Client, tuple[int, float]]) -> None:
        number = next(numbers, None)
        if number is not None:
            waiting[client] = number, time.perf_counter()
            client.send("tools/call", number, {"name": self.echo, "arguments": {"text": f"hello {number}"}})

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()
        self._clients.clear()


@contextmanager
def running(name: str, folder: Path, under: Callable[[Sequence[str]], Sequence[str]] = list) -> Iterator[Gateway]:
    """Run a gateway over HTTP. `under` changes its command line."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    command, token = installed(folder)[name], ""
    if name == OURS:
        file = folder / "token"
        file.write_text(f"{TOKEN}\n")
        file.chmod(0o600)
        token = TOKEN
        command = [*command[:-1], "--http", f"127.0.0.1:{address[1]}", "--token-file", str(file)]
    else:
        command = [*command, "--transport", "http", "--host", "127.0.0.1", "--port", str(address[1])]
    with subprocess.Popen(under(command), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + TIMEOUT
            while True:
                try:
                    socket.create_connection(address).close()
                    break
                except OSError:
                    if time.monotonic() > until or process.poll() is not None:
                        raise RuntimeError(f"{name} does not listen") from None
                    time.sleep(0.05)
            gateway = Gateway(name, process.pid, address, token)
            yield gateway
            gateway.close()
        finally:
            process.terminate()


def calls() -> Iterator[Figure]:
    """Compare the processor time of a call."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        names = [name for name in (OURS, FASTMCP) if name in installed(Path(folder))]
        players: dict[str, Gateway | Direct] = {
            name: stack.enter_context(running(name, Path(folder))) for name in names
        }
        players[DIRECT] = Direct(stack.enter_context(enter("calls", "ServerRef")))
        for index, callers in enumerate(CALLERS):
            measured: dict[str, list[float]] = {name: [] for name in players}
            for number in range(ROUNDS + 1):  # the first pays for what happens only once
                first = number % len(players)
                for name in [*players][first:] + [*players][:first]:
                    measured[name].append(players[name].play(callers, CALLS[name]) / CALLS[name])
            label = f"processor time of a call over HTTP; connections: {callers}"
            seconds = {name: each[1:] for name, each in measured.items()}
            for name, each in seconds.items():
                yield Figure(f"{label}, {name}", statistics.median(each) * 1e6, "µs")
            for name, bounds in BOUNDS.items():
                if name in seconds:
                    yield Figure(
                        f"{label}, to {name}", median_ratio(seconds[OURS], seconds[name]), "", bound=bounds[index]
                    )
                else:
                    yield Figure(f"{label}, to {name}", math.nan, "", remark=f"not installed: {MISSING[name]}")


def crowd(count: int = CROWD) -> Iterator[Figure]:
    """Run a gateway with a crowd."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft < 4 * count else soft, hard))  # the gateway inherits it
    with tempfile.TemporaryDirectory() as folder, running(OURS, Path(folder)) as gateway:
        yield from crowding(gateway, count)


def crowding(gateway: Gateway, count: int) -> Iterator[Figure]:
    """Open so many sessions and so many connections, let each call, and count the errors."""
    with ExitStack() as stack:
        for era, modern in (("sessions of 2025-11-25", False), (f"connections of {VERSION}", True)):
            clients = [gateway.connect(modern=modern) for _ in range(count)]
            wrong = 0
            for each in clients:
                stack.callback(each.close)
            for _ in range(10):
                for number, each in enumerate(clients):
                    each.send("tools/call", number, {"name": "quick_echo", "arguments": {"text": f"{number}"}})
                for number, each in enumerate(clients):
                    wrong += each.receive()["result"]["content"][0]["text"] != f"{number}"
            yield Figure(f"a gateway with {count} {era}, wrong answers", wrong, "", bound=0)


# --- Next to a client that misbehaves ---------------------------------------------------------------------------------

# It is a process of its own, because its work is not that of the others. Quiet rounds and disturbed ones take turns.

WAITING: Final = 3.0
"""How much longer the slowest hundredth of the calls of others may take."""

OTHERS: Final = 8
DISTURBED: Final = 9
"""Rounds of each kind."""

PIECE: Final = "x" * 250_000


def read_slowly(gateway: Gateway) -> None:
    """Ask for a long text again and again, and read a kilobyte of each every two milliseconds."""
    while True:
        client = gateway.connect()
        client.send("tools/call", 1, {"name": gateway.echo, "arguments": {"text": PIECE}})
        for _ in range(100):
            client.socket.recv(1024)
            time.sleep(0.002)
        client.close()


def send_half(gateway: Gateway) -> None:
    """Begin requests on a hundred connections, and send a further byte of each now and then."""
    clients = [gateway.connect() for _ in range(100)]
    for number, each in enumerate(clients):
        head = "POST /mcp HTTP/1.1\r\nhost: x\r\nx-filler: " if number % 2 else each.head(1000, "tools/call", "x")
        each.socket.sendall(head.encode())
    while True:
        for each in clients:
            with suppress(OSError):  # it was given enough time
                each.socket.sendall(b"y")
            time.sleep(0.001)


def send_flood(gateway: Gateway) -> None:
    """Send calls without a pause, and drop the answers."""
    client = gateway.connect()
    request = client.request("tools/call", 1, {"name": gateway.echo, "arguments": {"text": "hello"}}) * 100
    threading.Thread(target=lambda: all(iter(partial(client.socket.recv, 2**20), b"")), daemon=True).start()
    while True:
        client.socket.sendall(request)


NEIGHBOURS: Final = {"reads slowly": read_slowly, "sends half a request": send_half, "floods": send_flood}


@contextmanager
def disturbing(neighbour: Callable[[Gateway], None], gateway: Gateway) -> Iterator[None]:
    """Let a client misbehave in another process during a block."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            neighbour(gateway)
        os._exit(0)
    try:
        time.sleep(0.3)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        time.sleep(0.1)


def neighbours() -> Iterator[Figure]:
    """Run a gateway with a client that misbehaves."""
    with tempfile.TemporaryDirectory() as folder, running(OURS, Path(folder)) as gateway:
        yield from neighbouring(gateway, 2000, DISTURBED)


def neighbouring(gateway: Gateway, calls: int, rounds: int) -> Iterator[Figure]:
    """Compare how long the slowest calls of others take next to a client that misbehaves, and without it."""
    gateway.play(OTHERS, calls)
    for name, neighbour in NEIGHBOURS.items():
        slowest: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(rounds):
            for disturbed in slowest:
                with disturbing(neighbour, gateway) if disturbed else nullcontext():
                    gateway.waited.clear()
                    gateway.play(OTHERS, calls)
                slowest[disturbed].append(statistics.quantiles(gateway.waited, n=100)[-1])
        label = f"p99 of others while a client {name}"
        yield Figure(label, statistics.median(slowest[True]) * 1e3, "ms")
        yield Figure(f"{label}, to quiet", median_ratio(slowest[True], slowest[False]), "", bound=WAITING)


def figures() -> list[Figure]:
    """Compare ours with the other, crowd and disturb it; nothing where systems do not tell what a process takes."""
    return [*calls(), *crowd(), *neighbours()] if sys.platform == "linux" else []
