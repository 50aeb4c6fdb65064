"""Servers that are written as a configuration, and read again."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from mcp.server import Server

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    Callbacks,
    ConfigError,
    Http,
    InProcess,
    RestartPolicy,
    RetryPolicy,
    Secret,
    ServerConfig,
    Sse,
    Stdio,
    ToolFilter,
    load_config,
)
from mcp_actors.auth import OAuth
from mcp_actors.config import Input, dump_config
from mcp_actors.config.formats._programs import FOREIGN

from ...messages import Said


def reloaded(document: Any, **options: Any) -> tuple[ServerConfig, ...]:
    """Read a dump again, by way of JSON."""
    loaded = load_config(json.loads(json.dumps(document)), **options)
    assert not loaded.errors
    assert not loaded.warnings
    return loaded.servers


# --- what is written ------------------------------------------------------------------------------------------------


def test_a_server_is_written_with_what_differs_from_the_defaults() -> None:
    servers = [
        ServerConfig("local", Stdio("server", ["${x}"], env={"TOKEN": "${TOKEN}"}, env_from=["HOME"]), enabled=False),
        ServerConfig("docs", Http("https://x.example", headers={"A": "Bearer ${B}"}), request_timeout=None),
        ServerConfig("old", Sse("https://x.example", auth="${C}"), restarts=RestartPolicy(backoff=Backoff(first=2.0))),
    ]
    document = dump_config(servers)
    assert document == {
        "mcpServers": {
            "local": {
                "command": "server",
                "args": ["$${x}"],
                "env": {"TOKEN": "${TOKEN}"},
                "enabled": False,
                "mcp_actors": {"env_from": ["HOME"]},
            },
            "docs": {
                "type": "http",
                "url": "https://x.example",
                "headers": {"A": "Bearer ${B}"},
                "mcp_actors": {"request_timeout": None},
            },
            "old": {
                "type": "sse",
                "url": "https://x.example",
                "mcp_actors": {"auth": "${C}", "restarts": {"backoff": {"first": 2.0}}},
            },
        }
    }
    assert reloaded(document) == tuple(servers)


def test_variables_anywhere_and_inputs_survive(tmp_path: Path) -> None:
    entries = {
        "a": {"command": "${HOME}/x", "args": ["$${x}", "${A:-b}"], "env": {"T": "${input:token}", "U": "${env:U}"}},
        "nested": {"command": "x", "env": {"T": "${T:-${input:nested}}"}},
        "b": {"url": "https://${USER}:${PASSWORD}@${HOST}/mcp?api_key=${KEY}"},
        "off": {"command": "${input:other}", "disabled": True},
    }
    inputs = [{"id": name, "type": "promptString"} for name in ("token", "other", "nested")]

    def ask(question: Input) -> str:
        return "answer"

    loaded = load_config({"mcpServers": entries, "inputs": inputs}, ask=ask)
    document = dump_config(loaded.servers)
    assert "answer" not in json.dumps(document)
    assert reloaded(document, ask=ask) == loaded.servers


def test_variables_of_another_folder_are_written_as_their_values(tmp_path: Path) -> None:
    file = tmp_path / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"servers": {"a": {"command": "x", "args": ["${workspaceFolder}/y"]}}}))
    document = dump_config(load_config(file).servers)
    assert document["mcpServers"]["a"]["args"] == [f"{tmp_path}/y"]


def test_a_sign_in_is_written_with_its_secret_as_a_variable() -> None:
    url = "https://x.example"
    plain = ServerConfig("plain", Http(url, auth=OAuth()))
    other = OAuth(
        client_id="me",
        client_secret="${SECRET}",
        scopes="a b",
        redirect="http://localhost:1234/callback",
        assume_pkce=True,
        send_resource=False,
        account="work",
    )
    servers = (plain, ServerConfig("other", Sse(url, auth=other)))
    document = dump_config(servers)
    assert document["mcpServers"]["plain"] == {"type": "http", "url": url, "oauth": True}
    assert document["mcpServers"]["other"]["oauth"]["clientSecret"] == "${SECRET}"
    assert reloaded(document) == servers


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "transport"),
    [
        ("dump: env", Stdio("x", env={"TOKEN": "hunter2"})),
        ("dump: a secret", Stdio("x", env={"TOKEN": Secret("hunter2")})),
        ("dump: a default", Stdio("x", env={"TOKEN": "${TOKEN:-hunter2}"})),
        ("dump: text around a variable", Stdio("x", env={"TOKEN": "${TOKEN}hunter2"})),
        ("dump: a header", Http("https://x.example", headers={"X-Key": "hunter2"})),
        ("dump: a scheme and a literal", Http("https://x.example", headers={"Authorization": "Bearer hunter2"})),
        ("dump: auth", Http("https://x.example", auth="hunter2")),
        (
            "dump: the secret of a client",
            Http("https://x.example", auth=OAuth(client_id="me", client_secret="hunter2")),
        ),
        ("dump: user-info", Http("https://user:hunter2@x.example")),
        ("dump: a parameter", Http("https://x.example/?api_key=hunter2&page=1")),
        ("dump: a query", Http("https://x.example/?hunter2")),
        ("dump: a fragment", Http("https://x.example/#hunter2")),
        ("dump: an argument", Stdio("x", ["--token", "hunter2"])),
        ("dump: a variable in an argument", Stdio("x", ["--env=API_KEY=hunter2"])),
    ],
)
def test_a_literal_credential_is_refused_by_name(said: Said, row: str, transport: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        dump_config([ServerConfig("docs", transport)])
    said(row, str(caught.value))
    assert "hunter2" not in str(caught.value)
    document = dump_config([ServerConfig("docs", transport)], literals=True)
    assert "hunter2" in json.dumps(document)
    [server] = reloaded(document)
    assert dump_config([server], literals=True) == document


def test_with_literals_an_argument_may_look_like_a_variable() -> None:
    server = ServerConfig("docs", Stdio("x", ["--token=${", "--key=${A B}"]))
    document = dump_config([server], literals=True)
    assert document["mcpServers"]["docs"]["args"] == ["--token=$${", "--key=$${A B}"]
    assert reloaded(document) == (server,)


def test_every_refused_value_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        dump_config([ServerConfig("docs", Stdio("x", env={"A": "a", "B": "b"})), ServerConfig("c", Stdio("~/x"))])
    assert "env.A" in str(caught.value)
    assert ["env.B" in note or "command begins" in note for note in caught.value.__notes__] == [True, True]


@pytest.mark.parametrize("literals", [False, True])
def test_a_value_that_cannot_be_read_is_named_with_its_server_and_hides_no_other(said: Said, literals: bool) -> None:
    arguments = Stdio("x", ["--token=${", "--key=${A B}"], env={"TOKEN": "${", "OTHER": lambda: "x"})
    header = Http("https://x.example", headers={"X-Key": "${x"}, auth=OAuth(client_id="me", client_secret="${"))
    with pytest.raises(ConfigError) as caught:
        dump_config([ServerConfig("docs", arguments), ServerConfig("c", header)], literals=literals)
    places = [] if literals else ["docs: args[0]", "docs: args[1]"]
    places += ["docs: env.TOKEN", "docs: env.OTHER", "c: headers.X-Key", "c: auth.client_secret"]
    found = [str(caught.value), *caught.value.__notes__]
    assert all(place.replace(": ", "': ") in error for place, error in zip(places, found, strict=True))
    row = "dump: an unclosed variable in a credential" if literals else "dump: an unclosed variable in an argument"
    said(row, str(caught.value))


@pytest.mark.parametrize(
    ("row", "server"),
    [
        ("dump: in this process", ServerConfig("docs", InProcess(Server("x")))),
        ("dump: a function", ServerConfig("docs", Stdio("x", env={"TOKEN": lambda: "x"}))),
        ("dump: a sign-in in Python", ServerConfig("docs", Http("https://x.example", auth=OAuth(sign_in_timeout=9.0)))),
        ("dump: callbacks", ServerConfig("docs", Stdio("x"), callbacks=Callbacks())),
        ("dump: a predicate", ServerConfig("docs", Stdio("x"), tool_filter=ToolFilter(predicate=lambda *_: True))),
    ],
)
def test_a_python_object_is_refused_in_any_case(said: Said, row: str, server: ServerConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        dump_config([server], literals=True)
    said(row, str(caught.value))


def test_two_servers_of_one_name_are_refused() -> None:
    server = ServerConfig("a", Stdio("x"))
    with pytest.raises(ConfigError, match="rename one of them"):
        dump_config([server, server])


# --- the round trip -------------------------------------------------------------------------------------------------

SPECIAL = st.sampled_from(["${x}", "$${x}", "${x", "a$$b"])
WORDS = SPECIAL | st.text(string.ascii_letters + string.digits + "-_./ ${}:~\"'\\é", min_size=1, max_size=12).filter(
    str.strip
)
NAMES = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
VARIABLES = NAMES.map(lambda name: f"${{{name}}}")
LITERALS = st.sampled_from(["a", "$${x}", "x ${A:-b}"])
VALUES = st.one_of(
    VARIABLES, VARIABLES.map(lambda text: f"Bearer {text}"), st.sampled_from(["a", "$${x}", "x ${A:-b}"])
)
PATHS = WORDS.filter(lambda text: text.partition("/")[0] != "~")
STDIO = st.builds(
    Stdio,
    PATHS,
    st.lists(WORDS.filter(lambda text: not FOREIGN.fullmatch(text)), max_size=3),  # a whole variable is a warning
    env=st.dictionaries(NAMES, VALUES, max_size=3),
    env_from=st.just(()),
    cwd=st.none() | PATHS,
    max_line_bytes=st.integers(1, 10**6),
)
HOSTS = st.sampled_from(
    ["https://x.example/mcp", "https://x.example/sse", "http://localhost:1/?a=b", "https://u:p@h.example"]
)
HEADERS = st.dictionaries(st.sampled_from(["X-A", "X-B"]), VALUES, max_size=2)
SECONDS = st.none() | st.floats(0.001, 1e6)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "required": st.booleans(),
        "connect_timeout": SECONDS,
        "request_timeout": SECONDS,
        "when_down": st.sampled_from(["wait", "fail"]),
        "max_in_flight": st.integers(1, 99),
        "restarts": st.builds(
            RestartPolicy, max_restarts=st.integers(0, 9), backoff=st.builds(Backoff, first=st.floats(0, 9))
        ),
        "retry": st.builds(RetryPolicy, attempts=st.integers(1, 5)),
        "breaker": st.none() | st.builds(BreakerPolicy, failures=st.integers(1, 9)),
        "tool_filter": st.builds(ToolFilter, deny=st.lists(NAMES, max_size=2)),
        "static_tools": st.lists(NAMES.map(lambda name: {"name": name, "inputSchema": {"type": "object"}}), max_size=1),
    },
)


def configure(name: str, transport: Any, options: dict[str, Any]) -> ServerConfig:
    return ServerConfig(name, transport, **options)


SERVERS = st.builds(
    configure,
    st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=8).filter(lambda name: name.strip("_")),
    STDIO | st.builds(Http, HOSTS, headers=HEADERS) | st.builds(Sse, HOSTS, headers=HEADERS),
    SETTINGS,
)


@settings(deadline=None)
@given(st.lists(SERVERS, max_size=3, unique_by=lambda server: server.name))
def test_what_is_written_is_read_as_equal_servers(servers: list[ServerConfig]) -> None:
    assert reloaded(dump_config(servers, literals=True)) == tuple(servers)


@settings(deadline=None)
@given(SERVERS, st.dictionaries(NAMES, VALUES | st.just("s3cr3t"), max_size=3))
def test_without_literals_no_credential_is_written(server: ServerConfig, env: dict[str, str]) -> None:
    server = attrs.evolve(server, transport=Stdio("x", env=env))
    try:
        written = dump_config([server])["mcpServers"][server.name].get("env", {})
    except ConfigError:
        assert set(env.values()) & {"s3cr3t", "a", "$${x}", "x ${A:-b}"}
    else:
        assert all(text.removeprefix("Bearer ").startswith("${") for text in written.values())
        assert written == env


@pytest.mark.parametrize(
    ("arg", "is_refused"),
    [
        ("--token=hunter2${SUFFIX}", True),
        ("--token=${TOKEN:-hunter2}", True),
        ("--db=postgres://${NAME}:hunter2@db.example/x", True),
        ("--env=API_KEY=${PREFIX}hunter2", True),
        ("--env=API_KEY=${API_KEY}", False),
        ("--token=${TOKEN}", False),
        ("--header=Authorization: Bearer ${TOKEN}", False),
        ("postgres://${env:NAME}:${env:PASSWORD}@db.example/x?sslmode=require", False),
    ],
)
def test_an_argument_may_have_a_variable_and_still_be_a_literal(arg: str, is_refused: bool) -> None:
    (server,) = load_config({"mcpServers": {"docs": {"command": "serve", "args": [arg]}}}).servers
    if is_refused:
        with pytest.raises(ConfigError, match=r"args\[0\] (is a literal|has text|has a default)"):
            dump_config([server])
    else:
        assert reloaded(dump_config([server])) == (server,)


@pytest.mark.parametrize(
    "url",
    [
        "https://${env:NAME}:${env:PASSWORD}@docs.example/mcp",
        "http://[${HOST}]:80/mcp",
        "http://x/?${QUERY}&page=1#${PART}",
    ],
)
def test_variables_anywhere_in_a_url_are_written(url: str) -> None:
    (server,) = load_config({"mcpServers": {"docs": {"url": url}}}).servers
    assert reloaded(dump_config([server])) == (server,)
