"""Directories of manifests: what YAML means here, and which manifests are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_actors import ConfigError, Http, LoadedConfig, RetryPolicy, ServerConfig, Sse, Stdio
from mcp_actors.config import DirectorySource

from ...messages import Said

MANIFESTS = Path(__file__).parent / "manifests"
"""Three manifests that use every key, in its places, spellings and units."""

Write = Callable[[str], LoadedConfig]

DOCS = """\
apiVersion: mcp.example.com/v1
kind: MCPServer
metadata:
  name: docs
  labels: {team: search, tier: 1}
spec:
  provider: mcp-http
  configuration:
    endpoint: https://docs.example.com/mcp
    mcp_actors:
      request_timeout: 20
  authentication:
    type: bearer
    token: ${DOCS_TOKEN}
  discovery:
    enabled: true
    refreshInterval: 30m
    onStartup: false
    fallbackToStatic: true
  tools:
    - name: search
      description: Search the docs.
      inputSchema: {type: object, properties: {limit: {type: integer, maximum: 50}}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write one manifest, and load it."""

    def write(text: str) -> LoadedConfig:
        (tmp_path / "docs.yaml").write_text(text)
        [loaded] = DirectorySource(tmp_path).read()
        return loaded

    return write


def manifest(configuration: str, rest: str = "") -> str:
    indented = "".join(f"    {line}\n" for line in configuration.splitlines())
    return f"kind: MCPServer\nmetadata: {{name: docs}}\nspec:\n  configuration:\n{indented}{rest}"


def only(loaded: LoadedConfig) -> ServerConfig:
    assert not loaded.errors
    [config] = loaded.servers
    return config


def test_a_manifest_becomes_a_server(write: Write, tmp_path: Path) -> None:
    """S2-20, S2-22, S2-23."""
    loaded = write(DOCS)
    config = only(loaded)
    assert not loaded.warnings
    assert config.name == "docs"
    assert config.source == str(tmp_path / "docs.yaml")
    assert config.transport == Http("https://docs.example.com/mcp", auth="${DOCS_TOKEN}")
    assert config.request_timeout == 20
    assert config.connect == "lazy"
    assert config.refresh_interval == 1800
    [tool] = config.static_tools
    assert tool.name == "search"
    assert tool.input_schema["properties"]["limit"]["maximum"] == 50


def test_an_api_key_goes_into_a_header(write: Write) -> None:
    """S2-20, S2-21."""
    key = "  authentication: {type: api-key, header: X-Docs, key: '${KEY}'}\n"
    assert only(write(manifest("url: https://x.example", key))).transport == Http(
        "https://x.example", headers={"X-Docs": "${KEY}"}
    )


def loaded_from(folder: Path, name: str) -> ServerConfig:
    """Return the server of one of the three manifests that use every key."""
    [loaded] = [each for each in DirectorySource(folder).read() if each.servers[0].name == name]
    assert not loaded.warnings
    return only(loaded)


def test_a_manifest_with_credentials_retries_and_parameters_is_what_it_says() -> None:
    """C-40, S2-20, S2-21, S2-22, S2-23."""
    config = loaded_from(MANIFESTS, "weather")
    assert config.title == "Weather"
    assert config.transport == Http(
        "https://weather.example/mcp",
        headers={"X-API-Version": "v1", "X-Client-ID": "example"},
        auth="${WEATHER_TOKEN}",
    )
    assert (config.request_timeout, config.refresh_interval, config.connect) == (60, 3600, "eager")
    assert config.retry.attempts == 3
    assert [config.retry.backoff.delay(attempt) for attempt in (1, 2, 3)] == [1, 2, 4]
    [tool] = config.static_tools
    assert (tool.name, tool.description) == ("forecast", "The forecast for a city")
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name"},
            "units": {
                "type": "string",
                "description": "Of the temperature",
                "default": "metric",
                "enum": ["metric", "imperial"],
            },
        },
        "required": ["city"],
    }


def test_a_manifest_with_an_api_key_names_the_header_by_its_key() -> None:
    """C-40, S2-20: over SSE."""
    config = loaded_from(MANIFESTS, "analytics")
    headers = {"X-Stream-Type": "analytics", "X-API-Key": "${ANALYTICS_KEY}"}
    assert config.transport == Sse("https://analytics.example", headers=headers)
    assert (config.title, config.request_timeout, config.refresh_interval) == ("Analytics", 300, 1800)
    assert config.static_tools == ()


def test_a_manifest_of_a_command_has_its_folder_and_environment() -> None:
    """C-40, S2-20."""
    config = loaded_from(MANIFESTS, "files")
    assert config.transport == Stdio(
        "npx",
        ("-y", "@modelcontextprotocol/server-filesystem", "/srv/files"),
        cwd="/srv",
        env={"NODE_ENV": "production", "LOG_LEVEL": "info"},
    )
    assert (config.title, config.refresh_interval, config.connect) == ("Files", 300, "eager")


def test_retries_may_wait_equally_long(write: Write) -> None:
    """C-40: and a retry has its default delays if only the number of attempts is written."""
    config = only(write(manifest("command: x\nretries: {maxAttempts: 5, backoff: fixed, initialDelay: 200}")))
    assert [config.retry.backoff.delay(attempt) for attempt in (1, 2, 3)] == [0.2, 0.2, 0.2]
    config = only(write(manifest("command: x\nretries: {maxAttempts: 5}")))
    assert config.retry == RetryPolicy(attempts=5)


def test_a_document_of_another_kind_is_skipped_with_one_line(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C-40."""
    with caplog.at_level(logging.INFO, "mcp_actors.config"):
        config = only(write(f"kind: Deployment\nspec: {{replicas: 3}}\n---\n{DOCS}"))
    assert config.name == "docs"
    [line] = caplog.messages
    assert line == (
        f"{tmp_path}/docs.yaml:1: this document of kind 'Deployment' is skipped; servers are of kind 'MCPServer'"
    )


def test_without_discovery_only_declared_tools_are_shown(write: Write) -> None:
    """S2-20."""
    rest = "  discovery: {enabled: false}\n  tools: [{name: search}]\n"
    config = only(write(manifest("url: https://x.example", rest)))
    assert config.tool_filter.allow == ("search",)
    assert [tool.name for tool in config.static_tools] == ["search"]


def test_declared_tools_do_not_serve_without_the_fallback(write: Write) -> None:
    rest = "  discovery: {fallbackToStatic: false}\n  tools: [{name: search}]\n"
    assert only(write(manifest("url: https://x.example", rest))).static_tools == ()


def test_strings_stay_strings_where_a_string_is_meant(write: Write) -> None:
    """S2-20: what YAML reads as false, 1.1, 45000, a date, an octal number and a null."""
    values = ("no", "1.10", "12:30:00", "2026-11-23", "0o17", "null", "true", "~", "1e3", "0x1F", "1_000")
    env = "\n".join(f"  V{index}: {value}" for index, value in enumerate(values))
    args = "\n".join(f"  - {value}" for value in values)
    config = only(write(manifest(f"command: 007\nargs:\n{args}\nenv:\n{env}\n  UNSET:\n  EMPTY: ''")))
    assert config.transport == Stdio(
        "007", values, env={**{f"V{index}": value for index, value in enumerate(values)}, "EMPTY": ""}
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False)],
)
def test_flags_and_settings_have_types(write: Write, text: str, value: bool) -> None:
    settings = f"command: x\nenabled: {text}\nmcp_actors:\n  trust_annotations: {text}\n  connect_timeout: 1.50\n"
    config = only(write(manifest(f"{settings}  restarts: {{max_restarts: 3}}")))
    assert (config.enabled, config.trust_annotations) == (value, value)
    assert config.connect_timeout == 1.5
    assert config.restarts.max_restarts == 3


