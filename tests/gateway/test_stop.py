"""The end of ``mcp-actors serve`` by a signal: what was begun is answered, what is new is refused, and nothing is left.

The programs are real processes. A test looks at the step between the last look and the close in this process.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing

from mcp_actors import ServerConfig, ServerUnavailable, Socket, open_servers
from mcp_actors.gateway import _listen, _output, _serve, _session, attach

from ..forkserver import Program, start_python
from ..servers.processes import BOUND, children_of, eventually, wait_ended
from ..source import ROOT
from . import stopping_server
from .daemons import SECRET, counting, daemon, written
from .hosts import LEGACY, MODERN, Host, outcome_of
from .http.doors import Peer, open_house

INFO: Final = {"name": "test", "version": "1"}

REFUSED: Final = ("not_sent", "ServerUnavailable")

QUICK: Final = "import sys; from mcp_actors.gateway import _listen; _listen.DRAIN_SECONDS = 1; from mcp_actors.cli \
import main; main()"
"""The command, with a second in the place of 30."""


def write_file(folder: Path, *flags: str) -> Path:
    """Write a configuration with the server."""
    args = ["-S", "-E", stopping_server.__file__, str(folder), *flags]
    entry = {"command": sys.executable, "args": args, "mcp_actors": {"protocol": "legacy"}}
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"s": entry}}))
    return file


class Gateway:
    """``mcp-actors serve`` in a process, with one server.

    Attributes:
        folder: the server notes in it what it does.
        socket, control: the paths of unix sockets for it.
        input, output: for its client over stdin.
    """

    def __init__(self, folder: Path, short: str, *words: str, flags: Sequence[str] = (), quick: bool = False) -> None:
        self.folder, self.socket, self.control = folder, f"{short}/g.sock", f"{short}/g.ctl"
        file = write_file(folder, *flags)
        secret = folder / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        program = ("-c", QUICK) if quick else ("-m", "mcp_actors")
        words = tuple(word.format(socket=self.socket, secret=secret, control=self.control) for word in words)
        reads, self.input = os.pipe()
        self.output, writes = os.pipe()
        with (folder / "log").open("wb") as log:
            command = (*program, "serve", "--config", str(file), *words)
            self.program: Program = start_python(*command, cwd=ROOT, stdin=reads, stdout=writes, stderr=log)
        os.close(reads)
        os.close(writes)
        self.processes: set[int] = set()

    def read_line(self) -> str:
        """Return the next line of its stdout."""
        line = b""
        while not line.endswith(b"\n"):
            piece = os.read(self.output, 1)
            assert piece, (self.folder / "log").read_text()
            line += piece
        return line.decode().strip()

    async def wait_begun(self) -> None:
        """Wait until the server carries out the call."""
        await eventually((self.folder / "begun").exists)
        self.processes.update(children_of(self.program.pid))
        assert self.processes

    def let_go(self) -> None:
        """Let the server answer the call."""
        (self.folder / "go").touch()

    async def wait(self, seconds: float = BOUND) -> int:
        """Return the exit code, once it and its server have ended."""
        code = await trio.to_thread.run_sync(self.program.wait, seconds)
        await wait_ended(self.processes)
        assert "Traceback" not in (self.folder / "log").read_text()
        return code


@contextmanager
def serving(folder: Path, *words: str, **options: Any) -> Iterator[Gateway]:
    """Serve during a block. The socket is in a folder of its own, because its path must be short."""
    with tempfile.TemporaryDirectory() as short:
        gateway = Gateway(folder, short, *words, **options)
        try:
            with gateway.program:
                try:
                    yield gateway
                finally:
                    gateway.program.kill()
        finally:
            for each in (gateway.input, gateway.output):
                with suppress(OSError):
                    os.close(each)


class Lines:
    """A client over a unix socket or stdin, in whose session a call is in flight."""

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        self.host = host
        self._call = host.request("tools/call", {"name": "s_wait"})
        nursery.start_soon(host.read)

    async def begin(self) -> None:
        await self.host.begin()
        await self.host.send(self._call)

    async def refused(self) -> tuple[str, str]:
        """Ask until the answer is an error, and return its outcome and name."""
        while "result" in (answer := await self.host.ask("tools/list")):
            pass
        return outcome_of(answer["error"])

    async def answer(self) -> str:
        return str((await self.host.answer_to(self._call))["result"]["content"][0]["text"])


class Group:
    """A client over TCP: a group of this package."""

    def __init__(self, ref: Any, nursery: trio.Nursery) -> None:
        self._ref, self._nursery = ref, nursery
        self._text, self._done = "", trio.Event()

    async def begin(self) -> None:
        self._nursery.start_soon(self._run)

    async def _run(self) -> None:
        self._text = (await self._ref.call_tool("wait")).content[0].text
        self._done.set()

    async def refused(self) -> tuple[str, str]:
        while True:
            try:
                await self._ref.call_tool("big")
            except ServerUnavailable as exc:
                return exc.outcome, type(exc).__name__

    async def answer(self) -> str:
        await self._done.wait()
        return self._text


class Web:
    """A client over HTTP: a call on one connection, and half a request on another."""

    def __init__(self, address: tuple[str, int], nursery: trio.Nursery) -> None:
        self._address, self._nursery = address, nursery
        self._peers: list[Peer] = []

    async def begin(self) -> None:
        for _ in range(2):
            stream = await trio.open_tcp_stream(*self._address)
            self._nursery.start_soon(_close_at_end, stream)
            self._peers.append(Peer(stream, f"127.0.0.1:{self._address[1]}"))
        busy, late = self._peers
        await late.ask("tools/list", token=None)
        await late.write("POST /mcp HTTP/1.1\r\n")
        await busy.post_modern("tools/call", {"name": "s_wait", "arguments": {}}, token=None)

    async def refused(self) -> tuple[str, str]:
        """Send the rest once no connection is accepted any more."""
        with suppress(OSError):
            while True:
                await (await trio.open_tcp_stream(*self._address)).aclose()
        late = self._peers[1]
        whole = bytearray()
        late.write, write = _into(whole), late.write  # type: ignore[method-assign]  # to cut what it would send
        await late.post_modern("tools/list", token=None)
        await write(bytes(whole.partition(b"\r\n")[2]))
        reply = await late.read()
        assert reply.headers["connection"] == "close"
        return outcome_of(reply.json["error"])

    async def answer(self) -> str:
        return str((await self._peers[0].read()).json["result"]["content"][0]["text"])


def _into(data: bytearray) -> Any:
    async def write(piece: bytes) -> None:
        data.extend(piece)

    return write


async def _close_at_end(stream: trio.abc.AsyncResource) -> None:
    async with stream:
        await trio.sleep_forever()


FLAGS: Final = {
    "socket": ("--socket", "{socket}"),
    "tcp": ("--socket", "127.0.0.1:0", "--secret-file", "{secret}"),
    "stdio": ("--stdio",),
    "http": ("--http", "127.0.0.1:0", "--no-token"),
}


@asynccontextmanager
async def client_of(way: str, gateway: Gateway) -> AsyncIterator[Any]:
    """Connect a client during a block, whose call the server carries out."""
    said = "" if way == "stdio" else await trio.to_thread.run_sync(gateway.read_line)
    client: Any
    async with trio.open_nursery() as nursery:
        if way == "socket":
            stream = await trio.open_unix_socket(gateway.socket)
            nursery.start_soon(_close_at_end, stream)
            client = Lines(Host(stream), nursery)
        elif way == "stdio":
            pipes = trio.lowlevel.FdStream(os.dup(gateway.input)), trio.lowlevel.FdStream(os.dup(gateway.output))
            stapled = trio.StapledStream(*pipes)
            nursery.start_soon(_close_at_end, stapled)
            client = Lines(Host(stapled), nursery)
        elif way == "http":
            host, port = said.removeprefix("http://").strip("/").split(":")
            client = Web((host, int(port)), nursery)
        else:
            config = ServerConfig("s", Socket(said.removeprefix("ready "), secret=SECRET))
            servers = await nursery.start(_keep_open, config)
            client = Group(servers["s"], nursery)
        with trio.fail_after(BOUND):
            await client.begin()
            await gateway.wait_begun()
            yield client
        nursery.cancel_scope.cancel()


async def _keep_open(config: ServerConfig, *, task_status: trio.TaskStatus[Any]) -> None:
    async with open_servers(config) as servers:
        task_status.started(servers)
        await trio.sleep_forever()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("way", FLAGS)
async def test_a_signal_lets_a_call_be_answered_and_new_ones_be_refused(
    way: str, number: signal.Signals, tmp_path: Path
) -> None:
    """The exit code is 0, and no process is left."""
    with serving(tmp_path, *FLAGS[way]) as gateway:
        async with client_of(way, gateway) as client:
            gateway.program.send_signal(number)
            assert await client.refused() == REFUSED
            assert gateway.program.poll() is None
            gateway.let_go()
            assert await client.answer() == "done"
            assert await gateway.wait() == 0


@pytest.mark.parametrize(("second", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("way", ["socket", "stdio", "http"])
async def test_a_second_signal_ends_it_at_once(way: str, second: signal.Signals, code: int, tmp_path: Path) -> None:
    """The call is not waited for. The exit code is that of the second signal, and no process is left.

    SIGHUP and SIGUSR1 are no such signals.
    """
    with serving(tmp_path, *FLAGS[way]) as gateway:
        async with client_of(way, gateway) as client:
            gateway.program.send_signal(signal.SIGTERM)
            await client.refused()
            for number in (signal.SIGHUP, signal.SIGUSR1):
                gateway.program.send_signal(number)
            await eventually(lambda: "SIGUSR1 is ignored" in (tmp_path / "log").read_text())
            assert gateway.program.poll() is None
            gateway.program.send_signal(second)
            assert await gateway.wait(_listen.DRAIN_SECONDS / 2) == code
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.partition("INFO ")[2] for line in lines if "mcp-actors ends" in line] == [
        "mcp-actors ends: SIGTERM; calls in flight are finished first"
    ]
    assert [line for line in lines if f"{second.name}: calls in flight are cancelled" in line]


@pytest.mark.parametrize("way", ["socket", "stdio", "http"])
async def test_a_call_that_takes_too_long_holds_the_end_for_the_drain_time(way: str, tmp_path: Path) -> None:
    """It is withdrawn then, and the exit code is 0."""
    with serving(tmp_path, *FLAGS[way], quick=True) as gateway:
        async with client_of(way, gateway):
            gateway.program.send_signal(signal.SIGTERM)
            assert await gateway.wait(_listen.DRAIN_SECONDS / 2) == 0


@pytest.mark.parametrize("way", ["socket", "stdio"])
async def test_a_client_that_does_not_read_holds_the_end_for_the_drain_time(way: str, tmp_path: Path) -> None:
    """Its answers are more than the system takes. The exit code is 0, and no process is left."""
    with serving(tmp_path, *FLAGS[way], quick=True) as gateway:
        number, close = gateway.input, None
        if way == "socket":
            await trio.to_thread.run_sync(gateway.read_line)
            close = socket.socket(socket.AF_UNIX)
            close.connect(gateway.socket)
            number = close.fileno()
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
        requests = [{"id": 0, "method": "initialize", "params": params}]
        requests += [{"id": 1 + each, "method": "tools/call", "params": {"name": "s_big"}} for each in range(3)]
        requests += [{"id": 9, "method": "tools/call", "params": {"name": "s_wait"}}]
        os.write(number, b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in requests))
        await gateway.wait_begun()
        gateway.let_go()
        gateway.program.send_signal(signal.SIGTERM)
        began = trio.current_time()
        assert await gateway.wait(_listen.DRAIN_SECONDS / 2) == 0
        assert trio.current_time() - began >= 0.9
        if close is not None:
            close.close()


async def test_mcp_actors_stop_does_not_wait_for_calls(tmp_path: Path) -> None:
    """A person has asked for it. The client is disconnected without an answer."""
    with serving(tmp_path, *FLAGS["socket"], "--control", "{control}") as gateway:
        async with client_of("socket", gateway), await trio.open_unix_socket(gateway.control) as control:
            wish = {"do": "stop", "file": str(tmp_path / "servers.json"), "servers": []}
            await control.send_all(json.dumps(wish).encode() + b"\n")
            assert await gateway.wait(_listen.DRAIN_SECONDS / 2) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("way", ["socket", "http"])
async def test_a_signal_while_servers_start_ends_it_with_0(way: str, number: signal.Signals, tmp_path: Path) -> None:
    """The server never answers ``initialize``. No process is left."""
    with serving(tmp_path, *FLAGS[way], flags=["--hangs"]) as gateway:
        await eventually((tmp_path / "starting").exists)
        gateway.processes.update(children_of(gateway.program.pid))
        assert gateway.processes
        gateway.program.send_signal(number)
        assert await gateway.wait(_listen.DRAIN_SECONDS / 2) == 0


def daemon_in(runtime: str) -> int:
    """Return the process id of the daemon."""
    [lock] = Path(runtime, "mcp-actors").glob("*.lock")
    return int(lock.read_text())


async def test_the_daemon_of_attach_answers_before_it_ends_and_the_next_message_starts_another(tmp_path: Path) -> None:
    """The session of the editor goes on."""
    with tempfile.TemporaryDirectory() as runtime:
        file, env = write_file(tmp_path), {**os.environ, "XDG_RUNTIME_DIR": runtime, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-S", attach.__file__, "--config", str(file)]
        pipe = subprocess.PIPE
        session = await trio.lowlevel.open_process(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        assert session.stdio is not None
        assert session.stderr is not None
        async with trio.open_nursery() as nursery, session.stdio, session.stderr:
            client = Lines(Host(session.stdio), nursery)
            with trio.fail_after(BOUND):
                await client.begin()
                await eventually((tmp_path / "begun").exists)
                daemons = [daemon_in(runtime)]
                os.kill(daemons[0], signal.SIGTERM)
                assert await client.refused() == REFUSED
                (tmp_path / "go").touch()
                assert await client.answer() == "done"
                await wait_ended(daemons)
                assert "result" in await client.host.ask("tools/list")
                daemons.append(daemon_in(runtime))
                os.kill(daemons[1], signal.SIGTERM)
                await wait_ended(daemons)
            nursery.cancel_scope.cancel()
        await session.wait()


async def test_a_stream_of_notifications_ends_with_its_answer(tmp_path: Path) -> None:
    """It is a request that would never be answered otherwise, and hold the end."""
    with serving(tmp_path, *FLAGS["socket"]) as gateway:
        await trio.to_thread.run_sync(gateway.read_line)
        host = Host(await trio.open_unix_socket(gateway.socket), MODERN)
        async with trio.open_nursery() as nursery, host.stream:
            nursery.start_soon(host.read)
            await host.begin()
            listen = host.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await host.send(listen)
            await host.notice("notifications/subscriptions/acknowledged")
            gateway.program.send_signal(signal.SIGTERM)
            assert "result" in await host.answer_to(listen)
            assert await gateway.wait(_listen.DRAIN_SECONDS / 2) == 0


class Caller:
    """A client over a unix socket that calls again and again, until it cannot write any more.

    Attributes:
        written: the ids of the requests that were written as a whole.
        answers: what came for them: True for a result, or the outcome of an error.
    """

    def __init__(self, number: int) -> None:
        self._first = number * 10**6
        self.written: list[int] = []
        self.answers: list[tuple[int, Any]] = []

    async def run(self, path: str) -> None:
        async with await trio.open_unix_socket(path) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._read, stream)
            with suppress(OSError):
                self._write(stream, "initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO})
                while True:
                    arguments = {"id": self._first + len(self.written)}
                    self._write(stream, "tools/call", {"name": "a_run", "arguments": arguments})
                    await trio.sleep(0.001)

    def _write(self, stream: trio.SocketStream, method: str, params: dict[str, Any]) -> None:
        number = self._first + len(self.written)
        data = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
        with suppress(BlockingIOError):
            assert os.write(stream.socket.fileno(), data) == len(data)
            self.written.append(number)

    async def _read(self, stream: trio.SocketStream) -> None:
        rest = b""
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for answer in map(json.loads, lines):
                if "method" not in answer:
                    self.answers.append((answer["id"], "result" in answer or outcome_of(answer["error"])[0]))


async def test_each_request_that_could_be_written_has_one_answer(tmp_path: Path) -> None:
    """Also those around the close; and one that is not sent was not carried out."""
    ledger = tmp_path / "ledger"
    with daemon(tmp_path, a=counting(ledger)) as served:
        callers = [Caller(number) for number in range(10)]
        async with trio.open_nursery() as nursery:
            for caller in callers:
                nursery.start_soon(caller.run, served.path)
            await eventually(lambda: all(len(caller.answers) > 100 for caller in callers))
            os.kill(served.pid, signal.SIGTERM)
    for caller in callers:
        assert sorted(each for each, _ in caller.answers) == caller.written
        assert {outcome for _, outcome in caller.answers} <= {True, "not_sent"}
    carried_out = {each for caller in callers for each, outcome in caller.answers if outcome is True and each % 10**6}
    assert written(ledger) == Counter(carried_out)


# --- The step of the close --------------------------------------------------------------------------------------------


async def test_commands_that_need_servers_are_refused_while_these_are_stopped(tmp_path: Path) -> None:
    """The server takes its time. A reload, or the page for people, would need a nursery that is closed."""
    with serving(tmp_path, "--socket", "{socket}", "--control", "{control}", flags=["--lingers"]) as gateway:
        assert gateway.read_line() == "ready"
        await eventually(lambda: "connected" in (tmp_path / "log").read_text())

        async def ask(do: str) -> str:
            request = {"do": do, "file": str(tmp_path / "servers.json"), "servers": []}
            async with await trio.open_unix_socket(gateway.control) as stream:
                await stream.send_all(json.dumps(request).encode() + b"\n")
                lines = [json.loads(line) for line in b"".join([each async for each in stream]).splitlines()]
            return str(next(line.get("error") for line in lines if "waiting" not in line))

        gateway.program.send_signal(signal.SIGTERM)
        with trio.fail_after(BOUND):
            while await ask("reload") != "the servers are being stopped":  # noqa: ASYNC110 - no event
                await trio.sleep(0.01)
        assert await ask("ui") == "the servers are being stopped"
        assert await gateway.wait() == 0


@asynccontextmanager
async def stopping(
    before_close: Callable[[socket.socket], object], only: str | None = None
) -> AsyncIterator[tuple[Host, trio.Event]]:
    """Connect a client to a gateway that stops; do something between its last look and the close.

    The block gets the client, and what is set at the end of the connection.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    heart, gateway = _output.Heart(), _session.Gateway(refusal="there is none")
    with ours, trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            connection = _serve.ClientConnection(gateway, heart, ours.fileno(), ours.fileno(), "client", only)
            close = connection._close_input

            def close_input() -> None:
                before_close(theirs)
                close()

            connection._close_input = close_input  # type: ignore[method-assign]  # the step is nowhere else
            host = Host(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
            nursery.start_soon(connection.run)
            nursery.start_soon(host.read)
            await host.ask("ping")
            nursery.start_soon(partial(_listen.drain, gateway.stopping, (), heart.connections))
            yield host, connection.ended
            await connection.ended.wait()
            await host.stream.aclose()


@pytest.mark.parametrize("size", [100, _serve.CHUNK])
@pytest.mark.parametrize("only", [None, "s"])
async def test_a_request_that_arrives_after_the_last_look_is_refused(only: str | None, size: int) -> None:
    """Also that of a group, which has named its server, and one that is read together with the end of the stream."""
    request = {"jsonrpc": "2.0", "id": "late", "method": "tools/list"}
    line = json.dumps(request).encode().ljust(size - 1) + b"\n"
    async with stopping(lambda theirs: theirs.send(line), only) as (host, _):
        answer = await host.answer_to(request)
    assert outcome_of(answer["error"]) == REFUSED


async def test_a_client_that_was_not_accepted_yet_is_refused(tmp_path: Path) -> None:
    """It has connected in the step in which the gateway stops. Its connection would be reset, and its request lost."""
    heart, gateway = _output.Heart(), _session.Gateway(refusal="there is none")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as client, trio.fail_after(BOUND):
        acceptor = _listen.KeptSocket(f"{folder}/s.sock")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve.Reception(gateway, heart, None).run, [acceptor], math.inf)
            await trio.testing.wait_all_tasks_blocked()
            client.connect(acceptor.name)
            client.sendall(b'{"jsonrpc":"2.0","id":"early","method":"tools/list"}\n')
            await _listen.drain(gateway.stopping, [acceptor], heart.connections)
            nursery.cancel_scope.cancel("the test is done")
        assert outcome_of(json.loads(client.recv(10_000))["error"]) == REFUSED
        assert client.recv(1) == b""


