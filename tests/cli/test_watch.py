"""The screen of ``watch``: one drawing of the statuses, the size and the time, and what real servers show on it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
from mcp.server.lowlevel import Server
from rich.cells import cell_len
from rich.style import Style

from mcp_actors import ConnectFailed, InProcess, ServerConfig, open_servers
from mcp_actors.servers import ServerState, ServerStatus

from .terminal import scripted, terminal, wait_for_text, write

pytest.importorskip("cyclopts", reason="the extra 'cli' is not installed")

CTRL_C = "\x03"


@pytest.fixture
async def status() -> ServerStatus:
    """Return the status of a server that was never used, at the time 100."""
    async with open_servers(ServerConfig("a", InProcess(Server("a")), connect="lazy")) as servers:
        return attrs.evolve(servers["a"].statistics(), since=100.0)


def drawn(*statuses: ServerStatus, now: float = 100.0, columns: int = 80, rows: int = 24, **more: Any) -> list[str]:
    from mcp_actors.cli._check import Screen, draw

    text = draw(Screen(statuses, **more), now, columns, rows)
    lines = text.plain.split("\n")
    assert len(lines) <= rows
    assert all(cell_len(line) <= columns for line in lines)
    return lines


def in_state(status: ServerStatus, state: ServerState, **more: Any) -> ServerStatus:
    """Return the status of a server, and of its only replica, with another state."""
    (one,) = status.replicas.each
    replicas = attrs.evolve(status.replicas, each=(attrs.evolve(one, state=state),))
    return attrs.evolve(status, state=state, replicas=replicas, **more)


def failed(status: ServerStatus, message: str, state: ServerState = "failed") -> ServerStatus:
    error = ConnectFailed(f"server {status.name!r}: {message}", server=status.name, phase="open")
    return in_state(status, state, last_error=error)


async def test_a_server_that_is_not_well_has_its_error_and_the_end_of_its_stderr_under_it(status: ServerStatus) -> None:
    ready = in_state(status, "ready", name="first", incarnation=2, in_flight=3, queued=14, restarts=1)
    words = {"gone": "no licence", "later": "unpacking"}
    later = in_state(status, "connecting", name="later", since=99.0)
    assert drawn(ready, failed(attrs.evolve(status, name="gone"), "not found"), later, now=160.4, words=words) == [
        "server  state       run  pid  for   in flight  queued  restarts",
        "first   ready       2         60 s  3          14      1",
        "gone    failed      0         60 s  0          0       0",
        "  error: not found",
        "  stderr: no licence",
        "later   connecting  0         61 s  0          0       0",
        "  stderr: unpacking",
    ]


async def test_an_error_that_is_over_is_not_shown(status: ServerStatus) -> None:
    assert len(drawn(failed(status, "it was slow", "ready"))) == 2
    assert len(drawn(failed(status, "it was slow", "stopped"))) == 2


async def test_a_server_that_is_not_well_without_an_error_has_the_reason_of_its_state(status: ServerStatus) -> None:
    degraded = in_state(status, "degraded", reason="its tools\nare not\x1b[31m listed")
    assert drawn(degraded)[2:] == ["  reason: its tools are not listed"]


async def test_a_server_is_not_well_if_one_of_its_replicas_is_not(status: ServerStatus) -> None:
    ready, other = failed(status, "exited", "ready"), failed(status, "exited", "backoff")
    both = attrs.evolve(ready.replicas, each=(*ready.replicas.each, *other.replicas.each))
    shown = drawn(attrs.evolve(ready, replicas=both))
    assert shown[1].startswith("a       ready 1/2 ")
    assert shown[2] == "  error: exited"


async def test_text_of_a_server_is_one_line_of_plain_text_that_is_cut_to_the_width(status: ServerStatus) -> None:
    nasty = "red\x1b[31m\x1b]0;owned\x07 [bold]and\r\n\t\u202elong" + "." * 200
    shown = drawn(failed(status, nasty), columns=40, words={"a": nasty})
    begin = "red [bold]and  long......................."
    assert shown[2:] == [f"{f'  error: {begin}':.39}…", f"{f'  stderr: {begin}':.39}…"]
    assert drawn(failed(status, "界" * 40), columns=20)[2] == "  error: 界界界界界…"


@pytest.mark.parametrize("columns", [1, 2, 10, 40, 64, 65, 200])
@pytest.mark.parametrize("rows", [1, 2, 5, 50])
async def test_the_screen_never_exceeds_the_terminal(status: ServerStatus, columns: int, rows: int) -> None:
    many = [failed(attrs.evolve(status, name=f"a-server-of-a-long-name-{number}"), "x" * 300) for number in range(9)]
    shown = drawn(*many, columns=columns, rows=rows, problems=("y" * 300,))
    whole = drawn(*many, columns=columns, rows=10_000, problems=("y" * 300,))
    assert shown[: rows - 1] == whole[: rows - 1]
    if len(whole) > rows:
        assert shown[-1] == f"… {len(whole) - rows + 1} more lines"[:columns]
    assert len(whole) == 1 + 2 * len(many) + -(-300 // columns)


async def test_the_error_of_an_entry_is_shown_in_full(status: ServerStatus) -> None:
    problem = "mcp.json: mcpServers.b: neither 'command' nor 'url' is given; give one (did you mean 'command'?)"
    shown = drawn(status, columns=50, problems=(problem,))
    assert "".join(shown[2:]) == problem
    assert len(shown) == 4


async def test_states_have_colours_and_the_text_of_a_server_has_none_of_its_own(status: ServerStatus) -> None:
    from mcp_actors.cli._check import Screen, draw

    text = draw(Screen((failed(status, "[green]x[/]"),)), 100.0, 80, 24)
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles["failed"] == "red"
    assert "green" not in [str(Style.parse(str(style))) for style in styles.values()]


def test_a_real_server_that_fails_shows_its_last_words_without_its_credentials(tmp_path: Path) -> None:
    flags = ("--stderr", "first\nno licence for s3cret-of-b\x1b[2J\n\n", "--exit-at-start", "7")
    entry = scripted(*flags, restarts={"max_restarts": 0})
    write(tmp_path, {"a": {**entry, "env": {"KEY": "s3cret-of-b"}}, "well": scripted("--stderr", "all is well")})
    with terminal(tmp_path, "watch", columns=72) as shown:
        shown.wait_for(r"well +ready ")
        shown.wait_for(r"\n  error: [^\n]*exited with code 7[^\n]*…\n  stderr: no licence for \S+\n")
        shown.type(CTRL_C)
        assert shown.wait() == 130
        assert "s3cret-of-b" not in shown.text
        assert "all is well" not in shown.text


def test_a_real_server_that_is_killed_shows_the_last_line_that_it_had_written(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    write(tmp_path, {"a": scripted("--pid-file", str(pids), "--stderr", "unpacking", restarts={"max_restarts": 0})})
    with terminal(tmp_path, "watch", columns=72) as shown:
        shown.wait_for(r"a +ready ")
        wait_for_text(pids, "\n")
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
        shown.wait_for(r"a +failed [^\n]*\n  error: [^\n]*\n  stderr: unpacking\n?")
        shown.type(CTRL_C)
        assert shown.wait() == 130
