"""A configuration far larger than people write is an error, and is refused quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_actors.config import load_config
from mcp_actors.config.formats import _keys
from mcp_actors.config.formats._keys import SETTABLE

from .writing import load

TOO_LONG = 10**5000
"""Python does not write it, and cannot make a float of it."""


def only_error(document: dict[str, Any]) -> str:
    """Load a document that is refused as a whole."""
    loaded = load_config(document)
    assert loaded.servers == ()
    [error] = loaded.errors
    assert list(loaded.failed) == ["a mapping"]
    return str(error)


def test_a_thousand_servers_are_enough(tmp_path: Path) -> None:
    servers = {f"s{index}": "server.py" for index in range(1001)}
    refused = "mcpServers: there are more than 1000 entries here; check that this is the right file"
    assert only_error({"mcpServers": servers}) == f"a mapping: {refused}"
    servers.popitem()
    assert len(load(tmp_path, {"mcpServers": servers}).servers) == 1000


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x" * 2**20},
        {"command": "x", "args": ["${X}"] * 70_000},
        {"command": "x", "mcp_actors": {"tool_filter": {"patterns": ["*"] * 70_000}}},
        {"command": "x", **{f"comand{index}": 0 for index in range(40_000)}},
    ],
)
def test_a_mebibyte_of_servers_is_enough(entry: dict[str, Any]) -> None:
    refused = "mcpServers: there is more than 1 MiB here; check that this is the right file"
    assert only_error({"mcpServers": {"a": entry}}) == f"a mapping: {refused}"


def test_the_inputs_are_bounded_too() -> None:
    inputs = [{"id": f"i{index}"} for index in range(30_000)]
    assert "inputs: there is more than 1 MiB here" in only_error({"servers": {"a": {"command": "x"}}, "inputs": inputs})


def test_a_file_may_contain_megabytes_of_other_things(tmp_path: Path) -> None:
    document = {"history": ["x" * 1000] * 3000, "mcpServers": {"a": {"command": "x"}}}
    [server] = load(tmp_path, document).servers
    assert server.name == "a"


def test_a_mapping_that_contains_itself_is_refused() -> None:
    document: dict[str, Any] = {"mcpServers": {"a": {"command": "x"}}}
    document["mcpServers"]["a"]["mcp_actors"] = document
    assert "there is more than 1 MiB here" in only_error(document)
    endless: list[Any] = []
    endless.append(endless)
    assert "there is more than 1 MiB here" in only_error({"mcpServers": {"a": {"command": "x", "args": endless}}})


@pytest.mark.parametrize("key", sorted(_keys.KNOWN | SETTABLE))
def test_a_number_of_too_many_digits_fails_its_server_only(key: str) -> None:
    entry: dict[str, Any] = {"command": "x"}
    for value in (TOO_LONG, [TOO_LONG], {"a": TOO_LONG}, {TOO_LONG: "a"}):
        for one in ({**entry, key: value}, {**entry, "mcp_actors": {key: value}}):
            loaded = load_config({"mcpServers": {"a": one, "b": entry}})
            assert [server.name for server in loaded.servers] == ["b"]
            [error] = loaded.errors
            assert str(error).endswith("mcpServers.a: a number has too many digits; write a smaller one")


@pytest.mark.parametrize("document", [{TOO_LONG: 1}, {"mcpServers": {TOO_LONG: {}}}, {"mcpServers": {True: {}}}])
def test_a_number_is_not_a_valid_name(document: dict[Any, Any]) -> None:
    [error] = load_config(document).errors
    assert "<an int>" in str(error) or "<a bool>" in str(error)


def test_the_first_of_many_unknown_keys_are_named() -> None:
    entry = {"command": "x", **{f"comand{index}": 0 for index in range(1000)}}
    *told, rest = load_config({"mcpServers": {"a": entry}}).warnings
    assert len(told) == 10
    assert all("has no effect (did you mean 'command'?)" in each for each in told)
    assert rest == "a mapping: mcpServers.a: 990 more unknown keys have no effect"


def test_of_many_inputs_some_are_named() -> None:
    inputs = [{"id": f"i{index}"} for index in range(1000)]
    document = {"servers": {"a": {"command": "${input:none}"}}, "inputs": inputs}
    [error] = load_config(document, ask=lambda _: "x").errors
    assert str(error).endswith("'i8', 'i9'")


def test_comments_are_not_searched_for_in_large_files(tmp_path: Path) -> None:
    good = '{"mcpServers": {"a": {"command": "x"}}} // end'
    assert load(tmp_path, good).servers
    [error] = load(tmp_path, good + " " * 2 * 1024**2).errors
    assert "the file is not valid JSON" in str(error)
    assert str(error).endswith("(line 1, column 41); a closing bracket before it is probably too many")
