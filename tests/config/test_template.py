"""Transports of files with variables in any of their texts: resolved with the variables of the moment."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import attrs
import pytest

from mcp_actors import ConfigError, Http, ServerConfig, Sse, Stdio, load_config
from mcp_actors.config import Transport, resolve_headers, resolve_token, speaks_sse
from mcp_actors.config._template import check_variables, resolved
from mcp_actors.config._values import expand


def loaded(entry: dict[str, Any], **inputs: str) -> Transport:
    """Return the transport of an entry, in whose file these inputs have these values."""
    defined = [{"id": name, "type": "promptString", "default": value} for name, value in inputs.items()]
    found = load_config({"inputs": defined, "mcpServers": {"docs": entry}})
    assert not found.errors
    [server] = found.servers
    return server.transport


COMMAND = {
    "command": "${PYTHON:-python3}",
    "args": ["-m", "${MODULE}", "--key=${KEY:-none}", "$${literal}"],
    "cwd": "/srv/${NAME}",
    "env": {"TOKEN": "${TOKEN}", "PLAIN": "x"},
}


def test_every_text_is_expanded_with_the_variables_of_this_moment() -> None:
    """S2-21, S4-40: in a command, its arguments, its directory and its environment."""
    transport, environ = loaded(COMMAND), {"MODULE": "server", "NAME": "docs"}
    args = ("-m", "server", "--key=none", "${literal}")
    made = Stdio("python3", args, cwd="/srv/docs", env={"TOKEN": "${TOKEN}", "PLAIN": "x"})
    assert resolved(transport, environ, where="servers.docs") == made
    environ["MODULE"] = "an${other}"
    later = resolved(transport, environ, where="servers.docs")
    assert isinstance(later, Stdio)
    assert later.args[1] == "an${other}"


def test_an_undefined_variable_is_named_with_its_place() -> None:
    """S4-40."""
    with pytest.raises(ConfigError) as caught:
        resolved(loaded(COMMAND), {"MODULE": "server"}, where="servers.docs")
    assert str(caught.value).startswith("environment variable 'NAME' is not set (servers.docs.cwd); set it, or give")
    known = {"workspaceFolder": "/a", "pathSeparator": "/", "env:workspaceRoots": "x"}
    for name, remedy in {
        "workspaceRoot": "did you mean ${workspaceFolder}?",
        "pathSep": "did you mean ${pathSeparator}?",
        "myToken": "set it, or give a default: ${myToken:-default}",
        "WORKSPACE_ROOT": "set it, or give a default: ${WORKSPACE_ROOT:-default}",
    }.items():
        with pytest.raises(ConfigError) as caught:
            expand(f"${{{name}}}", {}, where="a", variables=known)
        assert str(caught.value) == f"environment variable {name!r} is not set (a); {remedy}"


def test_an_expanded_option_is_validated() -> None:
    transport = loaded({"url": "${URL}", "headers": {"A": "${A}"}, "auth": "${TOKEN}"})
    made = resolved(transport, {"URL": "https://example.com/mcp"}, where="docs")
    assert made == Http("https://example.com/mcp", headers={"A": "${A}"}, auth="${TOKEN}")
    for url, problem in (
        ("http://example.com", "would send everything unencrypted"),
        ("s3cret", r"docs: url '\${URL}' is not an http or https URL"),
        ("https://s3cret .com", r"docs: url '\${URL}' contains whitespace"),
        ("https://[s3cret", r"docs: url '\${URL}' has an invalid host or port"),
    ):
        with pytest.raises(ConfigError, match=problem) as caught:
            resolved(transport, {"URL": url}, where="docs")
        assert "s3cret" not in str(caught.value)
        assert caught.value.path in ("docs.url", "docs.allow_insecure")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "${A}", "env": {"B=c": "d"}}, "not a valid name of a variable"),
        ({"url": "${A}", "headers": {"A": "b\n"}}, "line break"),
        ({"url": "${A}", "auth": "t", "headers": {"Authorization": "b"}}, "remove one of the two"),
        ({"type": "sse", "url": "${A}", "mcp_actors": {"max_connections": 3}}, "is not an option of"),
        ({"url": "ftp://${A}", "mcp_actors": {"max_connections": 0}}, "max_connections=0 is not valid"),
    ],
)
def test_options_without_variables_are_validated_at_once(entry: dict[str, Any], problem: str) -> None:
    [error] = load_config({"mcpServers": {"docs": entry}}).errors
    assert problem in str(error)


def test_its_repr_shows_no_credential() -> None:
    url = "https://user:s3cret@${HOST}/mcp?key=s3cret"
    transport = loaded({"url": url, "headers": {"X-Key": "${input:key}"}}, key="s3cret")
    assert "s3cret" not in repr(transport)
    assert "${HOST}/mcp" in repr(transport)
    assert "s3cret" not in repr(
        loaded({"command": "${A}", "args": ["--token", "s3cret", "${input:key}"]}, key="s3cret")
    )


async def test_credentials_keep_the_answers_to_inputs_until_they_are_sent() -> None:
    transport: Any = loaded({"url": "https://x", "headers": {"A": "${input:key}"}, "auth": "${input:key}!"}, key="k")
    assert await resolve_headers(transport.headers, {}, where="docs") == {"A": "k"}
    assert await resolve_token(transport.auth, {}, where="docs") == "k!"
    assert resolved(transport, {}, where="docs") is transport


def test_an_expanded_url_is_shown_as_it_was_written() -> None:
    transport = loaded({"type": "http", "url": "https://${HOST}/${TOKEN}/mcp?key=${TOKEN}"})
    made = resolved(transport, {"HOST": "example.com", "TOKEN": "s3cret"}, where="docs")
    assert isinstance(made, Http)
    assert made.url == "https://example.com/s3cret/mcp?key=s3cret"
    assert made.display_url == "https://${HOST}/${TOKEN}/mcp?key=…"
    assert "s3cret" not in repr(made)


def test_two_of_the_same_are_equal_and_hashable() -> None:
    """An answer counts, because a server with another one is another server."""

    def made(command: str, key: str = "k") -> ServerConfig:
        return ServerConfig("a", loaded({"command": command, "args": ["${input:key}"], "env": {"A": "b"}}, key=key))

    assert made("${A}") == made("${A}") != made("${B}")
    assert made("${A}") != made("${A}", "other")
    assert len({made("${A}"), made("${A}")}) == 1
    assert loaded({"command": "${A}"}) == Stdio("${A}")


def test_a_transport_of_python_has_no_variables() -> None:
    transport = Stdio("${A}", ["${B}"], cwd="${C}")
    assert resolved(transport, {"A": "a", "B": "b", "C": "c"}, where="a") is transport


def test_a_copy_keeps_its_variables() -> None:
    transport: Any = loaded({"command": "x", "args": ["${input:key}"]}, key="k")
    assert pickle.loads(pickle.dumps(transport)) == transport
    changed = attrs.evolve(copy.deepcopy(transport), cwd="/x")
    assert resolved(changed, {}, where="a") == Stdio("x", ["k"], cwd="/x")


def test_variables_of_all_fields_are_checked_before_a_reload() -> None:
    """Those of credentials, too, which a connect resolves later."""
    for entry in ({"command": "${A}"}, {"command": "x", "env": {"B": "${A}"}}, {"url": "https://x", "auth": "${A}"}):
        check_variables(loaded(entry), {"A": "a"}, where="docs")
        with pytest.raises(ConfigError, match="environment variable 'A' is not set"):
            check_variables(loaded(entry), {}, where="docs")


def test_whether_it_speaks_sse_is_known_as_soon_as_its_variables_are() -> None:
    transport = loaded({"url": "${URL}"})
    assert not speaks_sse(transport, {})
    assert speaks_sse(transport, {"URL": "https://example.com/sse"})
    assert not speaks_sse(transport, {"URL": "https://example.com/mcp"})
    assert speaks_sse(Sse("https://example.com/mcp"), {})
    assert not speaks_sse(Http("https://example.com/sse"), {})
