"""Servers in a sandbox, on the kernel of this machine."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from mcp_actors import ConfigError, ConnectFailed, ServerConfig, Stdio, load_config, open_servers
from mcp_actors.config import Sandbox, dump_config
from mcp_actors.servers import ServerRef
from mcp_actors.transports.stdio import _command, _landlock

from ...copies import needs_packages
from ...forkserver import begin_script
from ...messages import Said
from ...node.packages import node, program
from .. import probing_server
from ..groups import NEVER
from ..links import text_of

HAS_LANDLOCK = (
    sys.platform == "linux"
    and _landlock.version() >= _command.NEEDS_SIGNALS
    and os.uname().machine in _landlock.MACHINES
)
needs_landlock = pytest.mark.skipif(not HAS_LANDLOCK, reason="the kernel cannot restrict all that a sandbox does")

REFUSED = "PermissionError"


def probing(sandbox: Sandbox | None, program: Path | None = None) -> ServerConfig:
    """Configure the server that finds out what it may do, or a program that is a copy of it."""
    folder = os.path.dirname(probing_server.__file__)
    if sandbox is not None:
        sandbox = Sandbox(
            read=(*sandbox.read, folder, *interpreter()), write=sandbox.write, tcp=sandbox.tcp, signals=sandbox.signals
        )
    command = [sys.executable, "-I", "-S", "-B", probing_server.__file__] if program is None else [str(program)]
    return ServerConfig("probing", Stdio(command[0], command[1:], sandbox=sandbox), protocol="legacy", restarts=NEVER)


def interpreter() -> list[str]:
    """Return the folders of this interpreter, for systems on which it is installed in a place of its own."""
    return [folder for folder in (sys.base_prefix, sys.prefix) if not folder.startswith("/usr")]


def copy_to(program: Path, interpreter: str = sys.executable) -> Path:
    """Write the server that finds out what it may do as a program of its own."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(begin_script(interpreter, "-ISB") + Path(probing_server.__file__).read_text())
    program.chmod(0o755)
    return program


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


FAST_OPEN = 1 << 29
KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)


@needs_landlock
async def test_tcp_is_reached_in_no_other_way(port: int) -> None:
    """C-20: MPTCP, SMC, Fast Open, and a port that the system selects."""
    async with open_servers(probing(Sandbox()), strict=True) as servers:
        for what in (
            ("open socket", socket.AF_INET, socket.SOCK_STREAM, 262),
            ("open socket", socket.AF_INET6, socket.SOCK_STREAM, 256),
            ("open socket", 43, socket.SOCK_STREAM),
            ("connect with data", port),
            ("call", "sendmsg", -1, 0, FAST_OPEN),
            ("call", "sendmmsg", -1, 0, 0, FAST_OPEN),
            ("call", "setsockopt", -1, 6, 30, 0, 0),
            ("call", "setsockopt", -1, 6, 31, 0, 0),
            ("call", "syscall", 425, 1, 0),
            ("call", "syscall", (1 << 30) + 39),
            ("listen without a port",),
        ):
            assert (what, await outcome(servers["probing"], *what)) == (what, REFUSED)
        for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
            assert await outcome(servers["probing"], "open socket", family, socket.SOCK_STREAM) == "done"
        assert await outcome(servers["probing"], "call", "setsockopt", -1, 6, 1, 0, 0) == "OSError"


@needs_landlock
async def test_unrestricted_tcp_has_all_its_options(port: int, free_port: int) -> None:
    """With ports, sockets that are not bound can listen, as the page says."""
    async with open_servers(probing(Sandbox(tcp=None)), strict=True) as servers:
        assert await outcome(servers["probing"], "connect with data", port) == "done"
        assert await outcome(servers["probing"], "call", "setsockopt", -1, 6, 30, 0, 0) == "OSError"
    async with open_servers(probing(Sandbox(tcp=[free_port])), strict=True) as servers:
        assert await outcome(servers["probing"], "listen without a port") == "done"


