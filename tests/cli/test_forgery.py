"""Text of a server cannot forge lines of a command."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from mcp_actors import load_config, open_servers

from .conftest import Run
from .terminal import terminal, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

FORGER = {"command": sys.executable, "args": ["-S", "-E", "-X", "utf8", str(Path(__file__).with_name("forger.py"))]}
OLD = {"mcp_actors": {"protocol": "legacy"}}


def assert_nothing_is_forged(text: str) -> None:
    """Check what a command has written."""
    assert text
    assert [line for line in text.splitlines() if line.startswith("FORGED")] == []
    assert text.replace("\n", "").isprintable(), ascii(text)


@pytest.mark.parametrize(
    "command",
    [("check",), ("tools",), ("call", "a", "errs"), ("call", "a", "fails"), ("call", "a", "nothing")],
    ids=lambda command: "-".join(command),
)
def test_a_command_shows_only_lines_of_its_own(tmp_path: Path, run: Run, command: tuple[str, ...]) -> None:
    """B-21."""
    write(tmp_path, {"a": FORGER | OLD, "b": {**FORGER, "args": [*FORGER["args"], "--exit"], **OLD}})
    for words in (command, (*command, "--json")):
        done = run(*words)
        if done.stderr:
            assert_nothing_is_forged(done.stderr)
        assert_nothing_is_forged(done.stdout + "\n")
        if "--json" in words:
            assert json.loads(done.stdout)


def test_a_terminal_shows_only_lines_of_the_command(tmp_path: Path) -> None:
    """B-21."""
    write(tmp_path, {"a": FORGER | OLD, "b": {**FORGER, "args": [*FORGER["args"], "--exit"], **OLD}})
    with terminal(tmp_path, "check") as shown:
        assert shown.wait() == 1
        assert "\nFORGED" not in shown.text
        assert "\x1b[2J" not in shown.raw.decode()


async def test_a_log_has_only_lines_of_this_package(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """B-21: by any logger of this package, at any level."""
    file = {"mcpServers": {"a": FORGER | OLD, "b": {**FORGER, "args": [*FORGER["args"], "--exit"], **OLD}}}
    with caplog.at_level(logging.DEBUG, "mcp_actors"):
        async with open_servers(*load_config(file).servers) as group:
            assert "b" in group.errors
    records = [each for each in caplog.records if each.name.startswith("mcp_actors")]
    assert {"mcp_actors.servers", "mcp_actors.servers.stderr"} <= {each.name for each in records}
    for each in records:
        assert_nothing_is_forged(logging.Formatter("%(message)s").format(each))
