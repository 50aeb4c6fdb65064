"""Files as other programs write them load as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from mcp_actors import Http, ServerConfig, Sse, Stdio
from mcp_actors.config import ConfigValue, Input, Secret, load_config
from mcp_actors.config._template import resolved
from mcp_actors.config._values import expand, variables_in

from .writing import load, one, warned, wrong

CLAUDE: dict[str, Any] = {
    "globalShortcut": "Ctrl+Space",
    "mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]},
        "github": {"command": "docker", "args": ["run", "-i"], "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}},
        "sentry": {"type": "http", "url": "https://mcp.example.com/mcp"},
        "asana": {"type": "sse", "url": "https://mcp.example.com/events"},
        "api": {
            "type": "http",
            "url": "${API_BASE_URL:-https://api.example.com}/mcp",
            "headers": {"Authorization": "Bearer ${API_KEY}"},
        },
    },
}

VS_CODE = """
// Servers of this workspace
{
  "inputs": [
    {"type": "promptString", "id": "api-key", "description": "The // key", "password": true,}, /* asked for once */
  ],
  "servers": {
    "github/github-mcp-server": {"type": "http", "url": "https://api.example.com/mcp/", "gallery": true},
    "weather": {
      "type": "stdio",
      "command": "${workspaceFolder}/server.sh",
      "args": ["--url", "https://x.example/*,}*/",],
      "env": {"KEY": "${input:api-key}", "PORT": 8080, "UNSET": null},
    },
  },
}
"""

CODEX = """
model = "some"

[mcp_servers.docs]
url = "https://docs.example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"
env_http_headers = { X-User = "USER_ID" }
http_headers = { X-Region = "eu" }
required = true
startup_timeout_sec = 20.5
tool_timeout_sec = 45

[mcp_servers.local]
command = "npx"
args = ["-y", "server"]
env_vars = ["LOCAL_TOKEN", { name = "OTHER" }]
cwd = "/srv"
startup_timeout_ms = 1500
enabled = false
[mcp_servers.local.env]
MODE = "fast"
"""


def test_the_file_of_claude_and_of_most_others(tmp_path: Path) -> None:
    """S4-39."""
    loaded = load(tmp_path, CLAUDE, "claude_desktop_config.json")
    assert (loaded.errors, loaded.warnings) == ((), ())
    filesystem, github, sentry, asana, api = loaded.servers
    args = ("-y", "@modelcontextprotocol/server-filesystem", "/tmp")
    assert filesystem == ServerConfig("filesystem", Stdio("npx", args))
    assert github.transport == Stdio("docker", ("run", "-i"), env={"GITHUB_TOKEN": "${GITHUB_TOKEN}"})
    assert sentry.transport == Http("https://mcp.example.com/mcp")
    assert asana.transport == Sse("https://mcp.example.com/events")
    headers = {"Authorization": "Bearer ${API_KEY}"}
    assert resolved(api.transport, {}, where="api") == Http("https://api.example.com/mcp", headers=headers)


def test_where_a_server_comes_from_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3-01: also if the path was relative."""
    load(tmp_path, CLAUDE)
    monkeypatch.chdir(tmp_path)
    loaded = load_config("mcp.json")
    assert loaded.source == str(tmp_path / "mcp.json")
    assert {server.source for server in loaded.servers} == {loaded.source}
    assert {server.source for server in load_config(CLAUDE).servers} == {"a mapping"}


def test_the_file_of_vs_code(tmp_path: Path) -> None:
    """S4-39: with comments, trailing commas, inputs, null and numbers."""
    asked = []

    def ask(question: Input) -> str:
        asked.append(question)
        return "s3cret"

    loaded = load(tmp_path, VS_CODE, ".vscode/mcp.json", ask=ask)
    assert loaded.errors == ()
    assert asked == [Input(id="api-key", description="The // key", password=True)]
    github, weather = loaded.servers
    assert (github.name, github.transport) == ("github_github-mcp-server", Http("https://api.example.com/mcp/"))
    [warning] = loaded.warnings
    assert "this server is renamed to 'github_github-mcp-server'" in warning
    made: Any = resolved(weather.transport, {}, where="weather")
    assert attrs.evolve(made, env={}) == Stdio(
        f"{tmp_path}/server.sh",
        ("--url", "https://x.example/*,}*/"),
        cwd=tmp_path,
    )
    texts = {name: expand(each, {}, where="", variables=variables_in(each)) for name, each in made.env.items()}
    assert texts == {"KEY": "s3cret", "PORT": "8080"}
    assert "s3cret" not in repr(loaded)


