"""The tasks that a group runs for itself come back after any failure, and show that they are down meanwhile."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import trio

from mcp_actors import Backoff, ConfigError, McpActorsError, _tasks, open_servers

from ..groups import server
from ..houses import House, absent
from ..processes import eventually
from .test_status import Told
from .written import Written, no_threads


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tasks, "AGAIN", Backoff(first=0.01, initial=0.01, maximum=0.05))


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


async def test_a_source_is_followed_again_when_threads_can_be_started(caplog: pytest.LogCaptureFixture) -> None:
    """C-21, C-22: and the edit of that time is applied."""
    table, house = Written("table", interval=0.01), House("here")
    async with open_servers(table, house.config(), watch=True) as group:
        async with no_threads(lambda: "table" in group.errors):
            table.write(absent("t", connect="lazy"))
            await trio.sleep(0.1)  # many attempts
            assert [*group] == ["here"]
            error = group.errors["table"]
            assert isinstance(error, McpActorsError)
            assert str(error) == (
                "table: following it has failed and is tried again: table: no thread could be started (can't start "
                "new thread); raise the limit of threads (ulimit -u) or of memory"
            )
            assert errors_of(caplog) == [str(error)]
            assert not group.failed
        await eventually(lambda: [*group] == ["t", "here"])
        await eventually(lambda: not group.errors)


async def test_states_are_written_again_when_threads_can_be_started(caplog: pytest.LogCaptureFixture) -> None:
    """C-21."""
    table = Told("a")
    table.interval = 0.01
    async with open_servers(table) as group:
        async with no_threads(lambda: "table (status)" in group.errors):
            number = len(table.written)
            [line] = errors_of(caplog)
            assert "table: writing the states of servers has failed and is tried again: table: no thread" in line
        await eventually(lambda: len(table.written) > number)
        await eventually(lambda: not group.errors)
    assert table.written[-1] == {"a": "stopped"}


async def test_catalogues_are_stored_again_when_they_can_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """C-21: also what was listed meanwhile, and without waiting for another listing."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    blocker, store = tmp_path / "cache", tmp_path / "cache" / "store"
    blocker.write_text("")
    async with open_servers(server("a"), catalog_store=store) as group:
        await eventually(lambda: "catalog_store" in group.errors)
        await trio.sleep(0.1)  # many attempts
        [line] = errors_of(caplog)
        assert f"writing to {store} has failed and is tried again: [Errno 20] Not a directory" in line
        blocker.unlink()
        await eventually(lambda: store.is_dir() and any(store.iterdir()))
        await eventually(lambda: not group.errors)
        assert "catalog_store: this works again" in caplog.messages


async def test_a_file_that_cannot_be_stored_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    """C-21."""
    async with open_servers(server("a"), catalog_store=tmp_path):
        await eventually(lambda: any(tmp_path.glob("*.json")))
    [file] = [Path(each) for each in os.scandir(tmp_path)]
    file.unlink()
    file.mkdir()
    async with open_servers(server("a"), server("b", "--tools", "1"), catalog_store=tmp_path) as group:
        await eventually(lambda: len([*tmp_path.glob("*.json")]) == 2)
        await eventually(lambda: "catalog_store" in group.errors)
        file.rmdir()
        await eventually(lambda: not group.errors)


async def test_a_group_opens_without_threads_to_read_its_sources(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C-21: what cannot be read is an error entry, or the error of the start if it is a file."""
    table, file = Written("table", (absent("t", connect="lazy"),)), tmp_path / "mcp.json"
    file.write_text("{}")
    async with no_threads():
        async with open_servers(table, absent("a", connect="lazy"), catalog_store=tmp_path) as group:
            assert [*group] == ["a"]
            await eventually(lambda: "catalog_store" in group.errors)
            assert [*group.errors] == ["table", "catalog_store"]
        assert f"catalog_store: reading {tmp_path} failed: no thread could be started" in caplog.text
        with pytest.raises(ConfigError, match=f"{file}: no thread could be started"):
            async with open_servers(file):
                raise AssertionError("unreachable")


async def test_a_source_whose_properties_fail_is_followed_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-21: whatever it raises; its text is not shown, as it may have credentials in it."""
    table, other = Written("table", interval=0.01), Written("other", interval=0.01)
    async with open_servers(table, other, watch=True) as group:
        table.interval = "hunter2"  # type: ignore[assignment]  # as a property of a source of the user may be
        await eventually(lambda: "table" in group.errors)
        other.write(absent("o", connect="lazy"))
        await eventually(lambda: [*group] == ["o"])
        assert "it raised TypeError (see the cause of this error)" in str(group.errors["table"])
        assert "hunter2" not in caplog.text
        table.interval = 0.01
        table.write(absent("t", connect="lazy"))
        await eventually(lambda: [*group] == ["t", "o"])
        await eventually(lambda: not group.errors)
