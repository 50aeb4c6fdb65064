"""Servers in a sandbox, on the kernel of this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_actors import ConfigError, ConnectFailed, ServerConfig, Stdio, load_config, open_servers
from mcp_actors.config import Sandbox, dump_config
from mcp_actors.servers import ServerRef
from mcp_actors.servers.transports.stdio import _landlock, _sandbox

from ...messages import Said
from ...node.packages import node, program
from .. import probing_server
from ..groups import NEVER
from ..links import text_of

HAS_LANDLOCK = sys.platform == "linux" and _landlock.version() >= _sandbox.NEEDS_SIGNALS
needs_landlock = pytest.mark.skipif(not HAS_LANDLOCK, reason="the kernel cannot restrict all that a sandbox does")

REFUSED = "PermissionError"


def probing(sandbox: Sandbox | None) -> ServerConfig:
    """Configure the server that finds out what it may do."""
    folder = os.path.dirname(probing_server.__file__)
    if sandbox is not None:
        sandbox = Sandbox(
            read=(*sandbox.read, folder, *interpreter()), write=sandbox.write, tcp=sandbox.tcp, signals=sandbox.signals
        )
    command = [sys.executable, "-I", "-S", "-B", probing_server.__file__]
    return ServerConfig("probing", Stdio(command[0], command[1:], sandbox=sandbox), protocol="legacy", restart=NEVER)


def interpreter() -> list[str]:
    """Return the folders of this interpreter, for systems on which it is installed in a place of its own."""
    return [folder for folder in (sys.base_prefix, sys.prefix) if not folder.startswith("/usr")]


async def outcome(ref: ServerRef, *what: Any) -> str:
    return text_of(await ref.call_tool("evaluate", {"what": what}))


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number: int = listener.getsockname()[1]
        return number


@needs_landlock
async def test_only_the_content_of_the_given_files_can_be_read_and_changed(tmp_path: Path) -> None:
    """C-20: by the server and by its children."""
    secret, shown, own = tmp_path / "secret", tmp_path / "shown", tmp_path / "own"
    for folder in (secret, shown, own):
        folder.mkdir()
        (folder / "file").write_text("text")
    async with open_servers(probing(Sandbox(read=[shown], write=[own])), strict=True) as servers:
        ref = servers["probing"]
        for action in ("read", "write", "truncate", "remove", "child reads"):
            assert await outcome(ref, action, str(secret / "file")) in (REFUSED, "CalledProcessError")
        assert await outcome(ref, "list", str(secret)) == REFUSED
        assert await outcome(ref, "make", str(secret / "new")) == REFUSED
        assert await outcome(ref, "read", str(shown / "file")) == "done"
        assert await outcome(ref, "child reads", str(shown / "file")) == "done"
        for action in ("write", "truncate", "remove"):
            assert await outcome(ref, action, str(shown / "file")) == REFUSED
        for action in ("read", "write", "truncate", "remove"):
            assert await outcome(ref, action, str(own / "file")) == "done"
        assert await outcome(ref, "make", str(own / "new")) == "done"
    assert (secret / "file").read_text() == (shown / "file").read_text() == "text"


@needs_landlock
async def test_only_the_given_ports_can_be_connected_to_or_listened_on(port: int, free_port: int) -> None:
    """C-20."""
    async with open_servers(probing(Sandbox(tcp=[port])), strict=True) as servers:
        assert await outcome(servers["probing"], "connect", port) == "done"
        assert await outcome(servers["probing"], "connect", free_port) == REFUSED
        assert await outcome(servers["probing"], "listen", free_port) == REFUSED
    async with open_servers(probing(Sandbox(tcp=[free_port])), strict=True) as servers:
        assert await outcome(servers["probing"], "connect", port) == REFUSED
        assert await outcome(servers["probing"], "listen", free_port) == "done"
    async with open_servers(probing(Sandbox(tcp=None)), strict=True) as servers:
        assert await outcome(servers["probing"], "connect", port) == "done"


@needs_landlock
async def test_processes_outside_can_be_neither_signaled_nor_have_their_environment_read() -> None:
    """C-20: signals unless that is allowed."""
    environment = f"/proc/{os.getpid()}/environ"
    async with open_servers(probing(Sandbox()), strict=True) as servers:
        assert await outcome(servers["probing"], "signal", os.getpid()) == REFUSED
        assert await outcome(servers["probing"], "read", environment) == REFUSED
    async with open_servers(probing(Sandbox(signals=True)), strict=True) as servers:
        assert await outcome(servers["probing"], "signal", os.getpid()) == "done"
        assert await outcome(servers["probing"], "read", environment) == REFUSED


@needs_landlock
async def test_modes_of_files_are_not_restricted_as_the_repr_says(tmp_path: Path) -> None:
    """C-20: a limit of the kernel, which readers of a configuration must not learn from an accident."""
    (tmp_path / "file").touch(0o644)
    async with open_servers(probing(Sandbox()), strict=True) as servers:
        assert await outcome(servers["probing"], "chmod", str(tmp_path / "file")) == "done"
    assert "does not restrict UDP, unix sockets with a path, or modes and times of files" in repr(Sandbox())


async def test_without_a_sandbox_nothing_is_restricted(tmp_path: Path, port: int) -> None:
    (tmp_path / "file").write_text("text")
    async with open_servers(probing(None), strict=True) as servers:
        for what in (("read", str(tmp_path / "file")), ("connect", port), ("signal", os.getpid())):
            assert await outcome(servers["probing"], *what) == "done"


@needs_landlock
async def test_a_server_of_a_virtual_environment_needs_no_more_than_its_command() -> None:
    """C-20: its packages, its interpreter and the files of the system are found."""
    command = str(Path(sys.prefix) / "bin" / "mcp-server-time")
    async with open_servers(ServerConfig("time", Stdio(command, sandbox=Sandbox())), strict=True) as servers:
        result = await servers["time"].call_tool("get_current_time", {"timezone": "Europe/Paris"})
        assert not result.is_error


@needs_landlock
async def test_a_node_server_runs_with_its_packages_and_node_itself(npm_packages: None) -> None:
    """C-20."""
    server = program("@modelcontextprotocol/server-everything", "dist/index.js")
    sandbox = Sandbox(read=[server.parents[3]])
    transport = Stdio(node(), [str(server), "stdio"], sandbox=sandbox)
    async with open_servers(ServerConfig("everything", transport), strict=True) as servers:
        assert text_of(await servers["everything"].call_tool("echo", {"message": "hello"})) == "Echo: hello"


@needs_landlock
async def test_a_refusal_at_the_start_is_explained(said: Said, tmp_path: Path) -> None:
    """C-20."""
    script = tmp_path / "server.py"
    script.write_text("print(1)")
    transport = Stdio("/bin/sh", ["-c", f"cat {script}"], sandbox=Sandbox(tcp=[443]))
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(ServerConfig("files", transport, restart=NEVER), strict=True):
            pytest.fail("it started")
    said("a sandbox that refuses", str(caught.value), folder=tmp_path)


@pytest.mark.parametrize(
    ("version", "options", "row"),
    [
        (0, {}, "a kernel without Landlock"),
        (2, {"tcp": None, "signals": True}, "a kernel that cannot restrict truncation"),
        (3, {"signals": True}, "a kernel that cannot restrict TCP"),
        (5, {}, "a kernel that cannot restrict signals"),
    ],
)
async def test_a_kernel_that_cannot_do_it_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, said: Said, version: int, options: dict[str, Any], row: str
) -> None:
    """C-20: and the server is not started without its sandbox."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(_landlock, "version", lambda: version)
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(ServerConfig("a", Stdio("true", sandbox=Sandbox(**options))), strict=True):
            pytest.fail("it started")
    said(row, str(caught.value))
    assert caught.value.hopeless