def test_the_older_place_of_vs_code_in_its_settings(tmp_path: Path) -> None:
    inputs = [{"id": "k", "type": "promptString", "description": "?", "default": "d"}]
    content = {
        "editor.tabSize": 2,
        "mcp": {"inputs": inputs, "servers": {"a": {"command": "a", "args": ["${input:k}"]}}},
    }
    [server] = load(tmp_path, content, "settings.json").servers
    assert resolved(server.transport, {}, where="a") == Stdio("a", ("d",))


def test_the_file_of_codex(tmp_path: Path) -> None:
    """S4-39."""
    loaded = load(tmp_path, CODEX, "config.toml")
    assert (loaded.errors, loaded.warnings) == ((), ())
    docs, local = loaded.servers
    assert docs == ServerConfig(
        "docs",
        Http(
            "https://docs.example.com/mcp",
            headers={"X-Region": "eu", "X-User": "${USER_ID}"},
            auth="${DOCS_TOKEN}",
        ),
        required=True,
        connect_timeout=20.5,
        request_timeout=45,
    )
    transport = Stdio("npx", ("-y", "server"), env={"MODE": "fast"}, env_from=("LOCAL_TOKEN", "OTHER"), cwd="/srv")
    assert local == ServerConfig("local", transport, enabled=False, connect_timeout=1.5)


def test_the_settings_of_zed(tmp_path: Path) -> None:
    content = """{
      // Zed settings
      "theme": "One",
      "context_servers": {
        "new": {"source": "custom", "command": "npx", "args": ["-y", "server"], "env": {}, "enabled": true},
        "old": {"command": {"path": "/bin/old", "args": ["run"], "env": {"A": "1"}}, "settings": {}},
        "remote": {"url": "https://example.com/mcp", "headers": {"X": "y"}},
      },
    }"""
    loaded = load(tmp_path, content, "settings.json")
    assert loaded.errors == ()
    assert [server.transport for server in loaded.servers] == [
        Stdio("npx", ("-y", "server")),
        Stdio("/bin/old", ("run",), env={"A": "1"}),
        Http("https://example.com/mcp", headers={"X": "y"}),
    ]
    [warning] = loaded.warnings
    assert "context_servers.old.settings: this is not supported and has no effect" in warning


def test_the_keys_of_gemini_windsurf_cline_and_others(tmp_path: Path) -> None:
    content = {
        "mcpServers": {
            "gemini": {"httpUrl": "https://example.com/sse", "description": "…"},
            "windsurf": {"serverUrl": "https://example.com/mcp", "disabled": False},
            "cline": {"type": "streamableHttp", "url": "https://example.com/mcp", "alwaysAllow": []},
            "copilot": {"type": "local", "command": "x", "args": []},
            "fastmcp": {"transport": "sse", "url": "https://example.com/mcp", "auth": "${TOKEN}"},
        }
    }
    loaded = load(tmp_path, content)
    assert (loaded.errors, loaded.warnings) == ((), ())
    assert [server.transport for server in loaded.servers] == [
        Http("https://example.com/sse"),
        Http("https://example.com/mcp"),
        Http("https://example.com/mcp"),
        Stdio("x"),
        Sse("https://example.com/mcp", auth="${TOKEN}"),
    ]


def test_servers_without_a_section_around_them(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"a": {"command": "x"}, "b": {"url": "https://example.com/sse"}})
    assert loaded.servers == (ServerConfig("a", Stdio("x")), ServerConfig("b", Sse("https://example.com/sse")))


