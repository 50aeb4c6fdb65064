"""Measure what a gateway computes for each call: ours, the proxy of fastmcp, and mcp-proxy.

One client keeps so many calls in flight over stdin and stdout, one write for each, and checks each answer. It is this
process, and blocks. Each gateway is a process, with a quick server of its own behind it. What counts is the processor
time of the gateway's process, with all of its threads, without that of the server and of the client.

Our own direct call is the last of the peers: so many tasks call a tool in the process that has the group. A round of
these tasks without calls is taken off, so of the client's share only a loop and the wake-up of a task are left.

A group in another process may hold the server of the gateway through a unix socket (`ThroughSocket`). That and our
direct call are a contest of their own, in which the time of both processes counts.

The other figures are of `attach`, of which each session of each editor has a process, with one daemon for all of them,
and of a daemon with a thousand clients on a unix socket.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from mcp_actors.gateway import attach

from ..servers.processes import processes
from .figures import Figure
from .measuring import ROOT, TIMEOUT, median_ratio
from .peers import quick_server
from .peers.clients import GATEWAY
from .peers.contest import Contestant, enter

CALLERS: Final = (1, 16, 128)
ROUNDS: Final = 11

OURS: Final = "mcp-actors serve"
SOCKET: Final = "a group with a Socket, and its gateway"
ATTACH: Final = "mcp-actors attach"
DIRECT: Final = "our direct call"
FASTMCP: Final = "fastmcp"
MCP_PROXY: Final = "mcp-proxy"

BOUNDS: Final = {FASTMCP: (1 / 5, 1 / 8, 1 / 8), MCP_PROXY: (1 / 2.5, 1 / 5, 1 / 5), DIRECT: (2.0, 2.0, 2.0)}
"""For each number of calls in flight, how much ours may compute in comparison."""

SOCKET_BOUNDS: Final = (3.0, 3.0, 3.0)
"""How much the two processes may compute in comparison with our direct call. By instructions it is 2.4 to 2.5. With one
call in flight each process finds its caches cold, because the other one has run since: 2.9 to 3.0 on a quiet machine,
and more with other processes. So no others take part."""

CALLS: Final = {OURS: 1024, ATTACH: 1024, DIRECT: 1024, SOCKET: 1024, FASTMCP: 128, MCP_PROXY: 128}
"""Per round."""

MCP_PROXY_PYTHON: Final = "MCP_PROXY_PYTHON"
"""The variable with the interpreter of an environment that has mcp-proxy, which needs version 1 of the SDK."""

MISSING: Final = {FASTMCP: "install the extra `bench`", MCP_PROXY: f"set {MCP_PROXY_PYTHON} to a Python that has it"}

MCP_PROXY_PROGRAM: Final = """
import sys

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.server.stdio import stdio_server
from mcp_proxy.proxy_server import create_proxy_server


async def main() -> None:
    parameters = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        proxy = await create_proxy_server(session)
        async with stdio_server() as (read, write):
            await proxy.run(read, write, proxy.create_initialization_options())


