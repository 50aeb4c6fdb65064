"""A configuration that changes while a gateway serves it, and the signals that a gateway gets, in real processes."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mcp_actors.cli import _gateway
from mcp_actors.cli._gateway import Daemon, load, opened

from ..cli.terminal import terminal
from ..forkserver import Program, run_python, start_python
from ..servers.processes import BOUND
from ..source import ROOT
from .daemons import counting
from .http.doors import Peer
from .http.test_program import peers, serving
from .test_attach import Place, place, wait_until

__all__ = ["place"]  # the fixture

LAZY: Final = {"command": "true", "mcp_actors": {"connect": "lazy"}}


def write(file: Path, **entries: Any) -> None:
    file.write_text(json.dumps({"mcpServers": entries}))


def lines_with(text: str, log: Path) -> list[str]:
    """Return the lines of a log that have a text, without the time."""
    return [line.split(" ", 2)[2] for line in log.read_text().splitlines() if text in line]


def ends_in(log: Path) -> list[str]:
    return [line.removeprefix("INFO mcp-actors ends: ") for line in lines_with("mcp-actors ends: ", log)]


async def test_what_a_file_says_of_its_entries_is_said_by_every_view_of_the_gateway(tmp_path: Path) -> None:
    """D-04, with a required entry that cannot be used from the start; the page and the probes show it."""
    file, log = tmp_path / "mcp.json", tmp_path / "log"
    with tempfile.TemporaryDirectory() as runtime:
        control = Path(runtime, "mcp-actors", "n.ctl")
        control.parent.mkdir(0o700)

        async def ask(verb: str, *words: str) -> tuple[int, str]:
            """Run a command, and return its exit code and all that it has printed."""
            env = {**os.environ, "XDG_RUNTIME_DIR": runtime}
            command = partial(run_python, "-m", "mcp_actors", verb, *words, "--config", str(file), cwd=ROOT, env=env)
            done = await trio.to_thread.run_sync(partial(command, timeout=BOUND))
            return done.returncode, done.stdout + done.stderr

        a = {**counting(tmp_path / "a"), "sandbox": True}
        needed = {"comand": "x", "mcp_actors": {"required": True}}
        flags = ("--http", "127.0.0.1:0", "--no-token", "--control", str(control))
        with serving(tmp_path, *flags, entries={"a": a, "needed": needed, "odd": {}}) as (_, url, _):
            async with peers(url) as [peer]:
                await peer.ask("tools/list", token=None)
                assert await ready(peer) is False
                shown = (await peer.fetch("GET", "/status")).json
                assert (
                    f"{file}: mcpServers.needed: neither 'command' nor 'url'" in shown["missing"][str(file)]["reason"]
                )
                said = (await ask("status"))[1]
                page = (await peer.fetch("GET", "/ui/")).text
                for name in ("needed", "odd"):
                    for text in (str(shown["sources"]), said, page.replace("&#x27;", "'")):
                        assert f"{file}: mcpServers.{name}: neither 'command' nor 'url' is given" in text
                assert f'mcp_source_error{{source="{file}"}} 1.0' in (await peer.fetch("GET", "/metrics")).text
                pid = shown["servers"]["a"]["pid"]
                assert pid is not None

                # The entry of a server that runs gets a mistake; another one is new, and its command does not exist.
                write(file, a={**a, "command": 3}, gone={"command": "/nowhere/at-all"})
                code, said = await ask("reload")
                assert code == 1
                assert said.splitlines()[:2] == ["added: gone", "unchanged: a"]
                assert f"error: {file}: mcpServers.a.command: " in said
                assert "error: server 'gone': command '/nowhere/at-all' not found" in said
                assert "removed" not in said
                code, checked = await ask("check")
                assert code == 1
                assert (
                    checked.count(f"{file}: mcpServers.a.command: ")
                    == checked.count("'/nowhere/at-all' not found")
                    == 1
                )
                assert await ready(peer)
                assert (await peer.fetch("GET", "/status")).json["servers"]["a"]["pid"] == pid
                assert await peer.call("a_run", token=None, id=1) == "1"

                # A required one that runs on as it was is not what the file says.
                write(file, a={**a, "command": 3, "mcp_actors": {"required": True}})
                assert (await ask("reload"))[0] == 1
                assert await ready(peer) is False
                assert await peer.call("a_run", token=None, id=2) == "2"

                file.write_text("{")
                code, said = await ask("reload")
                assert (code, "is not valid JSON" in said, await ready(peer)) == (1, True, False)

                write(file, a=a)
                assert await ask("reload") == (0, "unchanged: a\n")
                assert await ready(peer)
                assert (await peer.fetch("GET", "/status")).json["servers"]["a"]["pid"] == pid
    assert_logged_once(file, log)


def assert_logged_once(file: Path, log: Path) -> None:
    assert lines_with("sandbox", log) == [
        f"WARNING {file}: mcpServers.a.sandbox: this is not supported and has no effect; the server is not confined"
    ]
    assert len(lines_with("mcpServers.odd", log)) == 1
    assert lines_with(" reload: ", log) == [
        "INFO reload: added gone; failed a, gone",
        "INFO reload: removed gone; failed a",
        f"ERROR reload: {lines_with(' reload: ', log)[2].partition(' reload: ')[2]}",
        "INFO reload: no change",
    ]


async def ready(peer: Peer) -> bool:
    return (await peer.fetch("GET", "/readyz")).status == 200


@pytest.mark.parametrize("isolation", ["per-session", "per-identity"])
async def test_a_server_of_a_session_or_an_identity_stays_when_its_entry_cannot_be_used(
    isolation: str, tmp_path: Path
) -> None:
    file, kept = tmp_path / "mcp.json", list[list[str]]()
    shared, own = counting(tmp_path / "shared", connect="lazy"), counting(tmp_path / "own", isolation=isolation)
    write(file, shared=shared, own=own)

    async def note(*servers: Any) -> None:
        kept.append([config.name for each in servers for config in each])

    async with opened(Daemon(), str(file), *load(str(file)), None, several=True) as found:
        found.on_reload = note
        for _ in range(2):
            write(file, shared=shared, own={**own, "command": 3})
            done = await found.reload()
            assert (done.added, done.removed, [*done.failed]) == ((), (), ["own"])
        write(file, shared=shared)
        await found.reload()
    assert kept == [["own"], ["own"], []]


async def test_of_a_server_that_is_served_alone_only_its_own_entry_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, a = tmp_path / "mcp.json", counting(tmp_path / "a", connect="lazy")
    bad = {"command": 3, "mcp_actors": {"required": True}}
    write(file, a=a, bad=bad)
    async with opened(Daemon(), f"{file}#a", *load(f"{file}#a"), None) as found:
        front = found.gateway.front
        assert front is not None
        assert [each.error for each in front.sources] == [None]
        write(file, a={**a, "command": 3}, bad=bad)
        assert [*(await found.reload()).failed] == ["a"]
        assert [*front.group] == ["a"]
        assert [each.refused for each in front.sources] == [False]
        write(file, bad=bad)
        with pytest.raises(ValueError, match=r"has no server 'a' that is enabled; its servers: none"):
            await found.reload()
        assert [*front.group] == ["a"]
    assert "mcpServers.bad" not in caplog.text


def test_a_variable_for_two_servers_makes_a_gateway_that_needs_one_of_them_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mcp.json"
    needed = {"command": "true", "mcp_actors": {"required": True, "isolation": "per-session"}}
    write(file, **{"my-docs": needed, "my_docs": {"command": "true"}, "other": {"command": "true"}})
    monkeypatch.setenv("MCP_ACTORS__MY_DOCS__COMMAND", "false")
    loaded, _ = load(str(file))
    assert [each.name for each in loaded.servers] == ["other"]
    assert ({*loaded.failed}, {*loaded.required}) == ({"my-docs", "my_docs"}, {"my-docs"})


# --- Signals, and the end ---------------------------------------------------------------------------------------------


@contextmanager
def serve(folder: Path, *words: str) -> Iterator[tuple[Program, int]]:
    """Serve a file of the folder in a process, perhaps at ``{short}``; give the process, and its stdin."""
    reads, stdin = os.pipe()
    said, say = os.pipe()
    with (
        open(said) as printed,
        (folder / "log").open("wb") as log,
        tempfile.TemporaryDirectory() as short,
    ):
        command = ("-m", "mcp_actors", "serve", "--config", str(folder / "mcp.json"))
        try:
            program = start_python(
                *command, *(word.format(short=short) for word in words), cwd=ROOT, stdin=reads, stdout=say, stderr=log
            )
        finally:
            os.close(reads)
            os.close(say)
        with program:
            try:
                if "--stdio" not in words:
                    printed.readline()
                yield program, stdin
            finally:
                program.kill()
                with suppress(OSError):  # the test has closed it
                    os.close(stdin)


def test_a_daemon_of_attach_reloads_at_sighup_and_says_why_it_ends(place: Place) -> None:
    """D-101, with its signals; and D-04: its log has the mistakes and the warnings of its file once."""
    write(place.config, a={**LAZY, "sandbox": True}, odd={})
    client = place.start([sys.executable, "-m", "mcp_actors", "attach", "--config", str(place.config)], place.environ)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    client.request(0, "initialize", **params)
    assert "result" in client.receive()
    pid, log = int(place.file("lock").read_text()), place.file("log")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(pid, number)
        wait_until(partial(lines_with, f"INFO {number.name} is ignored", log))
    write(place.config, a={"command": 3}, new={"command": "/nowhere/at-all"})
    os.kill(pid, signal.SIGHUP)
    wait_until(lambda: lines_with(" reload: ", log))
    assert lines_with(" reload: ", log) == ["INFO reload: added new; failed a, new"]
    client.request(1, "ping")
    assert client.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert len(lines_with("sandbox", log)) == len(lines_with("mcpServers.odd", log)) == 1
    stop = ("-m", "mcp_actors", "stop", "--config", str(place.config))
    assert run_python(*stop, cwd=ROOT, env=place.environ, timeout=BOUND).returncode == 0
    assert ends_in(log) == ["mcp-actors stop"]


@pytest.mark.parametrize(
    ("words", "numbers", "code", "why"),
    [
        (["--stdio"], [], 0, "the client over stdin has left"),
        (["--socket", "{short}/s", "--idle", "0.01"], [], 0, "no client for 0.01 s"),
        (["--socket", "{short}/s"], [signal.SIGINT], 0, "SIGINT; calls in flight are finished first"),
        (["--http", "127.0.0.1:0"], [signal.SIGTERM], 0, "SIGTERM; calls in flight are finished first"),
    ],
)
def test_each_end_of_a_gateway_is_one_line_of_its_log(
    words: list[str], numbers: list[signal.Signals], code: int, why: str, tmp_path: Path
) -> None:
    """D-101; a signal that asks for a reload or for nothing does not end it."""
    write(tmp_path / "mcp.json", a=LAZY)
    with serve(tmp_path, *words) as (program, stdin):
        os.close(stdin)
        for number in numbers:
            program.send_signal(number)
        assert program.wait(BOUND) == code
    assert ends_in(tmp_path / "log") == [why]


@pytest.mark.parametrize("words", [("--socket", "{short}/s"), ("--http", "127.0.0.1:0")])
def test_a_file_that_cannot_be_used_is_the_only_line_of_the_log(words: tuple[str, ...], tmp_path: Path) -> None:
    """D-101."""
    write(tmp_path / "mcp.json", odd={}, odder={})
    with serve(tmp_path, *words) as (program, _):
        assert program.wait(BOUND) == 78
    [line] = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("error: ")
    for name in ("odd", "odder"):
        assert f"{tmp_path}/mcp.json: mcpServers.{name}: neither 'command' nor 'url' is given" in line


@pytest.mark.parametrize("elsewhere", [(), ("stderr",)])
def test_a_gateway_ends_when_its_terminal_is_closed(elsewhere: tuple[str, ...], tmp_path: Path) -> None:
    """D-101: otherwise it would serve on without a Ctrl-C that ends it; a SIGHUP from elsewhere is for a reload."""
    write(tmp_path / ".mcp.json", a=LAZY)
    words = ("serve", "--http", "127.0.0.1:0", "--no-token")
    with terminal(tmp_path, *words, elsewhere=elsewhere) as window:
        window.wait_for("http://")
        window.process.send_signal(signal.SIGHUP)
        if elsewhere:
            wait_until(lambda: lines_with("reload: no change", tmp_path / "stderr"))
        else:
            window.wait_for("reload: no change")
        window.close()
        assert window.process.wait(BOUND) == 129
    if elsewhere:
        assert ends_in(tmp_path / "stderr") == ["SIGHUP; the terminal was closed"]


def test_a_gateway_without_servers_ends_when_its_terminal_is_closed(tmp_path: Path) -> None:
    """D-101: it ignores a SIGHUP from elsewhere only."""
    write(tmp_path / ".mcp.json", odd={})
    with terminal(tmp_path, "serve", "--stdio", elsewhere=("stderr",)) as window:
        wait_until(lambda: "error: " in (tmp_path / "stderr").read_text())
        window.close()
        assert window.process.wait(BOUND) == 129
    assert ends_in(tmp_path / "stderr") == ["SIGHUP; the terminal was closed"]


def test_under_nohup_a_gateway_outlives_its_terminal(tmp_path: Path) -> None:
    write(tmp_path / ".mcp.json", a=LAZY)
    words = ("serve", "--http", "127.0.0.1:0", "--no-token")
    with terminal(tmp_path, *words, deaf=True, elsewhere=("stderr",)) as window:
        window.wait_for("http://")
        window.close()
        wait_until(lambda: lines_with("reload: no change", tmp_path / "stderr"))
        window.process.send_signal(signal.SIGTERM)
        assert window.process.wait(BOUND) == 0


async def test_a_defect_that_ends_a_gateway_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """D-101."""
    caplog.set_level(logging.INFO)
    with pytest.raises(ExceptionGroup):
        async with _gateway.serving():
            raise KeyError("a")
    assert caplog.messages == ["mcp-actors ends: KeyError: 'a'"]


def test_a_client_over_stdin_hears_that_nothing_is_reloaded_if_nothing_is_served(tmp_path: Path) -> None:
    """D-101; without the servers of a file, SIGHUP is a line of the log."""
    write(tmp_path / "mcp.json", odd={})
    with serve(tmp_path, "--stdio") as (program, stdin):
        wait_until(lambda: "error: " in (tmp_path / "log").read_text())
        program.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP is ignored" in (tmp_path / "log").read_text())
        os.close(stdin)
        assert program.wait(BOUND) == 78


EARLY: Final = """
import os, signal, sys
from mcp_actors.cli import _start, main
def start():
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), number)
    return lambda words: 7
