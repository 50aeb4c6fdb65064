"""Transports with variables in any of their texts: made anew of the variables of the moment."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_actors import ConfigError, Http, Sse, Stdio
from mcp_actors.config import Secret, TransportTemplate, speaks_sse

COMMAND = TransportTemplate(
    "stdio",
    {
        "command": "${PYTHON:-python3}",
        "args": ["-m", "${MODULE}", "--key=${KEY:-none}", "$${literal}"],
        "cwd": "/srv/${NAME}",
        "env": {"TOKEN": "${TOKEN}", "PLAIN": "x"},
    },
)


def test_every_text_is_expanded_with_the_variables_of_this_moment() -> None:
    """S2-21, S4-40: in a command, its arguments, its directory and its environment."""
    environ = {"MODULE": "server", "NAME": "docs", "TOKEN": "s3cret"}
    first = COMMAND.resolve(environ, where="servers.docs")
    assert first == Stdio(
        "python3",
        ("-m", "server", "--key=none", "${literal}"),
        cwd="/srv/docs",
        env={"TOKEN": Secret("s3cret"), "PLAIN": Secret("x")},
    )
    environ["TOKEN"] = "an${other}"
    assert COMMAND.resolve(environ, where="servers.docs").env["TOKEN"] == Secret("an${other}")  # type: ignore[union-attr]  # a Stdio


def test_an_undefined_variable_is_named_with_its_place() -> None:
    """S4-40."""
    with pytest.raises(ConfigError) as caught:
        COMMAND.resolve({}, where="servers.docs")
    assert str(caught.value).startswith("environment variable 'NAME' is not set (servers.docs.cwd); set it, or give")


def test_an_expanded_option_is_validated() -> None:
    template = TransportTemplate("url", {"url": "${URL}", "headers": {"A": "${A}"}, "auth": "${TOKEN}"})
    environ = {"URL": "https://example.com/mcp", "A": "a", "TOKEN": "t"}
    made = template.resolve(environ, where="docs")
    assert made == Http("https://example.com/mcp", headers={"A": Secret("a")}, auth=Secret("t"))
    for change, problem in (
        ({"URL": "http://example.com"}, "would send everything unencrypted"),
        ({"URL": "s3cret"}, r"docs: url '\${URL}' is not an http or https URL"),
        ({"URL": "https://s3cret .com"}, r"docs: url '\${URL}' contains whitespace"),
        ({"URL": "https://[s3cret"}, r"docs: url '\${URL}' has an invalid host or port"),
        ({"A": "s3cret\n"}, "the value contains a line break"),
        ({"TOKEN": "Bearer s3cret"}, "begins with an auth scheme"),
    ):
        with pytest.raises(ConfigError, match=problem) as caught:
            template.resolve({**environ, **change}, where="docs")
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        ("stdio", {"args": ["${A}"]}, "command"),
        ("stdio", {"command": "${A}", "env": {"B=c": "d"}}, "not a valid name of a variable"),
        ("http", {"url": "${A}", "headers": {"A": "b\n"}}, "line break"),
        ("http", {"url": "${A}", "auth": "t", "headers": {"Authorization": "b"}}, "remove one of the two"),
        ("sse", {"url": "${A}", "max_connections": 3}, "is not an option of"),
        ("http", {"url": "ftp://${A}", "max_connections": 0}, "max_connections=0 is not valid"),
    ],
)
def test_options_without_variables_are_validated_at_once(kind: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=problem):
        TransportTemplate(kind, options)


def test_its_repr_shows_no_credential() -> None:
    options = {
        "url": "https://user:s3cret@${HOST}/mcp?key=s3cret",
        "headers": {"X-Key": "s3cret"},
    }
    shown = repr(TransportTemplate("http", options, {"input:key": "s3cret"}))
    assert "s3cret" not in shown
    assert "${HOST}/mcp" in shown
    assert "s3cret" not in repr(TransportTemplate("http", {"url": "${A}", "auth": "s3cret"}))
    assert "s3cret" not in repr(TransportTemplate("stdio", {"command": "${A}", "args": ["--token", "s3cret"]}))


def test_an_expanded_url_is_shown_as_it_was_written() -> None:
    template = TransportTemplate("http", {"url": "https://${HOST}/${TOKEN}/mcp?key=${TOKEN}"})
    made = template.resolve({"HOST": "example.com", "TOKEN": "s3cret"}, where="docs")
    assert isinstance(made, Http)
    assert made.url == "https://example.com/s3cret/mcp?key=s3cret"
    assert made.display_url == "https://${HOST}/${TOKEN}/mcp?key=…"
    assert "s3cret" not in repr(made)


def test_two_of_the_same_are_equal_and_hashable() -> None:
    def make(command: str) -> TransportTemplate:
        return TransportTemplate("stdio", {"command": command, "args": ["a"], "env": {"A": "b"}}, {"input:key": "k"})

    assert make("${A}") == make("${A}") != make("${B}")
    assert len({make("${A}"), make("${A}")}) == 1


def test_whether_it_speaks_sse_is_known_as_soon_as_its_variables_are() -> None:
    template = TransportTemplate("url", {"url": "${URL}"})
    assert not speaks_sse(template, {})
    assert speaks_sse(template, {"URL": "https://example.com/sse"})
    assert not speaks_sse(template, {"URL": "https://example.com/mcp"})
    assert speaks_sse(Sse("https://example.com/mcp"), {})
    assert not speaks_sse(Http("https://example.com/sse"), {})
