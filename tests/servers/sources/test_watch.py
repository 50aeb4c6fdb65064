"""A group that follows its configuration: files, and sources that cannot be reached for a while."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Hashable
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import ConfigError, LoadedConfig, ServerGroup, open_servers
from mcp_actors.config import DirectorySource, FileSource, Rank
from mcp_actors.servers import ConfigChanged, ConfigRejected, ServerAdded, ServerEvent, ServerRemoved

from ..fleet import Outcome
from ..groups import FOR_A_WHILE, Events, Fault
from ..houses import House, absent, who
from .written import A_WHILE, MANIFEST, Hangs, Parts, Twice, Written, lazy, no_descriptors, save

KEPT = "; servers that run keep their configuration"
"""What a warning about a source ends with."""


def changes(events: Events) -> list[str]:
    """Return the events about the set of servers."""
    kinds = (ServerAdded, ServerRemoved, ConfigChanged)
    return [f"{type(event).__name__} {event.server}" for event in events.of(ServerEvent) if isinstance(event, kinds)]


def rejected(events: Events) -> list[str]:
    return [str(event.error) for event in events.of(ConfigRejected)]


# --- files ----------------------------------------------------------------------------------------------------------


async def test_a_changed_file_is_applied_and_the_others_notice_nothing(clock: MockClock, file: Path) -> None:
    """S3-15, S3-16."""
    events = Events()
    save(file, lazy("a", "b"))
    house = House("here")
    async with open_servers(house.config(), file, watch=True, observers=[events]) as group:
        before = dict(group)
        save(file, lazy("c", "a"))
        await trio.sleep(2)
        assert [*group] == ["here", "c", "a"]
        assert group["a"] is before["a"]
        assert group["here"].statistics().incarnation == 1
        assert await who(group, "here") == "here"
        await trio.sleep(A_WHILE)
    assert changes(events) == ["ServerRemoved b", "ServerAdded c"]


async def test_an_edit_while_the_servers_start_is_applied_once_they_are_there(clock: MockClock, file: Path) -> None:
    events, slow = Events(), House("slow")
    slow.entered = trio.Event()
    save(file, lazy("a", "b"))

    async def edit() -> None:
        await trio.sleep(2)
        save(file, lazy("a", "c"))
        await trio.sleep(5)
        slow.entered.set()

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + 60
        nursery.start_soon(edit)
        async with open_servers(slow.config(), file, watch=True, observers=[events]) as group:
            assert [*group] == ["slow", "a", "b"]
            await trio.sleep(2)
            assert [*group] == ["slow", "a", "c"]
            assert not group.errors
            assert await who(group, "slow") == "slow"
    assert changes(events) == ["ServerRemoved b", "ServerAdded c"]


async def test_a_file_is_not_followed_unless_that_is_asked_for(clock: MockClock, file: Path) -> None:
    save(file, lazy("a"))
    async with open_servers(file) as group:
        save(file, lazy("b"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["a"]


async def test_a_replaced_file_of_the_same_size_and_time_is_noticed(clock: MockClock, file: Path) -> None:
    """Editors write a new file and rename it; tools may even keep its time."""
    save(file, lazy("a"))
    written = os.stat(file).st_mtime_ns
    async with open_servers(file, watch=True) as group:
        other = file.with_name("other")
        save(other, lazy("b"))
        os.utime(other, ns=(written, written))
        os.replace(other, file)
        await trio.sleep(2)
        assert [*group] == ["b"]


async def test_a_file_that_does_not_parse_changes_nothing_and_is_reported_once(
    clock: MockClock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each content: an event, a log record, and an entry in `errors` until the file is right again."""
    events = Events()
    save(file, lazy("a"))
    async with open_servers(file, watch=True, observers=[events]) as group:
        save(file, '{"mcpServers": ')
        await trio.sleep(A_WHILE)
        assert [*group] == ["a"]
        assert [*group.errors] == [str(file)]
        assert len(rejected(events)) == len(caplog.messages) == 1
        assert "not valid JSON" in caplog.text
        assert caplog.messages[0].endswith(KEPT)
        save(file, '{"mcpServers":  ')  # another content with the same error
        await trio.sleep(A_WHILE)
        assert len(rejected(events)) == len(caplog.messages) == 2
        save(file, lazy("a", "b"))
        await trio.sleep(2)
        assert [*group] == ["a", "b"]
        assert not group.errors
        os.unlink(file)
        await trio.sleep(A_WHILE)
        assert [*group] == ["a", "b"]
        assert len(rejected(events)) == 3
        assert "file not found" in rejected(events)[2]
        save(file, lazy("a", "c"))
        await trio.sleep(2)
        assert [*group] == ["a", "c"]
    assert changes(events) == ["ServerAdded b", "ServerRemoved b", "ServerAdded c"]


