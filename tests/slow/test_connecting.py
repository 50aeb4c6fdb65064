"""Servers that take 8 to 45 s to start, with nothing configured; all of them at the same time."""

from __future__ import annotations

from pathlib import Path

import trio

from mcp_actors import ServerConfig, Stdio, open_servers

from ..servers.groups import command_with
from ..servers.links import text_of
from ..servers.test_eras import LATEST_LEGACY, MODERN

ERAS = {"legacy": LATEST_LEGACY, "modern": MODERN, "both": MODERN}
READS_LATE = (12, 21, 45)
RELAYED = (8, 45)
MARGIN = 20.0
"""Seconds that a machine with much to do takes to start fifteen interpreters."""


def late(folder: Path, era: str, seconds: int, *, relayed: bool) -> ServerConfig:
    """Configure a server that is there after some seconds, and the relay before it, if any, at once."""
    name = f"{era}-{'relayed' if relayed else 'reads-late'}-{seconds}"
    server = command_with("--log-file", str(folder / name), "--era", era, "--handshake")
    script = f"sleep {seconds}; exec {server}"
    script = f"echo start >> '{folder / name}.starts'; {f'cat | ({script})' if relayed else script}"
    return ServerConfig(name, Stdio("/bin/sh", ("-c", script)))


def starts(folder: Path) -> dict[str, int]:
    """Return how often each process was started, and the relay before it, if any."""
    return {path.stem: len(path.read_text().splitlines()) for path in folder.glob("*.starts")}


async def test_late_servers_are_started_once_and_spoken_to_in_their_era(tmp_path: Path) -> None:
    """B-01: the block waits for 30 s, and those that take longer go on."""
    configs = [late(tmp_path, era, seconds, relayed=False) for era in ERAS for seconds in READS_LATE]
    configs += [late(tmp_path, era, seconds, relayed=True) for era in ERAS for seconds in RELAYED]
    began = trio.current_time()
    async with open_servers(*configs) as servers:
        assert 30 <= trio.current_time() - began < 30 + MARGIN
        assert {ref.name for ref in servers.configured if ref.name.endswith("45")} <= {
            ref.name for ref in servers.configured if ref.state == "connecting"
        }
        assert not servers.failed
        with trio.fail_after(15 + MARGIN):
            for ref in servers.configured:
                await ref.wait_state("ready")
        for ref in servers.configured:
            assert ref.info.protocol_version == ERAS[ref.name.split("-")[0]], ref
            assert ref.statistics().incarnation == 1, ref
            assert text_of(await ref.call_tool("echo", {"text": "x"})) == "x"
    assert starts(tmp_path) == {config.name: 1 for config in configs}


async def test_a_late_server_that_is_required_is_waited_for(tmp_path: Path) -> None:
    """B-01: longer than anybody waits for one that is not."""
    configs = [late(tmp_path, "legacy", 45, relayed=relayed) for relayed in (False, True)]
    async with open_servers(*configs, strict=True) as servers:
        assert [ref.state for ref in servers.configured] == ["ready", "ready"]
    assert starts(tmp_path) == {config.name: 1 for config in configs}
