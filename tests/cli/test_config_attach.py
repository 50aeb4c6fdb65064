"""``config attach`` and its undo: what moves, what stays byte for byte, and what a failure leaves behind (nothing)."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from mcp_actors import load_config
from mcp_actors.config.formats._load import refuse_ourselves, runs_us
from mcp_actors.gateway.attach import names_for

from ..messages import Said
from ..source import PACKAGE, ROOT
from .conftest import Done, Run
from .terminal import PATIENCE, scripted

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

ATTACH: Final = str(PACKAGE / "gateway" / "attach.py")
LINE_SERVER: Final = str(ROOT / "tests" / "gateway" / "line_server.py")

JSON: Final = """{
  "numStartups": 12,
  "mcpServers": {
    "time": {
      "command": "time-server",
      "args": ["--utc"],
      "env": {"KEY": "s3cret"}
    },
    "docs": {"type": "http", "url": "https://example.com/mcp"}
  },
  "projects": {"/x": {"mcpServers": {"time": {"command": "other"}}}}
}
"""

WITH_COMMENTS: Final = """// my servers
{
\t"inputs": [{"id": "key", "type": "promptString"}], // asked
\t"servers": {
\t\t// tells the time
\t\t"time": {"command": "time-server", "args": ["${userHome}"]},
\t\t/* needs a key */
\t\t"keyed": {"command": "x", "env": {"KEY": "${input:key}"}},
\t\t"docs": {"url": "https://example.com/mcp"}, // the docs
\t\t"here": {"command": "y", "cwd": "${workspaceFolder}"},
\t},
}
"""

TOML: Final = """# mine
model = "o3"
notes = '''
[mcp_servers.not_one]
'''

[mcp_servers.time] # the time
command = "time-server"
args = ["--utc"]

[mcp_servers.time.env]
KEY = "s3cret"

# how it looks
[tui]
theme = "dark"

[mcp_servers.docs]
url = "https://example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"