async def test_a_request_cannot_be_written_after_the_close() -> None:
    """So its client knows that nothing was sent."""
    async with stopping(lambda _: None) as (host, ended):
        await ended.wait()
        with pytest.raises(trio.BrokenResourceError):
            await host.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


async def test_half_a_request_is_awaited() -> None:
    """A client that is about to write the rest gets an answer."""
    request = {"jsonrpc": "2.0", "id": "half", "method": "tools/list"}
    data = json.dumps(request).encode() + b"\n"
    heart, gateway = _output.Heart(), _session.Gateway(refusal="there is none")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        connection = _serve.ClientConnection(gateway, heart, ours.fileno(), ours.fileno(), "client")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            theirs.send(data[:10])
            nursery.start_soon(partial(_listen.drain, gateway.stopping, (), heart.connections))
            await trio.testing.wait_all_tasks_blocked(0.01)
            theirs.send(data[10:])
            await connection.ended.wait()
        assert outcome_of(json.loads(theirs.recv(10_000))["error"]) == REFUSED


async def test_a_gateway_may_stop_at_any_step_in_which_a_client_leaves() -> None:
    heart, gateway = _output.Heart(), _session.Gateway(refusal="there is none")
    for steps in range(40):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, trio.fail_after(BOUND):
            connection = _serve.ClientConnection(gateway, heart, ours.fileno(), ours.fileno(), "client")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.run)
                await trio.testing.wait_all_tasks_blocked()
                theirs.close()
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                await _listen.drain(trio.Event(), (), heart.connections)
        assert connection.ended.is_set()


