"""Lists of tools in other programs' words make a filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_actors import ToolFilter

from ...messages import Said
from .writing import load, one, warned, wrong


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, ToolFilter()),
        ({"enabled_tools": ["a", "b"]}, ToolFilter(allow=["a", "b"])),
        ({"disabled_tools": ["c"]}, ToolFilter(deny=["c"])),
        ({"enabled_tools": ["a", "b"], "disabled_tools": ["b", "c"]}, ToolFilter(allow=["a"], deny=["b", "c"])),
        ({"enabled_tools": []}, ToolFilter(allow=[])),
        ({"includeTools": ["a"], "excludeTools": ["b"]}, ToolFilter(allow=["a"], deny=["b"])),
        ({"disabledTools": ["a"]}, ToolFilter(deny=["a"])),
        ({"tools": ["a"]}, ToolFilter(allow=["a"])),
        (
            {"mcp_actors": {"tool_filter": {"allow": ["a"], "patterns": ["b*"]}}},
            ToolFilter(allow=["a"], patterns=["b*"]),
        ),
    ],
)
def test_the_tools_that_a_file_names_are_those_that_are_shown(
    tmp_path: Path, entry: dict[str, Any], expected: ToolFilter
) -> None:
    assert one(tmp_path, {"command": "x", **entry}).tool_filter == expected


def test_a_star_shows_all_and_a_pattern_hides_what_it_matches(tmp_path: Path) -> None:
    everything = one(tmp_path, {"command": "x", "tools": ["*"]}).tool_filter
    assert everything.shows("anything")
    some = one(tmp_path, {"command": "x", "enabled_tools": ["read_*", "a"], "disabled_tools": ["*_all"]}).tool_filter
    assert [name for name in ("a", "read_one", "read_all", "b") if some.shows(name)] == ["a", "read_one"]


def test_the_lists_of_codex_in_toml(tmp_path: Path) -> None:
    content = '[mcp_servers.a]\ncommand = "x"\nenabled_tools = ["a", "b"]\ndisabled_tools = ["b"]\n'
    [server] = load(tmp_path, content, "config.toml").servers
    assert [name for name in ("a", "b", "c") if server.tool_filter.shows(name)] == ["a"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("default_tools_approval_mode", "prompt"),
        ("tools", {"a": {"approval_mode": "prompt"}}),
        ("trust", True),
        ("trust", False),
        ("alwaysAllow", ["a"]),
        ("autoApprove", ["a"]),
    ],
)
def test_an_approval_is_a_warning(tmp_path: Path, key: str, value: object, said: Said) -> None:
    """D-02. All tools are shown, and none waits for approval."""
    server, text = warned(tmp_path, {"command": "x", key: value})
    assert server.tool_filter == ToolFilter()
    said("an approval of another program", text.removeprefix(f"mcpServers.docs.{key}: "))


def test_an_empty_list_of_approvals_says_nothing(tmp_path: Path) -> None:
    assert one(tmp_path, {"command": "x", "alwaysAllow": [], "autoApprove": []}).tool_filter == ToolFilter()


@pytest.mark.parametrize(
    ("entry", "row"),
    [
        (
            {"enabled_tools": "a"},
            "mcpServers.docs.enabled_tools: found a str of 1 character",
        ),
        ({"disabledTools": [3]}, "mcpServers.docs.disabledTools: found a list"),
        ({"disabled_tools": {"a": True}}, "mcpServers.docs.disabled_tools: found an object"),
        (
            {"enabled_tools": ["a"], "includeTools": ["b"]},
            "mcpServers.docs: 'enabled_tools' and 'includeTools' set the same option",
        ),
        (
            {"disabled_tools": ["a"], "mcp_actors": {"tool_filter": {}}},
            "mcpServers.docs: 'disabled_tools' and 'mcp_actors.tool_filter' set the same option",
        ),
        (
            {"mcp_actors": {"tool_filter": {"allow": ["a"], "deny": ["a"]}}},
            "mcpServers.docs.mcp_actors.tool_filter: 'a' is both in allow and in deny",
        ),
        (
            {"mcp_actors": {"tool_filter": {"predicate": "x"}}},
            "mcpServers.docs.mcp_actors.tool_filter.predicate: a file cannot hold the Python objects that this takes",
        ),
    ],
)
def test_an_invalid_or_repeated_list_is_an_error(tmp_path: Path, entry: dict[str, Any], row: str, said: Said) -> None:
    """S4-26."""
    said(row, wrong(tmp_path, {"command": "x", **entry}))
