"""``mcp-actors serve --http`` as a process: its address, its token, and its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mcp_actors import Http, ServerConfig, open_servers
from mcp_actors.cli._run import run

from ...forkserver import interpreter, run_python, start_python
from ...servers.processes import BOUND, eventually
from ...source import ROOT
from ..daemons import counting
from .doors import TOKEN, Peer, text_of


@contextmanager
def serving(
    folder: Path,
    *flags: str,
    entries: dict[str, Any] | None = None,
    program: Sequence[str] = ("-m", "mcp_actors"),
    **options: Any,
) -> Iterator[Any]:
    """Serve over HTTP in a process; give the process, the address that it has printed, and its token.

    `options` are those of `start_python`.
    """
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries or {"a": counting(folder / "a")}}))
    words = (*program, "serve", "--config", str(file), *flags)
    said, say = os.pipe()
    with open(said) as printed, (folder / "log").open("wb") as log:
        env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        try:
            process = start_python(*words, cwd=ROOT, stdout=say, stderr=log, env=env, **options)
        finally:
            os.close(say)
        with process:
            url, _, token = printed.readline().strip().partition("#token=")
            try:
                yield process, url, token
            finally:
                process.kill()


@asynccontextmanager
async def peers(url: str, count: int = 1) -> AsyncIterator[list[Peer]]:
    """Connect so often."""
    host, port = url.removeprefix("http://").strip("/").split(":")
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(await trio.open_tcp_stream(host, int(port))) for _ in range(count)]
        yield [Peer(stream, f"{host}:{port}") for stream in streams]


async def test_it_prints_its_address_with_a_token_that_lasts(tmp_path: Path) -> None:
    with serving(tmp_path, "--http", "127.0.0.1:0") as (_, url, token):
        config = ServerConfig("all", Http(f"{url}mcp", auth=token))
        async with open_servers(config) as servers:
            assert text_of(await servers["all"].call_tool("a_run", {"id": 1})) == "1"
    with serving(tmp_path, "--http", "127.0.0.1:0") as (_, _, again):
        assert again == token
    [file] = (tmp_path / "state" / "mcp-actors").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_token_of_the_user_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("ann a-token-of-ann-0001\nbob a-token-of-bob-0001\n")
    file.chmod(0o600)
    with serving(tmp_path, "--http", "127.0.0.1:0", "--token-file", str(file)) as (_, url, token):
        assert token == ""
        for given, status in (("a-token-of-bob-0001", 200), ("a-token-of-eve-0001", 401)):
            async with peers(url) as [peer]:
                assert (await peer.fetch("GET", "/status", token=given)).status == status


async def test_sigterm_lets_the_balancer_see_it_and_calls_be_finished(tmp_path: Path) -> None:
    """The order: not ready, then no new connections, then the answers, then the end with 0."""
    server = tmp_path / "slow.py"
    server.write_text(
        "import time\nfrom mcp.server.mcpserver import MCPServer\nserver = MCPServer('slow')\n"
        "@server.tool()\ndef wait() -> str:\n    open('begun', 'w').close()\n    time.sleep(1.5)\n    return 'done'\n"
        "server.run()\n"
    )
    entries = {"slow": {"command": interpreter(), "args": [str(server)], "cwd": str(tmp_path)}}
    with serving(tmp_path, "--http", "127.0.0.1:0", "--no-token", entries=entries) as (program, url, _):
        async with peers(url, 3) as [busy, probe, idle]:
            await busy.ask("tools/list", token=None)
            for _ in range(2):
                assert (await probe.fetch("GET", "/readyz")).status == 200
            await busy.post_modern("tools/call", {"name": "slow_wait", "arguments": {}}, token=None)
            await eventually((tmp_path / "begun").exists)
            program.send_signal(signal.SIGTERM)
            with trio.fail_after(BOUND):
                while (reply := await probe.fetch("GET", "/readyz")).status == 200:
                    pass
            assert (reply.status, reply.body) == (503, b"")
            assert await idle.wait_closed() == b""
            with pytest.raises(OSError, match="all attempts to connect"):
                await peers(url).__aenter__()
            reply = await busy.read()
            assert reply.json["result"]["content"][0]["text"] == "done"
        assert await trio.to_thread.run_sync(program.wait) == 0


async def test_a_second_sigterm_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--http", "127.0.0.1:0", "--no-token") as (program, url, _):
        async with peers(url) as [probe]:
            for _ in range(2):
                await probe.fetch("GET", "/readyz")  # so that it waits for the balancer
        for _ in range(2):
            program.send_signal(signal.SIGTERM)
            await trio.sleep(0.2)
        with trio.fail_after(BOUND):
            assert await trio.to_thread.run_sync(program.wait) == 128 + signal.SIGTERM


async def test_a_required_server_that_is_down_is_missing_wherever_a_gateway_says_if_it_is_ready(tmp_path: Path) -> None:
    """``/readyz``, ``/status``, ``/metrics`` and the control socket; also after the file has changed."""
    gone = {"command": "/nowhere/at-all", "mcp_actors": {"required": True}}
    lazy = {"command": "/nowhere/either", "mcp_actors": {"connect": "lazy"}}
    entries = {"a": counting(tmp_path / "a"), "gone": gone, "lazy": lazy}
    with tempfile.TemporaryDirectory() as runtime:
        path = Path(runtime, "mcp-actors", "n.ctl")
        path.parent.mkdir(0o700)

        async def ask(verb: str) -> Any:
            words = ["-m", "mcp_actors", verb, "--config", str(tmp_path / "mcp.json"), "--json"]
            env = {**os.environ, "XDG_RUNTIME_DIR": runtime}
            asking = partial(run_python, *words, cwd=ROOT, timeout=BOUND, env=env)
            return json.loads((await trio.to_thread.run_sync(asking)).stdout)

        flags = ("--http", "127.0.0.1:0", "--no-token", "--control", str(path))
        with serving(tmp_path, *flags, entries=entries) as (_, url, _):
            async with peers(url) as [peer]:
                await peer.ask("tools/list", token=None)  # now the lists are known
                assert (await peer.fetch("GET", "/readyz")).status == 503
                shown = (await peer.fetch("GET", "/status")).json
                assert (shown["ready"], [*shown["missing"]]) == (False, ["gone"])
                assert 'mcp_server_required{server="gone"} 1.0' in (await peer.fetch("GET", "/metrics")).text
                [asked] = await ask("status")
                assert (asked["ready"], [*asked["missing"]]) == (False, ["gone"])
                entries["gone"] = {"command": "/nowhere/at-all"}
                (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
                await ask("reload")
                assert (await peer.fetch("GET", "/readyz")).status == 200
                [asked] = await ask("status")
                assert (asked["ready"], asked["missing"]) == (True, {})


def act_as_systemd() -> None:
    """Pass the standard input on as the number 3; the variables name the process that executes the command."""
    os.dup2(0, 3)
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}


async def test_it_uses_the_socket_that_systemd_passes(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        flags = ("--http", "systemd", "--no-token")
        with serving(tmp_path, *flags, stdin=listener.fileno(), preexec_fn=act_as_systemd) as (_, url, _):
            assert url == f"http://127.0.0.1:{listener.getsockname()[1]}/"
            async with peers(url) as [peer]:
                assert (await peer.fetch("GET", "/healthz")).status == 200


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is missing")
async def test_systemd_starts_it_at_the_first_connection_which_it_serves(tmp_path: Path) -> None:
    file, token = tmp_path / "mcp.json", tmp_path / "token"
    file.write_text(json.dumps({"mcpServers": {"a": counting(tmp_path / "a")}}))
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    host = f"127.1.{os.getpid() // 256 % 256}.{os.getpid() % 256}"  # the port must be named, and be free
    words = [sys.executable, "-m", "mcp_actors", "serve", "--config", str(file), "--http", "systemd"]
    command = ["systemd-socket-activate", f"--listen={host}:8000", *words, "--token-file", str(token)]
    start: Any = partial(subprocess.Popen, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with await trio.to_thread.run_sync(start, command) as program:
        try:
            assert program.stdout is not None
            assert program.stderr is not None
            said = await trio.to_thread.run_sync(program.stderr.readline)
            assert said == f"Listening on {host}:8000 as 3.\n".encode()
            async with peers(f"http://{host}:8000/") as [peer]:
                assert await peer.call("a_run", id=1) == "1"
            assert await trio.to_thread.run_sync(program.stdout.readline) == f"http://{host}:8000/\n".encode()
            program.send_signal(signal.SIGTERM)
            with trio.fail_after(BOUND):
                assert await trio.to_thread.run_sync(program.wait) == 0
        finally:
            program.kill()


TAKEN: Final = "127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--http", "8000"], 2, "is not HOST:PORT; write, for example, 127.0.0.1:8000"),
        (["--http", "127.0.0.1:99999"], 2, "is not HOST:PORT; write, for example, 127.0.0.1:8000"),
        (["--http", "0.0.0.0:0", "--no-token"], 2, "other machines could connect; use --token-file"),
        (
            ["--http", "127.0.0.1:0", "--no-token", "--token-file", "x"],
            2,
            "--token-file and --no-token contradict",
        ),
        (["--http", "127.0.0.1:0", "--stdio"], 2, "--stdio and --http contradict each other; give one of them"),
        (["--http", "127.0.0.1:0", "--socket", "x"], 2, "--http and --socket contradict each other"),
        (["--http", "127.0.0.1:0", "--secret-file", "x"], 2, "--http and --secret-file contradict each other"),
        (["--http", "127.0.0.1:0", "--idle", "0"], 2, "--http and --idle contradict each other"),
        (["--stdio", "--socket", "x"], 2, "--stdio and --socket contradict each other; give one of them"),
        (["--stdio", "--secret-file", "x"], 2, "--stdio and --secret-file contradict each other"),
        (["--stdio", "--idle", "5"], 2, "--stdio and --idle contradict each other"),
        (["--stdio", "--no-token"], 2, "need --http"),
        (["--http", "systemd"], 2, "systemd has not passed one socket"),
        (["--http", "127.0.0.1:0", "--config", "none.json"], 78, "none.json"),
        (["--http", TAKEN], 1, "Address already in use; stop the program that serves there, or choose another address"),
        (["--socket", "nowhere/x.sock"], 1, "No such file or directory; create its folder first"),
        (["--http", "a b:1"], 2, "is not HOST:PORT; write, for example, 127.0.0.1:8000"),
        (["--http", "host..:1"], 1, "cannot serve at host..:1: 'host..' is not a valid host name; write a name"),
        (["--http", f"{'x' * 300}:1"], 1, "is not a valid host name; write a name or an address of this machine"),
        (["--http", "127.0.0.1:0", "--token-file", "open.token"], 78, "can be read by other users"),
    ],
)
def test_a_wrong_command_line_says_what_to_do(
    flags: Sequence[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mcp_actors.cli._http.log_to_stderr", lambda: None)  # the log of this process stays as it is
    monkeypatch.setattr("mcp_actors.cli._gateway.log_to_stderr", lambda: None)
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"a": counting(tmp_path / "a")}}))
    (tmp_path / "open.token").write_text("0123456789abcdef\n")
    (tmp_path / "open.token").chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [flag.format(port=taken.getsockname()[1]) for flag in flags]
        given += [] if "--config" in given else ["--config", "mcp.json"]
        assert run(["serve", *given]) == code
    assert words in " ".join(capsys.readouterr().err.split())
