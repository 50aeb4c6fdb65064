"""Errors in a configuration name the entry, what was found and what is expected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_actors import ConfigError, ServerConfig, Stdio
from mcp_actors.config import load_config
from mcp_actors.config.formats._load import refuse_ourselves

from ...messages import Said
from .writing import load, one, wrong

HOST = "https://example.com"


def test_a_bad_entry_is_one_error_and_the_others_load(tmp_path: Path) -> None:
    """S3-07."""
    entries: dict[str, Any] = {"a": {"command": "a"}, "bad": {}, "b": {"command": "b"}, "worse": 3}
    loaded = load(tmp_path, {"mcpServers": entries})
    assert loaded.servers == (ServerConfig("a", Stdio("a")), ServerConfig("b", Stdio("b")))
    assert [error.path for error in loaded.errors] == ["mcpServers.bad", "mcpServers.worse"]
    assert list(loaded.failed) == ["bad", "worse"]
    assert list(loaded.failed.values()) == list(loaded.errors)


def test_a_document_without_any_key_is_refused(tmp_path: Path) -> None:
    [error] = load(tmp_path, {}).errors
    assert re.search(r": no servers found; expected one of the keys .mcpServers. \(.*, found none$", str(error))
    [error] = load_config({"mcp": {"//": "ours", "time": {"command": ["x"]}}}).errors
    assert str(error) == (
        'a mapping: mcp.time: \'type\' is missing; add "type": "local" for a command, or "type": "remote" for a URL'
    )


@pytest.mark.parametrize(
    ("entry", "row"),
    [
        ({}, "mcpServers.docs: neither 'command' nor 'url' is given"),
        ({"comand": "x"}, "mcpServers.docs: 'comand' instead of 'command'"),
        ({"type": "http"}, "mcpServers.docs: the type is 'http', but there is no 'url'"),
        ({"type": "stdio"}, "mcpServers.docs: the type is 'stdio', but there is no 'command'"),
        ([], "mcpServers.docs: found a list"),
        (None, "mcpServers.docs: found None"),
        ({"command": ""}, "mcpServers.docs.command: command is empty"),
        ({"command": []}, "mcpServers.docs.command: found a list"),
        (
            {"command": {"path": "x", "args": "-v"}},
            "mcpServers.docs.command.args: found a str of 2 characters",
        ),
        (
            {"command": {"path": "x", "env": {"A: secret": "c"}}},
            "mcpServers.docs.command.env: a name contains whitespace",
        ),
        ({"command": "x", "env": {"A=secret": "${"}}, "mcpServers.docs.env[name]: a '${' has no closing"),
        ({"command": "x", "args": "-v"}, "mcpServers.docs.args: found a str of 2 characters"),
        ({"command": "x", "args": "server.py"}, "mcpServers.docs.args: a script"),
        ({"command": "x", "args": "--key hunter2.py"}, "mcpServers.docs.args: found a str of 16 characters"),
        ({"command": "x", "args": {}}, "mcpServers.docs.args: found an object"),
        ({"command": "x", "args": ["-p", 3]}, "mcpServers.docs.args: args[1] is an int"),
        ({"command": "x", "env": ["A=b"]}, "mcpServers.docs.env: found a list"),
        ({"command": "x", "env": {"A": True}}, "mcpServers.docs.env.A: found a bool"),
        ({"command": "x", "env": {"A": "b", "args": ["-v"]}}, "mcpServers.docs.env.args: found a list"),
        (
            {"command": "x", "env": {"A=b": "c"}},
            "mcpServers.docs.env: env contains 'A=…', which is not a valid name of a variable",
        ),
        (
            {"url": HOST, "headers": {"A(": "c"}},
            "mcpServers.docs.headers: the name of a header is empty or contains an invalid character",
        ),
        (
            {"command": "x", "env": {"A: secret": "c"}},
            "mcpServers.docs.env: a name contains whitespace",
        ),
        ({"url": "ftp://example.com"}, "mcpServers.docs.url: url 'ftp://example.com' is not an http or https URL"),
        ({"url": "example.com/mcp"}, "mcpServers.docs.url: no scheme"),
        ({"url": "localhost:8000/mcp"}, "mcpServers.docs.url: no scheme, on this machine"),
        ({"url": 3}, "mcpServers.docs.url: url is an int"),
        (
            {"type": "htpp", "url": HOST},
            "mcpServers.docs.type: found a str of 4 characters",
        ),
        ({"type": ["http"], "url": HOST}, "mcpServers.docs.type: found a list"),
        (
            {"command": "x", "disabled": "yes"},
            "mcpServers.docs.disabled: found a str of 3 characters",
        ),
        (
            {"command": "x", "required": "yes"},
            "mcpServers.docs.required: required='yes' is not valid",
        ),
        (
            {"command": "x", "startup_timeout_sec": -1},
            "mcpServers.docs.startup_timeout_sec: connect_timeout=-1 is not valid",
        ),
        (
            {"command": "x", "mcp_actors": {"max_in_flight": "0"}},
            "mcpServers.docs.mcp_actors.max_in_flight: a number as text",
        ),
        (
            {"command": "x", "mcp_actors": {"idle_timeout": "5 min"}},
            "mcpServers.docs.mcp_actors.idle_timeout: a number as text, without a default",
        ),
        (
            {"url": HOST, "bearer_token_env_var": "Bearer x"},
            "mcpServers.docs.bearer_token_env_var: found a str of 8 characters",
        ),
        ({"url": HOST, "env_http_headers": "A"}, "mcpServers.docs.env_http_headers: found a str of 1 character"),
        ({"command": "x", "env": {"A": "${"}}, "mcpServers.docs.env.A: a '${' has no closing '}'"),
        ({"command": "x", "args": ["${a b}"]}, "mcpServers.docs.args[0]: a '${…}' does not contain a variable"),
        ({"command": "${command:python.interpreterPath}"}, "mcpServers.docs.command: a command of VS Code"),
        ({"command": "x", "env": {"A": "${config:a.b}"}}, "mcpServers.docs.env.A: a setting of VS Code"),
    ],
)
def test_an_invalid_entry_is_an_error_with_its_place_and_a_remedy(
    tmp_path: Path, entry: object, row: str, said: Said
) -> None:
    """S4-41: neither a command nor a URL, and a shape that is not the schema's."""
    actual = load(tmp_path, {"mcpServers": {"docs": entry}}).errors[0]
    said(row, str(actual).removeprefix(f"{tmp_path / 'mcp.json'}: "))


