"""The program and environment of a stdio server, and the errors if it cannot be started."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from mcp_actors import open_servers
from mcp_actors._errors import ConnectFailed
from mcp_actors.config import Secret, ServerConfig, Stdio
from mcp_actors.transports import open_link
from mcp_actors.transports.stdio import _command, _process
from mcp_actors.transports.stdio._command import PROXIES, child_environment, find_program, hint

from ...messages import Said
from ..links import never_lost, open_session, scripted, text_of
from ..processes import child_pids

ALLOWED: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)


async def test_the_environment_of_a_server_is_the_allow_list_and_the_configured_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-16."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in (*ALLOWED, "AWS_SECRET_ACCESS_KEY", "PASSED", "DOCKER_HOST", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "C" if name.startswith("L") else os.defpath)
    config = scripted(env={"TOKEN": Secret("s3cret")}, env_from=["PASSED", "NOT_SET"])
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        names = set(text_of(await client.call_tool("environment")).split())
        assert text_of(await client.call_tool("env", {"name": "TOKEN"})) == "s3cret"
    assert names == {*ALLOWED, "PASSED", "TOKEN"}


@pytest.mark.parametrize(
    ("transport", "environ", "expected"),
    [
        (Stdio("x"), {}, {"LC_CTYPE": "C.UTF-8"}),
        (Stdio("x"), {"LANG": "C"}, {"LANG": "C"}),
        (Stdio("x", env_from=["LC_ALL"]), {"LC_ALL": ""}, {"LC_ALL": ""}),
        (Stdio("x", env={"LC_CTYPE": "C"}), {}, {"LC_CTYPE": "C"}),
        (Stdio("docker"), {"DOCKER_HOST": "a", "DOCKER_CONTEXT": "b", "LANG": "C"}, {"DOCKER_HOST", "DOCKER_CONTEXT"}),
        (Stdio("/usr/bin/podman"), {"DOCKER_HOST": "a", "LANG": "C"}, {"DOCKER_HOST"}),
        (Stdio("dockerize"), {"DOCKER_HOST": "a", "LANG": "C"}, set()),
    ],
)
def test_the_locale_and_the_variables_of_docker(transport: Stdio, environ: dict[str, str], expected: Any) -> None:
    """D-16: without a locale it is C.UTF-8, which all systems of these tests have."""
    environment = child_environment(transport, environ, dict(transport.env))  # type: ignore[arg-type]  # all are str
    if isinstance(expected, set):
        expected = {name: environ[name] for name in (*expected, "LANG")}
    assert environment == expected


@pytest.mark.parametrize(
    ("environ", "options", "said"),
    [
        (
            {"HTTPS_PROXY": "http://u:secret@p:1"},
            {},
            "HTTPS_PROXY is set here and not passed to it; .*HTTPS_PROXY'\\]$",
        ),
        ({"http_proxy": "http://p:1", "ALL_PROXY": "p"}, {}, "set env_from=\\['http_proxy', 'ALL_PROXY'\\]$"),
        ({"HTTPS_PROXY": "http://p:1"}, {"env_from": ["HTTPS_PROXY"]}, "run its command in a terminal to see why$"),
        ({"HTTPS_PROXY": "http://p:1"}, {"env": {"https_proxy": "x"}}, "run its command in a terminal to see why$"),
        ({"HTTPS_PROXY": ""}, {}, "run its command in a terminal to see why$"),
    ],
)
async def test_a_start_that_fails_names_a_proxy_that_was_not_passed(
    environ: dict[str, str], options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-16: and not what is in it."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    config = ServerConfig("a", Stdio("/bin/sh", ["-c", "exit 1"], **options), protocol="legacy")
    async with open_servers(config) as servers:
        error = str(servers.errors["a"])
    assert re.search(said, error)
    assert "secret" not in error
    assert ("is set here" in error) is ("terminal" not in said)


@pytest.mark.parametrize(
    ("last_words", "options", "names"),
    [
        ("KeyError: 'WEATHER_KEY'", {}, ["WEATHER_KEY"]),
        ("WEATHER_KEY is required", {"env_from": ["OTHER"]}, ["WEATHER_KEY"]),
        ("set $WEATHER_KEY or OTHER, in HOME", {}, ["WEATHER_KEY", "OTHER"]),
        ("KeyError: 'WEATHER_KEY'", {"env": {"WEATHER_KEY": "x"}}, None),
        ("KeyError: 'UNSET_KEY', MY_WEATHER_KEYS", {}, None),
    ],
)
def test_a_variable_that_the_last_words_ask_for_is_named(
    last_words: str, options: dict[str, Any], names: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its value is not."""
    monkeypatch.setenv("WEATHER_KEY", "k3y")
    monkeypatch.setenv("OTHER", "k3y")
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    said = names and f"; {names[0]} is set here and not passed to it; set env_from={names}"
    assert hint(Stdio("x", **options), last_words) == (said or "")


