"""Inputs of a configuration are asked for once, and only if a server needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_actors import ConfigError, Stdio
from mcp_actors.config import Input, LoadedConfig, Secret, load_config
from mcp_actors.config._template import resolved

from ...messages import Said
from .writing import load

KEY = {"id": "key", "type": "promptString", "description": "The key", "password": True}


def reading(folder: Path, servers: dict[str, Any], inputs: object = (KEY,), **options: Any) -> LoadedConfig:
    return load(folder, {"inputs": inputs, "servers": servers}, **options)


def args_of(loaded: LoadedConfig) -> tuple[str, ...]:
    [server] = loaded.servers
    made = resolved(server.transport, {}, where="docs")
    assert isinstance(made, Stdio)
    return made.args


def error_of(loaded: LoadedConfig) -> str:
    assert loaded.servers == ()
    [error] = loaded.errors
    return str(error).removeprefix(f"{loaded.source}: ")


def test_an_input_that_several_servers_need_is_asked_for_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(question: Input) -> str:
        asked.append(question.id)
        return "s3cret"

    servers = {name: {"command": "x", "args": ["${input:key}", "${input:key}!"]} for name in ("a", "b")}
    loaded = reading(tmp_path, servers, ask=ask)
    assert (len(loaded.servers), asked) == (2, ["key"])
    assert "s3cret" not in repr(loaded)
    [first, _] = loaded.servers
    assert resolved(first.transport, {}, where="a") == Stdio("x", ("s3cret", "s3cret!"))


def test_inputs_of_a_disabled_or_invalid_server_are_not_asked_for(tmp_path: Path) -> None:
    """S3-01."""

    def ask(question: Input) -> str:
        raise AssertionError(question)

    servers = {
        "off": {"command": "x", "args": ["${input:key}"], "disabled": True},
        "wrong": {"url": "https://example.com", "type": "x", "headers": {"A": "${input:key}"}},
        "without": {"command": "x"},
    }
    loaded = reading(tmp_path, servers, ask=ask)
    assert [server.name for server in loaded.servers] == ["off", "without"]
    assert list(loaded.failed) == ["wrong"]


def test_an_answer_is_taken_literally_and_a_secret_may_be_one(tmp_path: Path) -> None:
    loaded = reading(tmp_path, {"a": {"command": "x", "args": ["${input:key}"]}}, ask=lambda _: Secret("${HOME}"))
    assert args_of(loaded) == ("${HOME}",)


@pytest.mark.parametrize("ask", [None, lambda _: None])
def test_an_input_without_an_answer_has_its_default(tmp_path: Path, ask: Any) -> None:
    inputs = [{**KEY, "default": "d"}]
    assert args_of(reading(tmp_path, {"a": {"command": "x", "args": ["${input:key}"]}}, inputs, ask=ask)) == ("d",)


def test_a_choice_has_options_and_the_answer_is_one_of_them(tmp_path: Path) -> None:
    inputs = [{"id": "key", "type": "pickString", "description": "", "options": ["a", {"label": "B", "value": "b"}]}]
    servers = {"a": {"command": "x", "args": ["${input:key}"]}}
    assert args_of(reading(tmp_path, servers, inputs, ask=lambda question: question.options[1])) == ("b",)
    problem = error_of(reading(tmp_path, servers, inputs, ask=lambda _: "s3cret"))
    assert problem == "servers.a: the answer to input 'key' is not one of its options"


@pytest.mark.parametrize(
    ("inputs", "ask", "row"),
    [
        ([KEY], None, "input 'key' has no value"),
        ([KEY], lambda _: None, "input 'key' was not answered"),
        ([KEY], lambda _: 3, "the ask function returned an int for input 'key'"),
        ([], None, "no inputs at all"),
        ([{"id": "other"}], None, "input 'key' not found in this file"),
        ("key", None, "inputs: found a str"),
        ({"key": KEY}, None, "inputs: found an object"),
        ([KEY["id"]], None, "inputs[0]: no id"),
        ([KEY, KEY], None, "input 'key' is defined twice"),
        (
            [{**KEY, "type": "command"}],
            None,
            "inputs[0].type: found a str of 7 characters",
        ),
        ([{**KEY, "default": 3}], None, "inputs[0].default: found an int"),
        ([{**KEY, "type": "pickString"}], None, "inputs[0].options: write a list of strings to choose from"),
    ],
)
def test_an_input_that_cannot_be_had_is_the_error_of_the_server(
    tmp_path: Path, inputs: object, ask: Any, row: str, said: Said
) -> None:
    loaded = reading(tmp_path, {"a": {"command": "x", "env": {"A": "${input:key}"}}}, inputs, ask=ask)
    said(row, error_of(loaded))


def test_inputs_of_the_wrong_form_are_a_warning_if_no_server_needs_them(tmp_path: Path) -> None:
    loaded = reading(tmp_path, {"a": {"command": "x"}}, {"key": KEY})
    assert len(loaded.servers) == 1
    [warning] = loaded.warnings
    assert warning.startswith(f"{loaded.source}: inputs: found an object; write a list: ")


def test_an_ask_function_that_raises_is_named_by_what_it_raised(tmp_path: Path, said: Said) -> None:
    def ask(question: Input) -> str:
        raise EOFError("s3cret")

    loaded = reading(tmp_path, {"a": {"command": "x", "args": ["${input:key}"]}}, ask=ask)
    said("the ask function raised", error_of(loaded))
    assert isinstance(loaded.errors[0].__cause__, EOFError)


def test_a_keyboard_interrupt_while_it_asks_goes_through(tmp_path: Path) -> None:
    def ask(question: Input) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reading(tmp_path, {"a": {"command": "x", "args": ["${input:key}"]}}, ask=ask)


def test_ask_must_be_a_function() -> None:
    with pytest.raises(ConfigError, match="load_config: ask is a str of 3 characters; give a function"):
        load_config({}, ask="key")  # type: ignore[arg-type]  # that is what is tested
