"""A group that is opened from a configuration file: real servers, and what is wrong with the file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_actors import ConfigError, ConnectFailed, LoadedConfig, ServerConfig, Stdio, load_config, open_servers
from mcp_actors.servers.connection import _negotiation

from ..groups import BOUND
from ..http_server import run_server
from ..scripted_server import command


@contextmanager
def http(*flags: str) -> Iterator[int]:
    """Run an HTTP server in a process of its own, and give its port."""
    with run_server(*flags) as server:
        yield server.port


def scripted(*flags: str) -> dict[str, Any]:
    """Return the entry of a scripted server."""
    program, args = command(*flags)
    return {"command": program, "args": args, "mcp_actors": {"protocol": "legacy"}}


def write(folder: Path, servers: dict[str, Any]) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


async def test_the_servers_of_a_file_are_connected_as_they_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4-27, S4-39: an unchanged file, with a program, a URL and a URL that is the end of a variable."""
    with http() as port, http("--sse") as sse_port:
        monkeypatch.setenv("WEB", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OLD", f"http://127.0.0.1:{sse_port}/sse")
        path = write(tmp_path, {"a": scripted(), "web": {"url": "${WEB}/mcp"}, "old": {"url": "${env:OLD}"}})
        async with open_servers(path) as servers:
            assert [ref.name for ref in servers.active] == ["a", "web", "old"]
            for name in ("web", "old"):
                result = await servers[name].call_tool("add", {"a": 2, "b": 3})
                assert result.structured_content == {"result": 5}
            assert servers.errors == {}


async def test_a_script_is_started_by_its_interpreter(tmp_path: Path, programs_in_forks: None) -> None:
    """S4-27."""
    script = tmp_path / "server.py"
    lines = "from mcp.server.mcpserver import MCPServer\nserver = MCPServer('s')\nserver.run('stdio')\n"
    script.write_text(lines)
    async with open_servers({"mcpServers": {"script": str(script)}}) as servers:
        [ref] = servers.active
        assert ref.name == "script"


async def test_every_reconnect_resolves_credentials_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-24, S3-25: the token of the first connect has expired; the one of now is used, and neither is kept or shown."""
    settings = {"restarts": {"max_restarts": 0}}
    entry = {"headers": {"Authorization": "Bearer ${TOKEN}"}, "mcp_actors": settings}
    monkeypatch.setenv("TOKEN", "first-s3cret")
    with ExitStack() as first:
        port = first.enter_context(http("--require-header", "Authorization=Bearer first-s3cret"))
        path = write(tmp_path, {"web": {"url": f"http://127.0.0.1:{port}/mcp", **entry}})
        async with open_servers(path) as servers:
            assert [ref.name for ref in servers.active] == ["web"]
            shown = [repr(load_config(path)), repr(servers["web"]), repr(servers.status())]
            first.close()
            with http("--port", str(port), "--require-header", "Authorization=Bearer second-s3cret"):
                await servers["web"].restart()
                assert isinstance(refused := servers.errors["web"], ConnectFailed)
                assert refused.http_status == 401
                monkeypatch.setenv("TOKEN", "second-s3cret")
                await servers["web"].restart()
                result = await servers["web"].call_tool("add", {"a": 2, "b": 3})
                assert result.structured_content == {"result": 5}
    assert "s3cret" not in "".join([*shown, str(refused), repr(refused)])


async def test_every_reconnect_resolves_the_variables_of_a_command_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2-21, S3-25."""
    program, args = command()
    log = tmp_path / "log"
    script = f'echo "$1 $TOKEN" >> "{log}"; shift; exec "$@"'
    entry = {
        "command": "/bin/${SHELL_NAME:-sh}",
        "args": ["-c", script.replace("${", "$${"), "sh", "${ARGUMENT}", program, *args],
        "env": {"TOKEN": "<${TOKEN}>"},
        "mcp_actors": {"protocol": "legacy"},
    }
    monkeypatch.setenv("ARGUMENT", "one")
    monkeypatch.setenv("TOKEN", "1")
    async with open_servers(write(tmp_path, {"a": entry})) as servers:
        monkeypatch.setenv("ARGUMENT", "two")
        monkeypatch.setenv("TOKEN", "2")
        await servers["a"].restart()
    assert log.read_text() == "one <1>\ntwo <2>\n"


async def test_an_undefined_variable_fails_its_server_and_is_named(tmp_path: Path) -> None:
    """S4-40: with the file, and its place there."""
    servers_in_file = {
        "a": scripted(),
        "b": {"command": "${UNSET_HERE}"},
        "c": {"url": "https://localhost:1/${UNSET_HERE}"},
    }
    file = write(tmp_path, servers_in_file)
    async with open_servers(file) as servers:
        assert [ref.name for ref in servers.active] == ["a"]
        assert [ref.state for ref in servers.failed] == ["failed", "failed"]
        for name, key in (("b", "command"), ("c", "url")):
            assert str(servers.errors[name]) == (
                f"server {name!r}: environment variable 'UNSET_HERE' is not set ({file}: mcpServers.{name}.{key}); "
                "set it, or give a default: ${UNSET_HERE:-default}"
            )


async def test_disabled_servers_are_not_started(tmp_path: Path) -> None:
    """S3-01."""
    touched = tmp_path / "started"
    entry = {"command": "touch", "args": [str(touched)]}
    path = write(tmp_path, {"off": {**entry, "disabled": True}, "out": {**entry, "enabled": False}, "a": scripted()})
    async with open_servers(path) as servers:
        assert list(servers) == ["a"]
    assert not touched.exists()


async def test_a_bad_entry_is_an_error_of_its_own_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-07."""
    path = write(tmp_path, {"bad": {"comand": "x"}, "a": scripted()})
    with caplog.at_level(logging.WARNING, "mcp_actors.servers"):
        async with open_servers(path) as servers:
            assert [ref.name for ref in servers.active] == ["a"]
            error = servers.errors["bad"]
            assert isinstance(error, ConfigError)
            assert str(error).startswith(f"{path}: mcpServers.bad: neither 'command' nor 'url' is given")
            with pytest.raises(KeyError, match=r"server 'bad' could not be loaded: .*neither 'command' nor 'url'"):
                servers["bad"]
    assert str(error) in caplog.messages
    assert any('unknown key "comand"' in message for message in caplog.messages)


@pytest.mark.parametrize("content", ["{", "[]", "", '{"mcpservers": {}}', "\0", "\ufeff"])
async def test_with_a_broken_file_the_program_starts_with_one_error_and_no_servers(
    tmp_path: Path, content: str
) -> None:
    """S3-02."""
    path = tmp_path / "mcp.json"
    path.write_text(content)
    async with open_servers(path) as servers:
        assert list(servers) == []
        [(name, error)] = servers.errors.items()
        assert (name, type(error)) == (str(path), ConfigError)
        assert str(error).startswith(f"{path}: ")


async def test_a_file_that_cannot_be_read_raises(tmp_path: Path) -> None:
    """S4-41."""
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ConfigError, match=f"^{path}: "):
            async with open_servers(path):
                raise AssertionError("the block must not begin")


@pytest.mark.parametrize(
    ("strict", "entry"),
    [(True, {}), (False, {"required": True}), (False, {"mcp_actors": {"required": True}}), (True, 3)],
)
async def test_a_required_entry_must_be_valid(tmp_path: Path, strict: bool, entry: object) -> None:
    touched = tmp_path / "started"
    path = write(tmp_path, {"a": {"command": "touch", "args": [str(touched)]}, "bad": entry, "worse": entry})
    with pytest.raises(ConfigError, match=r"mcp\.json: mcpServers\.bad: ") as caught:
        async with open_servers(path, strict=strict):
            raise AssertionError("the block must not begin")
    [note] = caught.value.__notes__
    assert "mcpServers.worse" in note
    assert not touched.exists()


async def test_files_mappings_and_configurations_go_together(tmp_path: Path) -> None:
    program, args = command()
    loaded = load_config({"mcpServers": {"c": scripted()}})
    assert isinstance(loaded, LoadedConfig)
    b = ServerConfig("b", Stdio(program, args), protocol="legacy")
    async with open_servers(
        write(tmp_path, {"a": scripted()}), b, loaded, {"mcpServers": {"d": scripted()}}
    ) as servers:
        assert [ref.name for ref in servers.active] == ["a", "b", "c", "d"]


async def test_two_servers_of_one_name_from_different_sources_are_refused(tmp_path: Path) -> None:
    """S2-07."""
    path = write(tmp_path, {"a": scripted()})
    with pytest.raises(ConfigError) as caught:
        async with open_servers(load_config(path), load_config(path)):
            raise AssertionError("the block must not begin")
    both = f"configurations 1 (from {path}) and 2 (from {path}) have this name"
    assert str(caught.value) == f"server 'a': {both}; rename one of them"


async def test_an_argument_that_is_not_a_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes ServerConfig objects, paths, mappings and sources, not int"):
        async with open_servers(3):  # type: ignore[arg-type]  # that is what is tested
            raise AssertionError("the block must not begin")


async def test_a_connect_without_a_bound_may_take_as_long_as_it_likes(tmp_path: Path) -> None:
    """S3-08: 0 in a file."""
    entry = scripted("--start-delay", "0.2")
    entry["mcp_actors"] |= {"connect_timeout": 0}
    async with open_servers(write(tmp_path, {"a": entry})) as servers:
        assert [ref.name for ref in servers.active] == ["a"]


async def test_a_server_that_ignores_discover_is_sent_initialize_also_without_a_connect_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-08: what is a part of the time-out elsewhere is a part of its default here."""
    monkeypatch.setattr(_negotiation, "UNBOUNDED", 2.0)
    entry = scripted("--handshake", "--on-discover", "ignore")
    entry["mcp_actors"] = {"connect_timeout": 0, "protocol": "auto"}
    with trio.fail_after(BOUND):
        async with open_servers(write(tmp_path, {"a": entry})) as servers:
            assert [ref.name for ref in servers.active] == ["a"]


async def test_tools_that_a_file_hides_are_not_there(tmp_path: Path) -> None:
    entry = {**scripted("--tools", "3"), "disabled_tools": ["tool_1"]}
    async with open_servers(write(tmp_path, {"a": entry})) as servers:
        names = {tool.name for tool in servers.tools}
        assert "tool_0" in names
        assert "tool_1" not in names


@pytest.mark.parametrize("flag", ["", "--sse"])
async def test_a_token_in_the_path_of_a_url_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, flag: str
) -> None:
    """S3-25: neither in errors nor in logs of the HTTP library; the variable is shown as it was written."""
    end = "sse" if flag else "mcp"
    monkeypatch.setenv("PATH_TOKEN", end)
    settings = {"restarts": {"max_restarts": 0}}
    with http(*filter(None, [flag])) as port, caplog.at_level(logging.DEBUG):
        url = f"http://127.0.0.1:{port}/${{PATH_TOKEN}}"
        entry = {"type": "sse" if flag else "http", "url": url, "mcp_actors": settings}
        async with open_servers(write(tmp_path, {"web": entry})) as servers:
            assert [ref.name for ref in servers.active] == ["web"]
            await servers["web"].call_tool("add", {"a": 2, "b": 3})
            monkeypatch.setenv("PATH_TOKEN", "s3cret")
            await servers["web"].restart()
            assert f"{url} answered with 404" in str(servers.errors["web"])
            shown = [repr(servers.status()), str(servers.errors["web"]), repr(servers["web"])]
    assert [record.getMessage() for record in caplog.records if "s3cret" in record.getMessage()] == []
    assert any(record.name == "httpx2" for record in caplog.records)
    assert "s3cret" not in "".join(shown)