def test_several_manifests_may_be_in_one_file(write: Write) -> None:
    loaded = write(f"{DOCS}---\n---\n{manifest('url: https://x.example/sse').replace('docs', 'old')}")
    assert [config.name for config in loaded.servers] == ["docs", "old"]
    assert isinstance(loaded.servers[1].transport, Sse)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("manifest: broken", "kind: [MCPServer\n"),
        ("manifest: a tab", "kind:\n\t- x\n"),
        ("manifest: not an object", "- x\n"),
        ("manifest: no kind", "metadata: {name: x}\n"),
        ("manifest: a misspelled kind", "kind: MCPSever\n"),
        ("manifest: a misspelled key", manifest("url: https://x.example\nheadrs: {}")),
        ("manifest: a key of other programs", manifest("url: https://x.example\nautoApprove: []")),
        ("manifest: headers of a command", manifest("command: x\nheaders: {A: b}")),
        ("manifest: a token of a command", manifest("command: x", "  authentication: {type: bearer, token: a}\n")),
        ("manifest: a folder of a URL", manifest("url: https://x.example\nworkingDir: /tmp")),
        ("manifest: two URLs", manifest("url: https://x.example\nbaseUrl: https://y.example")),
        ("manifest: a timeout in words", manifest("command: x\ntimeout: soon")),
        ("manifest: two timeouts", manifest("command: x\ntimeout: 60\nmcp_actors: {request_timeout: 5}")),
        ("manifest: a backoff", manifest("command: x\nretries: {backoff: linear}")),
        ("manifest: a delay", manifest("command: x\nretries: {initialDelay: 1s}")),
        ("manifest: attempts", manifest("command: x\nretries: {maxAttempts: 0}")),
        ("manifest: a misspelled retry", manifest("command: x\nretries: {maxAttempt: 3}")),
        (
            "manifest: credentials of another type",
            manifest("url: https://x.example", "  authentication: {type: bearer, credentials: {key: A, value: b}}\n"),
        ),
        (
            "manifest: credentials twice",
            manifest("url: https://x.example", "  authentication: {type: bearer, token: a, credentials: {token: b}}\n"),
        ),
        (
            "manifest: no credentials",
            manifest("url: https://x.example", "  authentication: {type: none, credentials: {token: b}}\n"),
        ),
        ("manifest: two schemas", manifest("command: x", "  tools: [{name: x, parameters: {}, inputSchema: {}}]\n")),
        ("manifest: parameters", manifest("command: x", "  tools: [{name: x, parameters: {city: string}}]\n")),
        (
            "manifest: required in words",
            manifest("command: x", "  tools: [{name: x, parameters: {city: {required: yes}}}]\n"),
        ),
        ("manifest: an unknown key", "kind: MCPServer\nstatus: {}\n"),
        ("manifest: a key of the configuration", manifest("args: [a]", "  command: x\n")),
        ("manifest: a key of the specification", manifest("command: x\nprovider: http")),
        ("manifest: no name", "kind: MCPServer\nmetadata: {}\n"),
        ("manifest: no configuration", "kind: MCPServer\nmetadata: {name: x}\nspec: {}\n"),
        ("manifest: a doubled key", manifest("command: x\ncommand: y")),
        ("manifest: an alias", "kind: MCPServer\nmetadata: &a {name: x}\nspec: *a\n"),
        ("manifest: a tag", "kind: MCPServer\nmetadata: {name: !!python/name:os.system x}\n"),
        ("manifest: a key that is a list", "? [a]\n: b\n"),
        ("manifest: an empty key", "? \n: b\n"),
        ("manifest: a control character", "kind: \x07\n"),
        ("manifest: too deep", "a: " + "[" * 100 + "]" * 100),
        ("manifest: too many values", "a: [" + "b," * 20_001 + "]"),
        ("manifest: too large", "# " + "x" * 256 * 1024),
        ("manifest: an error of the entry", manifest("url: ftp://x.example")),
        ("manifest: an unknown setting", manifest("command: x\nmcp_actors: {retries: 3}")),
        ("manifest: an interval", manifest("command: x", "  discovery: {refreshInterval: soon}\n")),
        ("manifest: a flag in words", manifest("command: x", "  discovery: {onStartup: yes}\n")),
        ("manifest: an authentication", manifest("url: https://x.example", "  authentication: {type: oauth}\n")),
        (
            "manifest: a bearer without a token",
            manifest("url: https://x.example", "  authentication: {type: bearer}\n"),
        ),
        ("manifest: a tool without a name", manifest("command: x", "  tools: [{title: x}]\n")),
        ("manifest: tools that are no list", manifest("command: x", "  tools: {title: x}\n")),
        ("manifest: parameters that are no object", manifest("command: x", "  tools: [{name: x, parameters: [y]}]\n")),
        ("manifest: a provider that is no text", manifest("command: x", "  provider: [http]\n")),
        ("manifest: settings that are no object", manifest("command: x\nmcp_actors: [retries]")),
        (
            "manifest: headers that are no object",
            manifest("url: https://x.example\nheaders: [x]", "  authentication: {type: api-key, key: y}\n"),
        ),
    ],
)
def test_an_invalid_manifest_is_an_error_that_names_the_file_and_the_line(
    write: Write, said: Said, tmp_path: Path, row: str, text: str
) -> None:
    """S3-02, S3-07."""
    loaded = write(text)
    assert not loaded.servers
    [error] = loaded.errors
    said(row, str(error), folder=tmp_path)


