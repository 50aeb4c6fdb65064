"""A group that follows its configuration for long: the program, the sources and the servers change meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import ConfigError, load_config, open_servers
from mcp_actors.config import FileSource
from mcp_actors.kernel import Event
from mcp_actors.servers import ConfigRejected, ServerAdded, ServerEvent, ServerRemoved
from mcp_actors.servers._sources import Merged, Sources

from ..groups import Events
from ..houses import absent
from ..scripted_server import command
from .written import A_WHILE, Hangs, Written, lazy, save


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
            await trio.sleep(A_WHILE / 30)
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


async def test_an_edit_does_not_wait_for_a_source_that_fails(clock: MockClock, file: Path) -> None:
    """A table behind a dead network takes many seconds for each question; its own task asks it again."""
    asked: list[float] = []

    class Table(Written):
        def look(self) -> Hashable:
            asked.append(trio.current_time())
            return super().look()

    table = Table("table", (absent("t", connect="lazy"),), interval=1000.0)
    save(file, lazy("a"))
    async with open_servers(table, file, watch=True) as group:
        table.fail("table: connection refused")
        await trio.sleep(1500)
        assert [*group.errors] == ["table"]
        before = len(asked)
        for name in ("b", "c"):
            save(file, lazy(name))
            await trio.sleep(5)
            assert ([*group], [*group.errors]) == (["t", name], ["table"])
        assert len(asked) == before
        table.write(absent("u", connect="lazy"))
        await trio.sleep(1000)
        assert ([*group], dict(group.errors)) == (["u", "c"], {})
        table.fail("table: connection refused")
        save(file, lazy("d"))
        await trio.sleep(5)  # it is asked once
        before = len(asked)
        await group.reload()
        assert len(asked) == before + 1


@pytest.mark.parametrize("reader", ["watch", "reload()", "reload(…)"])
async def test_an_older_reading_that_waited_for_a_hanging_source_is_not_applied(reader: str, clock: MockClock) -> None:
    """C-22."""
    table, over = Written("table", interval=1.0), trio.Event()
    first, second = Written("first", interval=1.0), Written("second", interval=1.0)
    events = Events()
    async with (
        open_servers(table, first, second, watch=True, observers=[events]) as group,
        trio.open_nursery() as nursery,
    ):
        table.error = Hangs(over)
        await trio.sleep(10)
        first.servers = (absent("old", connect="lazy"),)
        if reader == "watch":
            first.version += 1
            await trio.sleep(25)  # its reading waits for the table for 5 s more, and another one does not
        else:
            nursery.start_soon(group.reload, *([table, first, second] if "…" in reader else []))
            await trio.sleep(25)
        first.write(absent("new", connect="lazy"))
        second.write(absent("other", connect="lazy"))
        await trio.sleep(2)
        assert [*group] == ["new", "other"]
        before = len(added(events))
        table.error = None
        if reader != "watch":
            over.set()
        await trio.sleep(30)
        assert [*group] == ["new", "other"]
        assert added(events)[before:] == []
        over.set()


async def test_sources_may_be_replaced_while_they_are_read(clock: MockClock) -> None:
    """C-21: the reading has found one of them unchanged, and waits for another one."""
    sources, over = Sources(strict=False), trio.Event()
    config, table = Written("config", (absent("a", connect="lazy"),)), Written("table")
    sources.adopt(await sources.read((config, table)), (config, table))
    table.error = Hangs(over)
    read: list[Merged] = []

    async def follow() -> None:
        read.append(await sources.read((config, table), lenient=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.sleep(1)
        sources.adopt(await sources.read(()), ())
    assert [server.name for server in read[0].servers] == ["a"]


def added(events: Events) -> list[str]:
    return [event.server for event in events.of(ServerEvent) if isinstance(event, ServerAdded)]


@pytest.mark.parametrize("entry", [{"env": {"KEY": "${NOPE}"}}, {"command": "${NOPE}"}])
async def test_a_server_whose_new_entry_needs_a_variable_that_is_not_set_goes_on(
    entry: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-04: it is an entry that cannot be used, like one with a mistake."""
    monkeypatch.delenv("NOPE", raising=False)
    program, args = command()
    servers: dict[str, object] = {"command": program, "args": list(args)}
    async with open_servers(load_config({"mcpServers": {"a": servers}}), strict=True) as group:
        pid = group["a"].statistics().pid
        summary = await group.reload(load_config({"mcpServers": {"a": servers | entry}}))
        assert "'NOPE' is not set" in str(summary.failed["a"])
        assert (summary.changed, summary.unchanged, [*group.errors]) == ((), ("a",), ["a"])
        assert (group["a"].state, group["a"].statistics().pid) == ("ready", pid)
        summary = await group.reload(load_config({"mcpServers": {"a": servers}}))
        assert (summary.unchanged, dict(group.errors)) == (("a",), {})


async def test_the_errors_are_those_of_the_event(clock: MockClock, file: Path) -> None:
    """An observer that looks at `errors` sees what the event tells, of a whole file, of an entry and of a repair."""
    seen: list[tuple[str, list[str]]] = []

    def look(event: Event) -> None:
        if isinstance(event, ConfigRejected | ServerRemoved):
            seen.append((type(event).__name__, [*group.errors]))

    save(file, lazy("a", "b"))
    async with open_servers(file, watch=True, observers=[look]) as group:
        for document in ("{", lazy("a"), {"mcpServers": {"a": {"command": 7}}}, lazy("b")):
            save(file, document)
            await trio.sleep(A_WHILE)
    rejected = [("ConfigRejected", [str(file)]), ("ServerRemoved", []), ("ConfigRejected", ["a"])]
    assert seen == [*rejected, ("ServerRemoved", [])]
