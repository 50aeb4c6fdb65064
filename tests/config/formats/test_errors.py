"""What is wrong with a configuration is said for each entry: where, what was found, what is expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_actors import ConfigError, ServerConfig, Stdio
from mcp_actors.config import load_config

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


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "mcpServers.docs: neither 'command' nor 'url' is given; write the program to start, or the URL to …"),
        ({"comand": "x"}, "mcpServers.docs: neither 'command' nor 'url' is given; write …"),
        ({"type": "http"}, "mcpServers.docs: the type is 'http', but there is no 'url'; write it"),
        ({"type": "stdio"}, "mcpServers.docs: the type is 'stdio', but there is no 'command'; write it"),
        ([], "mcpServers.docs: found a list; write an object with 'command' or 'url'"),
        (None, "mcpServers.docs: found None; write an object with 'command' or 'url'"),
        ({"command": ""}, "mcpServers.docs.command: command is empty; give the name or the path"),
        ({"command": ["x"]}, "mcpServers.docs.command: found a list; write the program here, and the rest in 'args'"),
        (
            {"command": {"path": "x", "args": "-v"}},
            "mcpServers.docs.command.args: found a str of 2 characters; write a list of texts",
        ),
        (
            {"command": {"path": "x", "env": {"A: secret": "c"}}},
            'mcpServers.docs.command.env: a name that begins with "A…" holds white space; write {"NAME": "value"}',
        ),
        ({"command": "x", "env": {"A=secret": "${"}}, "mcpServers.docs.env[\"A…\"]: a '${' has no closing …"),
        ({"command": "x", "args": "-v"}, "mcpServers.docs.args: found a str of 2 characters; write a list of texts"),
        ({"command": "x", "args": ["-p", 3]}, "mcpServers.docs.args: args[1] is an int; give a str"),
        ({"command": "x", "env": ["A=b"]}, 'mcpServers.docs.env: found a list; write an object like {"NAME": "value"}'),
        ({"command": "x", "env": {"A": True}}, "mcpServers.docs.env.A: found a bool; write a text, in quotes"),
        (
            {"command": "x", "env": {"A=b": "c"}},
            "mcpServers.docs.env: env holds 'A=…', which cannot name a variable; give a name that is not empty …",
        ),
        ({"url": HOST, "headers": {"A(": "c"}}, "mcpServers.docs.headers: the name of a header is empty or holds …"),
        (
            {"command": "x", "env": {"A: secret": "c"}},
            'mcpServers.docs.env: a name that begins with "A…" holds white space; write {"NAME": "value"}',
        ),
        ({"url": "ftp://example.com"}, "mcpServers.docs.url: url 'ftp://example.com' is not an http or https URL; …"),
        ({"url": 3}, "mcpServers.docs.url: url is an int; give a str such as https://host/path"),
        (
            {"type": "htpp", "url": HOST},
            "mcpServers.docs.type: found a str of 4 characters; write 'stdio', 'http' or 'sse' (did you mean 'http'?)",
        ),
        ({"type": ["http"], "url": HOST}, "mcpServers.docs.type: found a list; write 'stdio', 'http' or 'sse'"),
        (
            {"command": "x", "disabled": "yes"},
            "mcpServers.docs.disabled: found a str of 3 characters; write true or false",
        ),
        (
            {"command": "x", "required": "yes"},
            "mcpServers.docs.required: required='yes' is not possible; give True or False",
        ),
        (
            {"command": "x", "startup_timeout_sec": -1},
            "mcpServers.docs.startup_timeout_sec: connect_timeout=-1 is not possible; give a positive number of …",
        ),
        (
            {"url": HOST, "bearer_token_env_var": "Bearer x"},
            "mcpServers.docs.bearer_token_env_var: found a str of 8 characters; write the name of an environment …",
        ),
        ({"command": "x", "env": {"A": "${"}}, "mcpServers.docs.env.A: a '${' has no closing '}'; …"),
        ({"command": "x", "args": ["${a b}"]}, "mcpServers.docs.args[0]: a '${…}' does not hold a variable; …"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_a_remedy(tmp_path: Path, entry: object, said: str) -> None:
    """S4-41: neither a command nor a URL, and a shape that is not the schema's."""
    actual = load(tmp_path, {"mcpServers": {"docs": entry}}).errors[0]
    text = str(actual).removeprefix(f"{tmp_path / 'mcp.json'}: ")
    assert text == said or (said.endswith(" …") and text.startswith(said[:-1])), text


