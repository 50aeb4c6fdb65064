"""Words that real shells complete: commands, options, names of servers and files."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import join
from typing import Final

import pytest

from .conftest import Run
from .terminal import PATIENCE, program, take_terminal

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

SHELLS: Final = {
    "bash": ("bash", "--noprofile", "--norc", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "-i"),
}
LOAD: Final = {
    "bash": """eval "$(mcp-actors completion bash)"; PS1='rea''dy> '""",
    "zsh": """autoload -U compinit; compinit -u -d dump; eval "$(mcp-actors completion zsh)"; PS1='rea''dy> '""",
    "fish": "mcp-actors completion fish | source; function fish_prompt; echo -n 'rea''dy> '; end",
}
INSTALLED: Final = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in SHELLS
]

JSONC: Final = """// of VS Code
{"servers": {"time": {"command": "x"}, /* "off": {} */ "tide": {"url": "http://a//b"},},}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a configuration that was never accepted, and the command in ``bin``."""
    servers = {"weather": {"command": "touch", "args": [str(tmp_path / "started")]}, "wiki": {"command": "x"}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / "other.toml").write_text('[mcp_servers.water]\ncommand = "x"\n')
    (tmp_path / "bin").mkdir()
    script = f'case $1 in __complete|completion) exec {join(program())} "$@";; *) echo "ran <$*>";; esac'
    (tmp_path / "bin" / "mcp-actors").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / "mcp-actors").chmod(0o755)
    return tmp_path


class Shell:
    """A shell that a person types into."""

    def __init__(self, master: int) -> None:
        self._master = master

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, pattern: str) -> None:
        """Wait until the shell has written something since this was last called."""
        deadline, text = time.monotonic() + PATIENCE, ""
        while not re.search(pattern, text):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, text
            piece = os.read(self._master, 65536).decode(errors="replace")
            text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|[\x08\r]", "", piece)


@contextmanager
def typed_into(name: str, folder: Path) -> Iterator[Shell]:
    """Run a shell in a terminal, with the completions loaded."""
    master, slave = pty.openpty()
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "TERM": "xterm",
        "HOME": str(folder),
        "PS1": "",
    }
    process = subprocess.Popen(
        SHELLS[name],
        cwd=folder,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=partial(take_terminal, os.ttyname(slave)),
    )
    os.close(slave)
    try:
        shell = Shell(master)
        shell.type(f"{LOAD[name]}\n")
        shell.wait_for("ready> ")
        yield shell
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.parametrize("name", INSTALLED)
def test_a_shell_completes_words(folder: Path, name: str) -> None:
    with typed_into(name, folder) as shell:
        for begin, completed in (
            ("whoa", "whoami"),
            ("check --conf", "check --config"),
            ("check wea", "check weather"),
            ("call wi", "call wiki"),
            ("tools -c other.toml wa", "tools -c other.toml water"),
            ("tools -c oth", "tools -c other.toml"),
        ):
            shell.type(f"mcp-actors {begin}\t\n")
            shell.wait_for(f"ran <{completed}>[^$]*ready> ")
    assert not (folder / "started").exists()


class TestNames:
    def candidates(self, run: Run, *words: str) -> list[str]:
        done = run("__complete", *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.partition("\x1fbegin\n")[2].splitlines()

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            (".mcp.json", '{"mcpServers": {"time": {}, "tide": {}}}'),
            (".vscode/mcp.json", JSONC),
            ("mcp.json", '\ufeff{"context_servers": {"time": {}, "tide": {}}}'),
            (".mcp.json", '{"mcp": {"servers": {"time": {}, "tide": {}}}}'),
        ],
    )
    def test_the_names_of_the_file_that_is_found_are_offered(
        self, tmp_path: Path, run: Run, file: str, text: str
    ) -> None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
        assert self.candidates(run, "check", "t") == ["time", "tide"]
        assert self.candidates(run, "call", "ti") == ["time", "tide"]

    @pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"mcpServers": 3}', "[" * 100_000, "\x00"])
    def test_a_file_that_is_not_valid_has_no_names(self, tmp_path: Path, run: Run, text: str) -> None:
        (tmp_path / ".mcp.json").write_text(text)
        (tmp_path / "mcp.json").write_text('{"mcpServers": {"time": {}}}')
        assert self.candidates(run, "check", "") == []

    def test_without_a_file_there_are_no_names(self, tmp_path: Path, run: Run) -> None:
        assert self.candidates(run, "check", "") == []
        assert self.candidates(run, "check", "-c", "none.json", "") == []
        assert self.candidates(run, "check", "-c", ".", "") == []
        os.mkfifo(tmp_path / "pipe.json")
        assert self.candidates(run, "check", "-c", "pipe.json", "") == []

    def test_a_command_after_dashes_does_not_disturb_it(self, tmp_path: Path, run: Run) -> None:
        assert self.candidates(run, "tools", "--", "npx", "") == []

    def test_folders_and_configurations_are_offered_for_a_file(self, tmp_path: Path, run: Run) -> None:
        (tmp_path / "sub").mkdir()
        for name in ("some.json", "some.toml", "some.txt", "sub/deep.json"):
            (tmp_path / name).touch()
        assert self.candidates(run, "check", "--config", "s") == ["some.json", "some.toml", "sub/"]
        assert self.candidates(run, "check", "-c", "sub/") == ["sub/deep.json"]
        assert self.candidates(run, "check", "-c", "none/") == []

    def test_names_are_found_without_the_sdk(self, tmp_path: Path) -> None:
        (tmp_path / ".mcp.json").write_text('{"mcpServers": {"time": {}}}')
        lines = "import sys\nfrom mcp_actors.cli._run import run\nrun(['__complete', 'check', ''])\nprint(*sys.modules)"
        args = [sys.executable, "-c", lines]
        done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=True)
        *_, name, modules = done.stdout.splitlines()
        assert name == "time"
        assert not {each.partition(".")[0] for each in modules.split()} & {"mcp", "mcp_types", "pydantic"}


@pytest.mark.parametrize("words", [["completion"], ["completion", "tcsh"]])
def test_the_shell_is_one_of_three(run: Run, words: list[str]) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(shell in done.stderr for shell in ("bash", "zsh", "fish"))