@pytest.mark.parametrize(
    ("last_words", "package"),
    [
        ("ModuleNotFoundError: No module named 'mcp'", "mcp"),
        ("/usr/bin/python3: No module named my_server", "my_server"),
        ("Error: Cannot find module '@scope/x-y'\nRequire stack:\n- /srv/a.js", "@scope/x-y"),
        ("No module named 'torch'\nModuleNotFoundError: No module named 'mcp'", "mcp"),
        ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'", None),
        ("Error: Cannot find module './a.js'", None),
    ],
)
def test_a_package_that_the_last_words_miss_is_named(last_words: str, package: str | None) -> None:
    said = package and f"; install {package!r} for 'python3', or set a command that has it"
    assert hint(Stdio("python3", ["a.py"]), last_words) == (said or "")


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("docker run --rm a/b", "run"),
        ("/usr/bin/podman exec a b", "exec"),
        ("docker run --rm -i a/b", None),
        ("docker run -it a/b", None),
        ("docker run --interactive=true a/b", None),
        ("docker compose run a", None),
        ("deno run a.ts", None),
    ],
)
def test_a_container_without_stdin_is_named(words: str, action: str | None) -> None:
    command, *args = words.split()
    said = action and f"; without '-i' the container has no stdin; write {action!r}, '-i' in args"
    assert hint(Stdio(command, args), "") == (said or "")


async def test_credentials_are_resolved_again_at_each_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    config = scripted(env={"TOKEN": "Bearer ${ROTATING}"})
    for value in ("first", "second"):
        monkeypatch.setenv("ROTATING", value)
        async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
            assert text_of(await client.call_tool("env", {"name": "TOKEN"})) == f"Bearer {value}"


async def refusal(config: ServerConfig) -> ConnectFailed:
    before = child_pids()
    with pytest.raises(ConnectFailed) as caught:
        async with open_link(config, on_lost=never_lost):
            pytest.fail("it opened")
    assert child_pids() == before
    return caught.value


def github(command: str, *args: str, **options: str) -> ServerConfig:
    return ServerConfig("github", Stdio(command, args, cwd=options.pop("cwd", None), env=options))


async def test_a_command_that_does_not_exist_is_named(said: Said) -> None:
    """S2-09."""
    error = await refusal(github("no-such-command"))
    said("command not found", str(error), command="no-such-command")
    assert (error.server, error.phase, error.hopeless) == ("github", "open", True)


async def test_a_command_of_a_file_that_does_not_exist_is_named_with_the_file(said: Said) -> None:
    error = await refusal(attrs.evolve(github("no-such-command"), source="/home/me/mcp.json"))
    said("command of a file not found", str(error))
    of_a_mapping = await refusal(attrs.evolve(github("no-such-command"), source="a mapping"))
    assert str(of_a_mapping) == str(error).removesuffix(" in /home/me/mcp.json")


@pytest.mark.parametrize("command", ["sh -c true", "sh @scope/package", "/bin/sh -c /x"])
async def test_a_command_that_contains_arguments_is_refused(command: str, said: Said) -> None:
    said("command contains arguments", str(await refusal(github(command))), command=command)


@pytest.mark.parametrize("command", ["no-such-command -c", "/no/such folder/sh"])
async def test_a_command_may_contain_spaces(command: str) -> None:
    assert "into args" not in str(await refusal(github(command)))


async def test_a_command_is_looked_up_in_the_path_of_the_server(tmp_path: Path) -> None:
    """S2-09."""
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho '{}'; exec sleep 60\n")
    program.chmod(0o755)
    config = ServerConfig(
        "s", Stdio("only-here", env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}), stop_timeout=0.5
    )
    async with open_link(config, on_lost=never_lost):
        pass
    error = await refusal(github("sh", PATH=str(tmp_path)))
    assert "command 'sh' not found" in str(error)


