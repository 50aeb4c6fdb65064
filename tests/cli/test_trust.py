"""A configuration that was found is used only if no other user can write it and its user accepts it."""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from pathlib import Path

import pytest

from ..forkserver import run_python
from .terminal import COMMAND, NAMED, PATIENCE, piped, scripted, terminal, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

STRANGER = 54321
"""The number of a user that is not this one."""

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away; the other tests do without")


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


def test_without_a_terminal_a_file_that_was_found_is_named_and_used(folder: Path) -> None:
    """B-20: on stderr, and only if it was found."""
    run = partial(run_python, *COMMAND, "check", "--json", cwd=folder, timeout=PATIENCE)
    done = run()
    assert done.stderr.startswith(NAMED)
    assert json.loads(done.stdout)[0]["name"] == "a"
    assert (folder / "started").exists()
    named = run("-c", ".mcp.json")
    assert NAMED not in named.stderr


def test_at_a_terminal_the_user_is_asked_once_for_each_content(tmp_path: Path) -> None:
    """B-20."""
    state = tmp_path / "state"
    folder = tmp_path / "project"
    folder.mkdir()
    write(
        folder, {"a": scripted(), "b\x1b[2J": {"command": "${input:x}"}}, inputs=[{"id": "x", "type": "promptString"}]
    )
    for answer in ("\r", "\x04"):
        with terminal(folder, "check", "a", found=True, XDG_STATE_HOME=str(state)) as shown:
            shown.wait_for(r"\[y/N\]")
            assert "a: " in shown.text
            assert "b_2J: ${input:x}" in shown.text
            shown.type(answer)
            assert shown.wait() == 1
            assert "nothing was started" in shown.text
    with terminal(folder, "check", "a", found=True, XDG_STATE_HOME=str(state)) as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type("y\r")
        assert shown.wait() == 0
    [file] = state.rglob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with terminal(folder, "check", "a", found=True, XDG_STATE_HOME=str(state)) as shown:
        assert shown.wait() == 0
        assert NAMED in shown.text
        assert "[y/N]" not in shown.text
    write(folder, {"a": scripted("--name", "other")})
    with terminal(folder, "check", found=True, XDG_STATE_HOME=str(state)) as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type("\x03")
        assert shown.wait() == 130


@pytest.mark.parametrize("content", ["", "[]", '{"x": 1', None])
def test_if_the_answer_cannot_be_remembered_it_is_asked_for_again(tmp_path: Path, content: str | None) -> None:
    """B-20."""
    write(tmp_path, {"a": scripted()})
    state = tmp_path / "state"
    if content is None:
        state.write_text("no folder")
    else:
        (state / "mcp-actors").mkdir(parents=True)
        (state / "mcp-actors" / "accepted.json").write_text(content)
    with terminal(tmp_path, "check", found=True, XDG_STATE_HOME=str(state)) as shown:
        shown.wait_for(r"\[y/N\]")
        shown.type("y\r")
        assert shown.wait() == 0
