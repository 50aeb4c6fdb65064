"""The commands with pipes: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shlex import join
from typing import Any

import pytest
from trio.lowlevel import in_trio_run

from mcp_actors import ConfigError
from mcp_actors.config import Input

from ..messages import Said
from ..servers.scripted_server import command
from .conftest import Run
from .terminal import (
    PATIENCE,
    accept_found,
    is_running,
    next_changes,
    piped,
    program,
    scripted,
    started,
    wait_for_text,
    write,
)

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

ESCAPE = "\x1b"
FILE = ("--config", ".mcp.json")
MANY = {f"s{number}": {"command": "no-such-program", "mcp_actors": {"connect": "lazy"}} for number in range(60)}


def shell(script: str) -> dict[str, Any]:
    """Return the entry of a server that is started by a script."""
    return {"command": "sh", "args": ["-c", script]}


def waits_for(file: Path) -> dict[str, Any]:
    """Return the entry of a scripted server that starts only once a file exists."""
    words = join([scripted()["command"], *scripted()["args"]])
    return {**scripted(), **shell(f"while [ ! -e '{file}' ]; do sleep 0.01; done; exec {words}")}


@contextmanager
def answering(status: int, headers: Mapping[str, str]) -> Iterator[int]:
    """Answer every request with this status, without a body; yield the port."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # so it is called

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class TestCheck:
    def test_each_server_has_a_line_with_its_version(self, tmp_path: Path, run: Run) -> None:
        write(
            tmp_path,
            {
                "a": scripted(),
                "longer": scripted("--name", "other", "--tools", "2"),
                "off": {"command": "x", "disabled": True},
            },
        )
        done = run("check")
        assert (done.returncode, done.stderr) == (0, "")
        *settled, off = done.stdout.splitlines()
        a, longer = sorted(settled)
        assert a.startswith("a       ready     scripted 1.0, 2025-")
        assert longer.startswith("longer  ready     other 1.0, 2025-")
        assert off == "off     disabled  [x]"
        assert ESCAPE not in done.stdout

    def test_a_file_may_have_more_servers_than_a_group_by_default(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, MANY)
        done = run("check")
        assert len(re.findall(r"^\w+ +failed ", done.stdout, re.MULTILINE)) == len(MANY)
        assert "max_servers" not in done.stdout + done.stderr

    def test_it_names_the_servers_that_claude_code_has_for_the_folder(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D-31: they are used if their file is named, and nothing of other folders is."""
        monkeypatch.setenv("HOME", str(tmp_path))
        mine, other = ({"mcpServers": {name: scripted()}} for name in ("mine", "other"))
        file = tmp_path / ".claude.json"
        file.write_text(json.dumps({"projects": {str(tmp_path): mine, "/other": other}, "mcpServers": {}}))
        write(tmp_path, {})
        found = run("check")
        assert f"{file} has servers of Claude Code for this folder: 'mine'; use: --config {file}" in found.stderr
        assert [each["name"] for each in json.loads(run("check", "--json", "--config", str(file)).stdout)] == ["mine"]
        assert "other" not in run("config", "show", "--config", str(file)).stdout

    def test_it_shows_how_many_tools_a_filter_hides(self, tmp_path: Path, run: Run) -> None:
        """C-52: and warns of names in it that no tool has."""
        tools = {"enabled_tools": ["echo", "ecoh"]}
        write(tmp_path, {"a": {**scripted(), **tools}, "b": scripted()})
        done = run("check")
        assert re.search(r"^a .* 1 tool \(\d+ hidden by its filter\), ", done.stdout, re.MULTILINE)
        assert done.stdout.count("hidden") == 1
        assert "warning: server 'a': its filter has names of tools that it does not list: 'ecoh'" in done.stderr
        assert "(did you mean 'echo'?)" in done.stderr
        found = json.loads(run("check", "--json").stdout)
        assert found[0]["hidden"] == found[1]["tools"] - 1
        write(tmp_path, {"a": {**scripted(), "enabled_tools": ["ecoh"]}})
        done = run("tools")
        assert (done.returncode, done.stdout) == (0, "")
        assert "warning: server 'a': its filter has names of tools that it does not list: 'ecoh'" in done.stderr
        assert f"server 'a' has no tools that its filter shows ({found[1]['tools']} hidden by it)" in done.stderr
        assert found[1]["hidden"] == 0

    def test_the_stderr_of_a_slow_server_is_shown(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B-01: the last line of its stderr, again and again, and it waits for it."""
        from mcp_actors.cli._output import Output

        go, reports, progress = tmp_path / "go", list[str](), Output.progress

        def noted(output: Output, text: str) -> None:
            progress(output, text)
            reports.append(text)
            if sum(report.endswith("unpacking") for report in reports) > 1:
                go.touch()

        monkeypatch.setattr(Output, "progress", noted)
        monkeypatch.setattr("mcp_actors.cli._connect.REPORT_EVERY", 0.2)
        words = join((scripted()["command"], *scripted()["args"]))
        script = f"echo unpacking >&2; while [ ! -e '{go}' ]; do sleep 0.01; done; exec {words}"
        settings = {"connect_timeout": 0.5, "startup_timeout": PATIENCE}
        write(tmp_path, {"slow": {"command": "sh", "args": ["-c", script], "mcp_actors": settings}})
        done = run("check")
        assert done.returncode == 0
        assert done.stdout.startswith("slow  ready")
        told = [line for line in done.stderr.splitlines() if line.endswith("unpacking")]
        assert len(told) > 1
        assert told[0].startswith("slow: still starting after ")

    def test_each_failed_server_has_an_error_with_a_remedy(self, tmp_path: Path, run: Run, said: Said) -> None:
        servers = {
            "missing": {"command": "no-such-program"},
            "exits": scripted("--exit-at-start", "7", "--stderr", "no licence"),
            "mute": {"command": "false"},
            "refused": {"url": "http://127.0.0.1:1/mcp"},
            "unset": {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}},
            "typo": {"comand": "x"},
            "good": scripted(),
        }
        write(tmp_path, servers)
        done = run("check")
        assert done.returncode == 1
        lines = {line.split()[0]: line for line in done.stdout.splitlines()}
        assert lines.keys() == servers.keys()
        assert next(iter(lines)) == "typo"
        assert "(did you mean 'command'?)" in lines["typo"]
        assert "command 'no-such-program' not found; install it or set an absolute path" in lines["missing"]
        assert "exited with code 7" in lines["exits"]
        assert "no licence" in lines["exits"]
        assert "exited with code 1" in lines["mute"]
        assert "it wrote nothing to stderr; run its command in a terminal to see why" in lines["mute"]
        assert "could not connect to http://127.0.0.1:1/mcp" in lines["refused"]
        assert "check that the server is running" in lines["refused"]
        assert "environment variable 'NO_SUCH_VARIABLE' is not set (" in lines["unset"]
        assert f" ({tmp_path}/.mcp.json: mcpServers.unset.env.A); set it, or give a default" in lines["unset"]
        assert " ready " in lines["good"]
        said("some servers failed", done.stderr.splitlines()[-1])

    @pytest.mark.parametrize(
        ("status", "headers", "said"),
        [
            (
                200,
                {"Content-Type": "text/html"},
                "'text/html', which is not MCP; check that this is the URL of an MCP end",
            ),
            (
                401,
                {"WWW-Authenticate": 'Bearer realm="x"'},
                "401 Unauthorized; it requires a bearer token and none was",
            ),
            (404, {}, "404 Not Found; check the path of the URL"),
        ],
    )
    def test_a_url_that_fails_has_an_error_with_a_remedy(
        self, tmp_path: Path, run: Run, status: int, headers: dict[str, str], said: str
    ) -> None:
        with answering(status, headers) as port:
            write(tmp_path, {"web": {"url": f"http://127.0.0.1:{port}/"}})
            done = run("check")
        assert done.returncode == 1
        assert said in done.stdout
        assert "may have taken effect" not in done.stdout

    def test_its_json_is_nothing_but_json(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted("--tools", "1"), "bad": {"command": "no-such-program"}})
        done = run("check", "--json")
        assert done.returncode == 1
        a, bad = json.loads(done.stdout)
        assert (a["name"], a["state"], a["server"], a["error"]) == ("a", "ready", "scripted", None)
        assert a["tools"] > 1
        assert a["seconds"] > 0
        assert (bad["state"], bad["tools"]) == ("failed", None)
        assert "not found" in bad["error"]

    def test_a_pipe_gets_each_line_as_soon_as_its_server_has_settled(self, tmp_path: Path) -> None:
        go = tmp_path / "go"
        write(tmp_path, {"late": waits_for(go), "a": scripted(), "off": {"command": "x", "disabled": True}})
        with started(tmp_path, "check", *FILE) as checking:
            assert checking.stdout is not None
            assert checking.stdout.readline().startswith("a     ready ")
            go.touch()
            rest, errors = checking.communicate(timeout=PATIENCE)
        assert (checking.returncode, errors) == (0, "")
        late, off = rest.splitlines()
        assert late.startswith("late  ready ")
        assert off == "off   disabled  [x]"

    def test_its_json_is_one_array_in_the_order_of_the_file(self, tmp_path: Path) -> None:
        go = tmp_path / "go"
        script = f"touch '{go}'; exec no-such-program"  # so `late` is settled last
        write(tmp_path, {"late": waits_for(go), "off": {"command": "x", "disabled": True}, "bad": shell(script)})
        done = piped(tmp_path, "check", "--json")
        assert done.returncode == 1
        [line] = done.stdout.splitlines()
        assert [(each["name"], each["state"]) for each in json.loads(line)] == [
            ("late", "ready"),
            ("off", "disabled"),
            ("bad", "failed"),
        ]

    def test_what_it_prints_is_not_logged_too(self, tmp_path: Path) -> None:
        """B-22: a terminal shows each failure once."""
        write(tmp_path, {"bad": {"command": "no-such-program"}})
        done = piped(tmp_path, "check")
        assert (done.stdout + done.stderr).count("not found") == 1, done

    def test_ctrl_c_shows_the_results_of_the_other_servers(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mcp_actors.cli._output import Output

        reported = [""]

        def report(output: Output, text: str) -> None:
            if text.startswith("mute:") and reported[-1].startswith("mute:"):
                raise KeyboardInterrupt  # a and gone have their results
            reported.append(text)

        monkeypatch.setattr("mcp_actors.cli._connect.REPORT_EVERY", 0.2)
        monkeypatch.setattr(Output, "progress", report)
        mute = {"command": "sleep", "args": ["3600"], "mcp_actors": {"stop_timeout": 0.2}}
        write(tmp_path, {"a": scripted(), "gone": {"command": "no-such-program"}, "mute": mute, "typo": {}})
        done = run("check")
        assert (done.returncode, done.stderr) == (130, "cancelled\n")
        typo, *settled, last = done.stdout.splitlines()
        a, gone = sorted(settled)
        assert typo.startswith("typo  invalid   .mcp.json: mcpServers.typo: neither 'command' nor 'url' is given")
        assert a.startswith("a     ready     scripted 1.0, ")
        assert gone.startswith("gone  failed    server 'gone': command 'no-such-program' not found")
        assert last == "mute  connecting  not finished  [sleep 3600]"

    def test_a_variable_that_overrides_nothing_is_an_error(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S2-19: as in a group. A command that names its servers ignores the variables of others."""
        write(tmp_path, {"a": scripted()})
        monkeypatch.setenv("MCP_ACTORS__A__COMMAN", "x")
        done = run("check")
        first, second = done.stdout.splitlines()
        problem = "MCP_ACTORS__A__COMMAN: server 'a' has no field 'COMMAN' that can be set (did you mean 'COMMAND'?)"
        assert first == f"MCP_ACTORS__A__COMMAN  invalid   environment variable {problem}"
        assert second.split()[:2] == ["a", "ready"]
        assert done.returncode == 1
        assert run("check", "a").returncode == 0

    def test_a_variable_that_fits_two_servers_disables_both(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path, {"a-b": scripted(), "a_b": scripted()})
        monkeypatch.setenv("MCP_ACTORS__A_B__COMMAND", "x")
        done = run("tools")
        assert done.stdout == ""
        assert done.stderr.count("this fits the servers 'a-b' and 'a_b'; rename one of them") == 1
        assert done.returncode == 1

    def test_only_the_servers_that_are_named_are_checked(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted(), "bad": {}, "off": {**scripted(), "disabled": True}})
        done = run("check", "off", "a")
        assert sorted(line.split()[:2] for line in done.stdout.splitlines()) == [["a", "ready"], ["off", "ready"]]
        assert done.returncode == 0
        unknown = run("check", "ba")
        assert unknown.returncode == 2
        assert unknown.stderr.endswith(".mcp.json: there is no server 'ba'; did you mean 'bad'?\n")
        write(tmp_path, {"a": scripted(), "bad": {"disabled": True}})
        assert "mcpServers.bad: neither 'command' nor 'url' is given" in run("call", "bad", "echo").stderr

    def test_no_credential_is_shown(self, tmp_path: Path, run: Run) -> None:
        servers = {
            "a": {"url": "http://user:s3cret@127.0.0.1:1/mcp?key=s3cret", "headers": {"X": "s3cret"}},
            "b": {"command": "no-such-program", "args": ["--token", "s3cret"], "env": {"A": "s3cret"}},
            "c": {"command": "no-such-program", "args": ["--token", "s3cret", "${HOME}"]},
        }
        write(tmp_path, servers)
        for words in (["check"], ["check", "--json"], ["tools"], ["call", "a", "b"]):
            done = run(*words)
            assert done.returncode == 1
            assert "s3cret" not in done.stdout + done.stderr


class TestTools:
    def test_it_lists_them_with_their_arguments(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted()})
        done = piped(tmp_path, "tools")
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[lines.index("a echo(text)") + 1] == "    Return the text."

    def test_its_json_has_the_schemas(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted()})
        tools = {tool["name"]: tool for tool in json.loads(run("tools", "--json").stdout)}
        assert tools["echo"]["public_name"] == "mcp__a__echo"
        assert tools["echo"]["inputSchema"]["properties"] == {"text": {"type": "string"}}

    def test_servers_that_do_not_answer_are_named(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted(), "bad": {"command": "no-such-program"}, "worse": {}})
        done = run("tools")
        assert done.returncode == 1
        assert "a echo(text)" in done.stdout
        first, second = done.stderr.splitlines()
        assert "mcpServers.worse: neither 'command' nor 'url' is given" in first
        assert second.startswith("error: server 'bad': command 'no-such-program' not found")


class TestCall:
    def test_it_prints_what_the_tool_returns(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted(), "broken": {"command": "no-such-program"}})
        done = run("call", "a", "echo", "text=007 = [bold]James[/]")
        assert (done.returncode, done.stdout, done.stderr) == (0, "007 = [bold]James[/]\n", "")

    def test_a_pipe_gets_the_text_unchanged(self, tmp_path: Path) -> None:
        write(tmp_path, {"a": scripted()})
        text = "tab\there \x1b[31mred\x1b[0m\nand \u202e"
        done = piped(tmp_path, "call", "a", "echo", f"text={text}")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{text}\n", "")

    def test_characters_that_the_output_cannot_encode_are_escaped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path, {"a": scripted()})
        monkeypatch.setenv("PYTHONIOENCODING", "ascii")
        done = piped(tmp_path, "call", "a", "echo", "text=é")
        assert (done.returncode, done.stdout, done.stderr) == (0, "\\xe9\n", "")

    def test_arguments_may_be_json_and_so_may_the_result(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted()})
        done = run("call", "a", "echo", '{"text": "é"}', "--json")
        assert json.loads(done.stdout)["content"] == [{"type": "text", "text": "é"}]

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["a", "ecko"], 2, "server 'a' has no tool 'ecko'; did you mean 'echo'?"),
            (["a", "echo", "txt=x"], 2, "the tool has no argument 'txt'; did you mean 'text'?"),
            (
                ["a", "echo", "x"],
                2,
                "'x' is not an argument; write key=value without spaces, or one JSON object; the keys are: text",
            ),
            (["a", "sleep", "seconds=soon"], 2, "argument 'seconds': 'soon' is not of type number"),
            (["a", "echo", "{"], 2, "the JSON object is not valid JSON (Expecting property name"),
            (["a", "echo"], 2, "arguments.text is missing"),
            (["a", "echo", "--text", "x"], 2, "write the tool's arguments as key=value, without dashes"),
            (["a"], 2, "name a tool of 'a': mcp-actors call a TOOL; mcp-actors tools lists them"),
            (["b", "echo"], 2, "there is no server 'b'; its servers are: a, gone"),
            (["gone", "echo"], 1, "server 'gone': command 'no-such-program' not found; install it"),
        ],
    )
    def test_an_error_is_one_line(self, tmp_path: Path, run: Run, words: list[str], code: int, said: str) -> None:
        write(tmp_path, {"a": scripted(), "gone": {"command": "no-such-program"}})
        done = run("call", *words)
        assert (done.returncode, done.stdout) == (code, "")
        [line] = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert said in line

    def test_servers_have_their_name_in_the_file_too_and_tools_their_public_name(
        self, tmp_path: Path, run: Run
    ) -> None:
        write(
            tmp_path,
            {"my/server": scripted(), "off/it": {**scripted(), "disabled": True}, "a b": {}, "a_b": scripted()},
        )
        assert "mcpServers[\"a b\"]: neither 'command' nor 'url' is given" in run("check", "a b").stdout
        assert run("call", "my/server", "echo", "text=x").stdout == "x\n"
        assert run("call", "my_server", "mcp__my_server__echo", "text=x").stdout == "x\n"
        assert run("call", "off/it", "echo", "text=x").stdout == "x\n"
        assert "there is no server 'my_servers'; did you mean 'my_server'?" in run("call", "my/servers", "echo").stderr

    def test_paths_in_the_file_of_a_project_begin_in_it_wherever_the_command_is_run(
        self, tmp_path: Path, run: Run
    ) -> None:
        project = tmp_path / "project"
        (project / "bin").mkdir(parents=True)
        _, (*options, script) = command()
        (project / "server.py").symlink_to(script)
        (project / "bin" / "python").symlink_to(sys.executable)
        write(project, {"a": {"command": "./bin/python", "args": [*options, "server.py"]}})
        assert run("call", "a", "echo", "text=x", "-c", "project/.mcp.json") == (0, "x\n", "")

    def test_an_error_of_the_server_is_reported_with_its_code(self, tmp_path: Path, run: Run, said: Said) -> None:
        write(tmp_path, {"a": scripted("--error-on-call", "-32050", "out of paper")})
        done = run("call", "a", "echo", "text=x")
        assert done.returncode == 1
        said("error of the server", done.stderr)


class TestWatch:
    def test_it_prints_a_line_of_json_for_each_change_until_it_is_interrupted(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted()})
        with started(tmp_path, "watch", "--json", *FILE) as watching:
            assert next_changes(watching, 2) == [("a", "connecting"), ("a", "ready")]
            watching.send_signal(signal.SIGINT)
            output, errors = watching.communicate(timeout=PATIENCE)
        assert (watching.returncode, errors) == (130, "cancelled\n")
        assert [json.loads(line)["new"] for line in output.splitlines()] == ["stopping", "stopped"]

    def test_it_follows_a_file_that_was_named(self, tmp_path: Path) -> None:
        """S3-15, S3-16."""
        write(tmp_path, {"a": scripted()})
        with started(tmp_path, "watch", "--json", *FILE) as watching:
            next_changes(watching, 2)
            write(tmp_path, {"a": scripted(), "b": scripted()})
            assert next_changes(watching, 2) == [("b", "connecting"), ("b", "ready")]
            assert watching.stderr is not None
            (tmp_path / FILE[1]).write_text("{")
            assert "is not valid JSON" in watching.stderr.readline()
            watching.send_signal(signal.SIGTERM)
            watching.communicate(timeout=PATIENCE)

    def test_a_file_may_grow_beyond_the_default_limit_of_a_group(self, tmp_path: Path) -> None:
        write(tmp_path, {"a": scripted()})
        with started(tmp_path, "watch", "--json", *FILE) as watching:
            next_changes(watching, 2)
            write(tmp_path, {"a": scripted(), **MANY, "b": scripted()})
            assert next_changes(watching, 2) == [("b", "connecting"), ("b", "ready")]
            watching.send_signal(signal.SIGTERM)
            watching.communicate(timeout=PATIENCE)

    def test_it_does_not_use_the_new_content_of_a_file_that_it_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
    ) -> None:
        """Otherwise a pull in a foreign project would run new programs, which the user has not accepted."""
        from mcp_actors.cli._configuration import FollowedFile
        from mcp_actors.cli._output import Output

        monkeypatch.chdir(tmp_path)
        write(tmp_path, {"a": scripted(), "b": scripted()})
        accept_found(tmp_path)
        followed = FollowedFile(None, ["b"], Output())
        before = followed.look()
        assert [server.name for server in followed.read()[0].servers] == ["b"]
        write(tmp_path, {"b": {"command": "other"}})
        assert followed.look() != before
        with pytest.raises(ConfigError) as caught:
            followed.read()
        said("a found file that has changed", str(caught.value))

    def test_inputs_are_asked_for_only_at_the_start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from mcp_actors.cli import _configuration
        from mcp_actors.cli._output import Output

        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        asked: list[str] = []

        def answer(question: Input) -> str:
            asked.append(question.id)
            return "answer"

        monkeypatch.setattr(_configuration, "_ask_for_input", answer)
        entries = {"a": {"command": "${input:one}"}}
        inputs = [{"id": name, "type": "promptString"} for name in ("one", "two")]
        write(tmp_path, entries, inputs=inputs)
        followed = _configuration.FollowedFile(str(tmp_path / FILE[1]), [], Output())
        assert followed.read()[0].servers == followed.loaded.servers
        write(tmp_path, {**entries, "b": {"command": "${input:two}"}}, inputs=inputs)
        [loaded] = followed.read()
        assert [server.name for server in loaded.servers] == ["a"]
        assert [*loaded.failed] == ["b"]
        assert asked == ["one"]


INTERRUPTED_AT_A_START = """
import signal, sys
from mcp_actors.cli import _connect, main

def interrupted(*args):
    coroutine = report(*args)
    print("interrupted", file=sys.stderr)
    signal.raise_signal(signal.SIGINT)
    return coroutine

report, _connect._report_slow_starts = _connect._report_slow_starts, interrupted
main()
"""


class TestSignals:
    def test_sigterm_cancels_the_call_and_stops_the_server(self, tmp_path: Path) -> None:
        pids, log = tmp_path / "pids", tmp_path / "log"
        flags = ("--pid-file", str(pids), "--log-file", str(log))
        write(tmp_path, {"a": scripted(*flags, stop_timeout=PATIENCE)})
        with started(tmp_path, "call", "a", "mute", *FILE) as calling:
            wait_for_text(log, "tools/call mute")
            calling.send_signal(signal.SIGTERM)
            assert calling.communicate(timeout=PATIENCE) == ("", "")
        assert calling.returncode == 143
        assert "notifications/cancelled" in log.read_text()
        assert not is_running(int(pids.read_text()))

    @pytest.mark.parametrize("imported", ["cyclopts", "mcp"])
    def test_ctrl_c_while_it_is_still_imported_shows_no_traceback(self, tmp_path: Path, imported: str) -> None:
        # As pydantic does.
        swallows = (
            "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    raise ValueError"
        )
        (tmp_path / imported).mkdir()
        (tmp_path / imported / "__init__.py").write_text(swallows)
        done = piped(tmp_path, "check", cold=True)  # python -m looks into the current folder first
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "cancelled\n")

    def test_ctrl_c_while_a_task_is_started_is_not_a_warning(self, tmp_path: Path) -> None:
        """Trio has called its function, and has no task yet."""
        write(tmp_path, {"a": scripted()})
        done = piped(tmp_path, "check", program=("-c", INTERRUPTED_AT_A_START))
        assert (done.returncode, done.stderr) == (130, "interrupted\ncancelled\n")

    def test_a_signal_that_is_ignored_stays_so(self, tmp_path: Path) -> None:
        write(tmp_path, {"a": scripted()})
        with started(tmp_path, "watch", "--json", *FILE, ignores="HUP") as watching:
            assert next_changes(watching, 2) == [("a", "connecting"), ("a", "ready")]
            watching.send_signal(signal.SIGHUP)
            watching.send_signal(signal.SIGTERM)
            assert next_changes(watching, 2) == [("a", "stopping"), ("a", "stopped")]
            assert watching.wait(PATIENCE) == 143


class TestGraph:
    def test_the_tree_of_actors_is_drawn(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted(), "missing": {"command": "no-such-program"}})
        done = run("graph")
        assert [line.partition(" in /")[0] for line in done.stdout.splitlines()] == [
            "servers/                running",
            "├─ servers:deadlines    running",
            "├─ a:supervisor/        running",
            "│  └─ a                 running",
            "├─ missing:supervisor/  running",
            "│  └─ missing           failed    last error: server 'missing': command 'no-such-program' not found; "
            "install it or set an absolute path",
            "└─ servers:lifecycle    running",
        ]
        assert done.returncode == 1
        assert done.stderr.startswith("error: server 'missing': command 'no-such-program' not found")

    def test_json_is_the_nested_tree(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted(), "b": scripted()})
        done = run("graph", "a", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        tree = json.loads(done.stdout)
        assert [child["id"] for child in tree["children"]] == ["servers:deadlines", "a:supervisor", "servers:lifecycle"]
        actor = tree["children"][1]["children"][0]
        assert actor == {
            "id": "a",
            "path": "servers/a:supervisor/a",
            "kind": "worker",
            "state": "running",
            "incarnation": actor["incarnation"],
            "queued": 0,
            "in_flight": 0,
            "oldest_wait": None,
            "restarts": 0,
            "last_error": None,
            "children": [],
        }


@pytest.mark.parametrize(
    ("words", "code"),
    [("check", "._check"), ("serve --socket ./s", "._gateway"), ("serve --http 127.0.0.1:0 --no-token", "._http")],
)
def test_what_a_command_has_imported_is_frozen_before_it_runs(
    words: str, code: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or each full collection of garbage, which stops all servers for a tenth of a second, would traverse it."""
    done = list[str]()

    def freeze() -> None:
        assert not in_trio_run()
        done.append("frozen")

    for file in ("_gateway", "_http"):  # the log of this process stays as it is
        monkeypatch.setattr(f"mcp_actors.cli.{file}.log_to_stderr", lambda: None)
    monkeypatch.setattr("mcp_actors.cli._run.import_module", lambda name, package: done.append(name))
    monkeypatch.setattr("gc.freeze", freeze)
    assert run(*words.split(), "--config", "missing.json").returncode in (1, 78)
    assert done == [code, "frozen"]


class TestMisuse:
    def test_help_and_usage_errors_do_not_import_the_sdk(self) -> None:
        commands = [["--help"], ["--version"], ["call", "--help"], ["chek"], ["call"], ["check", "--every", "3"]]
        lines = (
            "import sys",
            "from mcp_actors.cli._run import run",
            f"for words in {commands}: run(words); print('modules:', *sys.modules)",
        )
        done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
        found = [line.split() for line in done.stdout.splitlines() if line.startswith("modules:")]
        for words, modules in zip(commands, found, strict=True):
            imported = {name.partition(".")[0] for name in modules}
            assert "cyclopts" in imported
            assert not imported & {"httpx2", "jsonschema", "mcp", "mcp_types", "pydantic"}, words

    def test_a_wrong_command_names_the_nearest(self, tmp_path: Path, run: Run) -> None:
        done = run("chek")
        assert done.returncode == 2
        assert done.stderr.endswith("no command 'chek'; did you mean 'check'?\n")

    def test_a_word_too_many_is_named(self, tmp_path: Path, run: Run) -> None:
        done = run("login", "a", "b", "c")
        assert (done.returncode, done.stderr) == (2, "error: too many words: b c; see mcp-actors login --help\n")

    @pytest.mark.parametrize(
        "words", [["--config", "x.json", "check"], ["-c", "x.json"], ["--json"], ["--json", "tools"]]
    )
    def test_an_option_before_the_command_is_refused(
        self, tmp_path: Path, run: Run, words: list[str], said: Said
    ) -> None:
        done = run(*words)
        assert done.returncode == 2
        said("option before the command", done.stderr, option=f"option {words[0]} ")

    @pytest.mark.parametrize("given", ["http://127.0.0.1:1/mcp", "https://example.com/mcp"])
    def test_a_url_is_not_a_file(self, tmp_path: Path, run: Run, given: str) -> None:
        assert "config is a URL, not the path of a file" in run("check", "-c", given).stderr

    def test_without_a_file_the_error_lists_the_places(self, tmp_path: Path, run: Run, said: Said) -> None:
        done = run("check")
        assert (done.returncode, done.stdout) == (1, "")
        said("no configuration file", done.stderr)

    def test_a_named_file_must_exist_and_be_valid(self, tmp_path: Path, run: Run) -> None:
        done = run("check", "--config", "other.json")
        assert done.stderr == "error: other.json: file not found; correct the path, or create the file\n"
        (tmp_path / "other.json").write_text("{")
        said = "other.json: the file is not valid JSON: "
        for words in (["check"], ["check", "a"], ["tools"], ["tools", "a"], ["call", "a", "echo"], ["watch"]):
            done = run(*words, "-c", "other.json")
            assert (done.returncode, done.stdout) == (1, "")
            [line] = done.stderr.splitlines()
            assert line.startswith(f"error: {said}")

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["check", "-c", "none.json"], 1, "none.json: file not found; correct the path, or create the file"),
            (["tools", "b"], 2, "there is no server 'b'"),
            (["watch", "b"], 2, "there is no server 'b'"),
            (["call", "bad", "x"], 1, "mcpServers.bad: neither 'command' nor 'url' is given"),
            (["call", "gone", "x"], 1, "server 'gone': command 'no-such-program' not found"),
            (["call", "a", "ecko"], 2, "server 'a' has no tool 'ecko'; did you mean 'echo'?"),
            (["call", "a", "echo", "txt=x"], 2, "the tool has no argument 'txt'"),
            (["call", "a", "echo", "{"], 2, "the JSON object is not valid JSON"),
            (["call", "a", "crash", "code=3"], 1, "server 'a'"),
            (["chek"], 2, "no command 'chek'"),
        ],
    )
    def test_with_json_an_error_is_json_too(
        self, tmp_path: Path, run: Run, words: list[str], code: int, said: str
    ) -> None:
        write(tmp_path, {"a": scripted(), "bad": {}, "gone": {"command": "no-such-program"}})
        done = run(*words, "--json")
        assert done.returncode == code
        error = json.loads(done.stdout)["error"]
        assert said in error
        assert done.stderr == f"error: {error}\n"

    @pytest.mark.parametrize("words", [["--help"], ["check", "--help"], ["call", "--help"], []])
    def test_help_has_an_example(self, tmp_path: Path, run: Run, words: list[str]) -> None:
        done = run(*words)
        assert done.returncode == 0
        assert "mcp-actors " in done.stdout.partition("Example")[2]

    @pytest.mark.parametrize("every", ["0", "-1", "nan", "inf"])
    def test_the_interval_of_watch_is_a_positive_number(self, tmp_path: Path, run: Run, every: str, said: Said) -> None:
        done = run("watch", "--every", every)
        assert done.returncode == 2
        said("--every not positive", done.stderr, every=float(every))

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    def test_a_stream_may_be_closed(self, tmp_path: Path, closed: str) -> None:
        write(tmp_path, {"a": scripted()})
        shell = f"exec {join(program())} check {join(FILE)} {closed}"
        done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (0, "")
        assert ("a  ready" in done.stdout) is (">&-" not in closed or closed == "2>&-")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
    def test_output_that_cannot_be_written_is_an_error(self, tmp_path: Path, said: Said) -> None:
        write(tmp_path, {"a": scripted()})
        shell = f"exec {join(program())} tools {join(FILE)} > /dev/full"
        done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1
        said("output cannot be written", done.stderr)

    def test_a_reader_that_ends_early_causes_no_error(self, tmp_path: Path, run: Run) -> None:
        write(tmp_path, {"a": scripted("--tools", "900")})
        for reader, begin in (("head -n 1", "a "), ("true", "")):  # the second has ended before anything is written
            shell = f"{join((*program(), 'tools', *FILE))} | {reader}"
            done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
            assert done.stdout.startswith(begin)
            assert done.stderr == ""


def test_an_input_without_a_terminal_is_an_error(tmp_path: Path, run: Run) -> None:
    inputs: list[dict[str, Any]] = [{"id": "key", "type": "promptString", "description": "The key"}]
    write(tmp_path, {"a": {"command": "x", "args": ["${input:key}"]}}, inputs=inputs)
    assert "input 'key' has no value" in run("check").stdout
