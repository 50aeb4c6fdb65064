"""Reading any path terminates, with servers or with one error."""

from __future__ import annotations

import codecs
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_actors import ConfigError
from mcp_actors.config import DirectorySource, FileSource, SqliteSource, load_config
from mcp_actors.config.formats import _file

from ...messages import Said
from .writing import load, write

GOOD = '{"mcpServers": {"a": {"command": "ü"}}}'


def refusal(path: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize(
    "encoded",
    [
        GOOD.encode(),
        codecs.BOM_UTF8 + GOOD.encode(),
        GOOD.encode("utf-16"),
        codecs.BOM_UTF16_BE + GOOD.encode("utf-16-be"),
        GOOD.encode("utf-32"),
    ],
)
def test_a_file_that_says_its_encoding_may_have_any(tmp_path: Path, encoded: bytes) -> None:
    [server] = load(tmp_path, encoded).servers
    assert getattr(server.transport, "command") == "ü"  # noqa: B009 - the type is known by the line above


def test_another_encoding_is_an_error_that_says_which_one_is_meant(tmp_path: Path) -> None:
    for content in (GOOD.encode("latin-1"), codecs.BOM_UTF16_LE + b"x", b"\x80\0\0"):
        [error] = load(tmp_path, content).errors
        assert "save it as UTF-8" in str(error)
    [error] = load(
        tmp_path, GOOD.replace("ü", "u").encode("utf-16-le")
    ).errors  # without a mark it is a text with many NULs
    assert "the file is not valid JSON" in str(error)


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    """S4-41."""
    path = tmp_path / "nowhere" / "mcp.json"
    assert refusal(path) == f"{path}: file not found; correct the path, or create the file"
    (tmp_path / "mcp.json").write_text("{}")
    assert refusal(tmp_path / "mcp.json#docs") == (
        f"{tmp_path}/mcp.json#docs: file not found; only serve and attach take FILE#SERVER, so give the file as "
        f"{tmp_path}/mcp.json, and the server 'docs' apart"
    )


def test_a_file_is_shown_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert repr(FileSource("mcp.json")) == f"<FileSource {tmp_path}/mcp.json>"


@pytest.mark.parametrize("made", [lambda line: load_config(line), lambda line: FileSource(line).read()])
def test_a_command_line_is_refused_as_a_file(made: Callable[[str], object]) -> None:
    with pytest.raises(ConfigError) as caught:
        made("mcp-server-nowhere @some/server")
    assert str(caught.value).endswith(
        "mcp-server-nowhere @some/server: file not found, and a str is the path of a configuration file; "
        "for a program write ServerConfig('name', Stdio('mcp-server-nowhere', […]))"
    )


def test_only_regular_files_are_read_and_others_are_refused_at_once(tmp_path: Path, said: Said) -> None:
    os.mkfifo(tmp_path / "pipe")
    said("a directory", refusal(tmp_path), path=tmp_path)
    for path in (tmp_path / "pipe", Path("/dev/null"), Path("/dev/zero")):
        said("a pipe or a device", refusal(path), path=path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert "cannot be read" in refusal(tmp_path / "socket")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_must_not_be_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0)
    assert "cannot be read (Permission denied)" in refusal(path)


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in refusal(tmp_path / "loop")
    assert "cannot be read" in refusal("x" * 10_000)
    assert "cannot be read" in refusal("\ud800")


def test_a_file_of_100_megabytes_is_refused_without_being_read(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "mcp.json"
    with path.open("wb") as file:
        file.truncate(100 * 1024**2)
    said("file too large", refusal(path), path=path)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (None, "config is None"),
        (3, "config is an int"),
        (b"mcp.json", "config is a bytes"),
        (["mcp.json"], "config is a list"),
        ("", "config is empty"),
        ("a\0b", "config contains a NUL character"),
        ("https://example.com/mcp", "config is a URL, not the path of a file"),
    ],
)
def test_an_invalid_path_is_refused(path: object, problem: str, said: Said) -> None:
    said(problem, refusal(path))


@pytest.mark.parametrize("kind", [DirectorySource, FileSource, SqliteSource])
def test_an_error_about_the_path_of_a_source_names_the_source(kind: Callable[[Any], object], said: Said) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(3)
    said("a source without a path", str(caught.value), source=caught.value.source)


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, GOOD)
    assert load_config("~/mcp.json").source == str(tmp_path / "mcp.json")


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, False), (0o646, True), (0o666, True)])
def test_a_file_that_others_can_write_is_a_warning(tmp_path: Path, mode: int, warned: bool, said: Said) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(mode)
    loaded = load_config(path)
    assert len(loaded.servers) == 1
    assert len(loaded.warnings) == warned
    for warning in loaded.warnings:
        said("file is writable by others", warning, path=path)


def test_a_file_that_another_group_can_write_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0o660)
    assert load_config(path).warnings == ()
    status = os.stat_result((0o100660, 0, 0, 1, 0, os.getegid() + 1, 0, 0, 0, 0))
    assert "its group can write to this file" in _file.permission_warnings("mcp.json", status)[0]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("[" * 200_000, "mcp.json"),
        ('{"a":' * 200_000, "mcp.json"),
        ('{"mcpServers": ' + "[" * 50_000 + "]" * 50_000 + "}", "mcp.json"),
        ("a = " + "[" * 100_000, "mcp.toml"),
        ("a" + ".a" * 100_000 + " = 1", "mcp.toml"),
        ('"\\""' + " . '\"'" * 100_000 + " = 1", "mcp.toml"),
        ("[[a]]\n" * 200_000, "mcp.toml"),
        ('{"a": ' + "9" * 200_000 + "}", "mcp.json"),
        ("a = " + "9" * 200_000, "mcp.toml"),
        ('"' + '\\"' * 200_000, "mcp.json"),
        ("/*" * 200_000, "mcp.json"),
        ("//" * 200_000, "mcp.json"),
        ("{" + ", " * 200_000, "mcp.json"),
        ("\0" * 200_000, "mcp.json"),
        ('{"mcpServers": {"a": {"command": "' + "${A:-" * 20_000 + "}" * 20_000 + '"}}}', "mcp.json"),
        ('{"mcpServers": {"a": {"command": "' + "${" * 200_000 + '"}}}', "mcp.json"),
        ('{"mcpServers": {' + ", ".join(f'"{n}": 1' for n in range(5_000)) + "}}", "mcp.json"),
    ],
    ids=range(17),
)
def test_a_hostile_file_is_an_error_and_not_a_crash_or_a_wait(tmp_path: Path, content: str, name: str) -> None:
    loaded = load(tmp_path, content, name)
    assert loaded.servers == ()
    assert loaded.errors
    assert all(len(str(error)) < 1000 for error in loaded.errors)