async def test_a_system_without_landlock_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """C-20."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConnectFailed) as caught:
        _sandbox.confined("a", Sandbox(), "/bin/true", [], {})
    said("a system without Landlock", str(caught.value))


@needs_landlock
async def test_a_path_that_does_not_exist_is_named(said: Said) -> None:
    """C-20: a rule for it would have no effect."""
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(
            ServerConfig("a", Stdio("true", sandbox=Sandbox(read=["/nowhere/at-all"]))), strict=True
        ):
            pytest.fail("it started")
    said("a sandbox with a path that does not exist", str(caught.value))


def test_the_command_of_a_package_runner_gets_its_cache_and_port(tmp_path: Path) -> None:
    """C-20."""
    if not HAS_LANDLOCK:
        pytest.skip("the kernel cannot restrict all that a sandbox does")
    line = _sandbox.confined("a", Sandbox(tcp=[80]), "/usr/bin/uvx", ["uvx", "x"], {"HOME": str(tmp_path)})
    assert f'"{tmp_path}/.cache/uv"' in line[5]
    assert '"tcp": [80, 443]' in line[5]
    assert (tmp_path / ".local" / "share" / "uv").is_dir()
    line = _sandbox.confined("a", Sandbox(tcp=[80]), "/usr/bin/env", ["env"], {"HOME": str(tmp_path)})
    assert '"tcp": [80]' in line[5]


def test_a_file_may_have_a_sandbox_which_is_written_back(tmp_path: Path) -> None:
    """C-20."""
    settings = {"read": [str(tmp_path)], "tcp": [443]}
    loaded = load_config({"mcpServers": {"a": {"command": "x", "mcp_actors": {"sandbox": settings}}}})
    [config] = loaded.servers
    assert config.transport == Stdio("x", sandbox=Sandbox(read=[tmp_path], tcp=[443]))
    dumped = dump_config(loaded.servers)
    assert dumped["mcpServers"]["a"]["mcp_actors"]["sandbox"] == settings


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({"read": "/srv"}, "a sandbox with a single path"),
        ({"read": ["srv"]}, "a sandbox with a relative path"),
        ({"write": [7]}, "a sandbox with a number as a path"),
        ({"tcp": [0]}, "a sandbox with a wrong port"),
        ({"tcp": "443"}, "a sandbox with a port as text"),
        ({"signals": 1}, "a sandbox with a flag that is a number"),
    ],
)
def test_a_wrong_sandbox_is_refused(options: dict[str, Any], row: str, said: Said) -> None:
    with pytest.raises(ConfigError) as caught:
        Sandbox(**options)
    said(row, str(caught.value))


def test_a_wrong_sandbox_of_a_file_is_refused(said: Said) -> None:
    loaded = load_config({"mcpServers": {"a": {"command": "x", "mcp_actors": {"sandbox": {"reads": []}}}}})
    said("a sandbox with an unknown key", str(loaded.errors[0]))


@needs_landlock
def test_the_launcher_needs_the_standard_library_only() -> None:
    """It runs without the packages of this program, before the server's own interpreter."""
    rules = json.dumps({"read": [], "write": [], "tcp": None, "scoped": False})
    command = [sys.executable, "-I", "-S", _landlock.__file__, rules, "/nowhere", "x"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == _landlock.FAILED
    assert result.stderr.startswith("the sandbox cannot run /nowhere: ")