anyio.run(main)
"""
"""Its command line has HTTP on one side. Without that, its proxy computes less."""

CLIENTS: Final = 1000
MANY: Final = 10
"""Calls of each client in flight that are many: ten thousand altogether."""

MEGABYTES: Final = 100.0
"""Bound of the memory of a daemon with so many clients, with all of Python and the libraries."""

INTRODUCTION: Final = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def processor_time(pid: int) -> float:
    """Return the seconds that a process has computed, with all of its threads, without its children."""
    return time.clock_gettime(~pid << 3 | 2)  # as `clock_getcpuclockid` of Linux does


class Gateway:
    """A gateway, and its only client.

    Attributes:
        pid: the process of the gateway.

    Args:
        name: what errors call the gateway.
        process: its process.
        errors: the file that it writes its stderr to.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._name = name
        self.pid: int = process.pid
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()
        self._errors = errors
        self._rest = b""
        self._id = 0
        introduction = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "b", "version": "1"},
        }
        self._ask("initialize", introduction)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        [self._echo] = [tool["name"] for tool in self._ask("tools/list", {})["tools"] if tool["name"].endswith("echo")]

    def _write(self, message: dict[str, Any]) -> None:
        try:
            os.write(self._stdin, json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except BrokenPipeError:
            raise self._ended() from None

    def _ended(self) -> RuntimeError:
        self._errors.seek(0)
        return RuntimeError(f"{self._name} ended; its last words:\n{self._errors.read().decode()}")

    def _read(self) -> list[Any]:
        """Wait for messages."""
        while True:
            data = os.read(self._stdout, 64 * 1024)
            if not data:
                raise self._ended()
            *lines, self._rest = (self._rest + data).split(b"\n")
            if messages := [json.loads(line) for line in lines]:
                for each in messages:
                    if each.get("method") == "ping":  # after a gap, in which the gateway did not run
                        self._write({"jsonrpc": "2.0", "id": each["id"], "result": {}})
                return messages

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._id += 1
        self._write({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while True:
            for message in self._read():
                if message.get("id") == self._id and "method" not in message:
                    return message["result"]

    def _call(self) -> int:
        self._id += 1
        params = {"name": self._echo, "arguments": {"text": f"hello {self._id}"}}
        self._write({"jsonrpc": "2.0", "id": self._id, "method": "tools/call", "params": params})
        return self._id

    def play(self, callers: int, times: int) -> float:
        """Make so many calls, with so many of them in flight; return the processor time of the gateway.

        Raises:
            RuntimeError: an answer is wrong.
        """
        before = processor_time(self.pid)
        waiting = {self._call() for _ in range(min(callers, times))}
        left = times - len(waiting)
        while waiting:
            for message in self._read():
                if "method" in message:
                    continue
                number = message["id"]
                waiting.remove(number)
                if message["result"]["content"][0]["text"] != f"hello {number}":
                    raise RuntimeError(f"{self._name} gave a wrong answer: {message}")
                if left:
                    left -= 1
                    waiting.add(self._call())
        return processor_time(self.pid) - before


class Direct:
    """Our direct call: tasks in the process that has the group."""

    def __init__(self, contestant: Contestant) -> None:
        self._contestant = contestant

    def play(self, callers: int, times: int) -> float:
        """Make so many calls by so many tasks; return the processor time, without that of tasks that make no calls."""
        clocks = [processor_time(self._contestant.pid)]
        for each in (times, 0):
            self._contestant.play(callers, each)
            clocks.append(processor_time(self._contestant.pid))
        return (clocks[1] - clocks[0]) - (clocks[2] - clocks[1])


class ThroughSocket:
    """Calls through a gateway: tasks in the process that has a group with a `Socket`.

    Args:
        contestant: that process.
        gateway: the process of the gateway.
    """

    def __init__(self, contestant: Contestant, gateway: int) -> None:
        self._direct = Direct(contestant)
        self.gateway: int = gateway

    def play(self, callers: int, times: int) -> float:
        """Make so many calls by so many tasks; return the processor time of both processes."""
        before = processor_time(self.gateway)
        seconds = self._direct.play(callers, times)
        return seconds + processor_time(self.gateway) - before


@contextmanager
def at_socket(path: str) -> Iterator[None]:
    """Tell the processes that are started in a block the path of the socket of a gateway."""
    os.environ[GATEWAY] = path
    try:
        yield
    finally:
        del os.environ[GATEWAY]


@contextmanager
def through_socket(pid: int, path: str) -> Iterator[ThroughSocket]:
    """Start a process with a group that calls through a gateway on a unix socket."""
    with at_socket(path), enter("calls", "ServerRef, Socket") as contestant:
        yield ThroughSocket(contestant, pid)


def installed(folder: Path) -> dict[str, Sequence[str]]:
    """Write a file with the server to a folder; return the command line of each gateway that is installed."""
    config = folder / "mcp.json"
    server, *arguments = quick_server.command()
    config.write_text(json.dumps({"mcpServers": {"quick": {"command": server, "args": arguments}}}))
    found: dict[str, Sequence[str]] = {
        OURS: [sys.executable, "-m", "mcp_actors", "serve", "--config", str(config), "--stdio"]
    }
    fastmcp = shutil.which("fastmcp", path=str(Path(sys.executable).parent))
    if fastmcp is not None:
        found[FASTMCP] = [fastmcp, "run", str(config), "--no-banner", "--log-level", "ERROR"]
    if python := os.environ.get(MCP_PROXY_PYTHON):
        found[MCP_PROXY] = [python, "-c", MCP_PROXY_PROGRAM, server, *arguments]
    return found


@contextmanager
def running(name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Iterator[Gateway]:
    """Start a gateway and connect to it. In the end close its stdin and wait for it."""
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, cwd=ROOT, env=environ, stdin=pipe, stdout=pipe, stderr=errors) as process,
    ):
        try:
            yield Gateway(name, process, errors)
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()


def play_rounds(
    players: Mapping[str, Gateway | Direct | ThroughSocket], rounds: int, callers: int
) -> dict[str, list[float]]:
    """Let all play in turns, each round another one first; return the processor time of a call, by round."""
    measured: dict[str, list[float]] = {name: [] for name in players}
    names = list(players)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            measured[name].append(players[name].play(callers, CALLS[name]) / CALLS[name])
    return measured


def calls() -> Iterator[Figure]:
    """Compare the processor time of a call through each gateway, and of our direct call."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        players: dict[str, Gateway | Direct | ThroughSocket] = {
            name: stack.enter_context(running(name, command)) for name, command in installed(Path(folder)).items()
        }
        players[DIRECT] = Direct(stack.enter_context(enter("calls", "ServerRef")))
        for index, callers in enumerate(CALLERS):
            label = f"processor time of a call; in flight: {callers}"
            seconds = yield from timed(players, callers)
            for name, bounds in BOUNDS.items():
                if name not in seconds:
                    yield Figure(f"{label}, to {name}", math.nan, "", remark=f"not installed: {MISSING[name]}")
                else:
                    ratio = median_ratio(seconds[OURS], seconds[name])
                    yield Figure(f"{label}, to {name}", ratio, "", bound=bounds[index])


def calls_through_a_socket() -> Iterator[Figure]:
    """Compare the processor time of a call to a server of another process with that of a direct call."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        players: dict[str, Gateway | Direct | ThroughSocket] = {
            SOCKET: stack.enter_context(through_socket(*stack.enter_context(daemon(folder)))),
            DIRECT: Direct(stack.enter_context(enter("calls", "ServerRef"))),
        }
        for callers, bound in zip(CALLERS, SOCKET_BOUNDS, strict=True):
            seconds = yield from timed(players, callers)
            ratio = median_ratio(seconds[SOCKET], seconds[DIRECT])
            label = f"processor time of a call; in flight: {callers}, {SOCKET}, to {DIRECT}"
            yield Figure(label, ratio, "", bound=bound)


def timed(
    players: Mapping[str, Gateway | Direct | ThroughSocket], callers: int
) -> Generator[Figure, None, dict[str, list[float]]]:
    """Yield the processor time of a call of each; return those of all rounds."""
    play_rounds(players, 1, callers)  # so that no round pays for what happens only once
    seconds = play_rounds(players, ROUNDS, callers)
    for name, each in seconds.items():
        yield Figure(f"processor time of a call; in flight: {callers}, {name}", statistics.median(each) * 1e6, "µs")
    return seconds


# --- Sessions that are attached to a daemon ---------------------------------------------------------------------------

SESSIONS: Final = 13
SERVERS: Final = 6
STARTS: Final = 15

MICROSECONDS: Final = 60.0
"""Bound of the processor time that `attach` takes for a call."""

READY: Final = 100.0
"""Bound of the milliseconds until a session with a running daemon has the answer to its first request."""

SESSION_MEGABYTES: Final = 6.0
"""Bound of the memory of each of so many sessions."""

SHARE: Final = 0.15
"""Bound of the memory of everything, to that of a process of each server for each session."""


class Session:
    """A process that a client has introduced itself to over stdio.

    Attributes:
        process: the process.
        seconds: how long it took from its start to the answer.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], stack: ExitStack) -> None:
        began = time.perf_counter()
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=pipe, stdout=pipe, stderr=null)
        stack.enter_context(self.process)
        stack.callback(self.process.kill)
        self.ask("initialize", INTRODUCTION)
        self.seconds = time.perf_counter() - began

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, and return its result."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if (answer := json.loads(line)).get("id") == method:
                return answer["result"]
        raise RuntimeError(f"{self.process.args!r} has ended")

    def count_servers(self) -> int:
        """Return how many servers have tools."""
        tools = self.ask("tools/list", {})["tools"]
        return len({tool["name"].partition("_")[0] for tool in tools})


@contextmanager
def attachable(folder: Path, server: Sequence[str], number: int) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Write a file with so many servers; return the command line of `attach` and its variables. End the daemon."""
    config = folder / "mcp.json"
    entry = {"command": server[0], "args": list(server[1:])}
    config.write_text(json.dumps({"mcpServers": {f"quick{index}": entry for index in range(number)}}))
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    try:
        yield [sys.executable, "-I", "-S", attach.__file__, "--config", str(config)], environ
    finally:
        for lock in folder.glob("mcp-actors/*.lock"):
            os.kill(int(lock.read_text()), signal.SIGTERM)
            with lock.open() as held:
                fcntl.flock(held, fcntl.LOCK_EX)  # which the daemon has until its end


def attached_calls(rounds: int = ROUNDS) -> Iterator[Figure]:
    """Measure the processor time of `attach` for a call, and how soon it is ready."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        words, environ = stack.enter_context(attachable(Path(folder), quick_server.command(), 1))
        player = stack.enter_context(running(ATTACH, words, environ))
        for callers in CALLERS:
            play_rounds({ATTACH: player}, 1, callers)
            seconds = min(play_rounds({ATTACH: player}, rounds, callers)[ATTACH])  # other processes only add to it
            label = f"processor time of a call; in flight: {callers}, {ATTACH}"
            yield Figure(label, seconds * 1e6, "µs", bound=MICROSECONDS)
        seconds = statistics.median(Session(words, environ, stack).seconds for _ in range(STARTS))
        yield Figure(f"{ATTACH}, ready with a daemon running", seconds * 1000, "ms", bound=READY)


def fleet(server: Sequence[str], sessions: int = SESSIONS, servers: int = SERVERS) -> Iterator[Figure]:
    """Compare the memory of sessions that share a daemon with that of sessions that have each server for themselves."""
    label = f"{sessions} sessions of {servers} servers"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        words, environ = stack.enter_context(attachable(folder, server, servers))
        attached = [Session(words, environ, stack) for _ in range(sessions)]
        while attached[0].count_servers() < servers:
            time.sleep(0.1)
        [lock] = folder.glob("mcp-actors/*.lock")
        daemon = int(lock.read_text())
        children = [each.pid for each in processes() if each.parent == daemon and not each.zombie]
        of_sessions = [proportional(each.process.pid) for each in attached]
        shared = sum(of_sessions) + sum(map(proportional, [daemon, *children]))
        number = sessions + 1 + len(children)
    with ExitStack() as stack:
        own = [Session(server, environ, stack) for _ in range(sessions * servers)]
        alone = sum(proportional(each.process.pid) for each in own)
    yield Figure(f"{label}, processes", number, "", bound=sessions + servers + 1)
    yield Figure(f"{label}, memory of each {ATTACH}", max(of_sessions) / 1e6, "MB", bound=SESSION_MEGABYTES)
    yield Figure(f"{label}, memory", shared / 1e6, "MB")
    yield Figure(f"{label}, memory of {len(own)} processes instead", alone / 1e6, "MB")
    yield Figure(f"{label}, memory, to that", shared / alone, "", bound=SHARE)


# --- A daemon with many clients ---------------------------------------------------------------------------------------


class Client:
    """A client of a daemon, on its socket."""

    def __init__(self, path: str, number: int) -> None:
        self._number = number
        self._sent = self._read = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")
        self._send("initialize", 0, INTRODUCTION)
        self._lines.readline()

    def _send(self, method: str, number: int, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def send_call(self) -> None:
        """Send a call with a secret of this client."""
        self._sent += 1
        arguments = {"text": f"{self._number}:{self._sent}"}
        self._send("tools/call", self._sent, {"name": "quick_echo", "arguments": arguments})

    def wrong_answers(self) -> int:
        """Read the answers to all calls; return how many do not have the secret."""
        texts: dict[int, str] = {}
        for _ in range(self._sent - self._read):
            message = json.loads(self._lines.readline())
            texts[message["id"]] = message["result"]["content"][0]["text"]
        calls = range(self._read + 1, self._sent + 1)
        self._read = self._sent
        return sum(texts.get(call) != f"{self._number}:{call}" for call in calls)

    def close(self) -> None:
        """Leave."""
        self._lines.close()
        self._socket.close()


@contextmanager
def daemon(folder: Path, under: Callable[[Sequence[str]], Sequence[str]] = list) -> Iterator[tuple[int, str]]:
    """Run a daemon; return its pid and the path of its socket. `under` changes its command line."""
    path = str(folder / "s")
    command = under([*installed(folder)[OURS][:-1], "--socket", path])
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid, path
        finally:
            process.terminate()


def crowd(clients: int = CLIENTS) -> Iterator[Figure]:
    """Measure the memory of a daemon with so many clients, each with calls of its own in flight."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft < 4 * clients else soft, hard))  # the daemon inherits it
    with tempfile.TemporaryDirectory() as folder, daemon(Path(folder)) as (pid, path):
        yield from crowding(pid, path, clients)


def crowding(pid: int, path: str, clients: int) -> Iterator[Figure]:
    """Do so with a daemon that runs."""
    label = f"a daemon with {clients} clients"
    with ExitStack() as stack:
        wrong, before = 0, proportional(pid)
        crowd = [Client(path, number) for number in range(clients)]
        for each in crowd:
            stack.callback(each.close)
        yield Figure(f"{label}, memory for each", (proportional(pid) - before) / clients / 1000, "kB")
        for calls in (1, MANY):
            for _ in range(calls):
                for each in crowd:
                    each.send_call()
            wrong += sum(each.wrong_answers() for each in crowd)
            bound = MEGABYTES if calls == 1 else None
            yield Figure(f"{label}, memory; in flight each: {calls}", proportional(pid) / 1e6, "MB", bound=bound)
        yield Figure(f"{label}, wrong answers", wrong, "", bound=0)


def proportional(pid: int) -> int:
    """Return the memory of a process in bytes, with its share of what it has together with others (PSS)."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [kibibytes] = [row.split()[1] for row in rows if row.startswith("Pss:")]
    return int(kibibytes) * 1024


def figures() -> list[Figure]:
    """Compare ours with the others, and crowd a daemon; nothing on systems that do not tell what a process takes."""
    if sys.platform != "linux":
        return []
    timekeeper = str(Path(sys.executable).with_name("mcp-server-time"))
    return [*calls(), *calls_through_a_socket(), *attached_calls(), *fleet([timekeeper]), *crowd()]