@needs_landlock
@pytest.mark.parametrize("tcp", [(), None])
async def test_nothing_that_processes_share_without_files_is_reached(tcp: tuple[int, ...] | None) -> None:
    """C-20: resource limits of others, System V IPC, message queues and keyrings."""
    calls: list[tuple[Any, ...]] = [
        *((name, 0, 0, 0) for name in ("shmget", "shmctl", "msgget", "msgctl", "semget", "semop", "semctl")),
        *((name, -1, 0, 0, 0, 0) for name in ("shmat", "msgsnd", "msgrcv", "semtimedop")),
        ("syscall", KEYCTL, 0, -3, 0),
    ]
    async with open_servers(probing(Sandbox(tcp=tcp)), strict=True) as servers:
        for call in calls:
            assert (call, await outcome(servers["probing"], "call", *call)) == (call, REFUSED)
        assert await outcome(servers["probing"], "limit", os.getpid()) == REFUSED
        assert await outcome(servers["probing"], "limit", 0) == "done"


@needs_landlock
@pytest.mark.parametrize("signals", [False, True])
async def test_abstract_sockets_of_others_are_not_reached(tmp_path: Path, signals: bool) -> None:
    """C-20: not even by servers that may signal."""
    name = f"mcp_actors{tmp_path}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        async with open_servers(probing(Sandbox(signals=signals)), strict=True) as servers:
            assert await outcome(servers["probing"], "connect to abstract", name) == REFUSED
        async with open_servers(probing(None), strict=True) as servers:
            assert await outcome(servers["probing"], "connect to abstract", name) == "done"


@needs_landlock
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has a second calling convention")
def test_system_calls_of_another_convention_end_the_process() -> None:
    """C-20: their numbers mean other calls, so the filter could not judge them."""
    lines = [
        "import ctypes, mmap",
        "code = mmap.mmap(-1, 4096, prot=7)",
        "code.write(bytes.fromhex('53b814000000cd805bc3'))  # getpid by int 0x80",
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()",
    ]
    command = [sys.executable, "-I", "-S", "-c", "\n".join(lines)]
    sandbox = Sandbox(read=interpreter(), tcp=None, signals=True)
    result = subprocess.run(_command.confined("a", sandbox, sys.executable, command, {}), check=False)
    assert result.returncode in (-signal.SIGSYS, -signal.SIGSEGV)  # the latter in kernels without that convention


@needs_landlock
async def test_a_server_in_its_own_folder_gives_itself_nothing_by_a_restart(tmp_path: Path) -> None:
    """C-20: neither by a link next to its program, nor by a program that names another interpreter."""
    secret, project = tmp_path / "secret", tmp_path / "project"
    (secret / "bin").mkdir(parents=True)
    (secret / "bin" / "file").write_text("text")
    (secret / "bin" / "python").symlink_to(sys.executable)
    program = copy_to(project / ".venv" / "bin" / "server")
    (project / ".venv" / "libexec").symlink_to("/")
    sandbox = Sandbox(write=[project])
    async with open_servers(probing(sandbox, program), strict=True) as servers:
        assert await outcome(servers["probing"], "read", str(secret / "bin" / "file")) == REFUSED
        copy_to(program, str(secret / "bin" / "python"))
        await servers["probing"].restart()
        assert await outcome(servers["probing"], "write", str(project / "new")) == "done"
        assert await outcome(servers["probing"], "read", str(secret / "bin" / "file")) == REFUSED