@pytest.mark.parametrize(
    ("entry", "both"),
    [
        ({"command": "x", "url": HOST}, "both 'command' and 'url' are given"),
        ({"command": "x", "httpUrl": HOST}, "both 'command' and 'httpUrl' are given"),
        ({"url": HOST, "httpUrl": HOST}, "'url' and 'httpUrl' set the same option"),
        ({"headers": {}, "http_headers": {}, "url": HOST}, "'headers' and 'http_headers' set the same option"),
        ({"type": "stdio", "url": HOST}, "'type' is 'stdio', which contradicts 'url'"),
        ({"type": "http", "command": "x"}, "'type' is 'http', which contradicts 'command'"),
        ({"type": "http", "transport": "sse", "url": HOST}, "'type' and 'transport' differ"),
        (
            {"url": HOST, "bearer_token": "a", "bearer_token_env_var": "B"},
            "'bearer_token' and 'bearer_token_env_var' set the same",
        ),
        (
            {"command": "x", "required": True, "mcp_actors": {"required": True}},
            "'required' and 'mcp_actors.required' set",
        ),
        (
            {"url": HOST, "bearer_token": "a", "headers": {"Authorization": "b"}},
            "auth is given, and headers has 'Authorization'",
        ),
        ({"url": HOST, "headers": {"A": "b"}, "env_http_headers": {"A": "B"}}, '"A" is also in the headers'),
        ({"command": "x", "env": {"A": "b"}, "env_vars": ["A"]}, "'A' is both in env_from (pass on) and in env (set)"),
        ({"command": "x", "mcp_actors": {"required": True, "connect": "lazy"}}, "connect='lazy' is not valid"),
    ],
)
def test_contradictory_values_are_refused_and_both_are_named(tmp_path: Path, entry: object, both: str) -> None:
    """S4-26, S4-29."""
    problem = wrong(tmp_path, entry)
    assert both in problem
    assert "remove" in problem


