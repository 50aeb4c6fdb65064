"""A configuration that was found is used only if no other user can write it and its user accepts it."""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ..forkserver import run_python
from ..messages import Said
from .terminal import COMMAND, NAMED, PATIENCE, accept_found, piped, scripted, terminal, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

STRANGER = 54321
"""The number of a user that is not this one."""

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away; the other tests do without")


IN_THE_BACKGROUND = """\
import os
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.setpgid(0, 0)
from mcp_actors.cli import main
main()
"""
"""The command as a shell starts one that ends in ``&``."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder whose configuration starts a server that leaves a trace."""
    inner = tmp_path / "project"
    inner.mkdir(mode=0o755)
    put(inner)
    return inner


def put(folder: Path, name: str = ".mcp.json") -> Path:
    """Write a configuration whose server leaves a trace in the folder when it is started."""
    file = folder / name
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "/bin/sh", "args": ["-c", "touch started"]}}}))
    file.chmod(0o644)
    return file


def refusal(folder: Path, *words: str) -> str:
    """Return what is said by a command that starts nothing."""
    done = piped(folder, "check", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert not (folder / "started").exists()
    return done.stderr


@pytest.mark.parametrize("command", [("check", "--json"), ("tools",), ("call", "a", "echo"), ("watch",)])
def test_no_command_uses_a_file_that_everybody_can_write(folder: Path, command: tuple[str, ...]) -> None:
    """B-20."""
    (folder / ".mcp.json").chmod(0o666)
    done = piped(folder, *command)
    assert done.returncode == 1
    assert "can be written by everybody" in done.stderr
    assert "--config .mcp.json" in done.stderr
    assert not (folder / "started").exists()


def test_a_file_in_a_folder_that_everybody_can_write_is_refused(folder: Path) -> None:
    """B-20."""
    folder.chmod(0o777)
    said = refusal(folder)
    assert f"the folder {folder} can be written by everybody" in said
    folder.chmod(0o777 | stat.S_ISVTX)  # as /tmp is: a file can be replaced only by its owner
    assert "can be written" not in piped(folder, "check").stderr
    assert (folder / "started").exists()


def test_a_link_into_a_folder_that_everybody_can_write_is_refused(folder: Path, tmp_path: Path) -> None:
    """B-20: neither a file nor a folder of others becomes ours by a link."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    elsewhere.chmod(0o777)
    (folder / ".mcp.json").unlink()
    (folder / ".mcp.json").symlink_to(put(elsewhere))
    assert f"the folder {elsewhere} can be written by everybody" in refusal(folder)


def test_a_file_in_a_writable_folder_below_is_refused(folder: Path) -> None:
    """B-20."""
    (folder / ".mcp.json").unlink()
    (folder / ".vscode").mkdir()
    (folder / ".vscode").chmod(0o777)
    put(folder, ".vscode/mcp.json")
    assert ".vscode can be written by everybody" in refusal(folder)


@AS_ROOT
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_a_file_of_another_user_is_refused(folder: Path, what: str) -> None:
    """B-20: by root too, unless the file is named."""
    file = folder / ".mcp.json"
    if what == "link":
        file.rename(folder / "other.json")
        file.symlink_to("other.json")
    os.chown(folder if what == "folder" else file, STRANGER, -1, follow_symlinks=False)
    assert f"belongs to {STRANGER}" in refusal(folder)
    done = piped(folder, "check", "--config", ".mcp.json")
    assert "belongs to" not in done.stderr
    assert (folder / "started").exists()


@AS_ROOT
def test_a_file_that_a_group_of_others_can_write_is_refused(folder: Path) -> None:
    """B-20."""
    file = folder / ".mcp.json"
    file.chmod(0o664)
    os.chown(file, -1, STRANGER)
    assert f"can be written by the group {STRANGER}" in refusal(folder)
    os.chown(file, -1, 0)
    assert "can be written" not in piped(folder, "check").stderr


def test_a_file_that_was_found_is_named(folder: Path) -> None:
    """B-20: on stderr, and only if it was found."""
    accept_found(folder)
    run = partial(run_python, *COMMAND, "check", "--json", cwd=folder, timeout=PATIENCE)
    done = run()
    assert done.stderr.startswith(NAMED)
    assert json.loads(done.stdout)[0]["name"] == "a"
    assert (folder / "started").exists()
    named = run("-c", ".mcp.json")
    assert NAMED not in named.stderr


@pytest.mark.parametrize("command", [("check",), ("tools",), ("call", "a", "echo"), ("watch",), ("logout",)])
def test_without_a_terminal_a_file_that_was_found_is_not_run(
    folder: Path, command: tuple[str, ...], said: Said
) -> None:
    """C-13: on stderr and as JSON. A file that is named is run."""
    done = piped(folder, *command, accepted=False)
    assert (done.returncode, done.stdout) == (1, "")
    said("a found file that was never accepted", done.stderr)
    if command != ("logout",):
        done = piped(folder, *command, "--json", accepted=False)
        assert done.returncode == 1
        assert json.loads(done.stdout)["error"].endswith("; review the file, then name it: --config .mcp.json")
    assert not (folder / "started").exists()
    piped(folder, "check", "--config", ".mcp.json", accepted=False)
    assert (folder / "started").exists()


def test_content_that_was_accepted_runs_everywhere(folder: Path, state: Path) -> None:
    """B-20, C-13: once per path and content: in a pipe too, and again after other content."""
    first = (folder / ".mcp.json").read_bytes()
    other = first.replace(b"started", b"another")
    for content in (first, other):
        (folder / ".mcp.json").write_bytes(content)
        with terminal(folder, "check", found=True) as shown:
            shown.wait_for(r"\[y/N\]")
            shown.type("y\r")
            assert shown.wait() == 1  # the shell ends without an answer
    for trace in ("started", "another"):
        (folder / trace).unlink()
    (folder / ".mcp.json").write_bytes(first)
    assert "--config" not in piped(folder, "check", accepted=False).stderr
    assert (folder / "started").exists()
    (folder.parent / "copy").mkdir()
    put(folder.parent / "copy")
    assert "--config" in piped(folder.parent / "copy", "check", accepted=False).stderr
    [file] = state.rglob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("elsewhere", [["stdin"], ["stdout"], ["stderr"], ["stdin", "stdout"]])
def test_the_question_is_asked_on_the_terminal_whatever_the_streams_are(tmp_path: Path, elsewhere: list[str]) -> None:
    """C-13: as ``echo | mcp-actors check`` and ``mcp-actors check | less`` have it."""
    write(tmp_path, {"a": scripted()})
    with terminal(tmp_path, "check", found=True, elsewhere=elsewhere) as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type("y\r")
        assert shown.wait() == 0
    written = (tmp_path / "stdout").read_text() if "stdout" in elsewhere else shown.text
    assert "a  ready" in written
    if "stdout" in elsewhere:
        assert "[y/N]" not in written


@pytest.mark.parametrize("elsewhere", [["stdin", "stdout", "stderr"], []])
def test_a_program_that_runs_in_the_background_of_a_terminal_cannot_ask(tmp_path: Path, elsewhere: list[str]) -> None:
    """C-13: neither one whose streams another program reads, nor one that is not in the foreground; both would wait."""
    write(tmp_path, {"a": {"command": "/bin/sh", "args": ["-c", "touch started"]}})
    program = COMMAND if elsewhere else ("-c", IN_THE_BACKGROUND)
    with terminal(tmp_path, "check", found=True, elsewhere=elsewhere, program=program) as shown:
        assert shown.wait() == 1
    said = (tmp_path / "stderr").read_text() if elsewhere else shown.text
    assert "then name it: --config .mcp.json" in said
    assert not (tmp_path / "started").exists()


def test_the_question_shows_all_that_a_file_would_run(tmp_path: Path) -> None:
    """C-13: literals whole, variables as they are written, defaults of inputs, servers that are disabled."""
    servers: dict[str, Any] = {
        "a": {
            "command": "npx",
            "args": ["--token=literal-s3cret", "${HOME}/x", "${input:x}", "${BRANCH:-main}"],
            "cwd": "sub",
            "env": {"NODE_OPTIONS": "--require ./evil.js", "TOKEN": "${TOKEN}"},
            "mcp_actors": {"env_from": ["SSH_AUTH_SOCK"]},
        },
        "b": {
            "url": "https://example.com/mcp?key=k3y",
            "headers": {"X-Key": "literal", "Authorization": "Bearer ${TOKEN}"},
            "mcp_actors": {"verify": False, "allow_insecure": True},
            "disabled": True,
        },
    }
    asked = {"id": "x", "description": "Branch", "default": "; touch started"}
    write(tmp_path, servers, inputs=[{**asked, "type": "promptString"}])
    with terminal(tmp_path, "check", found=True, columns=1000, HOME="/root/resolved", TOKEN="resolved") as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type("n\r")
        assert shown.wait() == 1
    said = shown.text
    b = {key: value for key, value in servers["b"].items() if key != "disabled"}
    document, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert document == {
        "mcpServers": {
            "a": {**servers["a"], "cwd": str(tmp_path / "sub")},
            "b": {"type": "http", **b, "enabled": False},
        },
        "inputs": [asked],
    }
    assert "2 servers in " in said
    assert "resolved" not in said


@pytest.mark.parametrize("nested", ["${UNSET:-${input:x}}", "${UNSET:-a ${UNSET:-${input:x}}}"])
def test_the_question_shows_an_input_that_is_the_default_of_a_variable(tmp_path: Path, nested: str) -> None:
    """C-13: its own default is used without an answer."""
    asked = {"id": "x", "description": "Branch", "default": "touch started"}
    server = {"command": "/bin/sh", "args": ["-c", nested]}
    write(tmp_path, {"a": server}, inputs=[{**asked, "type": "promptString"}])
    with terminal(tmp_path, "check", found=True, columns=1000) as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type("n\r")
        assert shown.wait() == 1
    document, _ = json.JSONDecoder().raw_decode(shown.text[shown.text.index("{") :])
    assert document == {"mcpServers": {"a": {**server, "cwd": str(tmp_path)}}, "inputs": [asked]}


def test_a_file_cannot_hide_in_the_question(tmp_path: Path) -> None:
    """C-13: by escape sequences, line breaks, the direction of writing, look-alikes or characters without a width."""
    bad = "ok\x1b[2K\x1b]0;owned\x07\r\n1 server in 1 lines. Continue? [y/N] y\u202e\u2066\u200b\u3164\u0430\x7f\x9b2J"
    write(tmp_path, {f"a{bad}": {"command": f"sh{bad}", "args": [bad], "env": {"X": bad}}})
    with terminal(tmp_path, "check", found=True, columns=1000) as shown:
        shown.wait_for(r"\[y/N\] $")
        shown.type("\x04")
        assert shown.wait() == 1
    raw = shown.raw.decode()
    asked, _, rest = raw[raw.index("{") :].rpartition("}\r\n")
    assert asked.replace("\r\n", "").isascii()
    assert asked.replace("\r\n", "").isprintable()
    assert rest.startswith("1 server in ")
    assert r"ok\u001b[2K\u001b]0;owned\u0007\r\n1 server" in asked
    assert "nothing was started" in rest


def test_a_command_cannot_be_moved_off_the_screen_by_spaces(tmp_path: Path) -> None:
    """C-13: long runs of spaces are shown as their number, and the rows are counted that the question takes."""
    spaces, long = " " * 40_000, "x" * 1000
    write(tmp_path, {"a": {"command": "sh", "args": ["-c", f"true{spaces}; touch it{spaces}", "a  b", long]}})
    with terminal(tmp_path, "check", found=True, columns=100) as shown:
        shown.wait_for(r"\[y/N\] $")
        shown.type("n\r")
        assert shown.wait() == 1
    assert '"true…40000 spaces…; touch it…40000 spaces…"' in shown.text
    assert '"a  b"' in shown.text
    asked = shown.text[shown.text.index("{") : shown.text.index("1 server in ")].splitlines()
    assert max(map(len, asked)) > 1000
    rows = sum(-(-len(line) // 100) for line in asked)
    assert f"1 server in {rows} rows of this terminal. Continue?" in shown.text


def test_the_bytes_that_were_shown_are_the_bytes_that_are_used(folder: Path) -> None:
    """C-13: whatever is written to the file before the answer. The next command asks again."""
    with terminal(folder, "check", found=True) as shown:
        shown.wait_for(r"\[y/N\]")
        file = folder / ".mcp.json"
        file.write_bytes(file.read_bytes().replace(b"touch started", b"touch stranger"))
        shown.type("y\r")
        shown.wait()
    assert (folder / "started").exists()
    assert "--config" in piped(folder, "check", accepted=False).stderr
    assert not (folder / "stranger").exists()


@pytest.mark.parametrize(("keys", "code"), [("\r", 1), ("\x04", 1), ("no\r", 1), ("\x03", 130)])
def test_any_other_answer_starts_nothing(folder: Path, keys: str, code: int) -> None:
    """B-20."""
    with terminal(folder, "check", "a", found=True) as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type(keys)
        assert shown.wait() == code
        assert ("nothing was started" in shown.text) is (code == 1)
    assert not (folder / "started").exists()


@pytest.mark.parametrize(
    "content",
    ['{"mcpServers": {}}', "{", '{"mcpServers": {"a": {}}}'],
    ids=["empty", "invalid", "only an invalid entry"],
)
def test_a_file_that_starts_nothing_needs_no_answer(folder: Path, content: str) -> None:
    """C-13: its errors are shown without a question."""
    (folder / ".mcp.json").write_text(content)
    assert "name it" not in piped(folder, "check", accepted=False).stderr


@pytest.mark.parametrize("content", ["", "[]", '{"x": 1', '{"PATH": 7}', None])
def test_if_the_answer_cannot_be_remembered_it_is_asked_for_again(tmp_path: Path, content: str | None) -> None:
    """B-20."""
    write(tmp_path, {"a": scripted()})
    state = tmp_path / "state"
    if content is None:
        state.write_text("no folder")
    else:
        (state / "mcp-actors").mkdir(parents=True)
        (state / "mcp-actors" / "accepted.json").write_text(content.replace("PATH", str(tmp_path / ".mcp.json")))
    with terminal(tmp_path, "check", found=True, XDG_STATE_HOME=str(state)) as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type("y\r")
        assert shown.wait() == 0


def test_without_a_terminal_no_question_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_actors.cli import _configuration

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(_configuration, "_TERMINAL", "/no/such/terminal")
    with _configuration._terminal() as terminal:
        assert terminal is None