@needs_landlock
async def test_no_variable_lets_code_or_files_into_the_start_of_a_sandbox(tmp_path: Path) -> None:
    """C-20: the server's own C library gets them. It writes a file for each program that it starts."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("another C library has other variables")
    secret, own = tmp_path / "secret", tmp_path / "own"
    for folder in (secret, own):
        folder.mkdir()
    for folder in (secret, own):
        config = probing(Sandbox(write=[own]))
        assert isinstance(config.transport, Stdio)
        env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(folder / "trace"), "LD_LIBRARY_PATH": str(own)}
        async with open_servers(evolve(config, transport=evolve(config.transport, env=env)), strict=True) as servers:
            assert await outcome(servers["probing"], "list", str(secret)) == REFUSED
    assert list(secret.iterdir()) == []
    [trace] = own.iterdir()
    assert f"search path={own}" in trace.read_text()


@needs_landlock
@pytest.mark.parametrize("field", ["read", "write"])
async def test_a_path_that_the_server_can_make_lead_elsewhere_is_refused(
    tmp_path: Path, said: Said, field: str
) -> None:
    """C-20: a path that stays inside of a folder for writing is allowed."""
    project, secret = tmp_path / "project", tmp_path / "secret"
    (project / "data").mkdir(parents=True)
    secret.mkdir()
    (secret / "file").write_text("text")
    data = project / "data"
    sandbox = Sandbox(write=[project], read=[data]) if field == "read" else Sandbox(write=[project, data])
    async with open_servers(probing(sandbox), strict=True) as servers:
        assert await outcome(servers["probing"], "write", str(project / "data" / "file")) == "done"
        (project / "data").rename(project / "old")
        (project / "data").symlink_to(secret)
        with pytest.raises(ConnectFailed) as caught:
            await servers["probing"].restart()
    said("a sandbox with a path through a folder for writing", str(caught.value), folder=tmp_path, field=field)


@needs_landlock
async def test_a_program_in_a_folder_of_other_files_reads_only_itself(tmp_path: Path) -> None:
    """C-20: a folder ``bin`` is its own."""
    for folder, expected in ((tmp_path / "home", REFUSED), (tmp_path / "bin", "done")):
        program = copy_to(folder / "server.py")
        (folder / "file").write_text("text")
        async with open_servers(probing(Sandbox(), program), strict=True) as servers:
            assert await outcome(servers["probing"], "read", str(folder / "file")) == expected
            assert await outcome(servers["probing"], "read", str(program)) == "done"


@needs_landlock
def test_a_server_that_could_change_what_starts_its_sandbox_is_refused(said: Said) -> None:
    """C-20."""
    folder = os.path.dirname(_landlock.__file__)
    with pytest.raises(ConnectFailed) as caught:
        _command.confined("a", Sandbox(write=[folder]), "/bin/true", [], {})
    said("a sandbox that contains its start", str(caught.value), folder=folder)


@needs_landlock
def test_a_machine_whose_system_calls_are_not_known_is_refused(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """C-20."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(ConnectFailed) as caught:
        _command.confined("a", Sandbox(), "/bin/true", [], {})
    said("a machine without a filter of system calls", str(caught.value))


@needs_landlock
async def test_modes_of_files_are_not_restricted_as_the_repr_says(tmp_path: Path) -> None:
    """C-20: a limit, which readers of a configuration must not learn from an accident."""
    (tmp_path / "file").touch(0o644)
    async with open_servers(probing(Sandbox()), strict=True) as servers:
        assert await outcome(servers["probing"], "chmod", str(tmp_path / "file")) == "done"
    assert "does not restrict UDP, SCTP, unix sockets with a path, priorities of processes, or modes" in repr(Sandbox())


async def test_without_a_sandbox_nothing_is_restricted(tmp_path: Path, port: int) -> None:
    (tmp_path / "file").write_text("text")
    async with open_servers(probing(None), strict=True) as servers:
        for what in (("read", str(tmp_path / "file")), ("connect", port), ("signal", os.getpid())):
            assert await outcome(servers["probing"], *what) == "done"


@needs_landlock
@needs_packages
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
    transport = Stdio("/bin/sh", ["-c", f"cat '{script}'"], sandbox=Sandbox(tcp=[443]))
    with pytest.raises(ConnectFailed) as caught:
        async with open_servers(ServerConfig("files", transport, restarts=NEVER), strict=True):
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
        _command.confined("a", Sandbox(), "/bin/true", [], {})
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