class TestNames:
    def test_two_servers_of_one_name_are_both_refused(self, tmp_path: Path) -> None:
        """S2-07: either of the two may be the one that was meant."""
        content = '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "a": {"command": "z"}}}'
        loaded = load(tmp_path, content)
        assert [server.name for server in loaded.servers] == ["b"]
        [error] = loaded.errors
        assert str(error).endswith("mcpServers.a: two servers have this name; rename one of them")

    def test_so_are_names_that_are_the_same_here_only(self, tmp_path: Path) -> None:
        """S2-07."""
        loaded = load(tmp_path, {"mcpServers": {"a b": {"command": "x"}, "a/b": {"command": "y"}}})
        assert [server.name for server in loaded.servers] == ["a_b"]
        [error] = loaded.errors
        assert str(error).endswith('mcpServers["a/b"]: mcpServers["a b"] is called \'a_b\' too; rename one of them')

    def test_and_the_same_name_in_two_sections(self, tmp_path: Path) -> None:
        """S2-07."""
        loaded = load(tmp_path, {"mcpServers": {"a": {"command": "x"}}, "servers": {"a": {"command": "y"}}})
        assert [server.name for server in loaded.servers] == ["a"]
        assert [error.path for error in loaded.errors] == ["servers.a"]

    @pytest.mark.parametrize(
        ("name", "problem"),
        [("", "is empty"), ("x" * 65, "is too long"), ("!?", "has no character that a name may have")],
    )
    def test_a_name_of_which_nothing_can_be_made_is_an_error(self, tmp_path: Path, name: str, problem: str) -> None:
        [error] = load(tmp_path, {"mcpServers": {name: {"command": "x"}}}).errors
        assert f"the name of this server {problem}; use 1 to 64 of the characters A-Z a-z 0-9 _ . -" in str(error)

    def test_a_name_in_a_mapping_may_be_something_other_than_text(self) -> None:
        [error] = load_config({"mcpServers": {3: {"command": "x"}}}).errors
        assert str(error) == "a mapping: mcpServers: the name of a server is <an int>; write a string"

    def test_a_key_that_is_there_twice_in_an_entry_is_an_error(self, tmp_path: Path) -> None:
        for entry, place in (
            ('{"command": "x", "command": "y"}', "mcpServers.docs"),
            ('{"command": "x", "env": {"command": 1, "command": 2}}', "mcpServers.docs.env"),
            ('{"command": "x", "mcp_actors": {"command": 1, "command": 2}}', "mcpServers.docs.mcp_actors"),
        ):
            [error] = load(tmp_path, f'{{"mcpServers": {{"docs": {entry}}}}}').errors
            assert str(error).endswith(f'{place}: "command" appears more than once; remove all but one')


class TestNamesInToml:
    def test_a_dot_in_a_name_needs_quotes(self, tmp_path: Path, said: Said) -> None:
        [error] = load(tmp_path, "[mcp_servers.github.com]\nurl = 'https://github.com/mcp'\n", "mcp.toml").errors
        said("TOML: a dot in a name", str(error).removeprefix(f"{tmp_path / 'mcp.toml'}: "))

    def test_a_remedy_is_in_the_notation_of_the_file(self, tmp_path: Path, said: Said) -> None:
        for row, text in (
            ("TOML: a section", "[mcp-servers.docs]\ncommand = 'x'\n"),
            ("TOML: an object", "[mcp_servers.docs]\ncommand = 'x'\nenv = ['A=b']\n"),
            ("TOML: a key of the entry in its env", "[mcp_servers.docs]\ncommand = 'x'\nenv.enabled_tools = ['a']\n"),
            ("TOML: a setting next to others", "[mcp_servers.docs]\ncommand = 'x'\nrequest_timeout = 9\n"),
        ):
            loaded = load(tmp_path, text, "mcp.toml")
            [problem] = [*map(str, loaded.errors), *loaded.warnings]
            said(row, problem.removeprefix(f"{tmp_path / 'mcp.toml'}: "))


SERVERS: Final = {"docs": {"command": "x"}}


@pytest.mark.parametrize(
    ("row", "document"),
    [
        ("level: settings for all", {"mcp_actors": {"request_timeout": 9}, "mcpServers": SERVERS}),
        ("level: settings among the servers", {"mcpServers": {"mcp_actors": {"request_timeout": 9}}}),
        ("level: inputs", {"servers": {**SERVERS, "inputs": [{"id": "a", "type": "promptString"}]}}),
        ("level: a section", {"mcpServers": {"mcpServers": SERVERS}}),
        ("level: a section in another object", {"mcp": {"mcpServers": SERVERS}, "editor.fontSize": 14}),
        ("level: an entry", {"name": "a", "server": {"type": "python", "mcp_config": SERVERS["docs"]}}),
        ("level: a command", {"context_servers": {"docs": {"source": "custom", "settings": {"command": "x"}}}}),
    ],
)
def test_a_known_key_at_another_level_is_an_error_that_says_where_it_belongs(
    row: str, document: dict[str, Any], said: Said
) -> None:
    [error] = load_config(document).errors
    said(row, str(error))