@pytest.mark.parametrize(
    ("entry", "both"),
    [
        ({"command": "x", "url": HOST}, "both 'command' and 'url' are given"),
        ({"command": "x", "httpUrl": HOST}, "both 'command' and 'httpUrl' are given"),
        ({"url": HOST, "httpUrl": HOST}, "'url' and 'httpUrl' say the same thing"),
        ({"headers": {}, "http_headers": {}, "url": HOST}, "'headers' and 'http_headers' say the same thing"),
        ({"type": "stdio", "url": HOST}, "'type' is 'stdio', which contradicts 'url'"),
        ({"type": "http", "command": "x"}, "'type' is 'http', which contradicts 'command'"),
        ({"type": "http", "transport": "sse", "url": HOST}, "'type' and 'transport' differ"),
        (
            {"url": HOST, "bearer_token": "a", "bearer_token_env_var": "B"},
            "'bearer_token' and 'bearer_token_env_var' say the same thing",
        ),
        (
            {"command": "x", "required": True, "mcp_actors": {"required": True}},
            "'required' and 'mcp_actors.required' say",
        ),
        (
            {"url": HOST, "bearer_token": "a", "headers": {"Authorization": "b"}},
            "auth is given, and headers has 'Authorization'",
        ),
        ({"url": HOST, "headers": {"A": "b"}, "env_http_headers": {"A": "B"}}, '"A" is also in the headers'),
        ({"command": "x", "env": {"A": "b"}, "env_vars": ["A"]}, "'A' is both in env_from (pass on) and in env (set)"),
        ({"command": "x", "mcp_actors": {"required": True, "connect": "lazy"}}, "connect='lazy' is not possible"),
    ],
)
def test_what_contradicts_itself_is_refused_and_both_are_named(tmp_path: Path, entry: object, both: str) -> None:
    """S4-26, S4-29."""
    said = wrong(tmp_path, entry)
    assert both in said
    assert "remove" in said


class TestNames:
    def test_two_servers_of_one_name_are_both_refused(self, tmp_path: Path) -> None:
        """S2-07: which of the two was meant nobody knows."""
        content = '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "a": {"command": "z"}}}'
        loaded = load(tmp_path, content)
        assert [server.name for server in loaded.servers] == ["b"]
        [error] = loaded.errors
        assert str(error).endswith("mcpServers.a: there are two servers of this name; rename one of them")

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
        [("", "is empty"), ("x" * 65, "is too long"), ("时间", "has no letter that a name may have")],
    )
    def test_a_name_of_which_nothing_can_be_made_is_an_error(self, tmp_path: Path, name: str, problem: str) -> None:
        [error] = load(tmp_path, {"mcpServers": {name: {"command": "x"}}}).errors
        assert f"the name of this server {problem}; use 1 to 64 of the characters A-Z a-z 0-9 _ . -" in str(error)

    def test_a_name_in_a_mapping_may_be_no_text_at_all(self) -> None:
        [error] = load_config({"mcpServers": {3: {"command": "x"}}}).errors
        assert str(error) == "a mapping: mcpServers: the name of a server is <an int>; write a text"

    def test_a_key_that_is_there_twice_in_an_entry_is_an_error(self, tmp_path: Path) -> None:
        for entry, place in (
            ('{"command": "x", "command": "y"}', "mcpServers.docs"),
            ('{"command": "x", "env": {"command": 1, "command": 2}}', "mcpServers.docs.env"),
            ('{"command": "x", "mcp_actors": {"command": 1, "command": 2}}', "mcpServers.docs.mcp_actors"),
        ):
            [error] = load(tmp_path, f'{{"mcpServers": {{"docs": {entry}}}}}').errors
            said = f'{place}: "command" is there more than once; remove all but one'
            assert str(error).endswith(said)