def test_two_manifests_of_a_file_with_the_same_name_are_named_by_their_lines(write: Write, tmp_path: Path) -> None:
    loaded = write("---\n".join([manifest("command: one")] * 2))
    assert f"docs.yaml:7: spec.configuration: {tmp_path}/docs.yaml:1 is called 'docs' too" in str(loaded.errors[0])


def test_an_alias_cannot_make_a_short_file_long(write: Write) -> None:
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
    [error] = write("\n".join(lines)).errors
    assert "alias" in str(error)


def test_each_file_of_a_directory_stands_for_itself(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml"):
        (tmp_path / name).write_text(manifest("command: x").replace("docs", name[0]))
    (tmp_path / "c.yaml").write_text("kind: [")
    for ignored in (".hidden.yaml", "d.yaml~", "e.json"):
        (tmp_path / ignored).write_text("{")
    a, b, c = DirectorySource(tmp_path).read()
    assert [a.servers[0].name, b.servers[0].name] == ["a", "b"]
    assert [*c.failed] == [str(tmp_path / "c.yaml")]


def test_a_changed_new_or_removed_file_changes_the_look(tmp_path: Path) -> None:
    source = DirectorySource(tmp_path)
    looks: list[Any] = [source.look()]
    file = tmp_path / "a.yaml"
    file.write_text(DOCS)
    looks.append(source.look())
    assert source.look() == looks[-1]
    file.write_text(f"{DOCS}\n")
    looks.append(source.look())
    file.unlink()
    assert source.look() == looks[0]
    assert len(set(looks)) == 3


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path, said: Said) -> None:
    for method in (DirectorySource(tmp_path / "absent").look, DirectorySource(tmp_path / "absent").read):
        with pytest.raises(ConfigError) as caught:
            method()
        said("a directory that does not exist", str(caught.value), folder=tmp_path)


def test_a_directory_with_too_many_files_is_refused(tmp_path: Path, said: Said) -> None:
    for number in range(1001):
        (tmp_path / f"{number}.yaml").touch()
    with pytest.raises(ConfigError) as caught:
        DirectorySource(tmp_path).read()
    said("a directory with too many files", str(caught.value), folder=tmp_path)
