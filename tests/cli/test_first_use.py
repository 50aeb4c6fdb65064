"""First use: from an unchanged configuration file to an answered call, in two commands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from ..forkserver import interpreter
from ..messages import Said
from ..test_main_job import needs_real_servers
from .terminal import PATIENCE, piped

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

MINUTE: Final = 60.0

FILE: Final = """{
  // as Claude Code and Cursor write it
  "mcpServers": {
    "time": {"type": "stdio", "command": "mcp-server-time", "args": [], "env": {"TZ": "${TZ:-UTC}"}},
    "docs": {"type": "http", "url": "https://example.com/mcp", "disabled": true}
  }
}
"""


@needs_real_servers
def test_two_commands_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(interpreter()).parent), prepend=":")
    (tmp_path / ".mcp.json").write_text(FILE)
    begin = time.monotonic()
    checked = piped(tmp_path, "check")
    called = piped(tmp_path, "call", "time", "get_current_time", "timezone=Europe/Paris")
    assert time.monotonic() - begin < MINUTE
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith("time  ready     mcp-time ")
    assert (called.returncode, called.stderr) == (0, "")
    assert json.loads(called.stdout)["timezone"] == "Europe/Paris"
    assert (tmp_path / ".mcp.json").read_text() == FILE


@pytest.mark.parametrize("words", [[], ["check"], ["check", "--json"]])
def test_without_the_extra_the_error_names_the_command_that_installs_it(
    tmp_path: Path, words: list[str], said: Said
) -> None:
    program = "import sys; sys.modules |= {'cyclopts': None, 'rich': None}; import mcp_actors.__main__"
    blocked = (sys.executable, "-c", program, *words)
    done = subprocess.run(blocked, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    error = done.stderr.removeprefix("error: ").removesuffix("\n")
    said("extra not installed", error)
    assert done.stdout == (json.dumps({"error": error}) + "\n" if "--json" in words else "")
