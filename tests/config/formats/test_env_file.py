"""``.env`` files: what a line may be, and where their variables count."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_actors import ConfigError, Http, Stdio, load_config, open_servers
from mcp_actors.config import dump_config
from mcp_actors.config._template import resolved, variables_of
from mcp_actors.config._values import Written, variables_in
from mcp_actors.config.formats._file import read_env_file

from ...messages import Said


def save(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / ".env"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("  A = b  ", "b"),
        ("A=", ""),
        ("A=#", ""),
        ("A= #b", ""),
        ("A=b\u2028B=c", "b\u2028B=c"),
        ("A=b c # comment", "b c"),
        ("A=b#c", "b#c"),
        ("A=$b\\n", "$b\\n"),
        ("A='b #\\n${c}' # comment", "b #\\n${c}"),
        ('A="b # \\"\\n\\\\n"', 'b # "\n\\n'),
        ("A=''", ""),
        ("# comment\n\nA=é", "é"),
    ],
)
def test_a_line_is_a_variable(env_file: Path, line: str, value: str) -> None:
    env_file.write_text(line)
    assert read_env_file(env_file) == {"A": value}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (".env: no equals sign", "A=b\nhunter2"),
        (".env: a name", "A-B=hunter2"),
        (".env: twice", "A=hunter2\nA=hunter2"),
        (".env: open quotes", "A='hunter2"),
        (".env: text after quotes", 'A="hunter2" x'),
        (".env: a variable", "A=${hunter2}"),
        (".env: a comment or a value", "A=#hunter2"),
        (".env: a NUL character", "A=hunter2\0"),
        (".env: not text", "A=\udcff"),
        (".env: too large", "#" * 300_000),
    ],
)
def test_every_other_line_is_an_error_that_shows_no_value(env_file: Path, said: Said, row: str, text: str) -> None:
    env_file.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError) as caught:
        load_config({"mcpServers": {}}, env_file=env_file)
    said(row, str(caught.value), file=env_file)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_lines_of_an_error_are_counted_whatever_ends_them(env_file: Path, end: str) -> None:
    env_file.write_bytes(end.join(["A=b", "", "# a comment", "C"]).encode())
    with pytest.raises(ConfigError, match=f"{env_file}:4: "):
        read_env_file(env_file)


def test_many_blanks_take_linear_time(env_file: Path) -> None:
    env_file.write_text(f"A=b{' ' * 200_000}c")
    assert len(read_env_file(env_file)["A"]) == 200_002


def test_its_variables_are_used_where_the_environment_has_none(env_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env_file.write_text("TOKEN=from file\nSET=from file\nEMPTY=\n")
    monkeypatch.setenv("SET", "from environment")
    entry = {
        "command": "x",
        "args": ["${TOKEN}", "${env:TOKEN}", "${SET}", "${TOKEN:-c}", "${EMPTY:-c}", "${OTHER:-c}"],
        "mcp_actors": {"env_from": ["TOKEN", "SET", "OTHER"]},
    }
    loaded = load_config({"mcpServers": {"a": entry}}, env_file=env_file)
    assert not loaded.errors
    transport = loaded.servers[0].transport
    made = resolved(transport, os.environ, where="a")
    assert isinstance(made, Stdio)
    assert made.args == ("from file", "from file", "from environment", "from file", "c", "c")
    assert made.env_from == ("SET", "OTHER")
    assert [*made.env] == ["TOKEN"]
    monkeypatch.setenv("TOKEN", "set later")
    later: Any = resolved(transport, os.environ, where="a")
    assert later.args[:2] == ("set later", "set later")


def test_its_variables_are_masked_and_not_written_down(env_file: Path) -> None:
    env_file.write_text("TOKEN=hunter2-hunter2")
    loaded = load_config({"mcpServers": {"a": {"url": "https://x.example", "auth": "${TOKEN}"}}}, env_file=env_file)
    [server] = loaded.servers
    assert [*variables_of(server.transport, {})] == [("${TOKEN}", "hunter2-hunter2")]
    assert "hunter2" not in f"{server!r} {dump_config([server])}"
    assert "${TOKEN}" in str(dump_config([server]))


def test_a_default_is_masked_while_it_is_used() -> None:
    loaded = load_config({"mcpServers": {"a": {"url": "https://x.example", "auth": "${TOKEN:-hunter2-hunter2}"}}})
    [server] = loaded.servers
    assert [*variables_of(server.transport, {})] == [("${TOKEN}", "hunter2-hunter2")]
    assert [*variables_of(server.transport, {"TOKEN": "hunter3-hunter3"})] == [("${TOKEN}", "hunter3-hunter3")]


def test_a_variable_is_masked_although_a_text_before_it_is_invalid() -> None:
    transport = Stdio("x", args=[Written("${"), Written("${TOKEN}")])
    assert [*variables_of(transport, {"TOKEN": "hunter2-hunter2"})] == [("${TOKEN}", "hunter2-hunter2")]


def test_without_a_variable_of_it_nothing_changes(env_file: Path) -> None:
    env_file.write_text("A=b")
    loaded = load_config({"mcpServers": {"a": "https://x.example"}}, env_file=env_file)
    assert loaded.servers[0].transport == Http("https://x.example")


@pytest.mark.parametrize("as_file", [True, False])
async def test_a_group_reads_it_for_files_and_mappings(tmp_path: Path, env_file: Path, as_file: bool) -> None:
    save(env_file, "NAME=x")
    text = '{"mcpServers": {"a": {"command": "${NAME}", "mcp_actors": {"connect": "lazy"}}}}'
    save(tmp_path / "mcp.json", text)
    config: Any = tmp_path / "mcp.json" if as_file else json.loads(text)
    async with open_servers(config, env_file=env_file) as group:
        transport = group._roster.members["a"].record.config.transport
        assert isinstance(transport, Stdio)
        assert variables_in(transport.command) == {"env:NAME": "x"}
