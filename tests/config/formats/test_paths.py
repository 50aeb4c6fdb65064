"""Paths mean in a file what they mean in the program that it was written for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mcp_actors import Stdio
from mcp_actors.config._template import resolved

from .writing import load, wrong


def stdio(folder: Path, entry: object, name: str = "mcp.json", section: str = "mcpServers") -> Stdio:
    """Load a file with one entry, and return how its server is started."""
    loaded = load(folder, {section: {"docs": entry}}, name)
    assert loaded.errors == ()
    [server] = loaded.servers
    made = resolved(server.transport, {"DIR": "/dir"}, where="docs")
    assert isinstance(made, Stdio)
    return made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        (".mcp.json", ""),
        (".vscode/mcp.json", ""),
        (".cursor/mcp.json", ""),
        (".gemini/settings.json", ""),
        ("deeper/.mcp.json", "deeper"),
        ("mcp.json", None),
        ("deeper/servers.json", None),
    ],
)
def test_the_servers_of_a_project_are_started_in_its_folder(tmp_path: Path, name: str, starts: str | None) -> None:
    expected = None if starts is None else str(tmp_path / starts)
    assert stdio(tmp_path, {"command": "x"}, name).cwd == expected


@pytest.mark.parametrize("name", [".mcp.json", ".cursor/mcp.json", ".codex/config.json"])
def test_the_servers_of_a_person_are_started_where_the_program_is(home: Path, name: str) -> None:
    assert stdio(home, {"command": "x"}, name).cwd is None
    assert stdio(home / "project", {"command": "x"}, name).cwd == str(home / "project")


@pytest.mark.parametrize(
    ("cwd", "starts"),
    [
        ("sub", "{project}/sub"),
        ("./sub", "{project}/./sub"),
        ("/srv", "/srv"),
        ("${DIR}/sub", "/dir/sub"),
        ("sub/${DIR:-x}", "{project}/sub//dir"),
        ("${workspaceFolder}/sub", "{project}/sub"),
        ("~", "{home}"),
        ("~/sub", "{home}/sub"),
    ],
)
def test_a_relative_folder_begins_in_that_of_the_project(home: Path, cwd: str, starts: str) -> None:
    project = home / "project"
    expected = starts.format(project=project, home=home)
    assert stdio(project, {"command": "x", "cwd": cwd}, ".mcp.json").cwd == expected


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert "cwd is empty" in wrong(tmp_path, {"command": "x", "cwd": ""})


def test_a_script_of_a_project_is_found_in_it(tmp_path: Path) -> None:
    assert stdio(tmp_path, "./server.py", ".mcp.json") == Stdio(sys.executable, ("./server.py",), cwd=tmp_path)
    (tmp_path / "other.py").touch(mode=0o600)
    made = stdio(tmp_path, {"command": "./other.py"}, ".mcp.json")
    assert made == Stdio(sys.executable, ("./other.py",), cwd=tmp_path)


@pytest.mark.parametrize(
    ("command", "meant"),
    [("~/bin/x", "{home}/bin/x"), ("~", "{home}"), ("~other/x", "~other/x"), ("x~", "x~"), ("~/${DIR}", "{home}//dir")],
)
def test_a_command_may_begin_in_the_home_folder(home: Path, command: str, meant: str) -> None:
    assert stdio(home, {"command": command}).command == meant.format(home=home)


def test_arguments_begin_there_in_files_of_vs_code_only(home: Path) -> None:
    entry = {"command": "x", "args": ["~/a", "-p", "a/~/b", "~"]}
    assert stdio(home, entry).args == ("~/a", "-p", "a/~/b", "~")
    assert stdio(home, entry, section="servers").args == (f"{home}/a", "-p", "a/~/b", str(home))
    loaded = load(home, {"mcp": {"servers": {"docs": entry}}}, "settings.json")
    assert loaded.servers[0].transport == Stdio("x", (f"{home}/a", "-p", "a/~/b", str(home)))


def test_a_folder_whose_name_looks_like_a_variable_is_literal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "${NO_SUCH_VARIABLE}"
    monkeypatch.setenv("HOME", str(folder / "home"))
    made = stdio(folder, {"command": "~/x", "cwd": "sub"}, ".mcp.json")
    assert (made.command, made.cwd) == (f"{folder}/home/x", f"{folder}/sub")
