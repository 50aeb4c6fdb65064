"""Files of other programs load as their authors meant, or name what is wrong: the table in ``files.toml``."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_actors import ConfigError, Http, ServerConfig, Sse, Stdio, load_config
from mcp_actors.config import Input
from mcp_actors.config._template import resolved
from mcp_actors.config._values import expand, variables_in
from mcp_actors.config.formats._programs import PROGRAMS, SECTION_WRITERS

from ...messages import Said
from ...source import ROOT
from .writing import load, warned

FILES: Final[list[dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("files.toml").read_text())["file"]
VARIABLES: Final = {"MY_TOKEN": "s3cret", "MY_KEY": "k3y"}


def project_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project, which is the current folder, and another home folder."""
    project = folder / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(folder / "home"))
    return project


def became(server: ServerConfig, project: Path) -> dict[str, Any]:
    """Return what a server is at a connect, as the table has it."""
    transport = resolved(server.transport, VARIABLES, where="it")

    def shown(values: Mapping[str, Any]) -> dict[str, str]:
        texts = {name: each if isinstance(each, str) else each.reveal() for name, each in values.items()}
        return {name: expand(text, VARIABLES, where="it", variables=variables_in(text)) for name, text in texts.items()}

    found: dict[str, Any]
    if isinstance(transport, Stdio):
        found = {
            "run": [transport.command, *transport.args],
            "in": transport.cwd,
            "env": shown(transport.env),
        }
    else:
        assert isinstance(transport, Http | Sse)
        kind = "http" if isinstance(transport, Http) else "sse"
        found = {kind: str(transport.url), "headers": shown(transport.headers)}
    found["off"] = not server.enabled
    found = {name: each for name, each in found.items() if each}
    shown_tools = server.tool_filter
    if shown_tools.allow is not None:
        found["tools"] = [*shown_tools.allow, *(shown_tools.patterns or ())]
    text = json.dumps(found)
    home = os.environ["HOME"]
    again: dict[str, Any] = json.loads(text.replace(str(project), "PROJECT").replace(home, "HOME"))
    return again


@pytest.mark.parametrize("file", FILES, ids=[f"{file['program']}" for file in FILES])
def test_a_file_of_another_program_means_what_it_means_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: dict[str, Any]
) -> None:
    """D-30, D-31 and D-32."""
    project = project_at(tmp_path, monkeypatch)
    loaded = load(project, file["text"].replace('"PROJECT"', json.dumps(str(project))), file["path"])
    if "whole" in file:
        assert [str(error) for error in loaded.errors] == [f"{loaded.source}: {file['whole']}"]
        return
    found: dict[str, Any] = {name: {"error": str(error)} for name, error in loaded.failed.items()}
    for server in loaded.servers:
        try:
            found[server.name] = became(server, project)
        except ConfigError as error:
            found[server.name] = {"error": str(error)}
    expected = file.get("servers", {})
    for name, each in expected.items():
        if "error" in each and each["error"] in found.get(name, {}).get("error", ""):
            found[name] = each
    assert found == expected
    unexpected = [*loaded.warnings]
    for text in file.get("warnings", ()):
        [warning] = [each for each in unexpected if text in each]
        unexpected.remove(warning)
    assert unexpected == []


def test_the_table_on_the_page_is_that_of_the_reader() -> None:
    page = (ROOT / "docs" / "howto" / "configuration.md").read_text()
    for each in PROGRAMS:
        places = [f"{each.folder}/"] if each.folder else []
        shown = ", ".join(f"`{place}`" for place in (*places, *each.files.split()))
        variable = "" if each.variable == "${NAME}" else f"`{each.variable}` "
        row = f"| {each.name} | `{each.section}` | {shown} | {variable}| {each.timeout} |".replace("|  |", "| |")
        assert row in page
        assert f"| `{each.section}`" in page
        assert each.section in SECTION_WRITERS