class TestHowAServerIsReached:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("https://example.com/sse", Sse),
            ("https://example.com/v1/sse/", Sse),
            ("https://example.com/sse?key=1", Sse),
            ("https://example.com/mcp", Http),
            ("https://example.com/notsse", Http),
            ("https://example.com/sse/mcp", Http),
            ("https://sse", Http),
        ],
    )
    def test_the_end_of_a_url_says_which_transport_it_is(self, tmp_path: Path, url: str, expected: type) -> None:
        """S4-27."""
        assert isinstance(one(tmp_path, {"url": url}).transport, expected)
        assert isinstance(one(tmp_path, url).transport, expected)

    def test_a_type_says_it_before_the_url_does(self, tmp_path: Path) -> None:
        """S4-41."""
        assert one(tmp_path, {"type": "http", "url": "https://example.com/sse"}).transport == Http(
            "https://example.com/sse"
        )
        assert one(tmp_path, {"type": "sse", "url": "https://example.com/mcp"}).transport == Sse(
            "https://example.com/mcp"
        )

    def test_the_url_that_a_variable_holds_says_it_at_the_connect(self, tmp_path: Path) -> None:
        """S4-27."""
        transport = one(tmp_path, {"url": "${env:URL}"}).transport
        for url, kind in (("https://example.com/sse", Sse), ("https://example.com/mcp", Http)):
            assert resolved(transport, {"URL": url}, where="docs") == kind(url)

    @pytest.mark.parametrize(
        ("script", "interpreter"),
        [
            ("a/server.py", sys.executable),
            ("server.js", "node"),
            ("server.mjs", "node"),
            ("server.cjs", "node"),
            ("./server.sh", "sh"),
        ],
    )
    def test_a_script_is_run_by_its_interpreter(self, tmp_path: Path, script: str, interpreter: str) -> None:
        """S4-27."""
        assert one(tmp_path, script).transport == Stdio(interpreter, (script,))

    @pytest.mark.parametrize(("mode", "by_itself"), [(0o755, True), (0o644, False)])
    def test_a_command_that_is_a_script_runs_by_itself_if_it_can(
        self, tmp_path: Path, mode: int, by_itself: bool
    ) -> None:
        """S4-27."""
        script = tmp_path / "server.py"
        script.touch()
        script.chmod(mode)
        transport = one(tmp_path, {"command": str(script), "args": ["-v"]}).transport
        alone = Stdio(script, ("-v",))
        assert transport == (alone if by_itself else Stdio(sys.executable, (str(script), "-v")))

    def test_a_script_in_the_working_directory_needs_no_path(self, tmp_path: Path) -> None:
        (tmp_path / "server.py").touch()
        entry = {"command": "server.py", "cwd": str(tmp_path)}
        assert one(tmp_path, entry).transport == Stdio(sys.executable, ("server.py",), cwd=tmp_path)

    def test_a_command_that_is_not_a_script_is_not_changed(self, tmp_path: Path) -> None:
        assert one(tmp_path, {"command": "/nowhere/server.py"}).transport == Stdio("/nowhere/server.py")

    def test_a_text_that_is_neither_is_an_error(self, tmp_path: Path) -> None:
        assert wrong(tmp_path, "uvx server").startswith(
            "mcpServers.docs: found a str of 10 characters; a string must be a URL or a script (.py, .js,"
        )


class TestDisabled:
    @pytest.mark.parametrize("entry", [{"disabled": True}, {"enabled": False}, {"disabled": True, "enabled": False}])
    def test_a_disabled_server_is_loaded_and_not_enabled(self, tmp_path: Path, entry: dict[str, Any]) -> None:
        """S4-41."""
        assert one(tmp_path, {"command": "x", **entry}) == ServerConfig("docs", Stdio("x"), enabled=False)

    def test_an_error_in_a_disabled_entry_is_only_a_warning(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, {"mcpServers": {"docs": {"disabled": True}}})
        assert (loaded.servers, loaded.errors) == ((), ())
        [warning] = loaded.warnings
        assert "neither 'command' nor 'url' is given" in warning
        assert warning.endswith("(the server is disabled)")

    @pytest.mark.parametrize("word", [True, False])
    def test_the_two_words_must_not_contradict_each_other(self, tmp_path: Path, word: bool) -> None:
        """S4-26."""
        problem = wrong(tmp_path, {"command": "x", "enabled": word, "disabled": word})
        assert problem == "mcpServers.docs: 'enabled' and 'disabled' contradict each other; remove one of them"