def test_a_server_may_be_called_like_a_key() -> None:
    assert (
        load_config({"mcpServers": {name: {"command": "x"} for name in ("mcp_actors", "inputs", "mcp")}}).errors == ()
    )


class TestAWholeFile:
    @pytest.mark.parametrize(
        ("content", "name", "row"),
        [
            (
                '{"mcpServers": {"a": {}}',
                "mcp.json",
                "the file is not valid JSON: Expecting ',' delimiter",
            ),
            ('{"a": {}\n "b": {}}', "mcp.json", "a missing comma"),
            ('{"a": {},, "b": {}}', "mcp.json", "a comma too many"),
            ('{"a": [1,, 2]}', "mcp.json", "a value that is missing"),
            ('{"a" {}}', "mcp.json", "a missing colon"),
            ("{'a': {}}", "mcp.json", "single quotes"),
            ('{"a": x}', "mcp.json", "no quotes"),
            ('{"a": "x}', "mcp.json", "an open quote"),
            ('{"a": "x\n}', "mcp.json", "an open quote at the end of a line"),
            ('{"a": "C:\\server.exe"}', "mcp.json", "a single backslash"),
            ('{"a": {}}}', "mcp.json", "a brace too many"),
            ('{"a": NaN}', "mcp.json", "the file is not valid JSON: NaN is not a number in JSON"),
            ("", "mcp.json", "the file is empty"),
            (
                "[]",
                "mcp.json",
                "the file has no object at its top level",
            ),
            ('{"mcpServers": []}', "mcp.json", "mcpServers: found a list"),
            (
                '{"mcpServers": {}, "mcpServers": {}}',
                "mcp.json",
                "mcpServers appears more than once",
            ),
            (
                "[mcp_servers.a\n",
                "mcp.toml",
                "the file is not valid TOML: Expected ']' at the end",
            ),
            ("[mcp_servers.a]\n[mcp_servers.a]\n", "mcp.toml", "TOML: a table twice"),
            ("[mcp_servers.a]\nurl = 'x'\nurl = 'y'\n", "mcp.toml", "TOML: a key twice"),
            ("{“mcpServers”: {}}", "mcp.json", "typographic quotes"),
            ('{"mcpServers": {"a": ‘x’}}', "mcp.json", "typographic quotes around a value"),  # noqa: RUF001 - that is it
            ("[mcp_servers.a]\nargs = [-y]\n", "mcp.toml", "TOML: text without quotes"),
            ('[mcp_servers.a]\nargs = ["a" "b"]\n', "mcp.toml", "TOML: a missing comma"),
            ("[mcp_servers.a]\ncommand = true-server\n", "mcp.toml", "TOML: text that begins like a value"),
            ('{"mcp": [{"command": "x"}]}', "mcp.json", "mcp: found a list"),
            ('{"mcp": {"servers": []}}', "mcp.json", "mcp.servers: found a list"),
            ('{"mcpServers": {}, "mcp": {"excluded": "a"}}', "mcp.json", "mcp.excluded: found a str"),
            ('{"mcpServers": {}, "mcp": {"allowed": {"a": true}}}', "mcp.json", "mcp.allowed: found an object"),
            (
                "a = 2020-02-31\n",
                "mcp.toml",
                "the file is not valid TOML: Invalid date",
            ),
            ("mcpServers: {}\n", "mcp.yaml", "YAML is not supported"),
            ("{}", "mcp.toml", "JSON in a file for TOML"),
            ("[mcp_servers.a]\ncommand = 'x'\n", "mcp.json", "TOML in a file for JSON"),
            (b'{"a": "\xff"}', "mcp.json", "the file is not valid UTF-8 (at byte 7)"),
        ],
    )
    def test_an_invalid_file_is_one_error_and_no_servers(
        self, tmp_path: Path, content: str | bytes, name: str, row: str, said: Said
    ) -> None:
        """S3-02, S4-41."""
        loaded = load(tmp_path, content, name)
        assert loaded.servers == ()
        [error] = loaded.errors
        assert isinstance(error, ConfigError)
        said(row, str(error).removeprefix(f"{tmp_path / name}: "))
        assert dict(loaded.failed) == {str(tmp_path / name): error}

    def test_a_file_without_servers_names_the_keys_that_it_may_have(self, tmp_path: Path) -> None:
        [error] = load(tmp_path, {"mcpservers": {}, "other": 1}).errors
        keys = (
            "'mcpServers' (Claude, Cursor and others)",
            "'servers' (VS Code)",
            "'context_servers' (Zed)",
            "'mcp_servers' (Codex)",
            "'mcp' (opencode and Crush, where an entry has a 'type')",
        )
        assert f"expected one of the keys {', '.join(keys)}, found " in str(error)
        assert str(error).endswith('found "mcpservers", "other" (did you mean \'mcpServers\'?)')

    def test_an_entry_that_would_start_us_is_an_error_besides_those_of_the_file(self) -> None:
        entries = {"a": {"command": 1}, "b": {"command": "mcp-actors", "args": ["serve"]}, "c": {"command": "d"}}
        loaded = refuse_ourselves(load_config({"mcpServers": entries}))
        assert [server.name for server in loaded.servers] == ["c"]
        assert [*loaded.failed] == ["a", "b"]
        assert loaded.errors == (*loaded.failed.values(),)

    @pytest.mark.parametrize("content", ['{"mcpServers": {}}', '{"mcpServers": null}', '{"servers": {}, "inputs": []}'])
    def test_a_file_without_servers_is_valid(self, tmp_path: Path, content: str) -> None:
        loaded = load(tmp_path, content)
        assert (loaded.servers, loaded.errors, loaded.warnings) == ((), (), ())

    def test_an_error_keeps_no_reference_to_the_content(self, tmp_path: Path) -> None:
        for content in (
            '{"mcpServers": {"a": "s3cret"}',
            '{"mcpServers": {"a": {"command": 3, "env": {"A": "s3cret"}}}}',
        ):
            [error] = load(tmp_path, content).errors
            assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)