async def test_a_path_that_does_not_exist_is_named(tmp_path: Path, said: Said) -> None:
    error = await refusal(github("bin/server", cwd=str(tmp_path)))
    said("path of command not found", str(error), path=tmp_path / "bin/server")
    assert error.hopeless


@pytest.mark.parametrize("on_path", [True, False])
async def test_a_command_that_is_not_executable_says_what_to_do(tmp_path: Path, on_path: bool, said: Said) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    error = await refusal(github("server", PATH=str(tmp_path)) if on_path else github(str(program)))
    said("command not executable", str(error).replace(f"command {str(program)!r}", "command 'server'"), path=program)
    assert (error.phase, error.hopeless) == ("open", True)


async def test_a_command_that_is_a_directory_is_refused(tmp_path: Path, said: Said) -> None:
    error = await refusal(github(str(tmp_path)))
    said("command is a directory", str(error), path=tmp_path)
    assert error.hopeless


async def test_a_missing_working_directory_is_not_reported_as_a_missing_command(tmp_path: Path, said: Said) -> None:
    missing = str(tmp_path / "missing")
    error = await refusal(github(sys.executable, cwd=missing))
    said("working directory does not exist", str(error), path=missing)
    assert error.hopeless


async def test_a_working_directory_that_is_a_file_is_refused(said: Said) -> None:
    said("working directory is a file", str(await refusal(github(sys.executable, cwd=__file__))), path=__file__)


@pytest.mark.parametrize(
    ("content", "row"),
    [
        (b"#!/no/such/interpreter\n", "interpreter of command does not exist"),
        (b"\x7fELF of another world", "command has no executable format"),
    ],
)
async def test_a_program_that_this_system_cannot_run_says_why(
    tmp_path: Path, content: bytes, row: str, said: Said
) -> None:
    program = tmp_path / "server"
    program.write_bytes(content)
    program.chmod(0o755)
    error = await refusal(github(str(program)))
    said(row, str(error), path=program)
    assert isinstance(error.__cause__, OSError)
    assert error.hopeless


def without_loader(program: Path) -> Path:
    """Write a program that names a loader which does not exist."""
    built = Path(shutil.which("true") or "/bin/true").read_bytes()
    program.write_bytes(re.sub(rb"/lib([^\0]*/ld-[^\0]*\0)", rb"/bil\1", built))
    program.chmod(0o755)
    return program


@pytest.mark.skipif(sys.platform != "linux", reason="programs of other systems name their loader otherwise")
async def test_a_program_for_another_libc_says_so(tmp_path: Path, said: Said) -> None:
    program = without_loader(tmp_path / "server")
    said("loader of command does not exist", str(await refusal(github(str(program)))), path=program)