async def test_one_wrong_entry_leaves_its_server_alone_and_is_reported_once(
    clock: MockClock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    table = Written("table", (absent("t", connect="lazy"),))
    save(file, lazy("a", "b"))
    async with open_servers(table, file, watch=True, observers=[events]) as group:
        save(file, {"mcpServers": {"a": {"command": 7}, **lazy("c")["mcpServers"]}})
        await trio.sleep(2)
        assert [*group] == ["t", "c", "a"]
        table.write(absent("u", connect="lazy"))  # everything is read again, and nothing is reported again
        await trio.sleep(A_WHILE)
        assert [*group] == ["u", "c", "a"]
    assert len(rejected(events)) == len(caplog.messages) == 1


async def test_a_required_entry_that_is_wrong_changes_nothing(
    clock: MockClock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    save(file, lazy("a"))
    async with open_servers(file, watch=True, observers=[events]) as group:
        save(file, {"mcpServers": {"x": {"required": True}, **lazy("b")["mcpServers"]}})
        await trio.sleep(A_WHILE)
        assert [*group] == ["a"]
    assert len(rejected(events)) == len(caplog.messages) == 1
    assert caplog.messages[0].startswith("not reloaded, so all servers stay as they are: ")


async def test_a_change_that_is_being_written_is_not_read_before_it_rests(clock: MockClock) -> None:
    source = Written("file", (absent("a", connect="lazy"),), settles=True, interval=1.0)
    async with open_servers(source, watch=True) as group:
        source.write(absent("b", connect="lazy"))
        source.looks = [10, 11, 12]
        await trio.sleep(1.5)  # looks at 1.0, 1.2 and 1.4 s; the next one is the first that is the same twice
        assert source.reads == 1
        await trio.sleep(0.5)
        assert [*group] == ["b"]
        assert source.reads == 2


async def test_a_file_that_is_written_all_the_time_is_read_all_the_same(clock: MockClock) -> None:
    source = Written("file", (absent("a", connect="lazy"),), settles=True, interval=1.0)
    async with open_servers(source, watch=True) as group:
        source.write(absent("b", connect="lazy"))
        source.looks = [*range(10, 1000)]
        await trio.sleep(6.5)
        assert [*group] == ["b"]


async def test_a_changed_env_file_is_a_change_of_the_configuration(clock: MockClock, file: Path) -> None:
    env_file = file.with_name(".env")
    save(env_file, "NAME=one")
    save(file, {"mcpServers": {"a": {"command": "${NAME}", "mcp_actors": {"connect": "lazy"}}}})
    events = Events()
    async with open_servers(file, watch=True, env_file=env_file, observers=[events]):
        save(env_file, "NAME=other")
        await trio.sleep(2)
        assert changes(events) == ["ConfigChanged a"]
        save(env_file, "NAME")
        await trio.sleep(A_WHILE)
        assert [str(env_file) in text for text in rejected(events)] == [True]
    assert changes(events) == ["ConfigChanged a"]


# --- sources --------------------------------------------------------------------------------------------------------


async def test_a_source_that_cannot_be_reached_keeps_what_it_gave_last(
    clock: MockClock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S2-19: it is reported once, and the changes of the others are applied meanwhile."""
    events = Events()
    table = Written("table", (absent("t", connect="lazy"),))
    save(file, lazy("a"))
    async with open_servers(table, file, watch=True, observers=[events]) as group:
        before = group["t"]
        table.fail("table: connection refused")
        await trio.sleep(A_WHILE)
        assert str(group.errors["table"]) == "table: connection refused"
        save(file, lazy("b"))
        await trio.sleep(2)
        assert [*group] == ["t", "b"]
        assert group["t"] is before
        assert (await group.reload()).unchanged == ("t", "b")
        assert rejected(events) == ["table: connection refused"]
        assert caplog.messages[0] == f"table: connection refused{KEPT}"
        table.write(absent("u", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["u", "b"]
        assert not group.errors


async def test_a_source_that_cannot_be_reached_at_the_start_is_an_error_entry(clock: MockClock) -> None:
    """S2-19: the others serve, and its servers appear when it can be reached."""
    table = Written("table")
    table.fail("table: connection refused")
    house = House("here")
    async with open_servers(table, house.config(), watch=True) as group:
        assert [*group] == ["here"]
        assert [*group.errors] == ["table"]
        table.write(absent("t", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["t", "here"]
        assert not group.errors
    table.fail("table: connection refused")
    with pytest.raises(ConfigError, match="connection refused"):
        async with open_servers(table, strict=True):
            raise AssertionError("unreachable")


# --- no edit is lost ------------------------------------------------------------------------------------------------


async def test_an_edit_whose_reading_failed_is_read_again_although_the_file_looks_the_same(
    clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C-22: for want of a file descriptor, of which no look needs one."""
    events, file, yaml = Events(), tmp_path / "mcp.json", tmp_path / "servers.d"
    yaml.mkdir()
    save(file, lazy("a"))
    async with open_servers(file, DirectorySource(yaml), watch=True, observers=[events]) as group:
        save(file, lazy("b"))
        save(yaml / "c.yaml", MANIFEST)
        with no_descriptors():
            await trio.sleep(300)
            assert [*group] == ["a"]
            assert "Too many open files" in str(group.errors[str(file)])
        await trio.sleep(60)
        assert [*group] == ["b", "c"]
        assert not group.errors
    assert len(rejected(events)) == len(caplog.messages) == 2
    assert sorted(changes(events)) == ["ServerAdded b", "ServerAdded c", "ServerRemoved a"]


async def test_one_file_of_a_directory_that_could_not_be_read_is_read_again(clock: MockClock, tmp_path: Path) -> None:
    """C-22: the descriptor for the list of the files was there, the one for the file was not."""
    parts = [LoadedConfig((), source="d/a", failed={"d/a": ConfigError("d/a: Too many open files")})]
    source = Parts("d", parts=parts, interval=1.0)
    async with open_servers(source, watch=True) as group:
        source.parts = [LoadedConfig((absent("a", connect="lazy"),), source="d/a")]
        await trio.sleep(60)
        assert [*group] == ["a"]


async def test_an_edit_is_not_lost_when_another_file_is_refused(
    clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C-22: nothing is applied until that one is right, and then both are; meanwhile `errors` says why."""
    events, one, other = Events(), tmp_path / "one.json", tmp_path / "other.json"
    save(one, lazy("a"))
    save(other, lazy("x"))
    async with open_servers(one, other, watch=True, observers=[events]) as group:
        save(other, {"mcpServers": {"x": {"required": True}}})
        await trio.sleep(60)
        save(one, lazy("b"))
        await trio.sleep(600)
        assert [*group] == ["a", "x"]
        assert [*group.errors] == [str(other)]
        assert len(rejected(events)) == len(caplog.messages) == 2  # once for each content
        save(other, lazy("y"))
        await trio.sleep(60)
        assert [*group] == ["b", "y"]
        assert not group.errors


async def test_an_edit_is_not_lost_when_its_reading_is_dropped(clock: MockClock, file: Path) -> None:
    """C-22: a reload with other arguments has read the file before that edit, and is applied after it."""
    slow, new = House("slow"), Written("new")
    slow.entered = trio.Event()
    save(file, lazy("a"))
    async with open_servers(FileSource(file), watch=True) as group, trio.open_nursery() as nursery:
        adding = Outcome()
        nursery.start_soon(adding.of, group.add, slow.config(required=True))
        await wait_all_tasks_blocked()
        nursery.start_soon(group.reload, FileSource(file), new)
        await wait_all_tasks_blocked()
        save(file, lazy("b"))
        await trio.sleep(5)
        assert [*group] == ["a"]
        slow.entered.set()
        await trio.sleep(5)
        assert [*group] == ["b"]


async def test_permissions_count_as_an_edit(tmp_path: Path) -> None:
    """C-22: `chmod` makes a file readable that was not, and changes nothing else of it."""
    file = tmp_path / "a.yaml"
    save(file, MANIFEST)
    sources = (FileSource(file), DirectorySource(tmp_path))
    before = [source.look() for source in sources]
    file.chmod(0)
    between = [source.look() for source in sources]
    file.chmod(0o600)
    after = [source.look() for source in sources]
    for looks in zip(before, between, after, strict=True):
        assert len(set(looks)) == 3


async def test_a_look_waits_until_the_next_edit_gets_another_time(file: Path) -> None:
    """C-22: two edits of the same size within one tick of the clock of files would look the same."""
    save(file, lazy("a"))
    FileSource(file).look()
    assert time.time() - os.stat(file).st_ctime >= 0.01


async def test_a_reading_of_replaced_sources_is_not_applied(clock: MockClock) -> None:
    """C-22: a reload was asked for first, and waits for its turn."""
    slow = House("slow")
    slow.entered = trio.Event()
    old, new = Written("old", (absent("a", connect="lazy"), absent("b", connect="lazy")), interval=1.0), Written("new")
    async with open_servers(old, watch=True) as group, trio.open_nursery() as nursery:
        adding = Outcome()
        nursery.start_soon(adding.of, group.add, slow.config(required=True))
        await wait_all_tasks_blocked()
        new.servers = (absent("n", connect="lazy"),)
        nursery.start_soon(group.reload, new)
        await wait_all_tasks_blocked()
        old.write(absent("o", connect="lazy"))
        await trio.sleep(1.5)
        assert (old.reads, [*group]) == (2, ["a", "b"])
        slow.entered.set()
        await trio.sleep(A_WHILE)
        assert [*group] == ["n"]


# --- what is logged, and what is left alone ------------------------------------------------------------------------


async def test_each_applied_change_is_one_line_with_its_source_names_and_fields(
    clock: MockClock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C-24: without any value; `add` and `remove` have theirs."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    table = Written("table", (absent("t", connect="lazy"),))
    save(file, lazy("a", "b"))
    async with open_servers(table, file, watch=True) as group:
        [entry] = lazy("b")["mcpServers"].values()
        settings = {"connect": "lazy", "request_timeout": 7}
        changed = {**entry, "env": {"TOKEN": "hunter2"}, "mcp_actors": settings}
        save(file, {"mcpServers": {"b": changed, **lazy("c", "d")["mcpServers"]}})
        await trio.sleep(2)
        await group.add(absent("x", connect="lazy"))
        await group.remove("x")
        assert [each.getMessage() for each in caplog.records if each.levelno == logging.INFO] == [
            f"{file}: added 'c', 'd'; changed 'b' (transport, request_timeout); removed 'a'",
            "add(): added 'x'",
            "remove(): removed 'x'",
        ]
        caplog.clear()
        await trio.sleep(A_WHILE)
        assert caplog.messages == []
        table.write()
        await trio.sleep(60)
        [line] = caplog.records
        text = "table: removed 't', all the servers that it had; check that it is empty on purpose"
        assert (line.levelno, line.getMessage()) == (logging.WARNING, text)
        assert "hunter2" not in caplog.text


async def test_a_source_that_is_not_given_any_more_has_not_lost_its_servers(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """C-24: nor has one whose servers another source has now."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    one, other = Written("one", (absent("a", connect="lazy"),)), Written("other", (absent("b", connect="lazy"),))
    async with open_servers(one, watch=True) as group:
        await group.reload(other)
        assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
            ("INFO", "other: added 'b'"),
            ("INFO", "one: removed 'a'"),
        ]


async def test_sources_leave_added_servers_alone(clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """C-25: neither a change of a source nor a reload of the sources removes or changes them."""
    house, table = House("a"), Written("table", (absent("t", connect="lazy"),))
    async with open_servers(table, watch=True, max_servers=3) as group:
        ref = await group.add(house.config())
        table.write(absent("u", connect="lazy"))
        await trio.sleep(60)
        table.write(absent("u", connect="lazy"), absent("a", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["u", "a"]
        assert (group["a"] is ref, ref.statistics().incarnation, await who(group, "a")) == (True, 1, "a")
        assert caplog.messages == [
            "server 'a': table is ignored for it, because add() added one of this name; rename or remove one of the two"
        ]
        assert (await group.reload()).unchanged == ("u", "a")
        table.write(*(absent(name, connect="lazy") for name in "uvw"))
        await trio.sleep(60)
        assert [*group] == ["u", "a"]  # they count for max_servers
        table.write(absent("u", connect="lazy"), absent("a", connect="lazy"))
        await trio.sleep(60)
        await group.remove("a")
        table.version += 1
        await trio.sleep(60)
        assert [*group] == ["u", "a"]  # the one of the table, now that its name is free
        assert group["a"].state == "pending"
        assert (await group.reload(House("b").config())).removed == ("u", "a")


# --- intervals, and other ways to fail ------------------------------------------------------------------------------


async def test_sources_are_looked_at_by_their_own_intervals(clock: MockClock) -> None:
    """S2-22."""
    table = Written("table", interval=300.0)
    async with open_servers(table, watch=True) as group:
        table.write(absent("t", connect="lazy"))
        await trio.sleep(299)
        assert not group
        await trio.sleep(2)
        assert [*group] == ["t"]


async def test_an_explicit_reload_replaces_what_is_followed(clock: MockClock) -> None:
    old, new = Written("old"), Written("new")
    async with open_servers(old, watch=True) as group:
        await group.reload(new)
        old.write(absent("a", connect="lazy"))
        new.write(absent("b", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["b"]
        assert old.reads == 1


async def test_a_reading_that_the_group_refuses_changes_nothing(clock: MockClock) -> None:
    """Neither the servers, nor what is followed, nor what a source is taken to have given last."""
    many = tuple(absent(name, connect="lazy") for name in "cde")
    old, new = Written("old", (absent("a", connect="lazy"),)), Written("new", many)
    events = Events()
    async with open_servers(old, watch=True, max_servers=2, observers=[events]) as group:
        with pytest.raises(ConfigError, match="max_servers"):
            await group.reload(new)
        old.write(absent("b", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["b"]
        old.write(*many)
        await trio.sleep(A_WHILE)
        assert [*group] == ["b"]
        assert ["max_servers" in text for text in rejected(events)] == [True]
        old.fail("old: connection refused")
        await trio.sleep(A_WHILE)
        assert [*group] == ["b"]
        assert [*group.errors] == ["old"]


@pytest.mark.parametrize("how", ["adds", "changes"])
async def test_a_required_server_that_cannot_be_connected_is_failed_and_tried_again(
    how: str, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """C-23: such a change has no caller that handles an error, and the server may be back in an hour."""
    table, fault = Written("table", (House("t").config(),) if how == "changes" else ()), Fault()
    fault.on_enter = RuntimeError("not today")
    config = fault.config("t", required=True, restarts=FOR_A_WHILE)
    async with open_servers(table, watch=True) as group:
        table.write(config, absent("u", connect="lazy"))
        await trio.sleep(60)
        assert [*group] == ["t", "u"]
        assert [ref.name for ref in group.failed] == [*group.errors] == ["t"]
        status = group.status()["t"]
        assert (status.state, status.retry_at is not None) == ("failed", True)
        assert "server 't': parked after 2 failures in a row, next attempt in " in caplog.text
        fault.on_enter = None
        await trio.sleep(A_WHILE)
        assert group["t"].state == "ready"


async def test_a_source_that_raises_anything_else_is_an_error_entry_too(clock: MockClock) -> None:
    """A source of the user may fail in any way; the others are followed all the same."""

    class Broken(Written):
        def read(self) -> tuple[LoadedConfig, ...]:
            if self.reads:
                raise OSError("password=hunter2")
            return super().read()

    broken, table = Broken("broken", (absent("b", connect="lazy"),)), Written("table")
    async with open_servers(broken, table, watch=True) as group:
        broken.version += 1
        await trio.sleep(A_WHILE)
        assert str(group.errors["broken"]) == "broken: reading it raised OSError (see the cause of this error)"
        table.write(absent("t", connect="lazy"))
        await trio.sleep(A_WHILE)
        assert [*group] == ["b", "t"]


async def test_a_source_that_hangs_is_reported_and_delays_the_others_once(clock: MockClock, file: Path) -> None:
    events = Events()
    table, over = Written("table", (absent("t", connect="lazy"),)), trio.Event()
    save(file, lazy("a"))
    async with open_servers(table, file, watch=True, observers=[events]) as group:
        table.error = Hangs(over)
        save(file, lazy("b"))
        await trio.sleep(40)
        assert [*group] == ["t", "b"]
        save(file, lazy("c"))
        await trio.sleep(2)
        assert [*group] == ["t", "c"]
        await trio.sleep(A_WHILE)
        assert rejected(events) == ["table: it has not answered within 30 s"]
        over.set()
        table.write(absent("u", connect="lazy"))
        await trio.sleep(40)
        assert [*group] == ["u", "c"]
        assert not group.errors


async def test_a_source_that_answers_again_is_waited_for_again(clock: MockClock, file: Path) -> None:
    """It fails at once only while the call hangs that was given up."""
    table, over, again = Written("table", interval=10.0), trio.Event(), trio.Event()
    save(file, lazy("a"))
    async with open_servers(table, file, watch=True) as group:
        table.error = Hangs(over)
        save(file, lazy("b"))
        await trio.sleep(60)
        assert [*group.errors] == ["table"]
        table.error = None
        over.set()
        await trio.sleep(60)
        assert not group.errors
        table.error = Hangs(again)
        await trio.sleep(11)  # a look at it has begun
        save(file, lazy("c"))
        await trio.sleep(5)
        assert ([*group], dict(group.errors)) == (["b"], {})
        table.error = None
        again.set()
        await trio.sleep(5)
        assert ([*group], dict(group.errors)) == (["c"], {})


async def test_all_sources_are_read_at_the_same_time(clock: MockClock) -> None:
    asked: list[str] = []

    class Slow(Written):
        def look(self) -> Hashable:
            asked.append(self.name)
            raise Hangs(trio.Event())

    with trio.move_on_after(1):
        async with open_servers(Slow("one"), Slow("two"), Slow("three")):
            raise AssertionError("unreachable")
    assert sorted(asked) == ["one", "three", "two"]


async def test_leaving_does_not_wait_for_a_source_that_hangs() -> None:
    """Its thread is abandoned; it ends by the timeouts of the source."""
    entered, go_on = threading.Event(), threading.Event()

    class Hanging(Written):
        def look(self) -> Hashable:
            if self.reads:
                entered.set()
                go_on.wait()
            return super().look()

    async with open_servers(Hanging("table", interval=0.001), watch=True):
        await trio.to_thread.run_sync(entered.wait)
    go_on.set()


# --- several sources ------------------------------------------------------------------------------------------------


async def test_the_earlier_source_wins_and_a_duplicate_is_reported_by_name_and_source(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S2-19: code, tables, directories, files, in whatever order they are given."""
    file, directory = Written("file", rank=Rank.FILE), Written("directory", rank=Rank.DIRECTORY)
    table, second = Written("table", rank=Rank.TABLE), Written("second", rank=Rank.TABLE)
    for source, names in ((file, "abcd"), (directory, "bcd"), (table, "cd"), (second, "cde")):
        source.servers = tuple(absent(name, connect="lazy", source=source.name) for name in names)
    code = absent("d", connect="lazy")
    async with open_servers(file, directory, second, table, code) as group:
        assert homes(group) == {"a": "file", "b": "directory", "c": "second", "e": "second", "d": None}
    assert "server 'b': file is ignored for it, because directory comes first" in caplog.text
    assert [record.message.split(" is")[0] for record in caplog.records if record.levelno == logging.WARNING] == [
        f"server '{name}': {source}"
        for name, source in [
            ("b", "file"),
            ("c", "file"),
            ("d", "file"),
            ("c", "directory"),
            ("d", "directory"),
            ("d", "second"),
            ("c", "table"),
            ("d", "table"),
        ]
    ]


def homes(group: ServerGroup) -> dict[str, str | None]:
    return {name: member.record.config.source for name, member in group._roster.members.items()}


async def test_a_disabled_or_invalid_server_of_an_earlier_source_hides_the_later_one() -> None:
    """Otherwise a server that was disabled in the database would come back from a file, or another one would."""
    error = ConfigError("b is wrong")
    table = Written("table", (absent("a", enabled=False),), failed={"b": error})
    file = Written("file", (absent("a", connect="lazy"), absent("b", connect="lazy")), rank=Rank.FILE)
    async with open_servers(table, file) as group:
        assert [*group] == []
        assert group.errors == {"b": error}


@pytest.mark.parametrize("kind", ["json", "yaml", "files", "sqlite"])
async def test_a_name_that_is_there_twice_is_an_error_that_stays(kind: str, clock: MockClock, tmp_path: Path) -> None:
    """C-43: the server that runs under it stays as it is; no reading of the other sources takes the error away."""
    twice = Twice(tmp_path, kind)
    events, table = Events(), Written("table")
    async with open_servers(twice.source, table, watch=True, observers=[events]) as group:
        before = group["c"]
        twice.write("c", "d", "c")
        await trio.sleep(60)
        assert [*group] == ["d", "c"]
        assert group["c"] is before
        assert [*group.errors] == ["c"]
        table.write(absent("t", connect="lazy"))
        await trio.sleep(60)
        assert [*(await group.reload()).failed] == [*group.errors] == ["c"]
        assert len(rejected(events)) == 1
        twice.write("c", "d")
        await trio.sleep(60)
        assert not group.errors
    twice.write("c", "d", "c")
    async with open_servers(twice.source) as group:
        assert [*group] == ["d"]  # either of the two may be the one that was meant
        assert [*group.errors] == ["c"]
    assert changes(events) == ["ServerAdded d", "ServerAdded t"]


async def test_two_servers_of_one_name_in_one_source_are_an_error() -> None:
    """S2-19."""
    table = Written("table", (absent("a"), attrs.evolve(absent("a"))))
    with pytest.raises(ConfigError, match="have this name"):
        async with open_servers(table):
            raise AssertionError("unreachable")


# --- the environment ------------------------------------------------------------------------------------------------


async def test_a_variable_that_overrides_nothing_is_an_error_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2-19: the servers serve; a group that is strict is not opened; one of Python alone is not affected."""
    monkeypatch.setenv("MCP_ACTORS__DOCZ__URL", "https://x.example")
    table = Written("table", (absent("docs", connect="lazy"),))
    async with open_servers(table) as group:
        assert [*group] == ["docs"]
        assert [*group.errors] == ["MCP_ACTORS__DOCZ__URL"]
    with pytest.raises(ConfigError, match="there is no server 'DOCZ' \\(did you mean 'DOCS'"):
        async with open_servers(table, strict=True):
            raise AssertionError("unreachable")
    async with open_servers(*table.servers) as group:
        assert not group.errors


async def test_servers_that_one_variable_may_mean_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2-19: either of them might run with the value of the other."""
    monkeypatch.setenv("MCP_ACTORS__MY_DOCS__URL", "https://x.example")
    table = Written("table", tuple(absent(name, connect="lazy") for name in ("my-docs", "my.docs", "mail")))
    async with open_servers(table) as group:
        assert [*group] == ["mail"]
        assert [*group.errors] == ["my-docs", "my.docs"]
