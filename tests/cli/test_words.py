"""The words of a command line are for people at a terminal."""

from __future__ import annotations

import inspect
import re
from io import StringIO
from pathlib import Path

import pytest
from mcp.types import ServerCapabilities

from mcp_actors import (
    ConfigError,
    Http,
    RestartPolicy,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    open_servers,
)
from mcp_actors._errors import NotSupported
from mcp_actors.auth import SignInRequired
from mcp_actors.config import load_config
from mcp_actors.servers.record._status import require

from ..servers.scripted_server import command
from .conftest import Run
from .terminal import scripted, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

from rich.console import Console

from mcp_actors.cli._app import EXAMPLES, PANELS, path_of
from mcp_actors.cli._output import Binary, Output, at_the_command_line

OF_PYTHON = re.compile(
    r"await |servers\[|load_config\(|ServerConfig|Source\b|in Python|\w+\(…|wait_state|adapter|=True|info\."
)


async def test_no_remedy_of_a_command_is_python(tmp_path: Path) -> None:
    """D-33."""
    texts = [str(SignInRequired.because("it's", "no token")), str(SignInRequired.because("a", "no token"))]
    for path in ("https://example.com/mcp", str(tmp_path)):
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        texts.append(str(caught.value))
    wrong = {
        "a": {"command": "x", "env": {"A": "${input:key}"}},
        "b": {"command": "x", "middleware": []},
        "c": {"command": "x", "mcp_actors": {"middleware": []}},
        "d": {"command": "x", "autoApprove": ["echo"]},
    }
    loaded = load_config({"mcpServers": wrong, "inputs": [{"id": "key", "type": "promptString"}]})
    texts += [*map(str, loaded.errors), *loaded.warnings]
    with pytest.raises(ConfigError) as caught:
        Http("http://example.com/mcp")
    texts.append(str(caught.value))
    with pytest.raises(NotSupported) as unsupported:
        require("prompts", ServerCapabilities(), "a", "prompts/get 'p'")
    texts.append(str(unsupported.value))
    ending = Stdio(*command("--exit-at-start", "7"))
    missing = ServerConfig("a", ending, restarts=RestartPolicy(max_restarts=0), on_failure="park")
    async with open_servers(missing) as servers:
        await servers["a"].wait_state("failed")
        for _ in range(2):
            with pytest.raises(ServerUnavailable) as unavailable:
                await servers["a"].call("echo")
            texts.append(str(unavailable.value))
            await servers["a"].stop()
    assert all(OF_PYTHON.search(text) for text in texts), [each for each in texts if not OF_PYTHON.search(each)]
    reworded = [*map(at_the_command_line, texts)]
    assert [text for text in reworded if OF_PYTHON.search(text)] == []
    assert reworded[0].endswith("run 'mcp-actors login it's'")
    assert any(text.endswith("fix that, then: mcp-actors restart a") for text in reworded)
    assert any(text.endswith("to connect it again: mcp-actors start a") for text in reworded)


def test_help_has_the_commands_in_four_parts(run: Run) -> None:
    """D-33: each of them in one."""
    help_text = run("--help").stdout
    headings = [line.split()[1] for line in help_text.splitlines() if line.startswith("╭─")]
    assert headings == ["Look", "Share", "Sign", "Files", "Options"]
    words = [word for part in PANELS.values() for word in part.split()]
    assert sorted(words) == sorted({path_of(command)[0] for command in EXAMPLES})
    for title, part in PANELS.items():
        panel = help_text.partition(f"╭─ {title} ")[2].partition("╰─")[0]
        assert {line.split()[1] for line in panel.splitlines()[1:] if line[2:3] != " "} == {"│", *part.split()} - {"│"}


def test_the_code_behind_a_command_is_imported_before_it_runs() -> None:
    """So Ctrl-C ends the slow imports of each in the same way."""
    for each, (module, _) in EXAMPLES.items():
        imported = re.findall(r"from \.(_\w+) import", inspect.getsource(each))
        assert not imported or module in imported


def test_check_breaks_its_lines_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-33: a terminal would break them anywhere."""
    shown = StringIO()
    output = Output()
    output.results = Console(file=shown, force_terminal=True, width=30, color_system=None)
    output.line(("docs", "bold"), "  failed  command 'docs-server' not found; install it", wrap=True)
    assert shown.getvalue().split("\n") == ["docs  failed  command ", "  'docs-server' not found; ", "  install it", ""]


def test_a_server_that_is_slow_to_start_is_waited_for_before_there_is_advice(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-33: the first start of a server often takes as long as its download."""
    from mcp_actors.cli import _connect

    assert _connect.ADVISE_AFTER == 15
    monkeypatch.setattr(_connect, "REPORT_EVERY", 0.05)
    settings = {"connect_timeout": 0.2, "startup_timeout": 0.6}
    write(tmp_path, {"mute": {"command": "sleep", "args": ["60"], "mcp_actors": settings}, "a": scripted()})
    patient = run("check").stderr
    assert "mute: still starting after" in patient
    assert "its process has written nothing to stderr\n" in patient
    assert "check that its command starts an MCP server" not in patient
    monkeypatch.setattr(_connect, "ADVISE_AFTER", 0)
    assert "check that its command starts an MCP server" in run("check").stderr


@pytest.mark.parametrize("data", ["aGk=", "aGk", "aG\nk=", "data:image/png;base64,aGk="])
def test_the_size_of_a_binary_part_is_that_of_its_bytes(data: str) -> None:
    part = Binary("image/png", data)
    assert (str(part), part.data()) == ("image/png, 2 bytes", b"hi")
