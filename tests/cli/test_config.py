"""``config show`` and ``convert``: what a configuration means here, and the same servers in other formats."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_actors import load_config

from .conftest import Run
from .terminal import scripted, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

ENTRIES: Final[dict[str, Any]] = {
    "my/time": {"command": "time-server", "args": ["--utc"], "env": {"TZ": "${TZ}", "KEY": "${TIME_KEY}"}},
    "docs": {
        "url": "https://example.com/mcp?v=1",
        "headers": {"Authorization": "Bearer ${DOCS_TOKEN}", "X-Team": "${TEAM}"},
        "mcp_actors": {"request_timeout": 20},
    },
}
FORMATS: Final = ["claude", "cursor", "vscode", "zed", "codex"]


class TestShow:
    def test_each_value_has_its_key_or_its_variable(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path, ENTRIES)
        monkeypatch.setenv("MCP_ACTORS__DOCS__REQUEST_TIMEOUT", "30")
        monkeypatch.setenv("MCP_ACTORS__MY_TIME__ENV__KEY", "s3cret-of-b")
        monkeypatch.setenv("MCP_ACTORS_CONNECT_TIMEOUT", "7")
        monkeypatch.setenv("DOCS_TOKEN", "s3cret-of-b")
        monkeypatch.delenv("TEAM", raising=False)
        monkeypatch.setenv("TZ", "")
        done = run("config", "show")
        file = tmp_path / ".mcp.json"
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            f"my_time  {file}",
            '  command = "time-server"  mcpServers.my/time.command',
            '  args = ["--utc"]  mcpServers.my/time.args',
            '  env.TZ = "${TZ}"  mcpServers.my/time.env.TZ',
            '  env.KEY = "${MCP_ACTORS__MY_TIME__ENV__KEY}"  MCP_ACTORS__MY_TIME__ENV__KEY',
            f'  cwd = "{tmp_path}"  mcpServers.my/time',
            "  mcp_actors.connect_timeout = 7.0  MCP_ACTORS_CONNECT_TIMEOUT",
            "  ${MCP_ACTORS__MY_TIME__ENV__KEY} = ***",
            "  ${TZ} = ***",
            f"docs  {file}",
            '  type = "http"  mcpServers.docs',
            '  url = "https://example.com/mcp?v=…"  mcpServers.docs.url',
            '  headers.Authorization = "Bearer ${DOCS_TOKEN}"  mcpServers.docs.headers.Authorization',
            '  headers.X-Team = "${TEAM}"  mcpServers.docs.headers.X-Team',
            "  mcp_actors.request_timeout = 30  MCP_ACTORS__DOCS__REQUEST_TIMEOUT",
            "  mcp_actors.connect_timeout = 7.0  MCP_ACTORS_CONNECT_TIMEOUT",
            "  ${DOCS_TOKEN} = ***",
            "  ${TEAM} = not set",
        ]

    def test_no_credential_is_shown(self, tmp_path: Path, run: Run) -> None:
        secret = "s3cret-of-b"
        write(
            tmp_path,
            {
                "a": {"command": "x", "args": ["--token", secret], "env": {"A": secret, "B": f"${{B:-{secret}}}"}},
                "b": {"url": f"http://me:{secret}@127.0.0.1/?key={secret}"},
                "f": {"url": "http://127.0.0.1/", "mcp_actors": {"auth": secret}},
                "c": {"url": "http://127.0.0.1/", "headers": {"X": f"Bearer {secret}"}},
                "d": {"url": "https://x.org/", "oauth": {"clientId": "me", "clientSecret": secret}},
                "e": {"command": "${HOME}/x", "args": [f"--token={secret}"], "env": {"A": f"{secret}${{HOME}}"}},
            },
        )
        for words in ([], ["--json"]):
            done = run("config", "show", *words)
            assert done.returncode == 0, done.stderr
            assert "***" in done.stdout
            assert secret not in done.stdout + done.stderr

    def test_json_has_the_same(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, ENTRIES)
        [docs] = json.loads(run("config", "show", "docs", "--json").stdout)
        assert docs["values"][1] == {
            "key": "url",
            "value": "https://example.com/mcp?v=…",
            "from": "mcpServers.docs.url",
        }
        assert docs["variables"].keys() == {"DOCS_TOKEN", "TEAM"}

    def test_a_list_that_disables_a_server_is_named(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": {"command": "x"}, "b": {"command": "x"}}, mcp={"allowed": ["b"]})
        lines = run("config", "show").stdout.splitlines()
        assert [line for line in lines if "enabled" in line] == ["  enabled = false  mcp.allowed"]

    def test_nothing_is_asked_for_and_invalid_entries_are_errors(self, tmp_path: Path, run: Run, state: Path) -> None:
        from mcp_actors.cli._run import run as bare

        entries = {"a": {"command": "${input:key}"}, "bad": {}}
        write(tmp_path, entries, inputs=[{"id": "key", "type": "promptString"}])
        assert bare(["config", "show"]) == 1
        assert not (state / "mcp-actors").exists()
        done = run("config", "show")
        assert "mcpServers.bad: neither 'command' nor 'url' is given" in done.stderr
        assert '  command = "${input:key}"  mcpServers.a.command' in done.stdout.splitlines()


class TestConvert:
    @pytest.mark.parametrize("form", FORMATS)
    def test_a_converted_file_means_the_same_here(self, tmp_path: Path, run: Run, form: str) -> None:
        entries = {name: dict(entry) for name, entry in ENTRIES.items()}
        if form == "zed":  # it has no variables
            entries["my/time"].pop("env")
            entries["docs"].pop("headers")
        elif form == "codex":  # a variable is passed under its own name only
            entries["my/time"]["env"] = {"TZ": "UTC"}
        write(tmp_path, entries)
        literals = ("--literals",) if form == "codex" else ()
        to = "new.toml" if form == "codex" else "new.json"
        done = run("config", "convert", form, "-o", to, *literals)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "warning: server 'docs': only mcp_actors uses: request_timeout\n"
        before, after = load_config(tmp_path / ".mcp.json"), load_config(tmp_path / to)
        assert (after.errors, after.warnings) == ((), ())
        assert [each.name for each in after.servers] == ["my_time", "docs"]
        for old, new in zip(before.servers, after.servers, strict=True):
            assert new.request_timeout == old.request_timeout
            shown = [getattr(each.transport, "display_options", str(each.transport)) for each in (old, new)]
            if form != "codex":
                assert str(shown[0]) == str(shown[1])

    def test_codex_gets_the_names_of_variables(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {**ENTRIES, "my/time": {"command": "x", "env": {"TZ": "${TZ}", "A": 'q"\n\x7f'}}})
        done = run("config", "convert", "codex", "--literals")
        assert done.returncode == 0
        assert tomllib.loads(done.stdout)["mcp_servers"] == {
            "my_time": {"command": "x", "cwd": str(tmp_path), "env": {"A": 'q"\n\x7f'}, "env_vars": ["TZ"]},
            "docs": {
                "url": "https://example.com/mcp?v=1",
                "bearer_token_env_var": "DOCS_TOKEN",
                "env_http_headers": {"X-Team": "TEAM"},
                "mcp_actors": {"request_timeout": 20.0},
            },
        }

    def test_each_program_has_its_own_form_of_variables(self, tmp_path: Path, run: Run) -> None:
        entry = {"command": "x", "args": ["${env:A}"], "mcp_actors": {"env_from": ["B"]}}
        write(tmp_path, {"a": entry, "b": {"url": "http://127.0.0.1/", "mcp_actors": {"auth": "${T}"}}})
        found = {form: json.loads(run("config", "convert", form).stdout) for form in ("claude", "cursor", "vscode")}
        assert found["claude"]["mcpServers"]["a"]["args"] == ["${A}"]
        assert found["cursor"]["mcpServers"]["a"]["args"] == ["${env:A}"]
        assert found["vscode"]["servers"]["b"]["headers"] == {"Authorization": "Bearer ${env:T}"}

    def test_a_default_is_kept_for_claude(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": {"command": "x", "args": ["${A:-b}"]}})
        document = json.loads(run("config", "convert", "claude").stdout)
        assert document["mcpServers"]["a"]["args"] == ["${A:-b}"]

    def test_inputs_are_kept_for_vs_code(self, tmp_path: Path, run: Run) -> None:
        question = {"id": "key", "type": "promptString", "password": True}
        write(tmp_path, {"a": {"command": "x", "env": {"A": "${input:key}"}}}, inputs=[question])
        document = json.loads(run("config", "convert", "vscode").stdout)
        assert document["inputs"] == [question]
        assert document["servers"]["a"]["env"] == {"A": "${input:key}"}

    @pytest.mark.parametrize(
        ("form", "entry", "said"),
        [
            (
                "cursor",
                {"command": "x", "env": {"A": "${A:-b}"}},
                "env.A has a default, which would be written; remove the",
            ),
            (
                "cursor",
                {"command": "${A:-b}"},
                "defaults of variables are not supported by cursor, and it has ${A:-…}",
            ),
            ("claude", {"command": "x", "args": ["${input:key}"]}, "args[0]: inputs are not supported by claude"),
            ("zed", {"command": "${A}"}, "command: variables are not supported by zed, and it has ${A}"),
            (
                "codex",
                {"command": "x", "args": ["${A}"]},
                "variables are not supported by codex, and it has ${A}",
            ),
            ("codex", {"url": "https://x.org/sse"}, "type: HTTP with SSE is not supported by codex"),
            ("codex", {"command": "x", "mcp_actors": {"connect_timeout": 0}}, "connect_timeout: null is not supported"),
            ("claude", {"command": "x", "args": ["$${A}"]}, "args[0]: a literal '${' cannot be written by claude"),
            ("vscode", {"command": "x", "disabled": True}, "enabled: a server cannot be disabled by vscode"),
            ("claude", {"command": "x", "env": {"A": "s3cret"}}, "env.A is a literal value; write it as ${VARIABLE}, "),
            ("claude", {}, "neither 'command' nor 'url' is given"),
        ],
    )
    def test_what_a_format_cannot_express_is_named_and_nothing_is_written(
        self, tmp_path: Path, run: Run, form: str, entry: dict[str, Any], said: str
    ) -> None:
        inputs = [{"id": "key", "type": "promptString"}]
        write(tmp_path, {"good": {"command": "y"}, "a": entry}, inputs=inputs)
        done = run("config", "convert", form, "--output", "new/file")
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
        assert "literals=True" not in done.stderr
        assert done.stderr.splitlines()[-1] == (
            "error: nothing was written; correct that, or name the servers without it: "
            f"config convert {form} SERVER…, and add the others to {form} yourself"
        )
        assert not (tmp_path / "new").exists()
        assert run("config", "convert", form, "good").returncode == 0

    def test_literals_are_written_if_that_is_asked_for(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": {"command": "x", "env": {"A": "s3cret"}}})
        refused = run("config", "convert", "claude")
        assert "or add --literals" in refused.stderr
        done = run("config", "convert", "claude", "--literals")
        assert json.loads(done.stdout)["mcpServers"]["a"]["env"] == {"A": "s3cret"}

    def test_a_file_that_exists_is_not_replaced(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted()})
        before = (tmp_path / ".mcp.json").read_bytes()
        done = run("config", "convert", "claude", "-o", ".mcp.json")
        assert done.returncode == 1
        assert done.stderr.endswith(
            "error: .mcp.json exists, and nothing was written; choose another name, or move it away\n"
        )
        assert (tmp_path / ".mcp.json").read_bytes() == before

    def test_a_file_that_cannot_be_written_is_named(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": {"command": "x"}})
        done = run("config", "convert", "claude", "-o", ".mcp.json/new")
        assert done.returncode == 1
        assert "error: .mcp.json/new cannot be written: " in done.stderr

    def test_an_unknown_format_names_the_others(self, tmp_path: Path, run: Run) -> None:
        done = run("config", "convert", "emacs")
        assert (done.returncode, done.stdout) == (2, "")
        assert 'Choose from: "claude", "cursor", "vscode", "zed", "codex"; see mcp-actors config convert' in done.stderr


@pytest.mark.parametrize(
    ("word", "command"),
    [("show", "config show"), ("export", "config convert"), ("approve", "pins approve"), ("diff", "pins show")],
)
def test_words_that_people_type_name_the_command(run: Run, word: str, command: str) -> None:
    done = run(word, "x")
    assert done.returncode == 2
    assert f"there is no command {word!r}; did you mean {command!r}? For example: mcp-actors {command}" in done.stderr
