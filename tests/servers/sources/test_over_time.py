"""A group that follows its configuration for long: the program, the sources and the servers change meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import ConfigError, open_servers
from mcp_actors.config import FileSource

from ..houses import absent
from .written import A_WHILE, Written, lazy, save


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


async def test_a_refused_change_that_is_taken_back_leaves_the_errors(clock: MockClock) -> None:
    """C-22."""
    table = Written("table", (absent("a", connect="lazy"),))
    async with open_servers(table, watch=True, max_servers=1) as group:
        table.write(absent("a", connect="lazy"), absent("b", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert len(group.errors) == 1
        table.write(absent("a", connect="lazy"))
        table.version = 1  # the very same content
        await trio.sleep(A_WHILE)
        assert not group.errors
        reads = table.reads
        await trio.sleep(A_WHILE)
        assert table.reads == reads


async def test_a_server_that_an_added_one_has_hidden_comes_when_that_is_removed(clock: MockClock, file: Path) -> None:
    """C-22, C-25."""
    save(file, lazy("a"))
    async with open_servers(file, watch=True) as group:
        await group.add(absent("x", connect="lazy"))
        save(file, lazy("a", "x"))
        await trio.sleep(A_WHILE)
        added = group["x"]
        await group.remove("x")
        await trio.sleep(A_WHILE)
        assert [*group] == ["a", "x"]
        assert group["x"] is not added


async def test_a_source_that_fails_a_thousand_times_is_still_followed(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """C-21."""
    table = Written("table", (absent("a", connect="lazy"),))
    table.error = ConfigError("away")
    async with open_servers(table, watch=True) as group:
        await trio.sleep(1100 * table.interval)
        assert [str(error) for error in group.errors.values()] == ["away"]
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
        table.write(absent("b", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["b"]