class TestKeysThatChangeNothing:
    def test_an_unknown_key_is_a_warning_that_names_the_nearest(self, tmp_path: Path) -> None:
        server, warning = warned(tmp_path, {"command": "x", "arg": ["y"], "env": {}})
        assert server == ServerConfig("docs", Stdio("x"))
        assert warning == "mcpServers.docs: unknown key \"arg\" has no effect (did you mean 'args'?)"

    @pytest.mark.parametrize(
        ("document", "warning"),
        [
            (
                {"context_servers": {"docs": {"command": {"path": "x", "arg": ["y"]}}}},
                "context_servers.docs.command: unknown key \"arg\" has no effect (did you mean 'args'?)",
            ),
            (
                {"mcp_servers": {"docs": {"command": "x", "env_vars": [{"name": "A", "sorce": "local"}]}}},
                "mcp_servers.docs.env_vars[0]: unknown key \"sorce\" has no effect (did you mean 'source'?)",
            ),
            (
                {"mcpServers": {"docs": {"url": "https://example.com/mcp", "oauth": {"client_ids": "x"}}}},
                "mcpServers.docs.oauth: unknown key \"client_ids\" has no effect (did you mean 'clientid'?)",
            ),
            (
                {
                    "servers": {"docs": {"command": "x"}},
                    "inputs": [{"id": "a", "type": "promptString", "pasword": True, "//": "the key"}],
                },
                "inputs[0]: unknown key \"pasword\" has no effect (did you mean 'password'?)",
            ),
        ],
    )
    def test_an_unknown_key_of_an_object_within_an_entry_is_a_warning_too(
        self, document: dict[str, Any], warning: str
    ) -> None:
        loaded = load_config(document)
        assert loaded.warnings == (f"a mapping: {warning}",)
        assert [server.name for server in loaded.servers] == ["docs"]

    @pytest.mark.parametrize(
        "setting",
        sorted(
            {attribute.name for kind in (ServerConfig, Stdio, Http) for attribute in attrs.fields(kind)}
            - {
                "name",
                "transport",
                "enabled",
                "required",
                "source",
                "title",
                "tools",
            }  # they mean something in an entry itself
            - {"command", "args", "env", "cwd", "url", "headers", "auth"}
            - {"sandbox"}  # a key of other programs, which says so
        ),
    )
    def test_a_setting_in_the_entry_itself_is_a_warning_that_says_where_it_belongs(
        self, tmp_path: Path, setting: str
    ) -> None:
        server, warning = warned(tmp_path, {"command": "x", setting: 2})
        assert server == ServerConfig("docs", Stdio("x"))
        of_python = setting in ("callbacks", "client_info", "extensions", "http_client", "middleware")
        place = "only in Python" if of_python else f'as "mcp_actors": {{"{setting}": …}}'
        assert warning == f'mcpServers.docs: unknown key "{setting}" has no effect; set {setting} {place}'

    def test_a_misspelled_setting_in_the_entry_itself_is_named_too(self, tmp_path: Path) -> None:
        _, warning = warned(tmp_path, {"command": "x", "maxInFlight": 2})
        remedy = """(did you mean 'max_in_flight'?); set that as "mcp_actors": {"max_in_flight": …}"""
        assert warning == f'mcpServers.docs: unknown key "maxInFlight" has no effect {remedy}'

    def test_a_setting_of_another_in_the_entry_itself_is_named_with_both(self, tmp_path: Path) -> None:
        _, warning = warned(tmp_path, {"command": "x", "max_restarts": 2})
        assert warning.endswith('has no effect; set max_restarts as "mcp_actors": {"restarts": {"max_restarts": …}}')

    @pytest.mark.parametrize(
        ("section", "entry", "warning"),
        [
            (
                "mcp",
                {"type": "stdio", "timeout": 30000},
                'timeout: this is not supported and has no effect; set "mcp_actors": {"connect_timeout": 30000}, or 30 '
                "if it is meant in milliseconds, because Crush reads seconds",
            ),
            (
                "mcp_servers",
                {"startup_timeout_ms": 20},
                "startup_timeout_ms: no process starts in 20 ms; write startup_timeout_sec if it is meant in seconds",
            ),
        ],
    )
    def test_a_limit_in_the_other_unit_is_a_warning(self, section: str, entry: dict[str, Any], warning: str) -> None:
        loaded = load_config({section: {"docs": {"command": "x", **entry}}})
        assert loaded.warnings == (f"a mapping: {section}.docs.{warning}",)

    @pytest.mark.parametrize(
        ("extra", "remedy"),
        [
            ({"timeout": 60}, "set mcp_actors.request_timeout, in seconds"),
            ({"envFile": ".env"}, "list those to pass on in mcp_actors.env_from"),
            ({"authProviderType": "google"}, "give headers or a bearer token"),
            ({"requestInit": {}}, "give headers"),
            ({"sandbox": True}, "the server is not confined"),
            ({"sandboxEnabled": True}, "the server is not confined"),
            ({"settings": {}}, "the settings of a Zed extension cannot be passed on"),
            *(
                (
                    {key: value},
                    "no call waits for approval, so hide tools with disabled_tools, or set the approval of an",
                )
                for key, value in (
                    ("alwaysAllow", ["a"]),
                    ("autoApprove", ["a"]),
                    ("default_tools_approval_mode", "approve"),
                    ("tools", {}),
                    ("trust", True),
                )
            ),
        ],
    )
    def test_a_known_key_without_effect_is_a_warning_with_a_remedy(
        self, tmp_path: Path, extra: dict[str, Any], remedy: str
    ) -> None:
        _, warning = warned(tmp_path, {"url": "https://example.com", **extra})
        assert warning.startswith(f"mcpServers.docs.{next(iter(extra))}: this is not supported and has no effect; ")
        assert remedy in warning

    @pytest.mark.parametrize(
        "key",
        [
            *("autoStart", "description", "dev", "experimental_environment", "gallery", "icon", "icons"),
            *("installSource", "instructions", "metadata", "name", "networkTimeout", "oauth_resource", "scopes"),
            *("source", "supports_parallel_tool_calls", "tags", "version"),
        ],
    )
    def test_a_key_that_concerns_another_program_only_is_not_worth_a_warning(self, tmp_path: Path, key: str) -> None:
        assert one(tmp_path, {"url": "https://example.com", key: "x"}).transport == Http("https://example.com")

    @pytest.mark.parametrize(
        ("entry", "key", "what"),
        [
            ({"command": "x", "headers": {"A": "b"}}, "headers", "a server with a URL"),
            ({"url": "https://example.com", "args": ["b"]}, "args", "a server with a command"),
            ({"url": "https://example.com", "env": {"A": "b"}}, "env", "a server with a command"),
        ],
    )
    def test_a_key_for_the_other_kind_of_server_is_a_warning(
        self, tmp_path: Path, entry: dict[str, Any], key: str, what: str
    ) -> None:
        _, warning = warned(tmp_path, entry)
        assert warning == f"mcpServers.docs.{key}: this has no effect, because it is only for {what}"

    def test_if_it_is_empty_it_is_not_worth_a_warning(self, tmp_path: Path) -> None:
        assert one(tmp_path, {"url": "https://example.com", "args": [], "env": {}}).transport == Http(
            "https://example.com"
        )

    def test_a_variable_in_another_notation_is_a_warning(self, tmp_path: Path) -> None:
        server, warning = warned(tmp_path, {"command": "x", "env": {"A": "$TOKEN", "B": "$1", "C": "a$B"}})
        assert server.transport == Stdio("x", env={"A": "$TOKEN", "B": "$1", "C": "a$B"})
        problem = "a variable in this notation is not expanded here; write ${NAME} for its value"
        assert warning == f"mcpServers.docs.env.A: {problem}"
        server, warning = warned(tmp_path, {"command": "sh", "args": ["-c", "echo $TOKEN", "$TOKEN"]})
        assert server.transport == Stdio("sh", ["-c", "echo $TOKEN", "$TOKEN"])
        assert warning == f"mcpServers.docs.args[2]: {problem}"

    @pytest.mark.parametrize(
        ("text", "is_named"),
        [
            *((text, True) for text in ("Bearer $TOKEN", "$env:TOKEN", "%TOKEN%", "{env:TOKEN}", "{{TOKEN}}")),
            *((text, False) for text in ("a$TOKEN", "$5", "a%20b", "%E4%BD%A0", "$ref", "{a}", "p$$W", "${TOKEN:-x}")),
        ],
    )
    def test_what_is_probably_a_variable_is_named(self, tmp_path: Path, text: str, is_named: bool) -> None:
        """D-30."""
        for entry in ({"command": "x", "env": {"A": text}}, {"url": "https://example.com", "headers": {"A": text}}):
            assert len(load(tmp_path, {"mcpServers": {"docs": entry}}).warnings) == is_named


def test_a_mapping_may_hold_secrets_and_functions() -> None:
    def token() -> str:
        return "t"

    headers: dict[str, ConfigValue] = {"Authorization": Secret("s"), "X": token}
    [server] = load_config({"mcpServers": {"docs": {"url": "https://example.com/${V}", "headers": headers}}}).servers
    assert resolved(server.transport, {"V": "mcp"}, where="docs") == Http("https://example.com/mcp", headers=headers)