# the end
"""

CLIENT: Final = {"name": "a host", "version": "1"}

FILES: Final = {
    "claude": (".claude.json", JSON),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", JSON),
    "cursor": (".cursor/mcp.json", JSON),
    "vscode": (".config/Code/User/mcp.json", WITH_COMMENTS),
    "codex": (".codex/config.toml", TOML),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user on Linux."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path


def put(home: Path, host: str, text: str | None = None) -> Path:
    """Write the file of a host."""
    name, example = FILES[host]
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(example if text is None else text)
    return file


def parsed(file: Path) -> Any:
    from mcp_actors.config.formats._file import parse

    return parse(file.name, file.read_text())


def everything(home: Path) -> dict[str, bytes]:
    """Return all files of a user, but for what commands have accepted."""
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def ours(home: Path, host: str) -> Path:
    return home / ".config" / "mcp-actors" / f"{host}.json"


SECTIONS: Final = {"vscode": "servers", "codex": "mcp_servers"}


class TestAttach:
    @pytest.mark.parametrize("host", FILES)
    def test_the_servers_move_and_one_entry_with_absolute_paths_is_left(self, home: Path, run: Run, host: str) -> None:
        file = put(home, host)
        section = SECTIONS.get(host, "mcpServers")
        before = parsed(file)
        done = run("config", "attach", host)
        assert done.returncode == 0, done
        after, moved = parsed(file), json.loads(ours(home, host).read_text())
        entry = after[section]["mcp-actors"]
        assert entry["command"] == sys.executable
        assert entry["args"] == ["-I", "-S", ATTACH, "--config", str(ours(home, host))]
        assert all(os.path.isabs(word) for word in (entry["command"], entry["args"][2], entry["args"][4]))
        assert {**moved[section], **after[section]} == {**before[section], "mcp-actors": entry}
        assert {**after, section: before[section]} == before
        assert stat.S_IMODE(ours(home, host).stat().st_mode) == 0o600

    @pytest.mark.parametrize("host", FILES)
    def test_twice_changes_nothing_and_undo_restores_every_byte(self, home: Path, run: Run, host: str) -> None:
        file = put(home, host)
        file.chmod(0o640)
        before = everything(home)
        run("config", "attach", host)
        attached = everything(home)
        again = run("config", "attach", host)
        assert again.returncode == 0
        assert f"nothing to move in {file}" in again.stdout
        assert everything(home) == attached
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        undone = run("config", "attach", host, "--undo")
        assert undone.returncode == 0, undone
        copy = f"{file.relative_to(home)}.before-mcp-actors"
        assert everything(home) == {**before, copy: before[str(file.relative_to(home))]}
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert stat.S_IMODE((home / copy).stat().st_mode) == 0o600

    def test_all_text_around_the_servers_stays(self, home: Path, run: Run) -> None:
        put(home, "vscode")
        put(home, "codex")
        assert run("config", "attach", "vscode").returncode == 0
        assert run("config", "attach", "codex").returncode == 0
        text = (home / FILES["vscode"][0]).read_text()
        head, _, tail = WITH_COMMENTS.partition('"time": {"command": "time-server", "args": ["${userHome}"]}')
        cut = ',\n\t\t"docs": {"url": "https://example.com/mcp"}'
        assert text.startswith(head)
        assert text.endswith(tail.replace(cut, ""))
        assert '\n\t\t  "command": ' in text
        toml = (home / FILES["codex"][0]).read_text()
        assert toml.startswith(TOML.partition("[mcp_servers.time]")[0])
        assert '\n# how it looks\n[tui]\ntheme = "dark"\n' in toml
        assert toml.endswith("\n# the end\n")
        assert tomllib.loads(toml)["notes"] == "[mcp_servers.not_one]\n"

    def test_what_cannot_move_stays_and_is_named_with_its_reason(self, home: Path, run: Run) -> None:
        servers = {
            "time": {"command": "time-server", "alwaysAllow": ["a"]},
            "keyed": {"command": "x", "env": {"KEY": "${input:key}"}},
            "here": {"command": "x", "args": ["${workspaceFolderBasename}"]},
            "plugin": {"command": "${CLAUDE_PLUGIN_ROOT}/x"},
            "file": {"command": "x", "envFile": ".env"},
            "asks": {"command": "x", "default_tools_approval_mode": "prompt"},
            "asks_once": {"command": "x", "tools": {"a": {"approval_mode": "prompt"}}},
            "typo": {"comand": "x"},
            "short": "https://example.com/mcp",
            "us": {"command": "uvx", "args": ["mcp-actors", "serve", "--config", "/x.json"]},
        }
        file = put(home, "cursor", json.dumps({"mcpServers": servers}))
        done = run("config", "attach", "cursor")
        assert done.returncode == 0
        assert done.stdout.splitlines() == [
            "keyed  stays: only the host knows ${input:key}",
            "here  stays: only the host knows ${workspaceFolderBasename}",
            "plugin  stays: only the host knows ${CLAUDE_PLUGIN_ROOT}",
            "file  stays: only the host knows what 'envFile' does",
            "asks  stays: only the host knows what 'default_tools_approval_mode' does",
            "asks_once  stays: only the host knows what 'tools' does",
            f"typo  stays: {file}: mcpServers.typo: neither 'command' nor 'url' is given; write the program to start, "
            "or the URL to connect to (did you mean 'command'?)",
            "short  stays: it is not an object (or a table) of its own",
            "us  stays: it runs mcp-actors itself",
            f"moved to {ours(home, 'cursor')}: time",
        ]
        left = parsed(file)["mcpServers"]
        assert left.pop("mcp-actors")
        assert left == {name: each for name, each in servers.items() if name != "time"}
        assert "\n" not in file.read_text()  # one line stays one line

    def test_the_servers_of_a_project_keep_its_folder(self, home: Path, run: Run) -> None:
        file = home / "project" / ".mcp.json"
        file.parent.mkdir()
        servers = {"a": {"command": "./a"}, "b": {"command": "b", "cwd": "sub"}, "c": {"command": "c", "cwd": "/abs"}}
        servers |= {"d": {"command": "d", "cwd": "${HOME}"}, "e": {"command": "e", "cwd": "~/sub"}}
        file.write_text(json.dumps({"mcpServers": servers}))
        before = load_config(file).servers
        done = run("config", "attach", "claude", "--file", "project/.mcp.json", "--to", "project.json")
        assert done.returncode == 0, done
        moved = load_config(home / "project.json").servers
        assert [each.transport for each in moved] == [each.transport for each in before]
        assert "undo it with: mcp-actors config attach claude --undo --file project/.mcp.json" in done.stderr
        assert run("config", "attach", "claude", "--file", "project/.mcp.json", "--undo").returncode == 0
        assert json.loads(file.read_text())["mcpServers"]["a"] == {"command": "./a"}
        assert not (home / "project.json").exists()

    def test_servers_that_were_added_later_move_to_the_same_file(self, home: Path, run: Run) -> None:
        file = put(home, "cursor")
        run("config", "attach", "cursor", "--to", "mine.json")
        first = file.read_bytes()
        document = parsed(file)
        file.write_text(json.dumps({**document, "mcpServers": {"new": {"command": "n"}, **document["mcpServers"]}}))
        second = file.read_bytes()
        assert run("config", "attach", "cursor").stdout == f"moved to {home}/mine.json: new\n"
        assert [*parsed(file)["mcpServers"]] == ["mcp-actors"]
        assert [*json.loads((home / "mine.json").read_text())["mcpServers"]] == ["time", "docs", "new"]
        copies = sorted(path.name for path in file.parent.iterdir())
        assert copies == ["mcp.json", "mcp.json.before-mcp-actors", "mcp.json.before-mcp-actors1"]
        assert run("config", "attach", "cursor", "--undo").returncode == 0
        assert file.read_bytes() == second
        file.write_bytes(first)
        assert run("config", "attach", "cursor", "--undo").returncode == 0
        assert file.read_text() == JSON

    def test_several_hosts_that_are_given_one_file_share_its_daemon(self, home: Path, run: Run) -> None:
        texts = {
            "cursor": '{"mcpServers": {"time": {"command": "t"}}}',
            "claude": '{"mcpServers": {"time": {"command": "t"}, "docs": {"command": "d"}}}',
            "vscode": '{"servers": {"git": {"command": "g"}}}',
        }
        files = {host: put(home, host, text) for host, text in texts.items()}
        for host in files:
            assert run("config", "attach", host, "--to", "mine.json").returncode == 0
        entries = [parsed(file)[SECTIONS.get(host, "mcpServers")]["mcp-actors"] for host, file in files.items()]
        assert entries == [entries[0]] * 3
        assert [server.name for server in load_config(home / "mine.json").servers] == ["time", "docs", "git"]
        assert run("config", "attach", "vscode", "--undo").returncode == 0
        assert files["vscode"].read_text() == texts["vscode"]
        assert [server.name for server in load_config(home / "mine.json").servers] == ["time", "docs"]

    def test_a_link_stays_one(self, home: Path, run: Run) -> None:
        file = put(home, "cursor")
        real = file.rename(home / "dotfile.json")
        file.symlink_to(real)
        assert run("config", "attach", "cursor").returncode == 0
        assert file.is_symlink()
        assert run("config", "attach", "cursor", "--undo").returncode == 0
        assert real.read_text() == JSON
        mine = home / "mine.json"
        mine.write_text('{"mcpServers": {"mine": {"command": "m"}}}')
        (home / "link.json").symlink_to(mine)
        assert run("config", "attach", "cursor", "--to", "link.json").returncode == 0
        assert (home / "link.json").is_symlink()
        assert [*json.loads(mine.read_text())["mcpServers"]] == ["mine", "time", "docs"]

    @pytest.mark.parametrize("host", ["claude-desktop", "vscode"])
    def test_on_macos_the_files_are_elsewhere(
        self, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch, host: str
    ) -> None:
        file = put(home, host)
        there = home / "Library" / "Application Support" / file.relative_to(home / ".config")
        there.parent.mkdir(parents=True)
        file.rename(there)
        monkeypatch.setattr("sys.platform", "darwin")
        assert run("config", "attach", host).returncode == 0
        assert "mcp-actors" in there.read_text()


class TestTheEntry:
    @pytest.mark.parametrize("host", FILES)
    def test_the_written_command_connects_to_the_daemon_of_our_file(
        self, home: Path, run: Run, host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The words of the file, from any folder, and with no PATH: programs with windows have none."""
        file = put(home, host)
        assert run("config", "attach", host).returncode == 0
        entry = parsed(file)[SECTIONS.get(host, "mcpServers")]["mcp-actors"]
        with tempfile.TemporaryDirectory() as runtime:
            environ = {"HOME": str(home), "XDG_RUNTIME_DIR": runtime}
            monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
            socket = names_for(str(ours(home, host))).socket
            serve = [sys.executable, "-I", "-S", LINE_SERVER, socket, str(home / "ledger"), "plain"]
            with subprocess.Popen(serve, stdout=subprocess.PIPE) as daemon:
                try:
                    assert daemon.stdout is not None
                    assert daemon.stdout.readline() == b"ready\n"
                    done = subprocess.run(
                        [entry["command"], *entry["args"]],
                        input=b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n',
                        capture_output=True,
                        cwd="/",
                        env=environ,
                        timeout=PATIENCE,
                        check=False,
                    )
                finally:
                    daemon.kill()
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {"method": "initialize"}}

    def test_the_written_command_starts_the_daemon_and_calls_a_tool_of_a_server_that_has_moved(
        self, home: Path, run: Run
    ) -> None:
        file = put(home, "cursor", json.dumps({"mcpServers": {"time": scripted()}}))
        assert run("config", "attach", "cursor").returncode == 0
        entry = parsed(file)["mcpServers"]["mcp-actors"]
        call = {"name": "time_echo", "arguments": {"text": "hello"}}
        answer: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as runtime:
            environ = {"HOME": str(home), "XDG_RUNTIME_DIR": runtime, "PYTHONPATH": str(ROOT)}
            pipe = subprocess.PIPE
            words = [entry["command"], *entry["args"]]
            with subprocess.Popen(words, stdin=pipe, stdout=pipe, cwd="/", env=environ, text=True) as session:
                assert session.stdin is not None
                assert session.stdout is not None
                try:
                    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
                    for number, method, params in ((1, "initialize", hello), (2, "tools/call", call)):
                        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                        session.stdin.write(json.dumps(message) + "\n")
                        session.stdin.flush()
                        while answer.get("id") != number:
                            answer = json.loads(session.stdout.readline())
                finally:
                    session.stdin.close()
                    [lock] = Path(runtime).glob("mcp-actors/*.lock")
                    os.kill(int(lock.read_text()), signal.SIGTERM)
                    with lock.open() as held:
                        fcntl.flock(held, fcntl.LOCK_EX)  # the daemon has it until it has ended
        assert answer["result"]["content"] == [{"type": "text", "text": "hello"}]


