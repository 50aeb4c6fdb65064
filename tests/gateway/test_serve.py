"""The bytes of a gateway's clients: what arrives together, gaps, slow readers, ends, and the socket."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import _tasks, open_servers
from mcp_actors.gateway import _budget, _output, _serve, _session, serve
from mcp_actors.gateway._front import Front
from mcp_actors.transports import LineSplitter

from ..forkserver import interpreter
from ..servers.processes import eventually
from ..servers.scripted_server import command
from .hosts import BOUND, LEGACY, Host, gateway, in_process, notes, outcome_of
from .test_sessions import slow


@asynccontextmanager
async def across_a_gap(begun: list[str]) -> AsyncIterator[tuple[Host, MockClock]]:
    """Connect a client to a gateway whose clock a test can let jump: then its event loop seems to have stood still."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    async with AsyncExitStack() as stack:
        stack.enter_context(within(BOUND))
        stack.enter_context(ours)
        group = await stack.enter_async_context(open_servers(in_process("slow", slow(trio.Event(), begun))))
        nursery = await stack.enter_async_context(trio.open_nursery())
        shared, heart = _session.Gateway(Front(group, "{server}_{tool}")), _output.Heart()
        assert shared.front is not None
        nursery.start_soon(shared.front.follow, shared.changed)
        host = Host(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
        host.connection = _serve.ClientConnection(shared, heart, ours.fileno(), ours.fileno(), "client")
        host.descriptor = theirs.fileno()
        nursery.start_soon(host.connection.run)
        nursery.start_soon(host.read)
        await host.begin()
        await host.result("tools/list")
        try:
            yield host, clock
        finally:
            # The cancellation comes last: after it, a checkpoint would replace the error of a failed assertion.
            await trio.aclose_forcefully(host.stream)
            nursery.cancel_scope.cancel()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if a block takes longer, by the clock on the wall. Deadlines need one that goes on by itself."""
    token = trio.lowlevel.current_trio_token()
    with trio.CancelScope() as scope:
        timer = threading.Timer(seconds, token.run_sync_soon, [scope.cancel])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
    assert not scope.cancelled_caught, "it took too long"


def wait_call(host: Host, name: str) -> dict[str, Any]:
    return host.request("tools/call", {"name": "mcp__slow__wait", "arguments": {"name": name}})


def cancel(request: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request["id"]}}


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition while no time passes."""
    for _ in range(3000):
        if condition():
            return
        await wait_all_tasks_blocked(0.01)
    raise AssertionError("it did not happen")


async def test_after_a_gap_requests_begin_only_behind_the_cancellations(mock_clock: MockClock) -> None:
    """Cancellations may arrive after the requests that they are about; the answer to a ping comes behind them."""
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        given_up, wanted = wait_call(host, "given up"), wait_call(host, "wanted")
        clock.jump(_output.BEAT + _output.GAP + 0.1)
        await host.send(given_up, wanted)
        await until(lambda: host.asked)
        assert begun == []
        [fence] = host.asked
        await host.send(cancel(given_up), {"jsonrpc": "2.0", "id": fence["id"], "result": {}})
        await until(lambda: begun)
        assert begun == ["wanted"]


async def test_a_client_that_does_not_pass_the_fence_hears_that_nothing_was_sent(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        request = wait_call(host, "late")
        clock.jump(_output.BEAT + _output.GAP + 0.1)
        await host.send(request)
        await until(lambda: host.asked)
        clock.jump(_serve.FENCE_TIMEOUT)
        answer = await host.answer_to(request)
        assert outcome_of(answer["error"]) == ("not_sent", "ServerUnavailable")
        assert begun == []
        await host.send(wait_call(host, "later"))
        await until(lambda: begun)
        assert begun == ["later"]


async def test_a_client_that_does_not_pass_the_fence_can_begin_its_session(mock_clock: MockClock) -> None:
    """Some clients answer no ping before, and without an answer none could go on."""
    async with across_a_gap([]) as (host, clock):
        request = host.request("initialize", {"protocolVersion": LEGACY, "capabilities": {}})
        clock.jump(_output.BEAT + _output.GAP + 0.1)
        await host.send(request)
        await until(lambda: host.asked)
        clock.jump(_serve.FENCE_TIMEOUT)
        assert (await host.answer_to(request))["result"]["protocolVersion"] == LEGACY


async def test_without_a_gap_there_is_no_fence(mock_clock: MockClock) -> None:
    begun: list[str] = []
    async with across_a_gap(begun) as (host, clock):
        for _ in range(4):
            clock.jump(_output.BEAT)
            await wait_all_tasks_blocked()
            host.connection._heart.look()
        await host.send(wait_call(host, "now"))
        await until(lambda: begun)
        assert host.asked == []


class Turns(trio.abc.Instrument):
    """Counts the turns of the event loop."""

    number = 0

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1


@pytest.mark.parametrize("step", ["_take_line", "take", "feed"])
async def test_other_tasks_run_between_the_steps_for_one_client(
    step: str, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is held and then begun, and a long one comes in parts. Here no step takes more time than it may."""
    monkeypatch.setattr(_tasks, "STEP_SECONDS", -1.0)
    monkeypatch.setattr(_serve, "BURST", 1)
    owner: Any = {"feed": LineSplitter, "take": _session.GatewaySession, "_take_line": _serve.ClientConnection}[step]
    original, seen, turns = getattr(owner, step), list[int](), Turns()

    def note(*args: Any, **options: Any) -> Any:
        seen.append(turns.number)
        return original(*args, **options)

    async with across_a_gap([]) as (host, _):
        trio.lowlevel.add_instrument(turns)
        monkeypatch.setattr(owner, step, note)
        long = {"jsonrpc": "2.0", "method": "long", "params": {"text": "x" * 150_000}}
        pings = [host.request("ping") for _ in range(50)]
        await (host.send(long) if step == "feed" else host.send(*pings))
        while len(seen) < (3 if step == "feed" else 50):
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(turns)
    assert len({*seen}) == len(seen)


async def test_a_client_that_does_not_read_is_disconnected_and_no_other_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_budget, "WAITING", 1024 * 1024)
    monkeypatch.setattr(_output, "STALLED", 0.0)
    async with gateway(tmp_path, in_process("n", notes())) as door:
        other = await door.connect()
        deaf = socket.socket(socket.AF_UNIX)
        with deaf:
            deaf.connect(door.path)
            deaf.setblocking(False)
            host = Host(trio.SocketStream(trio.socket.from_stdlib_socket(deaf)))
            params = {"protocolVersion": "2025-11-25", "capabilities": {}}
            await host.send(host.request("initialize", params))
            text = "x" * 100_000

            async def ask_and_never_read() -> None:
                while True:
                    await host.send(host.request("tools/call", {"name": "n_echo", "arguments": {"text": text}}))

            with trio.fail_after(BOUND), pytest.raises(trio.BrokenResourceError):
                await ask_and_never_read()
        assert "client 2 is disconnected: it does not read" in caplog.text
        assert await other.call("n_echo", text="fine") == "fine"


async def test_a_message_over_the_limit_ends_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_serve, "MAX_MESSAGE", 1000)
    async with gateway(tmp_path, in_process("n", notes())) as door:
        host, other = await door.connect(), await door.connect()
        await host.send(host.request("tools/call", {"name": "n_echo", "arguments": {"text": "x" * 1000}}))
        with trio.fail_after(BOUND):
            await host.ended.wait()
        assert "client 1 is disconnected: one of its messages has more than 1000 bytes" in caplog.text
        assert await other.call("n_echo", text="fine") == "fine"


async def test_more_clients_than_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_serve, "MAX_CLIENTS", 1)
    async with gateway(tmp_path, in_process("n", notes())) as door:
        host = await door.connect()
        second = await door.connect(begin=False)
        with trio.fail_after(BOUND):
            await second.ended.wait()
        assert "client 2 is refused" in caplog.text
        assert await host.call("n_echo", text="fine") == "fine"


async def test_a_client_that_has_closed_its_side_gets_its_answers(tmp_path: Path) -> None:
    gate = trio.Event()
    begun: list[str] = []
    async with gateway(tmp_path, in_process("slow", slow(gate, begun))) as door:
        host = await door.connect()
        request = host.request("tools/call", {"name": "slow_wait", "arguments": {"name": "a"}})
        await host.send(request)
        stream: Any = host.stream
        await stream.send_eof()
        await eventually(lambda: begun == ["a"])
        gate.set()
        assert "result" in await host.answer_to(request)
        with trio.fail_after(BOUND):
            await host.ended.wait()


async def test_the_socket_is_for_this_user_alone_and_goes_with_the_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("n", notes())) as door:
        assert stat.S_IMODE(os.lstat(door.path).st_mode) == 0o600
        assert os.listdir(tmp_path) == ["g.sock"]
    assert os.listdir(tmp_path) == []


async def test_a_second_gateway_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with gateway(tmp_path, in_process("n", notes())) as door:
        with pytest.raises(FileExistsError, match="another process serves there"):
            await serve(door.group, path=door.path)
        host = await door.connect()
        assert await host.call("n_echo", text="fine") == "fine"


async def test_another_kind_of_group_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    mistake: Any = {}
    with pytest.raises(TypeError, match=r"serve\(\) takes a group of mcp_actors\.open_servers, not dict$"):
        await serve(mistake, path=tmp_path / "a.sock")
    assert os.listdir(tmp_path) == []


def test_on_asyncio_nothing_is_opened_either(tmp_path: Path) -> None:
    mistake: Any = {}
    with pytest.raises(RuntimeError, match=r"^serve\(\): needs trio and was called on asyncio; run mcp-actors serve"):
        asyncio.run(serve(mistake, path=tmp_path / "a.sock"))
    assert os.listdir(tmp_path) == []


async def test_the_socket_of_a_dead_gateway_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    at = tmp_path / "g.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(at))
    async with gateway(tmp_path, in_process("n", notes())) as door:
        assert await (await door.connect()).call("n_echo", text="fine") == "fine"
    for plant in (lambda: at.write_text("mine"), at.mkdir, lambda: at.symlink_to(tmp_path / "other")):
        plant()
        async with open_servers(in_process("n", notes())) as group:
            with pytest.raises(
                OSError, match=r"is not a socket of this user .*; remove it, or choose another"
            ) as caught:
                await serve(group, path=at)
            assert type(caught.value) is OSError
        at.rmdir() if at.is_dir() else at.unlink()


async def test_a_gateway_without_clients_ends_after_its_idle_timeout(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_servers(in_process("n", notes())) as group, trio.open_nursery() as nursery:
        at = str(tmp_path / "g.sock")
        ended = trio.Event()

        async def run(task_status: trio.TaskStatus[None]) -> None:
            await serve(group, path=at, idle_timeout=60, task_status=task_status)
            ended.set()

        await nursery.start(run)
        stream = await trio.open_unix_socket(at)
        await wait_all_tasks_blocked()
        mock_clock.jump(100)
        await wait_all_tasks_blocked(0.01)
        assert not ended.is_set()
        await stream.aclose()
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(59)
        await wait_all_tasks_blocked(0.01)
        assert not ended.is_set()
        mock_clock.jump(2)
        with trio.fail_after(BOUND):
            await ended.wait()


# --- the command, against real processes ------------------------------------------------------------------------------


def write_file(path: Path, **servers: tuple[str, ...]) -> Path:
    """Write a configuration with scripted servers, each with these flags."""
    entries = {}
    for name, flags in servers.items():
        program, args = command(*flags)
        entries[name] = {"command": program, "args": list(args)}
    file = path / "servers.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    return file


class Command:
    """The command ``serve --stdio`` in a process of its own."""

    def __init__(self, *words: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [interpreter(), "-m", "mcp_actors", "serve", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._number = 0
        self.notices: list[Any] = []

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request and return the answer."""
        self._number += 1
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer
            self.take(answer)
        raise AssertionError("the process has ended")

    def take(self, message: Any) -> None:
        """Keep a log message."""
        if message.get("method") == "notifications/message":
            self.notices.append(message)

    def begin(self) -> Any:
        return self.ask("initialize", protocolVersion="2025-11-25", capabilities={})

    def end(self) -> tuple[int, str]:
        """Close stdin; return the exit code and what it wrote to stderr."""
        _, said = self.process.communicate(timeout=BOUND)
        return self.process.returncode, said


def test_the_command_serves_a_file_over_stdin_and_ends_with_its_client(tmp_path: Path) -> None:
    command = Command("--config", str(write_file(tmp_path, a=(), b=())), "--stdio")
    assert command.begin()["result"]["serverInfo"]["name"] == "mcp-actors"
    names = [tool["name"] for tool in command.ask("tools/list")["result"]["tools"]]
    assert {"a_echo", "b_echo"} <= set(names)
    assert command.ask("tools/call", name="b_add", arguments={"a": 1, "b": 2})["result"]["content"][0]["text"] == "3"
    code, said = command.end()
    assert code == 0
    assert "Traceback" not in said


def test_one_server_of_a_file_is_served_under_its_own_names(tmp_path: Path) -> None:
    command = Command("--config", f"{write_file(tmp_path, a=(), b=())}#b", "--stdio")
    command.begin()
    assert "echo" in [tool["name"] for tool in command.ask("tools/list")["result"]["tools"]]
    command.end()


def test_log_messages_of_servers_reach_the_client_with_the_name_of_the_server(tmp_path: Path) -> None:
    """The command opens the group, so it gets them; ``logger`` names the server."""
    serving = Command("--config", str(write_file(tmp_path, a=())), "--stdio")
    serving.begin()
    assert serving.process.stdin is not None
    serving.process.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    serving.ask("tools/list")
    serving.ask("tools/call", name="a_chatter", arguments={"number": 1})
    assert serving.process.stdout is not None
    while not serving.notices:
        serving.take(json.loads(serving.process.stdout.readline()))
    assert [each["params"] for each in serving.notices] == [{"level": "info", "logger": "a", "data": 0}]
    assert "unknown level 'loud'" in serving.ask("logging/setLevel", level="loud")["error"]["message"]
    serving.end()


def test_initialize_is_answered_while_a_server_hangs_and_the_others_serve(tmp_path: Path) -> None:
    command = Command("--config", str(write_file(tmp_path, a=(), hangs=("--never-answer",))), "--stdio")
    assert "result" in command.begin()
    answer = command.ask("tools/call", name="a_add", arguments={"a": 1, "b": 2})
    assert answer["result"]["content"][0]["text"] == "3"
    command.process.terminate()
    command.end()


@pytest.mark.parametrize("what", ["missing", "broken", "empty", "unknown server"])
def test_why_nothing_can_be_served_is_said_on_stderr_and_to_the_client(what: str, tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    if what == "broken":
        file.write_text("{")
    elif what == "empty":
        file.write_text('{"mcpServers": {}}')
    elif what == "unknown server":
        file = Path(f"{write_file(tmp_path, a=())}#c")
    command = Command("--config", str(file), "--stdio")
    error = command.begin()["error"]
    assert outcome_of(error) == ("not_sent", "ConfigError")
    code, said = command.end()
    assert (code, said) == (78, f"error: {error['message']}\n")
    assert "servers.json" in error["message"]


def test_the_command_says_when_its_socket_is_ready_and_ends_on_a_signal(tmp_path: Path) -> None:
    at = tmp_path / "g.sock"
    command = Command("--config", str(write_file(tmp_path, a=())), "--socket", str(at))
    assert command.process.stdout is not None
    assert command.process.stdout.readline() == "ready\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(at))
        client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert json.loads(client.recv(1000))["result"] == {}
        command.process.send_signal(signal.SIGTERM)
        code, said = command.end()
    assert code == 0
    assert not at.exists()
    assert not re.search("Traceback", said)


def test_a_daemon_is_reloaded_and_stopped_over_a_socket_of_its_own(tmp_path: Path) -> None:
    """A reload adds the servers that the file has now, and starts them."""
    file = write_file(tmp_path, a=())
    clients, commands = tmp_path / "g.sock", tmp_path / "g.ctl"
    daemon = Command("--config", str(file), "--socket", str(clients), "--control", str(commands))
    assert daemon.process.stdout is not None
    assert daemon.process.stdout.readline() == "ready\n"
    assert stat.S_IMODE(os.lstat(commands).st_mode) == 0o600

    def do(what: str) -> list[Any]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(BOUND)
            client.connect(str(commands))
            client.sendall(json.dumps({"do": what, "file": str(file), "servers": []}).encode() + b"\n")
            with client.makefile() as lines:
                return [json.loads(line) for line in lines if "waiting" not in line]

    write_file(tmp_path, a=(), b=())
    assert do("reload")[0]["reload"]["added"] == ["b"]
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(BOUND)
        client.connect(str(clients))
        client.sendall(
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
            b'"capabilities":{}}}\n{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b_add",'
            b'"arguments":{"a":1,"b":2}}}\n'
        )
        with client.makefile() as lines:
            answers = {(answer := json.loads(line))["id"]: answer for line in (next(lines), next(lines))}
    assert answers[2]["result"]["content"][0]["text"] == "3"
    file.write_text("{")
    assert "not valid JSON" in do("reload")[0]["error"]
    assert do("stop") == []
    code, _ = daemon.end()
    assert (code, clients.exists(), commands.exists()) == (0, False, False)


def test_why_a_socket_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    file, at = write_file(tmp_path, a=()), tmp_path / "g.sock"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(at))
        taken.listen()
        code, said = Command("--config", str(file), "--socket", str(at)).end()
    assert code == 1
    assert f"error: cannot serve at {at}: another process serves there" in said
    code, said = Command("--config", str(file), "--socket", str(tmp_path / ("x" * 108))).end()
    assert code == 1
    assert "path too long" in said
    assert "Traceback" not in said
    code, said = Command("--config", str(file), "--socket", str(at), "--control", str(tmp_path)).end()
    assert (code, f"error: cannot serve at {tmp_path}: " in said) == (1, True)


def test_the_command_needs_to_know_where_its_clients_are(tmp_path: Path) -> None:
    code, said = Command("--config", str(write_file(tmp_path, a=()))).end()
    assert code == 2
    assert "--stdio for one over stdin and stdout, --socket PATH for many" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("127.0.0.1:0",), 2, "--socket 127.0.0.1:0 is on a network, where anyone could call; add --secret-file FILE"),
        (
            ("/x.sock", "--secret-file", "secret"),
            2,
            "--secret-file is for --socket HOST:PORT; a unix socket is for this",
        ),
        (
            ("127.0.0.1:0", "--secret-file", "none"),
            78,
            "none cannot be read (No such file or directory); check the path",
        ),
        (("127.0.0.1:0", "--secret-file", "open"), 78, "open can be read by other users (-rw-r--r--); run: chmod 600"),
        (("127.0.0.1:0", "--secret-file", "short"), 78, "short: the secret has fewer than 16 characters"),
        (("nowhere.invalid:7000", "--secret-file", "secret"), 1, "cannot serve at nowhere.invalid:7000: "),
        (("host..:1", "--secret-file", "secret"), 1, "at host..:1: 'host..' is not a valid host name; write a name"),
        ((f"{'x' * 100}:1", "--secret-file", "secret"), 1, "xx is not a valid host name; write a name"),
        (("\udcff:1", "--secret-file", "secret"), 1, "'\\udcff' is not a valid host name; write a name"),
        (("127.0.0.1:99999", "--secret-file", "secret"), 2, "--socket address '127.0.0.1:99999' is neither a path nor"),
    ],
)
def test_the_command_listens_on_a_network_only_with_a_secret(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    for name, content, mode in (("secret", "x" * 32, 0o600), ("open", "x" * 32, 0o644), ("short", "x", 0o600)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    words = tuple(str(tmp_path / word) if (tmp_path / word).exists() else word for word in words)
    ended, text = Command("--config", str(write_file(tmp_path, a=())), "--socket", *words).end()
    assert said in text
    assert (ended, "Traceback" in text) == (code, False)
