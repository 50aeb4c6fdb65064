"""Servers that are away for half a minute, with nothing configured."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from mcp_actors import open_servers

from ..servers.fleet import http_config, http_server
from ..servers.groups import Events, command_with, shell
from ..servers.links import text_of

AWAY = 22.0
"""Seconds: longer than five restarts last, which is 15 to 17."""

MARGIN = 20.0
"""Seconds that a machine with much to do takes to start what is to come back."""


async def test_servers_that_were_away_are_back_within_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B-08: one that refuses connections, and one that exits at its start, at the same time; each is logged once."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    fine, events = tmp_path / "fine", Events()
    exits = shell("exits", f"[ -e '{fine}' ] || exit 3; exec {command_with()}")
    with http_server() as (port, process):
        async with open_servers(http_config(port), exits, observers=[events]) as servers:
            process.kill()
            process.wait()
            await trio.sleep(AWAY)
            assert {ref.name: ref.state for ref in servers.failed} == {"web": "failed", "exits": "failed"}
            assert all(status.retry_at is not None for status in servers.status().values())
            fine.write_text("x")
            with http_server(port), trio.fail_after(60 + MARGIN):
                for ref in servers.configured:
                    await ref.wait_state("ready")
                assert text_of(await servers["web"].call_tool("echo", {"text": "back"})) == "back"
            assert servers.status()["exits"].restarts == 6
    told = [f"{each.levelname} {each.getMessage()}" for each in caplog.records if hasattr(each, "mcp_server")]
    assert [line.split()[0] for line in told if "'exits'" in line] == ["WARNING", "WARNING", "INFO"]
    assert [line.split()[0] for line in told if "'web'" in line][:4] == ["INFO", "WARNING", "WARNING", "WARNING"]