class TestRefusals:
    @pytest.mark.parametrize(
        ("row", "text"),
        [
            ("no servers in the file of a host", '{"numStartups": 3}'),
            ("the file of a host is not JSON", "{"),
            ("the file of a host has a mark", "\ufeff" + JSON),
            ("a server of our name", '{"mcpServers": {"a": {"command": "a"}, "mcp-actors": {"comand": "x"}}}'),
            ("a section that is there twice", '{"mcpServers": {"a": {"command": "a"}}, "mcpServers": {}}'),
        ],
    )
    def test_a_file_that_cannot_be_used_is_refused(self, home: Path, run: Run, said: Said, row: str, text: str) -> None:
        put(home, "cursor", text)
        before = everything(home)
        done = run("config", "attach", "cursor")
        assert done.returncode == 1
        said(row, done.stderr, home=home)
        assert everything(home) == before

    @pytest.mark.parametrize(
        ("text", "stay"),
        [
            ('mcp_servers = {a = {command = "a"}}\n', {"a"}),
            ('mcp_servers.a.command = "a"\n', {"a"}),
            ('[mcp_servers]\na = {command = "a"}\n', {"a"}),
            ('[mcp_servers.a]\ncommand = "a"\n[mcp_servers]\nb.command = "b"\n', {"b"}),
            ('[mcp_servers.a]\r\ncommand = "a"\r\n\r\n# c\r\n[y]\r\n', set()),
            ('[mcp_servers.a]\ncommand = "a"\n[mcp_servers.b]\ncommand = "b"\nargs = [\n["x"]\n]', {"b"}),
            ('[mcp_servers.a]\ncommand = "a"\nstarted = 2026-01-01\n', {"a"}),
            ('[mcp_servers.a]\ncommand = "a"\n[mcp_servers.b]\ncommand = "b"', set()),
        ],
    )
    def test_servers_in_toml_that_are_not_tables_stay(self, home: Path, run: Run, text: str, stay: set[str]) -> None:
        file = put(home, "codex", "")
        file.write_bytes(text.encode())
        done = run("config", "attach", "codex")
        assert done.returncode == 0, done
        left = tomllib.loads(file.read_text())["mcp_servers"]
        assert left.keys() - {"mcp-actors"} == stay
        if "mcp-actors" in left:
            assert run("config", "attach", "codex", "--undo").returncode == 0
        assert file.read_bytes() == text.encode()

    def test_a_server_in_several_places_that_cannot_be_separated_is_refused(
        self, home: Path, run: Run, said: Said
    ) -> None:
        text = '[mcp_servers.a]\ncommand = """\n[mcp_servers.b]\n"""\n'
        file = put(home, "codex", text)
        done = run("config", "attach", "codex")
        assert done.returncode == 1
        said("servers whose text cannot be replaced", done.stderr, home=home)
        assert everything(home) == {".codex/config.toml": file.read_bytes()}

    def test_a_missing_file_says_where_it_was_looked_for(self, home: Path, run: Run, said: Said) -> None:
        done = run("config", "attach", "codex")
        assert done.returncode == 1
        said("the file of a host is missing", done.stderr, home=home)

    def test_another_server_of_the_same_name_in_ours_is_not_overwritten(self, home: Path, run: Run, said: Said) -> None:
        put(home, "cursor")
        ours(home, "cursor").parent.mkdir(parents=True)
        ours(home, "cursor").write_text('{"mcpServers": {"time": {"command": "another"}}}')
        before = everything(home)
        done = run("config", "attach", "cursor")
        assert done.returncode == 1
        said("another server of that name in ours", done.stderr, home=home)
        assert everything(home) == before

    @pytest.mark.parametrize(("to", "code"), [(".cursor/mcp.json", 2), ("x.toml", 2), ("broken.json", 1)])
    def test_a_file_that_cannot_be_ours_is_refused(self, home: Path, run: Run, to: str, code: int) -> None:
        put(home, "cursor")
        (home / "broken.json").write_text("// mine\n{}")
        before = everything(home)
        done = run("config", "attach", "cursor", "--to", to)
        assert done.returncode == code
        assert to in done.stderr
        assert everything(home) == before

    def test_undo_takes_no_file_of_ours(self, home: Path, run: Run) -> None:
        assert run("config", "attach", "cursor", "--undo", "--to", "x.json").returncode == 2

    def test_an_unknown_host_is_refused(self, home: Path, run: Run) -> None:
        done = run("config", "attach", "emacs")
        assert done.returncode == 2
        assert "claude-desktop" in done.stderr


