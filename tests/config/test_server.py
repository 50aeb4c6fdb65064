"""One server's configuration: its defaults, what it refuses, and that it shows no credential."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from httpx2 import AsyncClient, BasicAuth
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult

from mcp_actors import (
    Callbacks,
    ConfigError,
    Http,
    InProcess,
    Limits,
    RestartPolicy,
    RetryPolicy,
    ServerConfig,
    Socket,
    Stdio,
    ToolFilter,
    ToolRequest,
    open_servers,
)
from mcp_actors.auth import FileTokenStore, OAuth
from mcp_actors.config import (
    BreakerPolicy,
    CallNext,
    ConfigValue,
    FileSource,
    Secret,
    ToolContext,
    check_unique_names,
)

from ..messages import Said

POSITIVE = "give a positive, finite number of seconds"
WHOLE = "give a whole number of 1 or more"


def docs(**arguments: Any) -> ServerConfig:
    return ServerConfig("docs", Stdio("docs-server"), **arguments)


class Thing:
    """A class of the program."""


def opening(config: Any = None, **options: Any) -> None:
    """Open a group."""

    async def main() -> None:
        async with open_servers(*filter(None, [config]), **options):
            pytest.fail("it is open")

    trio.run(main)


def test_only_a_name_and_a_transport_are_needed() -> None:
    config = docs()
    assert (config.name, config.transport) == ("docs", Stdio("docs-server"))
    assert (config.enabled, config.required, config.on_failure, config.protocol) == (True, False, "park", "auto")
    assert (config.connect_timeout, config.stop_timeout) == (30, 5)
    assert (config.max_in_flight, config.mailbox_size, config.overflow) == (64, 256, "wait")
    assert config.restarts == RestartPolicy()


@pytest.mark.parametrize(
    ("given", "startup_timeout"),
    [
        ({}, 300),
        ({"connect_timeout": 29}, 29),
        ({"connect_timeout": 30}, 300),
        ({"connect_timeout": 400}, 400),
        ({"connect_timeout": None}, None),
        ({"connect_timeout": 5, "startup_timeout": 60}, 60),
        ({"startup_timeout": None}, None),
    ],
)
def test_a_short_connect_timeout_bounds_the_start_too(given: dict[str, Any], startup_timeout: float | None) -> None:
    """B-01: unless that is given."""
    assert docs(**given).startup_timeout == startup_timeout


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", ".", "x" * 64])
def test_a_legal_name_is_kept_as_it_is(name: str) -> None:
    assert ServerConfig(name, Stdio("server")).name == name


def test_a_transport_in_place_of_the_name_is_said_to_come_second() -> None:
    transport: Any = Stdio("server")
    with pytest.raises(ConfigError, match=r'the name comes first: ServerConfig\("name", Stdio\(…\)\)'):
        ServerConfig(transport, transport)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "''"),
        ("a b", "'a b'"),
        ("a/b", "'a/b'"),
        ("café", "'café'"),
        ("docs\n", r"'docs\n'"),
        ("x" * 65, "'" + "x" * 59 + "…"),
        (3, "3"),
        (None, "None"),
        (["docs"], "<list>"),
    ],
)
def test_an_illegal_name_is_refused_with_the_rule(name: str, shown: str, said: Said) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(name, Stdio("server"))
    said("invalid name of a server", str(caught.value), name=shown)
    assert (caught.value.source, caught.value.path) == ("ServerConfig", "name")


@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        ("connect_timeout", f"{POSITIVE}, or None"),
        ("startup_timeout", f"{POSITIVE}, or None"),
        ("stop_timeout", POSITIVE),
    ],
)
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-1.5, "-1.5"),
        (True, "True"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        ("30", "'30'"),
        ([30], "<list>"),
    ],
)
def test_a_timeout_is_a_positive_finite_number_of_seconds(field: str, remedy: str, value: object, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        docs(**{field: value})
    example = f"; for example {5 if field == 'stop_timeout' else 30}, without quotes" if value == "30" else ""
    assert str(caught.value) == f"server 'docs': {field}={shown} is not valid; {remedy}{example}"
    assert (caught.value.source, caught.value.path) == ("ServerConfig", f"servers.docs.{field}")


def test_a_connect_may_be_unbounded_and_a_stop_may_not() -> None:
    assert docs(connect_timeout=None).connect_timeout is None
    with pytest.raises(ConfigError, match="stop_timeout=None is not valid"):
        docs(stop_timeout=None)


def test_where_it_was_written_makes_no_other_server() -> None:
    assert docs(source="/etc/mcp.json") == docs()
    with pytest.raises(ConfigError, match="source=<PosixPath> is not valid"):
        docs(source=Path("/etc/mcp.json"))


def test_a_timeout_that_no_float_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=POSITIVE):
        docs(connect_timeout=10**400)


@pytest.mark.parametrize("field", ["max_in_flight", "mailbox_size"])
@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (-1, "-1"), (True, "True"), (1.0, "1.0"), (None, "None")])
def test_a_size_is_a_whole_number_of_at_least_one(field: str, value: object, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        docs(**{field: value})
    assert str(caught.value) == f"server 'docs': {field}={shown} is not valid; {WHOLE}"
    assert caught.value.path == f"servers.docs.{field}"


@pytest.mark.parametrize("field", ["enabled", "required"])
@pytest.mark.parametrize(("value", "shown"), [("no", "'no'"), (1, "1"), (None, "None")])
def test_a_flag_is_true_or_false_and_nothing_that_looks_like_it(field: str, value: object, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        docs(**{field: value})
    assert str(caught.value) == f"server 'docs': {field}={shown} is not valid; give True or False"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("on_failure", "ignore", "on_failure='ignore' is not valid; choose 'park' or 'raise'"),
        ("overflow", None, "overflow=None is not valid; choose 'wait' or 'fail'"),
        (
            "protocol",
            "2025-11-25",
            "protocol='2025-11-25' is not valid; choose 'auto' or 'legacy' or '2026-07-28'",
        ),
        (
            "restarts",
            5,
            "restarts=<int> is not valid; give a RestartPolicy(...); RestartPolicy(max_restarts=0) disables restarting",
        ),
    ],
)
def test_a_word_that_is_not_offered_is_refused_with_those_that_are(field: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        docs(**{field: value})
    assert str(caught.value) == f"server 'docs': {message}"
    assert (caught.value.source, caught.value.path) == ("ServerConfig", f"servers.docs.{field}")


@pytest.mark.parametrize("transport", ["https://user:hunter2@example.com", {"command": "hunter2"}, None])
def test_an_invalid_transport_is_refused_without_being_shown(transport: Any, said: Said) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig("docs", transport)
    kind = type(transport).__name__
    said("invalid transport", str(caught.value), kind=kind)
    assert caught.value.path == "servers.docs.transport"


def test_everything_but_name_and_transport_is_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        ServerConfig("docs", Stdio("server"), True)  # type: ignore[call-arg]  # that it refuses is what is tested


def test_it_is_frozen_hashable_and_equal_to_what_was_configured_alike() -> None:
    config = docs()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.enabled = False  # type: ignore[misc]  # that it refuses is what is tested
    assert {config: 1}[docs()] == 1
    assert config != docs(enabled=False)
    assert pickle.loads(pickle.dumps(config)) == config


def test_no_credential_is_in_the_repr() -> None:
    env: dict[str, ConfigValue] = {"TOKEN": "hunter2", "KEY": Secret("hunter2")}
    stdio = ServerConfig("a", Stdio("server", ["--token", "hunter2"], env=env))
    headers = {"Authorization": "Bearer hunter2"}
    http = ServerConfig("b", Http("https://example.com/mcp?key=hunter2", headers=headers))
    in_url = ServerConfig("c", Http("https://user:hunter2@example.com/mcp"))
    for config in (stdio, http, in_url):
        assert "hunter2" not in repr(config)
        assert "hunter2" not in str(config)
    assert "env={'TOKEN': …, 'KEY': …}" in repr(stdio)
    assert "Http('https://example.com/mcp?key=…', headers={'Authorization': …})" in repr(http)


def test_its_repr_shows_what_differs_from_the_defaults() -> None:
    """Also within a policy; a default that follows another value is a default."""
    config = ServerConfig(
        "a",
        Stdio("server"),
        connect_timeout=10,
        restarts=RestartPolicy(max_restarts=0),
        retry=RetryPolicy(attempts=3),
        tool_filter=ToolFilter(predicate=never_equal),
        middleware=[pass_on],
    )
    assert repr(config) == (
        "ServerConfig('a', Stdio('server'), tool_filter=ToolFilter(predicate=<NeverEqual>), connect_timeout=10, "
        "restarts=RestartPolicy(max_restarts=0), middleware=[<pass_on>])"
    )
    assert (repr(RetryPolicy()), repr(Limits()), repr(Callbacks())) == ("RetryPolicy()", "Limits()", "Callbacks()")


async def pass_on(request: ToolRequest, call_next: CallNext) -> CallToolResult:
    return await call_next(request)


class NeverEqual:
    """A predicate that raises if it is compared."""

    def __call__(self, tool: object, context: ToolContext) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        raise TypeError("do not compare")

    __hash__ = object.__hash__


never_equal = NeverEqual()


def test_two_servers_of_one_name_are_refused_disabled_or_not(said: Said) -> None:
    configs = [docs(), ServerConfig("time", Stdio("time")), docs(enabled=False)]
    with pytest.raises(ConfigError) as caught:
        check_unique_names(configs)
    said("two servers of one name", str(caught.value))
    assert (caught.value.source, caught.value.path) == ("ServerConfig", "servers.docs")


def test_names_that_differ_are_fine() -> None:
    check_unique_names([docs(), ServerConfig("Docs", InProcess(object()))])  # type: ignore[arg-type]  # not a server of the SDK


def test_an_error_keeps_its_problem_apart_from_its_owner() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig("docs", Stdio("x"), max_in_flight=0)
    problem = "max_in_flight=0 is not valid; give a whole number of 1 or more"
    assert (str(caught.value), caught.value.problem) == (f"server 'docs': {problem}", problem)
    assert ConfigError("a problem of nobody").problem == "a problem of nobody"


HTTP: Any = partial(Http, "https://x.org/")


@pytest.mark.parametrize(
    ("make", "given", "remedy"),
    [
        (HTTP, {"auth": OAuth}, "auth is the class OAuth; write auth=OAuth()"),
        (HTTP, {"auth": BasicAuth}, "auth is the class BasicAuth; write auth=BasicAuth(…)"),
        (HTTP, {"auth": Secret}, "auth is the class Secret; write auth=Secret(…)"),
        (HTTP, {"headers": {"A": Secret}}, "headers['A'] is the class Secret; give a str, a Secret, or a function"),
        (OAuth, {"store": FileTokenStore}, "store is the class FileTokenStore; write store=FileTokenStore()"),
        (OAuth, {"on_sign_in": Thing}, "on_sign_in is the class Thing; write on_sign_in=Thing()"),
        (OAuth, {"client_id": "a", "client_secret": Secret}, "is the class Secret; write client_secret=Secret(…)"),
        (Socket, {"address": "/x", "secret": Secret}, "secret is the class Secret; write secret=Secret(…)"),
        (Socket, {"address": Thing}, "address is the class Thing; write address=Thing()"),
        (InProcess, {"server": MCPServer}, "server is the class MCPServer; write server=MCPServer()"),
        (docs, {"retry": RetryPolicy}, "retry=<the class RetryPolicy> is not valid; write retry=RetryPolicy()"),
        (docs, {"retry": Limits}, "retry=<the class Limits> is not valid; give a RetryPolicy(...); "),
        (docs, {"breaker": BreakerPolicy}, "<the class BreakerPolicy> is not valid; write breaker=BreakerPolicy()"),
        (docs, {"callbacks": Callbacks}, "<the class Callbacks> is not valid; write callbacks=Callbacks()"),
        (docs, {"middleware": [Thing]}, "<a tuple with the class Thing in it> is not valid; write [Thing()]"),
        (docs, {"middleware": Thing}, "middleware=<the class Thing> is not valid; give a tuple of functions"),
        (ServerConfig, {"name": "a", "transport": Http}, "<the class Http> is not valid; write transport=Http(…)"),
        (opening, {"config": FileSource}, "paths, mappings and sources, not the class FileSource; write ServerConfig("),
        (opening, {"callbacks": Callbacks}, "open_servers takes callbacks=Callbacks(...), not the class Callbacks"),
    ],
)
def test_a_class_in_place_of_an_object_is_refused_when_it_is_given(
    make: Callable[..., object], given: dict[str, Any], remedy: str
) -> None:
    """Many of them can be called, or have the methods that are looked for."""
    with pytest.raises(ConfigError) as caught:
        make(**given)
    assert remedy in str(caught.value)


def test_a_class_may_make_the_client() -> None:
    """It is called for each connection, and returns an object."""
    assert Http("https://x.org/", http_client=AsyncClient).http_client is AsyncClient