class TestAWholeFile:
    @pytest.mark.parametrize(
        ("content", "name", "said"),
        [
            (
                '{"mcpServers": {"a": {}}',
                "mcp.json",
                "the file is no JSON, see line 1, column 25: Expecting ',' delimiter",
            ),
            ('{"a": NaN}', "mcp.json", "the file is no JSON: NaN is no number"),
            ("", "mcp.json", 'the file is empty; write {"mcpServers": {}} or remove it'),
            ("[]", "mcp.json", "the file holds no object at its top; write {…} with the servers under 'mcpServers'"),
            ('{"mcpServers": []}', "mcp.json", 'mcpServers: found a list; write an object: {"name": {"command": …}}'),
            (
                '{"mcpServers": {}, "mcpServers": {}}',
                "mcp.json",
                '"mcpServers" is there more than once; remove all but one',
            ),
            (
                "[mcp_servers.a\n",
                "mcp.toml",
                "the file is no TOML, see line 1, column 15: Expected ']' at the end of …",
            ),
            ("a = 2020-02-31\n", "mcp.toml", "the file is no TOML, see line 1, column 5: Invalid date or datetime"),
            ("mcpServers: {}\n", "mcp.yaml", "YAML is not read; write JSON (.json) or TOML (.toml)"),
            (b'{"a": "\xff"}', "mcp.json", "the file is no text in UTF-8 (see its byte 7); save it as UTF-8"),
        ],
    )
    def test_a_file_that_says_nothing_is_one_error_and_no_servers(
        self, tmp_path: Path, content: str | bytes, name: str, said: str
    ) -> None:
        """S3-02, S4-41."""
        loaded = load(tmp_path, content, name)
        assert loaded.servers == ()
        [error] = loaded.errors
        assert isinstance(error, ConfigError)
        text = str(error).removeprefix(f"{tmp_path / name}: ")
        assert text.startswith(said.rstrip("…"))
        assert dict(loaded.failed) == {str(tmp_path / name): error}

    def test_a_file_without_servers_names_the_keys_that_it_may_have(self, tmp_path: Path) -> None:
        [error] = load(tmp_path, {"mcpservers": {}, "other": 1}).errors
        assert "expected one of the keys 'mcpServers' (Claude, Cursor and others), 'servers' (VS Code)" in str(error)
        assert str(error).endswith('found "mcpservers", "other" (did you mean \'mcpServers\'?)')

    @pytest.mark.parametrize("content", ['{"mcpServers": {}}', '{"mcpServers": null}', '{"servers": {}, "inputs": []}'])
    def test_a_file_with_no_servers_in_it_is_no_error(self, tmp_path: Path, content: str) -> None:
        loaded = load(tmp_path, content)
        assert (loaded.servers, loaded.errors, loaded.warnings) == ((), (), ())

    def test_an_error_holds_nothing_of_what_was_read(self, tmp_path: Path) -> None:
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
        """S3-08: 0 in a file is no bound."""
        monkeypatch.setenv("MCP_ACTORS_CONNECT_TIMEOUT", environment)
        loaded = load(tmp_path, {"mcpServers": {"docs": {"command": "x", **entry}}})
        assert loaded.servers[0].connect_timeout == (seconds if wins == "entry" else wins)
        if environment in ("-1", "x"):
            [warning] = loaded.warnings
            assert warning.startswith("environment variable MCP_ACTORS_CONNECT_TIMEOUT: this is no number of seconds")

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
def test_a_remedy_is_said_in_the_words_of_a_file(tmp_path: Path, url: str, settings: dict[str, Any]) -> None:
    entry = {"url": url, "mcp_actors": settings}
    assert 'say "mcp_actors": {"allow_insecure": true}' in wrong(tmp_path, entry)
    settings["allow_insecure"] = True
    assert one(tmp_path, entry).name == "docs"