class TestFailedWrites:
    @pytest.mark.parametrize("words", [(), ("--undo",)])
    def test_whichever_write_fails_nothing_is_left_half_done(
        self, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
    ) -> None:
        from mcp_actors.cli import _attach_hosts

        put(home, "cursor")
        if words:
            ours(home, "cursor").parent.mkdir(parents=True)
            ours(home, "cursor").write_text('{"mcpServers": {"kept": {"command": "k"}}}')
            run("config", "attach", "cursor")
        before, put_file = everything(home), _attach_hosts._put

        def failing(number: int) -> Callable[[str, bytes | None], None]:
            calls: list[str] = []

            def put_or_fail(path: str, data: bytes | None) -> None:
                calls.append(path)
                if len(calls) == number:
                    raise PermissionError(13, "Permission denied")
                put_file(path, data)

            return put_or_fail

        for number in range(1, 4 - len(words)):
            monkeypatch.setattr(_attach_hosts, "_put", failing(number))
            done = run("config", "attach", "cursor", *words)
            assert done.returncode == 1
            assert "cannot be written: Permission denied; nothing was changed" in done.stderr
            assert everything(home) == before

    def test_a_ctrl_c_between_two_writes_leaves_nothing_half_done(
        self, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mcp_actors.cli import _attach_hosts

        file = put(home, "cursor")
        before, put_file = everything(home), _attach_hosts._put

        def interrupted(path: str, data: bytes | None) -> None:
            put_file(path, data)
            if data is not None and path == str(file) and data != JSON.encode():
                raise KeyboardInterrupt

        monkeypatch.setattr(_attach_hosts, "_put", interrupted)
        assert run("config", "attach", "cursor").returncode == 130
        assert everything(home) == before

    @pytest.mark.skipif(os.geteuid() == 0, reason="root can write everything")
    def test_a_folder_that_cannot_be_written_is_an_error(self, home: Path, run: Run) -> None:
        file = put(home, "cursor")
        file.parent.chmod(0o500)
        assert run("config", "attach", "cursor").returncode == 1
        assert not ours(home, "cursor").exists()


class TestUndo:
    def changed(self, home: Path, run: Run, **more: Any) -> tuple[Path, Done]:
        """Attach, change the file as its program does, and undo."""
        file = put(home, "claude")
        run("config", "attach", "claude")
        document = parsed(file)
        servers = {**document["mcpServers"], **more.pop("servers", {})}
        file.write_text(json.dumps({**document, **more, "mcpServers": servers}, indent=4))
        return file, run("config", "attach", "claude", "--undo")

    def test_a_change_outside_is_kept_and_the_servers_are_moved_back(self, home: Path, run: Run, said: Said) -> None:
        file, done = self.changed(home, run, numStartups=13, servers={"new": {"command": "n"}})
        assert done.returncode == 0
        said("a file that was changed since", done.stderr, home=home)
        servers = json.loads(JSON)["mcpServers"]
        assert parsed(file) == {
            **json.loads(JSON),
            "numStartups": 13,
            "mcpServers": {**servers, "new": {"command": "n"}},
        }
        assert not ours(home, "claude").exists()

    def test_a_change_outside_of_the_tables_of_toml_is_kept(self, home: Path, run: Run) -> None:
        file = put(home, "codex")
        run("config", "attach", "codex")
        file.write_text(file.read_text().replace("dark", "light"))
        assert run("config", "attach", "codex", "--undo").returncode == 0
        assert tomllib.loads(file.read_text()) == tomllib.loads(TOML.replace("dark", "light"))

    def test_a_server_that_is_there_again_is_refused(self, home: Path, run: Run, said: Said) -> None:
        file = put(home, "cursor")
        run("config", "attach", "cursor")
        document = parsed(file)
        file.write_text(json.dumps({"mcpServers": {**document["mcpServers"], "time": {"command": "mine"}}}))
        before = everything(home)
        done = run("config", "attach", "cursor", "--undo")
        assert done.returncode == 1
        said("a server that is there again", done.stderr, home=home)
        assert everything(home) == before

    def test_a_change_of_a_server_that_has_stayed_is_kept(self, home: Path, run: Run) -> None:
        file = put(home, "vscode")
        run("config", "attach", "vscode")
        file.write_text(file.read_text().replace('"command": "y"', '"command": "z"'))
        assert run("config", "attach", "vscode", "--undo").returncode == 0
        servers = parsed(file)["servers"]
        assert servers["here"]["command"] == "z"
        assert servers.keys() == {"time", "keyed", "docs", "here"}
        assert "// my servers" in file.read_text()

    def test_without_our_entry_there_is_nothing_to_undo(self, home: Path, run: Run, said: Said) -> None:
        put(home, "cursor")
        done = run("config", "attach", "cursor", "--undo")
        assert done.returncode == 1
        said("nothing to undo", done.stderr, home=home)

    def test_without_a_copy_the_servers_are_those_of_ours(self, home: Path, run: Run) -> None:
        file = put(home, "cursor")
        run("config", "attach", "cursor")
        Path(f"{file}.before-mcp-actors").unlink()
        assert run("config", "attach", "cursor", "--undo").returncode == 0
        assert parsed(file) == json.loads(JSON)
        assert everything(home).keys() == {".cursor/mcp.json"}

    def test_a_server_that_was_changed_in_ours_stays_there(self, home: Path, run: Run) -> None:
        file = put(home, "cursor")
        run("config", "attach", "cursor")
        document = json.loads(ours(home, "cursor").read_text())
        document["mcpServers"]["time"]["args"] = ["--local"]
        ours(home, "cursor").write_text(json.dumps(document))
        done = run("config", "attach", "cursor", "--undo")
        assert done.returncode == 0
        assert "server 'time' was changed in" in done.stderr
        assert file.read_text() == JSON
        assert [*json.loads(ours(home, "cursor").read_text())["mcpServers"]] == ["time"]


NAMES = st.text(alphabet='abc-_. "\\é{}[],:/#\n', min_size=1, max_size=6)
SPACE = st.sampled_from(["", " ", "\n", "\t", " // note {\n", " /* , } */ "])


@given(st.data())
def test_any_json_with_comments_is_changed_only_where_servers_are(data: st.DataObject) -> None:
    """Names, comments and commas are where they may be, and all that is not a moved server is byte for byte there."""
    from mcp_actors.cli._attach_hosts import HostFile

    def space() -> str:
        return data.draw(SPACE)

    servers = data.draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    members = [f"{json.dumps(name)}{space()}:{space()}{{{space()}}}" for name in servers]
    comma = data.draw(st.sampled_from(["", ","]))
    text = f'{space()}{{"x":{space()}"{{//",{space()}"servers"{space()}:{space()}{{{space()}'
    text += f"{space()},{space()}".join(members) + f"{space()}{comma}{space()}}}{space()},}}{space()}"
    gone = data.draw(st.sets(st.sampled_from(servers), min_size=1))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mcp.json").write_bytes(text.encode())
        now = HostFile("vscode", f"{folder}/mcp.json")
        new = now.replaced(gone, '"mcp-actors": 1')
        now.check(new, {name: {} for name in servers if name not in gone} | {"mcp-actors": 1})
        head = text[: now.spans[0].start]
        assert new.startswith(head)
        assert new.endswith(text[now.spans[-1].end :])


class TestOurselves:
    @pytest.mark.parametrize(
        "command",
        [
            "mcp-actors attach --config /x.json",
            "/home/me/.venv/bin/mcp-actors serve --config x.json --stdio",
            "python -m mcp_actors serve",
            "python3.12 -P -m mcp_actors attach",
            "uvx mcp-actors attach",
            "uvx mcp-actors@0.3 serve",
            "uvx --from mcp-actors[cli] mcp-actors serve",
            "pipx run --spec mcp-actors[cli]==0.3 mcp-actors attach",
            "uv run --directory /x mcp-actors serve",
            "env A=1 mcp-actors serve",
            f"{sys.executable} -I -S {ATTACH} --config /x.json",
            "python /x/mcp_actors/__main__.py serve",
        ],
    )
    def test_a_command_that_runs_us_is_known_in_any_form(self, command: str) -> None:
        first, *rest = command.split()
        assert runs_us(first, rest)
        assert runs_us("sh", ["-c", f"exec {command}"])
        assert runs_us("bash", ["-lc", f"'{first}' {' '.join(rest)}"]) or "mcp_actors" in command or "uv" in command

    @pytest.mark.parametrize(
        "command",
        [
            "time-server",
            "mcp-actors-server attach",
            "my-mcp-actors serve",
            "npx mcp-actors-attach",
            "mcp-actors server",
            "python -m mcp_actors_tools serve",
            "x --docs mcp-actors",
        ],
    )
    def test_other_commands_are_not(self, command: str) -> None:
        first, *rest = command.split()
        assert not runs_us(first, rest)

    def test_an_entry_that_runs_us_is_an_error_of_its_own(self, tmp_path: Path, said: Said) -> None:
        file = tmp_path / "mcp.json"
        entry = {"command": sys.executable, "args": ["-I", "-S", ATTACH, "--config", "/x.json"]}
        servers = {
            "mcp-actors": {**entry, "required": True},
            "by_variable": {"command": "${HOME}/bin/mcp-actors", "args": ["serve"]},
            "time": {"command": "time-server"},
            "docs": {"url": "https://example.com/mcp"},
            "bad": {},
        }
        file.write_text(json.dumps({"mcpServers": servers}))
        loaded = refuse_ourselves(load_config(file))
        assert [server.name for server in loaded.servers] == ["time", "docs"]
        assert [*loaded.failed] == ["bad", "mcp-actors", "by_variable"]
        assert loaded.required == {"mcp-actors"}
        assert loaded.errors == tuple(loaded.failed.values())
        said("an entry that runs us", str(loaded.failed["mcp-actors"]), folder=tmp_path)
