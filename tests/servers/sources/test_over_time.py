"""A group that follows its configuration for long: the program, the sources and the servers change meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import open_servers
from mcp_actors.config import FileSource

from ..houses import absent
from .written import lazy, save, use_no_threads

A_WHILE = 3600.0
"""Seconds of mock time in which everything is looked at many times."""


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    use_no_threads(monkeypatch)
    return autojump_clock


@pytest.mark.parametrize("how", ["opened", "reloaded", "source"])
async def test_a_relative_path_stays_where_it_was_given(
    how: str, clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of a directory that the program enters later are not run."""
    here, other = tmp_path / "here", tmp_path / "other"
    for folder, server in ((here, "a"), (other, "foreign")):
        folder.mkdir()
        save(folder / ".env", f"NAME={server}")
        document = lazy(server)
        document["mcpServers"][server]["command"] = "${NAME}"
        save(folder / "mcp.json", document)
    monkeypatch.chdir(here)
    given = FileSource("mcp.json", env_file=".env") if how == "source" else "mcp.json"
    first = absent("b", connect="lazy") if how == "reloaded" else given
    async with open_servers(first, watch=True, env_file=".env") as group:
        if how == "reloaded":
            await group.reload(given)
        for folder in (other, here):
            monkeypatch.chdir(folder)
            await trio.sleep(A_WHILE)
            summary = await group.reload()
            assert (summary.added, summary.changed, summary.unchanged) == ((), (), ("a",))
        assert not group.errors