_start.start = start
main()
"""


@pytest.mark.parametrize("word", ["serve", "ui"])
def test_a_gateway_that_is_being_imported_outlives_the_signals_of_a_daemon(word: str) -> None:
    """D-101: a service that is reloaded as soon as it is started would be gone, and systemd would not restart it."""
    assert run_python("-c", EARLY, word, cwd=ROOT, timeout=BOUND).returncode == 7
    assert run_python("-c", EARLY, "check", cwd=ROOT, timeout=BOUND).returncode == -signal.SIGHUP


async def test_the_removal_of_a_server_whose_entry_had_a_mistake_names_its_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D-04."""
    caplog.set_level(logging.INFO)
    file = tmp_path / "mcp.json"
    write(file, a=LAZY, b=LAZY)
    async with opened(Daemon(), str(file), *load(str(file)), None) as found:
        for entries in {"a": {"args": []}, "b": LAZY}, {"b": LAZY}:
            write(file, **entries)
            await found.reload()
    assert f"{file}: removed 'a'" in caplog.messages


LATE = """
import os, signal, sys
from mcp_actors.cli import _start, main
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), numbers=(signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)):
        for number in numbers:
            kill(pid, number)
late = Late()
_start.start = lambda: lambda words: 7
main()
"""


def test_a_gateway_whose_python_ends_outlives_the_signals_of_a_daemon() -> None:
    """D-101: a service that is reloaded while it stops would have failed."""
    ends = [
        subprocess.run([sys.executable, "-c", LATE, word], cwd=ROOT, timeout=BOUND, check=False).returncode
        for word in ("serve", "check")  # in interpreters of their own, as forks do not end as these do
    ]
    assert ends == [7, -signal.SIGHUP]


async def test_a_variable_that_fits_no_server_is_one_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mcp.json"
    write(file, a=LAZY, own={"command": "true", "mcp_actors": {"isolation": "per-session"}})
    monkeypatch.setenv("MCP_ACTORS__OWN__COMMAND", "false")
    monkeypatch.setenv("MCP_ACTORS__DOCS__COMMAND", "false")
    async with opened(Daemon(), str(file), *load(str(file)), None) as found:
        assert found.gateway.front is not None
        assert [*found.gateway.front.group.errors] == ["MCP_ACTORS__DOCS__COMMAND"]
    [line] = [each for each in caplog.messages if "MCP_ACTORS__" in each]
    assert line.endswith("there is no server 'DOCS'; its servers are: a, own")
