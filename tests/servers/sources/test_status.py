"""The states of servers in the table next to the one that they come from."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcp_actors import LoadedConfig, open_servers
from mcp_actors.config import SqliteSource
from mcp_actors.config._tables import TableSource

from ..houses import House


class Told(TableSource):
    """A table that keeps what is written into it, and may refuse it."""

    name = "table"

    def __init__(self, *names: str) -> None:
        super().__init__(10.0, "here")
        self.names = names
        self.houses: dict[str, House] = {}
        self.written: list[dict[str, str | None]] = []
        self.error: Exception | None = None

    def create_tables(self) -> None: ...

    def write_status(self, statuses: Mapping[str, str | None]) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(dict(statuses))

    def _rows(self) -> Iterator[tuple[object, object, object]]:
        return ((name, "{}", True) for name in self.names)

    def read(self) -> tuple[LoadedConfig, ...]:
        servers = tuple(self.houses.setdefault(name, House(name)).config(source=self.name) for name in self.names)
        return (LoadedConfig(servers, source=self.name),)


async def test_states_are_written_when_they_change_and_as_a_sign_of_life(clock: MockClock) -> None:
    table = Told("a", "b")
    async with open_servers(table, House("other").config(), watch=True) as group:
        await trio.sleep(1)
        assert table.written == [{"a": "pending", "b": "pending"}, {"a": "ready", "b": "ready"}]
        await group["a"].stop()
        await trio.sleep(1)
        assert table.written[2:] == [{"a": "stopped", "b": "ready"}]
        table.names = ("b",)
        await trio.sleep(9)
        assert {"b": "ready", "a": None} in table.written
        number = len(table.written)
        await trio.sleep(30)
        assert 2 <= len(table.written) - number <= 3
        assert table.written[-1] == {"b": "ready"}
    assert table.written[-1] == {"b": "stopped"}


async def test_states_are_written_into_a_table_that_a_reload_adds_until_its_servers_are_gone(clock: MockClock) -> None:
    first, second = Told("a"), Told("b", "c")
    second.name = "second"
    async with open_servers(House("other").config()) as group:
        await group.reload(first)
        await trio.sleep(1)
        assert first.written[-1] == {"a": "ready"}
        await group.reload(first, second)
        await group["a"].stop()
        await trio.sleep(1)
        assert (first.written[-1], second.written[-1]) == ({"a": "stopped"}, {"b": "ready", "c": "ready"})
        await group.reload(second)
        await trio.sleep(20)
        assert first.written[-1] == {"a": None}
        number = len(first.written)
        await group.reload(second, House("other").config())
        await trio.sleep(20)
        assert len(first.written) == number
    assert second.written[-1] == {"b": "stopped", "c": "stopped"}
    assert len(first.written) == number


async def test_states_are_written_under_the_name_that_a_reload_gives_to_this_program(clock: MockClock) -> None:
    before, after = Told("a"), Told("a")
    after.houses = before.houses
    async with open_servers(before) as group:
        await trio.sleep(1)
        await group.reload(after)
        await group["a"].stop()
        await trio.sleep(1)
        assert (before.written[-1], after.written[-1]) == ({"a": "ready"}, {"a": "stopped"})


async def test_a_table_that_cannot_be_written_is_logged_once(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    table = Told("a")
    table.error = OSError("hunter2")
    async with open_servers(table):
        await trio.sleep(100)
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "the states of servers could not be written"
        ]
        assert "hunter2" not in caplog.text
        table.error = None
        await trio.sleep(100)
        assert table.written[0] == {"a": "ready"}


async def test_nothing_is_written_unless_an_instance_is_named(clock: MockClock) -> None:
    table = Told("a")
    table.instance = None
    async with open_servers(table):
        await trio.sleep(100)
    assert not table.written


async def test_a_database_that_hangs_delays_the_end_for_two_seconds(mock_clock: MockClock) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Hanging(Told):
        def write_status(self, statuses: Mapping[str, str | None]) -> None:
            entered.set()
            go_on.wait()

    begun = trio.Event()
    ended = trio.Event()

    async def program() -> None:
        async with open_servers(Hanging("a")):
            await trio.to_thread.run_sync(entered.wait)
            begun.set()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(program)
        await begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert not ended.is_set()
        mock_clock.jump(2.0)
        await ended.wait()
        go_on.set()


async def test_a_real_table_has_the_states_of_its_servers(tmp_path: Path) -> None:
    file = tmp_path / "servers.db"
    source = SqliteSource(file, instance="here")
    source.create_tables()
    with closing(sqlite3.connect(file)) as connection:
        spec = json.dumps({"command": "/nowhere/at-all", "mcp_actors": {"connect": "lazy"}})
        connection.execute("INSERT INTO mcp_servers (name, spec) VALUES ('a', ?)", (spec,))
        connection.commit()
        async with open_servers(source) as group:
            assert [*group] == ["a"]
        found = connection.execute("SELECT name, instance, status FROM mcp_server_status").fetchall()
    assert found == [("a", "here", "stopped")]


async def test_states_are_written_into_the_table_that_gives_a_server_now(clock: MockClock) -> None:
    """Also if both tables say the same of it, so that it is not connected again."""
    first, second = Told("a"), Told("a")
    second.name, second.houses = "second", first.houses
    async with open_servers(first, second, watch=True) as group:
        await trio.sleep(1)
        assert (first.written[-1], second.written) == ({"a": "ready"}, [{}])
        first.names = ()
        await trio.sleep(20)
        assert (first.written[-1], second.written[-1]) == ({}, {"a": "ready"})
        assert group["a"].statistics().source == "second"
        assert first.houses["a"].starts == 1