class TestTimeouts:
    @pytest.mark.parametrize(
        ("entry", "seconds"),
        [
            ({}, 30),
            ({"startup_timeout_sec": 7}, 7),
            ({"mcp_actors": {"connect_timeout": 0.5}}, 0.5),
            ({"startup_timeout_sec": 0}, None),
            ({"mcp_actors": {"connect_timeout": 0}}, None),
        ],
    )
    @pytest.mark.parametrize(
        ("environment", "wins"), [("", "entry"), ("12", 12), ("1.5", 1.5), ("0", None), ("-1", "entry"), ("x", "entry")]
    )
    def test_the_connect_timeout_is_that_of_the_environment_of_the_entry_or_30_seconds(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        entry: dict[str, Any],
        seconds: float | None,
        environment: str,
        wins: Any,
    ) -> None:
        """S3-08: 0 in a file disables the limit."""
        monkeypatch.setenv("MCP_ACTORS_CONNECT_TIMEOUT", environment)
        loaded = load(tmp_path, {"mcpServers": {"docs": {"command": "x", **entry}}})
        assert loaded.servers[0].connect_timeout == (seconds if wins == "entry" else wins)
        if environment in ("-1", "x"):
            [warning] = loaded.warnings
            assert warning.startswith(
                "environment variable MCP_ACTORS_CONNECT_TIMEOUT: this is not a number of seconds"
            )

    def test_without_the_variable_it_is_that_of_the_entry(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("MCP_ACTORS_CONNECT_TIMEOUT", raising=False)
        assert one(tmp_path, {"command": "x"}).connect_timeout == 30

    def test_a_request_may_be_unbounded_too(self, tmp_path: Path) -> None:
        assert one(tmp_path, {"command": "x", "tool_timeout_sec": 0}).request_timeout is None


@pytest.mark.parametrize(
    ("url", "settings"), [("http://192.0.2.1/mcp", {}), ("https://example.com/mcp", {"verify": False})]
)
def test_a_remedy_is_given_in_the_syntax_of_the_file(tmp_path: Path, url: str, settings: dict[str, Any]) -> None:
    entry = {"url": url, "mcp_actors": settings}
    assert 'set "mcp_actors": {"allow_insecure": true}' in wrong(tmp_path, entry)
    settings["allow_insecure"] = True
    assert one(tmp_path, entry).name == "docs"