def test_a_name_that_is_written_is_never_given_to_another_server(tmp_path: Path) -> None:
    """D-32: in whatever order they are, and in two sections of a file."""
    entries = {"a b": {"command": "x"}, "a_b": {"command": "y"}}
    for servers in (entries, dict(reversed(entries.items()))):
        loaded = load(tmp_path, {"mcpServers": servers})
        assert {each.name: each.transport for each in loaded.servers} == {"a_b-c8687a08": Stdio("x"), "a_b": Stdio("y")}
    apart = load(tmp_path, {"mcpServers": {"a b": {"command": "x"}}, "servers": {"a_b": {"command": "y"}}})
    assert [each.name for each in apart.servers] == ["a_b-c8687a08", "a_b"]


def test_a_server_that_a_list_switches_off_is_not_asked_about_and_cannot_fail() -> None:
    """D-32: as with the switch in its own entry."""
    asked: list[str] = []

    def ask(question: Input) -> str:
        asked.append(question.id)
        return "k3y"

    servers = {
        "off": {"command": "a", "env": {"KEY": "${input:key}"}},
        "wrong": {"command": 1},
        "on": {"command": "b"},
    }
    document = {"inputs": [{"id": "key"}], "mcp": {"excluded": ["off", "wrong"]}, "mcpServers": servers}
    loaded = load_config(document, ask=ask)
    assert (asked, loaded.failed) == ([], {})
    assert [(server.name, server.enabled) for server in loaded.servers] == [("off", False), ("on", True)]
    assert [warning for warning in loaded.warnings if "wrong" in warning and "is disabled" in warning]


@pytest.mark.parametrize(
    ("lists", "row"),
    [
        ({"allowed": ["tiem", "notes"]}, "a list of servers that names an unknown one"),
        ({"excluded": ["nots"]}, "a list of excluded servers that names an unknown one"),
        ({"allowed": []}, "a list of servers that is empty"),
        ({"excluded": ["time", "notes"]}, "a list of excluded servers that has all"),
        ({"allowed": ["notes"]}, None),
    ],
)
def test_a_list_that_names_other_servers_than_there_are_is_named(
    lists: dict[str, list[str]], row: str | None, said: Said
) -> None:
    """D-32: otherwise a typing error there disables servers without a word."""
    servers = {"time": {"command": "a"}, "notes": {"command": "b"}}
    warnings = load_config({"mcp": lists, "mcpServers": servers}).warnings
    assert len(warnings) == (row is not None)
    for warning in warnings:
        said(str(row), warning)


def test_what_disables_servers_in_claude_code_is_its_own_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists servers of other files, too."""
    monkeypatch.chdir(tmp_path)
    project = {"mcpServers": {"a": {"command": "x"}}, "disabledMcpServers": ["a", "elsewhere"]}
    loaded = load(tmp_path, {"projects": {str(tmp_path): project}}, ".claude.json")
    assert ([server.enabled for server in loaded.servers], loaded.warnings) == ([False], ())


def test_an_option_and_its_value_in_one_string_are_named(tmp_path: Path) -> None:
    args = ["--local-timezone UTC", "--header=Authorization: x", "a -- b", "-c import x"]
    _, warning = warned(tmp_path, {"command": "x", "args": args})
    what = "this is an option, a space and more; write each as a string of its own"
    assert warning == f"mcpServers.docs.args[0]: {what}"


@pytest.mark.parametrize("marker", [".git", "pyproject.toml", "package.json", None])
def test_a_folder_with_a_dot_belongs_to_the_project_that_it_lies_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str | None
) -> None:
    """D-31."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if marker is not None:
        (tmp_path / marker).touch()
    entry = {"command": "x", "args": ["${workspaceFolder}"]}
    [server] = load(tmp_path, {"mcpServers": {"a": entry}}, ".editor/settings/mcp.json").servers
    folder = tmp_path if marker else tmp_path / ".editor" / "settings"
    assert resolved(server.transport, {}, where="a") == Stdio("x", (str(folder),), cwd=tmp_path if marker else None)