async def test_two_tasks_can_wait_for_a_client_to_read() -> None:
    """The one that reads its requests waits too, when the gateway stops."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs, trio.fail_after(BOUND):
        output = _output.DescriptorWriter(ours.fileno(), lambda _: None, "client", "")
        output.write(b"x" * 3 * _output.OUTPUT_BACKLOG)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.run)
            async with trio.open_nursery() as waiting:
                for most in (_output.OUTPUT_BACKLOG, 0):
                    waiting.start_soon(output.wait_drained, most)
                await trio.testing.wait_all_tasks_blocked(0.01)
                while output.waiting:
                    await trio.lowlevel.wait_readable(theirs)
                    theirs.recv(_output.OUTPUT_BACKLOG)
                    await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


def connected(address: tuple[str, int]) -> trio.SocketStream:
    """Connect in this step."""
    client = socket.create_connection(address)
    client.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(client))


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize(("path", "status"), [("/mcp", 200), ("/status", 503)])
async def test_a_request_over_http_that_was_not_read_yet_is_refused(path: str, status: int, accepted: bool) -> None:
    """A session of MCP says that nothing was sent; other paths have a status for it. The reply ends the connection."""
    async with open_house() as house:
        peer = await house.connect()
        if accepted:
            await peer.fetch("GET", path) if path == "/status" else await peer.ask("tools/list")
        data = bytearray()
        peer.write = _into(data)  # type: ignore[method-assign]  # it is written in the step in which the gateway stops
        await (peer.send("GET", path) if path == "/status" else peer.post_modern("tools/list"))
        async with trio.open_nursery() as nursery:

            async def drain() -> None:
                if not accepted:
                    await peer.stream.aclose()
                    peer.stream = connected(house.address)
                os.write(peer.stream.socket.fileno(), data)
                begun.set()
                await house.door.drain()  # nothing is awaited before it has looked

            begun = trio.Event()
            nursery.start_soon(drain)
            await begun.wait()
            reply = await peer.read()
            await peer.stream.aclose()
        assert (reply.status, reply.headers["connection"]) == (status, "close")
        if path == "/mcp":
            assert outcome_of(reply.json["error"]) == REFUSED