@needs_landlock
def test_the_command_of_a_package_runner_gets_its_cache_and_port(tmp_path: Path) -> None:
    """C-20."""
    line = _command.confined("a", Sandbox(tcp=[80]), "/usr/bin/uvx", ["uvx", "x"], {"HOME": str(tmp_path)})
    assert f'"{tmp_path}/.cache/uv"' in line[5]
    assert '"tcp": [80, 443]' in line[5]
    assert json.loads(line[5])["environment"] == {"UV_TOOL_DIR": f"{tmp_path}/.cache/uv/mcp_actors-tools"}
    line = _command.confined("a", Sandbox(tcp=[80]), "/usr/bin/env", ["env"], {"HOME": str(tmp_path)})
    assert '"tcp": [80]' in line[5]


@needs_landlock
def test_every_program_reads_the_system_and_writes_to_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these exist, which is not so on each system."""
    monkeypatch.setattr(_command, "_existing", list)
    line = _command.confined("a", Sandbox(), "/usr/bin/env", ["env"], {})
    rules = json.loads(line[5])
    system = ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/nix/store", "/sbin", "/usr"]
    facts = ["/proc/cpuinfo", "/proc/meminfo", "/proc/self", "/proc/stat", "/run/systemd/resolve"]
    assert rules["read"][:13] == [*system, *facts]
    assert rules["write"] == ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"]


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
        ({"write": ["/srv\0"]}, "a sandbox with a null character in a path"),
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
async def test_uvx_reads_and_does_not_change_the_interpreters_of_uv(tmp_path: Path) -> None:
    """C-20: other programs run these, and the installed tools, without a sandbox."""
    data = tmp_path / ".local" / "share" / "uv"
    for folder in ("python", "tools"):
        (data / folder).mkdir(parents=True)
        (data / folder / "file").write_text("text")
    program = copy_to(tmp_path / "programs" / "uvx")
    transport = Stdio(str(program), env={"HOME": str(tmp_path)}, sandbox=Sandbox(read=interpreter()))
    async with open_servers(ServerConfig("probing", transport, protocol="legacy"), strict=True) as servers:
        assert await outcome(servers["probing"], "read", str(data / "python" / "file")) == "done"
        assert await outcome(servers["probing"], "write", str(data / "python" / "file")) == REFUSED
        assert await outcome(servers["probing"], "write", str(data / "tools" / "file")) == REFUSED
        assert await outcome(servers["probing"], "write", str(tmp_path / ".cache" / "uv" / "file")) == "done"


@needs_landlock
async def test_uvx_does_not_read_what_the_server_put_in_place_of_interpreters(tmp_path: Path) -> None:
    """C-20: as all paths that are not given, these have no effect if they lead through a folder for writing."""
    home, secret = tmp_path / "home", tmp_path / "secret"
    for folder in (secret, home / ".local" / "share" / "uv"):
        folder.mkdir(parents=True)
    (secret / "file").write_text("text")
    (home / ".local" / "share" / "uv" / "python").symlink_to(secret)
    program = copy_to(tmp_path / "programs" / "uvx")
    sandbox = Sandbox(read=interpreter(), write=[home / ".local"])
    transport = Stdio(str(program), env={"HOME": str(home)}, sandbox=sandbox)
    async with open_servers(ServerConfig("probing", transport, protocol="legacy"), strict=True) as servers:
        assert await outcome(servers["probing"], "read", str(secret / "file")) == REFUSED


@needs_landlock
def test_the_launcher_needs_the_standard_library_only() -> None:
    """It runs without the packages of this program, before the server's own interpreter."""
    rules = json.dumps({"read": [], "write": [], "tcp": None, "signals": True, "environment": {}})
    command = [sys.executable, "-I", "-S", _landlock.__file__, rules, "/nowhere", "x"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == _landlock.NOT_EXECUTABLE
    assert result.stderr.startswith("the sandbox cannot run /nowhere: ")