async def test_arguments_that_are_too_long_are_hopeless(said: Said) -> None:
    error = await refusal(github("sh", "x" * 200_000))
    said("command cannot be started: arguments", str(error))
    assert error.hopeless


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("command cannot be started: temporary shortage", errno.EAGAIN),
        ("command cannot be started: open files", errno.EMFILE),
    ],
)
async def test_a_temporary_shortage_is_not_hopeless(
    monkeypatch: pytest.MonkeyPatch, row: str, code: int, said: Said
) -> None:
    def spawn(*args: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(_process, "Popen", spawn)
    error = await refusal(github("sh"))
    said(row, str(error))
    assert not error.hopeless


async def test_a_program_that_may_not_be_started_says_what_to_check(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    def spawn(*args: object, **options: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(_process, "Popen", spawn)
    error = await refusal(github("sh"))
    said("command cannot be started: permissions", str(error))
    assert error.hopeless


async def test_a_variable_that_is_not_set_is_named_and_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    error = await refusal(github("sh", TOKEN="${NO_SUCH_TOKEN}"))
    assert "environment variable 'NO_SUCH_TOKEN' is not set (servers.github.env.TOKEN); set it" in str(error)
    assert (error.phase, error.hopeless) == ("configure", True)


async def test_a_credential_function_that_raises_is_not_hopeless() -> None:
    async def token() -> str:
        raise OSError("the vault does not answer: s3cret")

    error = await refusal(ServerConfig("github", Stdio("sh", env={"TOKEN": token})))
    assert (error.phase, error.hopeless) == ("configure", False)
    assert "OSError" in str(error)
    assert "s3cret" not in str(error)


@pytest.mark.parametrize(
    ("command", "path"),
    [("./tool", "/usr/bin"), ("bin/../tool", None), ("tool", "."), ("tool", "/usr/bin:"), ("tool", "no/such:bin/..")],
)
def test_relative_paths_are_resolved_against_the_working_directory(
    tmp_path: Path, command: str, path: str | None
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    found = find_program("s", command, cwd=str(tmp_path), path=path)
    assert os.path.isabs(found)
    assert os.path.samefile(found, tmp_path / "tool")


def program(path: Path) -> str:
    """Make a program that says where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


async def test_a_command_next_to_the_interpreter_is_found_without_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-50: as in an environment that was not activated. PATH comes first."""
    name = f"mcp-server-{os.getpid()}"
    beside, on_path = program(tmp_path / "venv" / name), program(tmp_path / "bin" / name)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    for path in (None, "", "/usr/bin:/bin", str(tmp_path)):
        assert find_program("s", name, cwd=None, path=path) == beside
    assert find_program("s", name, cwd=None, path=str(tmp_path / "bin")) == on_path
    monkeypatch.setattr(sys, "executable", "")  # in an embedded interpreter
    with pytest.raises(ConnectFailed):
        find_program("s", name, cwd=None, path="")


async def test_a_server_next_to_the_interpreter_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """C-50: with a PATH that does not have it."""
    monkeypatch.setenv("PATH", "/nowhere")
    transport = scripted().transport
    assert isinstance(transport, Stdio)
    monkeypatch.setattr(sys, "executable", transport.command)
    config = ServerConfig("s", Stdio(Path(transport.command).name, transport.args))
    async with open_link(config, on_lost=never_lost) as link, open_session(link) as client:
        assert text_of(await client.call_tool("env", {"name": "PATH"})) == "/nowhere"


@pytest.mark.parametrize(
    ("place", "below"),
    [
        (".local/bin", "home"),
        (".cargo/bin", "home"),
        ("go/bin", "home"),
        (".bun/bin", "home"),
        (".deno/bin", "home"),
        (".volta/bin", "home"),
        (".local/share/mise/shims", "home"),
        (".asdf/shims", "home"),
        (".nvm/versions/node/v22.1.0/bin", "home"),
        ("node_modules/.bin", "cwd"),
        (".venv/bin", "cwd"),
        ("venv/bin", "cwd"),
    ],
)
async def test_a_command_that_exists_elsewhere_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, below: str, said: Said
) -> None:
    """C-50."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "cwd").mkdir()
    found = program(tmp_path / below / place / "npx")
    (tmp_path / "home" / "bin" / "npx").mkdir(parents=True)  # a folder does not count
    error = await refusal(github("npx", PATH="/nowhere", cwd=str(tmp_path / "cwd")))
    said("command not found on PATH but elsewhere", str(error), place=found)
    assert error.hopeless


@pytest.mark.parametrize(
    ("row", "command"),
    [
        ("command not found: npx", "npx"),
        ("command not found: uvx", "uvx"),
        ("command not found: bunx", "bunx"),
        ("command not found: docker", "docker"),
        ("command not found: cmd", "cmd"),
        ("command not found: cmd.exe", r"C:\Windows\System32\cmd.exe"),
        ("command not found: a path of Windows", r"C:\Program Files\nodejs\npx.cmd"),
        ("command not found: a path of Windows with slashes", "C:/Users/me/uvx.exe"),
        ("command not found: a program of Windows", "server.exe"),
    ],
)
async def test_a_command_that_people_share_says_what_to_install_or_that_this_is_not_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, command: str, said: Said
) -> None:
    """C-50."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(_command, "_PROGRAM_FOLDERS", ("~/.local/bin",))  # this machine may have them
    error = await refusal(github(command, PATH="/nowhere"))
    said(row, str(error))


def test_a_program_with_such_a_name_runs_where_it_exists(tmp_path: Path) -> None:
    """C-50: some systems run programs of Windows too."""
    made = program(tmp_path / "server.exe")
    assert find_program("s", "server.exe", cwd=None, path=str(tmp_path)) == made
    assert find_program("s", "./server.exe", cwd=str(tmp_path), path=None) == f"{tmp_path}/./server.exe"


def test_without_path_the_default_path_of_the_system_is_searched() -> None:
    assert os.path.basename(find_program("s", "sh", cwd=None, path=None)) == "sh"
