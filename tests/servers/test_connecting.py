"""Servers that take their time: to start, to read, to answer. Real processes; the times are scaled down.

The same at default values is in ``tests/slow/test_connecting.py``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_actors import ConnectFailed, ServerConfig, ServerUnavailable, Stdio, open_servers
from tests.idle_clock import IdleClock
from tests.messages import Said

from .groups import AT_ONCE, BOUND, NEVER, command_with, shell, until
from .links import text_of
from .test_eras import LATEST_LEGACY, MODERN, PROBED, auto, negotiations

CONNECT = 3.0
"""How long callers wait for a server. The clock skips it, and then it is enough for a server on a loaded machine."""

TIMES: dict[str, Any] = {"connect_timeout": CONNECT, "startup_timeout": BOUND}


def late(log: Path, how: str, *flags: str, when: str, **options: Any) -> ServerConfig:
    """Configure a scripted server that begins to read, or is there at all, only after some line of shell."""
    server = command_with("--log-file", str(log), *flags)
    script = {
        "reads late": f"echo start >> '{log}.starts'; echo unpacking >&2; {when}; exec {server}",
        "is behind a relay": f"echo start >> '{log}.starts'; cat | (echo pulling the image >&2; {when}; exec {server})",
    }[how]
    return ServerConfig("a", Stdio("/bin/sh", ("-c", script)), **{"stop_timeout": 1.0, **TIMES, **options})


def starts(log: Path) -> int:
    """Return how often such a process was started, or the relay before it."""
    return len(Path(f"{log}.starts").read_text().splitlines())


@pytest.mark.parametrize("how", ["reads late", "is behind a relay"])
@pytest.mark.parametrize(("era", "version"), [("legacy", LATEST_LEGACY), ("modern", MODERN), ("both", MODERN)])
async def test_a_late_server_is_started_once_and_spoken_to_in_its_era(
    tmp_path: Path, how: str, era: str, version: str, idle_clock: IdleClock
) -> None:
    """B-01: at its first attempt; no caller waits longer than ``connect_timeout``."""
    log, go = tmp_path / "log", tmp_path / "go"
    async with open_servers(late(log, how, "--era", era, "--handshake", when=until(go), restarts=NEVER)) as servers:
        ref = servers["a"]
        assert ref.state == "connecting"
        assert (servers.connected, servers.failed, dict(servers.errors)) == ((), (), {})
        idle_clock.skips = False
        go.write_text("now")
        with trio.fail_after(BOUND):
            await ref.wait_state("ready")
        assert ref.info.protocol_version == version
        assert ref.statistics().incarnation == 1
        assert text_of(await ref.call_tool("echo", {"text": "x"})) == "x"
    assert len(negotiations(log)) == 1
    assert starts(log) == 1


async def test_callers_that_wait_for_a_late_server_see_its_last_line_of_stderr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, idle_clock: IdleClock
) -> None:
    """B-01: its last line of stderr is the reason of its state, of the warning, and of the error."""
    go = tmp_path / "go"
    async with open_servers(late(tmp_path / "log", "reads late", when=until(go))) as servers:
        ref = servers["a"]
        assert ref.statistics().reason == "unpacking"
        with pytest.raises(
            ServerUnavailable, match=r"still connecting after 3 s.*unpacking.*connect_timeout"
        ) as caught:
            await ref.wait_ready()
        assert caught.value.state == "connecting"
        idle_clock.skips = False
        go.write_text("now")
        with trio.fail_after(BOUND):
            await ref.wait_state("ready")
        assert ref.statistics().reason.startswith("connected, ")
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "server 'a': is still connecting after 3 s" in warning
    assert warning.endswith("unpacking")


async def test_a_process_that_says_nothing_may_not_be_a_server(
    caplog: pytest.LogCaptureFixture, idle_clock: IdleClock, said: Said
) -> None:
    async with open_servers(shell("a", "read x; sleep 60", **TIMES)) as servers:
        said("reason of a silent process", servers["a"].statistics().reason)
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    said("silent process", warning)


async def test_the_exit_of_a_late_servers_process_is_reported(
    caplog: pytest.LogCaptureFixture, idle_clock: IdleClock
) -> None:
    """B-05: it may be a wrapper, or it may have failed and left something that holds its pipes."""
    async with open_servers(shell("a", "exec 3<&0; sleep 60 <&3 & exit 0", **TIMES)) as servers:
        assert servers["a"].state == "connecting"
    assert "its process has exited, and only a child of it can be the server" in caplog.text


@pytest.mark.parametrize("script", ["sleep 60 & exit 3", "sleep 0.3; sleep 60 & exit 3", "read x; sleep 60 & exit 3"])
async def test_a_process_that_exits_and_leaves_no_reader_behind_fails_at_once(script: str) -> None:
    """B-05: what it has left behind holds its stdout, but has another stdin, so it cannot be the server."""
    config = shell("a", f"echo no key >&2; {script}", startup_timeout=60, connect_timeout=60, restarts=NEVER)
    with trio.fail_after(BOUND / 2):
        async with open_servers(config) as servers:
            assert isinstance(error := servers.errors["a"], ConnectFailed)
    assert error.exit_code == 3
    assert "exited with code 3" in str(error)
    assert str(error).endswith("no key")


async def test_restarting_or_starting_a_late_server_does_not_wait_for_it(tmp_path: Path, idle_clock: IdleClock) -> None:
    """B-01: no caller waits longer than ``connect_timeout`` for a server that is not required."""
    go = tmp_path / "go"
    go.write_text("now")
    async with open_servers(late(tmp_path / "log", "reads late", when=until(go))) as servers:
        ref = servers["a"]
        await ref.wait_state("ready")
        go.unlink()
        with trio.fail_after(BOUND / 2):
            await ref.restart()
            assert ref.state == "connecting"
            await ref.restart()  # this one waits for its turn, and no longer than for the other
            await ref.stop()
            await ref.start()
        assert ref.state == "connecting"
        idle_clock.skips = False
        go.write_text("now")
        with trio.fail_after(BOUND):
            await ref.wait_state("ready")


@pytest.mark.parametrize("how", ["reads late", "is behind a relay"])
async def test_a_server_that_is_required_is_waited_for_until_it_is_there(
    tmp_path: Path, how: str, idle_clock: IdleClock
) -> None:
    """B-01: strict or required."""
    go = tmp_path / "go"

    async def let_it_go() -> None:
        await trio.sleep(2 * CONNECT)
        idle_clock.skips = False
        go.write_text("now")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_it_go)
        async with open_servers(late(tmp_path / "log", how, when=until(go)), strict=True) as servers:
            assert servers["a"].state == "ready"


@pytest.mark.parametrize("era", ["modern", "both"])
async def test_a_slow_machine_makes_no_legacy_server_of_a_modern_one(
    tmp_path: Path, era: str, idle_clock: IdleClock
) -> None:
    """B-01: it has read the question, and been sent ``initialize``, long before it comes to answer."""
    log = tmp_path / "log"
    flags = ("--log-file", str(log), "--era", era, "--discover-delay", "0.7")
    program = Stdio("/bin/sh", ("-c", f"exec {command_with(*flags)}"))
    # Without an end of its time, which the clock would skip to while the server sleeps.
    config = ServerConfig("a", program, connect_timeout=CONNECT, startup_timeout=None, required=True)
    async with open_servers(config) as servers:
        assert servers["a"].info.protocol_version == MODERN
        await servers["a"].restart()
        assert servers["a"].info.protocol_version == MODERN
    assert negotiations(log) == [PROBED, []]


async def test_an_era_chosen_without_an_answer_is_logged_and_not_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, idle_clock: IdleClock
) -> None:
    """B-02: it may only have been slow, so the next connect asks again."""
    log, mute = tmp_path / "log", tmp_path / "mute"
    mute.touch()
    server = command_with("--log-file", str(log), "--era", "both")
    script = f"if [ -e '{mute}' ]; then exec {server} --on-discover ignore; fi; exec {server}"
    config = ServerConfig("a", Stdio("/bin/sh", ("-c", script)), connect_timeout=BOUND, required=True, restarts=AT_ONCE)
    async with open_servers(config) as servers:
        assert servers["a"].info.protocol_version == LATEST_LEGACY
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert [text for text in warnings if "'a'" in text and "protocol='legacy'" in text]
        mute.unlink()
        await servers["a"].restart()
        assert servers["a"].info.protocol_version == MODERN
    assert negotiations(log) == [PROBED, ["server/discover"]]


# --- What is remembered from run to run -----------------------------------------------------------------------------


async def test_a_server_that_exits_at_discover_does_so_once_and_not_at_every_start(tmp_path: Path) -> None:
    """B-01: what was found out is kept with its catalogue."""
    log, store = tmp_path / "log", tmp_path / "store"
    config = auto(log, "--handshake", "--on-discover", "die", connect_timeout=BOUND, required=True)
    for _ in range(2):
        async with open_servers(config, catalog_store=store) as servers:
            assert servers["a"].info.protocol_version == LATEST_LEGACY
    assert negotiations(log) == [["server/discover"], ["initialize"], ["initialize"]]


async def test_another_version_of_such_a_server_is_asked_again(tmp_path: Path) -> None:
    """B-01: when that is connected, it is known to be another."""
    log, store = tmp_path / "log", tmp_path / "store"
    versions = tmp_path / "flags"
    server = command_with("--log-file", str(log))
    script = f"exec {server} $(cat '{versions}')"
    config = ServerConfig("a", Stdio("/bin/sh", ("-c", script)), connect_timeout=BOUND, required=True)
    spoken = []
    for flags in ("--name old --on-discover die", "--name new --era both", "--name new --era both"):
        versions.write_text(flags)
        async with open_servers(config, catalog_store=store) as servers:
            spoken.append(servers["a"].info.protocol_version)
    assert spoken == [LATEST_LEGACY, LATEST_LEGACY, MODERN]
    assert negotiations(log) == [["server/discover"], ["initialize"], ["initialize"], ["server/discover"]]


async def test_an_era_chosen_without_an_answer_is_not_kept_with_the_catalogue(
    tmp_path: Path, idle_clock: IdleClock
) -> None:
    """B-02: it counts for that connection only."""
    log, store = tmp_path / "log", tmp_path / "store"
    config = auto(log, "--on-discover", "ignore", required=True)
    for _ in range(2):
        async with open_servers(config, catalog_store=store) as servers:
            assert servers["a"].info.protocol_version == LATEST_LEGACY
    assert negotiations(log) == [PROBED, PROBED]


async def test_a_server_that_was_killed_did_not_end_at_the_question(tmp_path: Path) -> None:
    """B-01: a machine that is short of memory makes no legacy server of a modern one."""
    log, killed = tmp_path / "log", tmp_path / "killed"
    server = command_with("--log-file", str(log), "--era", "both")
    script = f"[ -e '{killed}' ] && exec {server}; touch '{killed}'; read question; kill -KILL $$"
    config = ServerConfig("a", Stdio("/bin/sh", ("-c", script)), connect_timeout=BOUND, restarts=AT_ONCE)
    async with open_servers(config) as servers:
        with trio.fail_after(BOUND):
            await servers["a"].wait_state("ready")
        assert servers["a"].info.protocol_version == MODERN
        assert servers["a"].statistics().incarnation == 2
