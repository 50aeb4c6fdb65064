"""Adding, removing and reloading servers of an open group. Against servers in this process."""

from __future__ import annotations

import gc
import json
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from mcp_actors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    RequestTimedOut,
    ServerConfig,
    ServerGroup,
    ServerUnavailable,
    Stdio,
    ToolFilter,
    ToolNotFound,
    load_config,
    open_servers,
)
from mcp_actors.kernel import Event, Starting
from mcp_actors.servers import ConfigChanged, ServerAdded, ServerEvent, ServerRemoved
from mcp_actors.servers._sources import Merged, ServerDifference, compare
from mcp_actors.servers.group._lifecycle import LifecycleActor

from ...messages import Said
from ..fleet import Outcome
from ..groups import LATER, NEVER, Events, Fault
from ..houses import House, absent, who
from ..links import text_of


def tools_of(group: ServerGroup) -> list[tuple[str, str]]:
    return [(tool.server, tool.name) for tool in group.tools]


def changes(events: Events) -> list[str]:
    """Return the events about the set of servers."""
    kinds = (ServerAdded, ServerRemoved, ConfigChanged)
    return [f"{type(event).__name__} {event.server}" for event in events.of(ServerEvent) if isinstance(event, kinds)]


async def test_a_reload_soon_after_another_waits_for_its_own_connect() -> None:
    """The first has connected the server, but has not ended in every task yet."""
    a = House("a")
    async with open_servers(a.config()) as group:
        for seconds in range(20, 30):
            assert (await group.reload(a.config(request_timeout=seconds))).changed == ("a",)
            assert group["a"].state == "ready"


async def test_a_server_that_is_restarted_again_and_again_keeps_nothing_of_the_restarts_before() -> None:
    a = House("a")
    async with open_servers(a.config()) as group:
        await group["a"].restart()
        first = weakref.ref(group["a"]._record.life.wanted)
        await group["a"].restart()
        await group["a"].restart()
        gc.collect()
        assert first() is None


async def test_restarts_of_a_server_that_hangs_whose_callers_have_given_up_do_not_delay_other_changes(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(LifecycleActor, "max_in_flight", 3)
    a, b = House("a"), House("b")
    async with open_servers(a.config(), b.config(required=True, connect_timeout=None)) as group:
        b.entered = trio.Event()
        for _ in range(5):
            with trio.move_on_after(1):
                await group["b"].restart()
        with trio.fail_after(1):
            await group.replace(a.config(request_timeout=7))
        b.entered.set()
        await group["b"].wait_ready()


async def test_a_change_that_has_nothing_to_do_lets_other_tasks_run() -> None:
    a, b = House("a"), House("b")
    async with open_servers(a.config(), b.config()) as group:
        await group["b"].stop()
        for change in (group["a"].start, group["b"].stop, group.reconnect):
            with assert_checkpoints():
                await change()


# --- replace --------------------------------------------------------------------------------------------------------


async def test_one_server_is_changed_without_naming_the_others() -> None:
    """C-27: its ref and its place stay, and the others notice nothing."""
    events = Events()
    a, b = House("a"), House("b")
    async with open_servers(a.config(), b.config(), observers=[events]) as group:
        before = group["a"]
        assert await group.replace(a.config(request_timeout=7)) is before
        assert (before.state, before.config.request_timeout) == ("ready", 7)
        assert [*group] == ["a", "b"]
        assert [group[name].statistics().incarnation for name in group] == [2, 1]
        assert events.states("b") == ["connecting", "ready"]
        await group.replace(a.config(request_timeout=7))
        assert changes(events) == ["ConfigChanged a"]


async def test_a_lazy_server_is_replaced_once_it_has_answered_what_it_had_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C-27: it need not connect before. The caller, and who reads the log, hear of a change that is done."""
    a = House("a")
    caplog.set_level("INFO")
    async with open_servers(a.config(connect="lazy")) as group, trio.open_nursery() as nursery:
        nursery.start_soon(group["a"].call_tool, "hold")
        while not a.held:
            await wait_all_tasks_blocked()
        replaced = trio.Event()

        async def replace() -> None:
            await group.replace(a.config(connect="lazy", request_timeout=7))
            replaced.set()

        nursery.start_soon(replace)
        await wait_all_tasks_blocked()
        assert not replaced.is_set()
        assert "replace(): changed" not in caplog.text
        a.let_go.set()
        await replaced.wait()
        assert "replace(): changed 'a' (request_timeout)" in caplog.text
        assert await who(group, "a") == "a"
        assert a.starts == 2


async def test_a_replaced_server_that_was_stopped_stays_stopped_and_one_that_fails_says_so() -> None:
    """C-27: by the rules of `reload`."""
    a = House("a")
    async with open_servers(a.config()) as group:
        await group["a"].stop()
        await group.replace(a.config(request_timeout=7))
        assert group["a"].state == "stopped"
        await group["a"].start()
        with pytest.raises(ConnectFailed, match="/nowhere/at-all"):
            await group.replace(absent("a", required=True))
        assert [ref.state for ref in group.configured] == ["failed"]


async def test_what_cannot_replace_a_server_is_refused(said: Said) -> None:
    """C-27: an unknown name too."""
    a = House("a")
    async with open_servers(a.config()) as group:
        with pytest.raises(KeyError, match="server 'b' not found in this group; its servers are: a"):
            await group.replace(House("b").config())
        with pytest.raises(ConfigError) as caught:
            await group.replace("mcp.json")  # type: ignore[arg-type]  # that is what is tested
        said("a path was given as a replacement", str(caught.value))
        with pytest.raises(ConfigError) as caught:
            await group.replace(a.config(enabled=False))
        said("a server was replaced by a disabled one", str(caught.value))
        assert group["a"].state == "ready"


# --- add ------------------------------------------------------------------------------------------------------------


async def test_an_added_server_comes_last_and_serves() -> None:
    """S3-15: the program is not restarted, and neither are the other servers."""
    events = Events()
    a, b = House("a"), House("b")
    async with open_servers(a.config(), observers=[events]) as group:
        ref = await group.add(b.config())
        assert ref is group["b"]
        assert ref.state == "ready"
        assert [*group] == [each.name for each in group.configured] == [*group.status()] == ["a", "b"]
        assert text_of(await group.call_tool("mcp__b__who")) == "b"
        assert group["a"].statistics().incarnation == 1
    assert changes(events) == ["ServerAdded b"]
    assert events.states("b") == ["connecting", "ready", "stopping", "stopped"]


async def test_an_optional_server_that_fails_is_added_and_retried() -> None:
    async with open_servers() as group:
        ref = await group.add(absent("b", restarts=LATER))
        assert ref.state == "failed"
        assert isinstance(group.errors["b"], ConnectFailed)


async def test_a_lazy_server_is_added_without_a_connect() -> None:
    async with open_servers() as group:
        ref = await group.add(House("b").config(connect="lazy"))
        assert ref.state == "pending"
        assert await who(group, "b") == "b"


async def test_adding_waits_no_longer_than_the_connect_timeout_for_an_optional_server(
    autojump_clock: MockClock,
) -> None:
    slow = House("slow")
    slow.entered = trio.Event()
    async with open_servers() as group:
        ref = await group.add(slow.config(connect_timeout=3.0, restarts=LATER))
        assert trio.current_time() == pytest.approx(3.0)
        assert ref.state == "backoff"


@pytest.mark.parametrize("strict", [False, True])
async def test_a_required_server_that_cannot_be_added_leaves_nothing_behind(strict: bool) -> None:
    """S1-12: the add raises; what ran before runs on, and the name is free."""
    events = Events()
    a, b = House("a"), House("b")
    async with open_servers(a.config(), strict=strict, observers=[events]) as group:
        with pytest.raises(ConnectFailed, match="/nowhere/at-all"):
            await group.add(absent("b", required=not strict))
        assert [*group] == [*group.status()] == ["a"]
        assert not group.errors
        assert "b:supervisor" not in {node.id for node in group.tree().walk()}
        assert [*group._roster.records] == ["a"]
        assert not changes(events)
        assert await who(group, "a") == "a"
        assert group["a"].statistics().incarnation == 1
        await group.add(b.config())
        assert await who(group, "b") == "b"


async def test_a_required_server_is_not_shown_before_it_is_connected() -> None:
    b = House("b")
    b.entered = trio.Event()
    async with open_servers() as group, trio.open_nursery() as nursery:
        nursery.start_soon(group.add, b.config(required=True))
        await wait_all_tasks_blocked()
        assert not group
        assert not group.tools
        b.entered.set()
        await wait_all_tasks_blocked()
        assert [*group] == ["b"]


@pytest.mark.parametrize("required", [False, True])
async def test_adding_a_server_that_is_stopped_at_once_says_so(required: bool) -> None:
    """The call that stops it may run before the caller of `add` does."""

    def observe(event: Event) -> None:
        if isinstance(event, ServerAdded):
            nursery.start_soon(group[event.server].stop)

    async with open_servers(observers=[observe]) as group, trio.open_nursery() as nursery:
        for number in range(20):  # it is a matter of chance which of the two runs first
            adding = Outcome()
            await adding.of(group.add, House(f"s{number}").config(required=required))
            assert "was stopped meanwhile" in str(adding.error) or group[f"s{number}"].state == "ready"


async def test_what_cannot_be_added_is_refused_with_a_reason(said: Said) -> None:
    a = House("a")
    async with open_servers(a.config()) as group:
        wrong: list[tuple[str, Any]] = [
            ("a path was added", "mcp.json"),
            ("a disabled server was added", House("b").config(enabled=False)),
            ("a server was added twice", House("a").config()),
        ]
        for row, config in wrong:
            with pytest.raises(ConfigError) as caught:
                await group.add(config)
            said(row, str(caught.value))
        assert [*group] == ["a"]
        assert await who(group, "a") == "a"


async def test_an_added_server_can_end_its_group() -> None:
    async def run() -> None:
        async with open_servers(House("a").config()) as group:
            await group.add(absent("b", on_failure="raise", restarts=NEVER))
            await trio.sleep_forever()

    with pytest.raises(ServerUnavailable, match="server 'b' has failed and closed its group"):
        await run()


# --- remove ---------------------------------------------------------------------------------------------------------


async def test_removing_a_server_takes_nothing_of_one_with_a_similar_name() -> None:
    """S3-23: tools, errors and calls in flight of `a_b` stay when `a` goes."""
    events = Events()
    a, longer = House("a"), House("a_b")
    async with open_servers(a.config(), longer.config(), absent("a_c"), observers=[events]) as group:
        ref, outcome = group["a_b"], Outcome()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outcome.of, ref.call_tool, "hold")
            await wait_all_tasks_blocked()
            before = len(events)
            await group.remove("a")
            assert [*group] == [*group.status()] == ["a_b", "a_c"]
            assert tools_of(group) == [("a_b", "who"), ("a_b", "hold")]
            assert [*group.errors] == ["a_c"]
            assert [*group._roster.records] == ["a_b", "a_c"]
            assert "a" not in {node.id for node in group.tree().walk()}
            assert group["a_b"] is ref
            longer.let_go.set()
        assert text_of(await outcome.result()) == "a_b"
        assert {event.actor for event in events[before:]}.isdisjoint({"a_b:supervisor", "a_c"})
        assert not [event for event in events[before:] if event.actor == "a_b" and wanted(event)]
    assert changes(events) == ["ServerRemoved a"]


async def test_a_removed_server_is_not_restarted(autojump_clock: MockClock) -> None:
    """S3-23: neither out of its back-off nor once it was parked."""
    events = Events()
    fault, parked = Fault(), Fault()
    fault.on_enter = parked.on_enter = RuntimeError("not today")
    async with open_servers(
        fault.config("waits", restarts=LATER), parked.config("parked", restarts=NEVER), observers=[events]
    ) as group:
        assert [ref.state for ref in group.configured] == ["backoff", "failed"]
        await group.remove("waits")
        await group.remove("parked")
        events.clear()
        await trio.sleep(10 * 3600)
        assert not group
        assert not group.errors
        assert not events.of(Starting)


async def test_all_servers_can_be_removed_at_once(autojump_clock: MockClock) -> None:
    """S3-24: everything of them goes, nothing of them comes back, and others can be added."""
    a, b, call = House("a"), House("b"), Outcome()
    async with (
        open_servers(a.config(), b.config(), absent("c", restarts=LATER)) as group,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(_set_after, 1.0, a.let_go)
        await group.reload({"mcpServers": {}})
        assert text_of(await call.result()) == "a"
        assert not group
        assert not group.errors
        assert not [*group.tools]
        await trio.sleep(3600)
        assert (a.starts, b.starts) == (1, 1)
        await group.add(a.config())
        assert await who(group, "a") == "a"


async def test_the_use_of_a_removed_server_says_so(said: Said) -> None:
    """Calls in flight, queued, waiting and later ones end in the same error; so do waits and changes."""
    a = House("a")
    async with open_servers(a.config(max_in_flight=1), drain_timeout=0) as group:
        ref = group["a"]
        calls = [Outcome() for _ in range(3)]
        async with trio.open_nursery() as nursery:
            for call in calls[:2]:
                nursery.start_soon(call.of, ref.call_tool, "hold")
                await wait_all_tasks_blocked()
            nursery.start_soon(calls[2].of, ref.wait_state, "failed")
            await wait_all_tasks_blocked()
            await group.remove("a")
        assert isinstance(calls[0].error, ServerUnavailable)
        assert calls[0].error.outcome == "unknown"
        assert isinstance(calls[1].error, ServerUnavailable)
        assert calls[1].error.outcome == "not_sent"
        assert ref.state == "stopped"
        for ask in (ref.list_tools, ref.start, ref.restart, ref.stop, ref.wait_ready):
            with pytest.raises(ServerUnavailable) as caught:
                await ask()
            said("a removed server was used", str(caught.value))
        said("a removed server was used", str(calls[1].error))
        said("a removed server was used", str(calls[2].error))
        with pytest.raises(KeyError, match="its servers are: none"):
            await group.remove("a")


async def test_removing_ends_a_connect_that_hangs() -> None:
    slow = House("slow")
    slow.entered = trio.Event()
    async with open_servers(slow.config(connect="lazy", connect_timeout=None)) as group, trio.open_nursery() as nursery:
        call = Outcome()
        nursery.start_soon(call.of, group["slow"].call_tool, "who")
        await group["slow"].wait_state("connecting")
        await group.remove("slow")
        with pytest.raises(ServerUnavailable, match="removed from its group"):
            await call.result()


async def test_a_name_can_be_used_again() -> None:
    async with open_servers(House("old").config("a")) as group:
        old = group["a"]
        await group.remove("a")
        new = await group.add(House("new").config("a"))
        assert new is not old
        assert await who(group, "a") == "new"
        with pytest.raises(ServerUnavailable):
            await old.call_tool("who")


# --- reload ---------------------------------------------------------------------------------------------------------


async def test_a_reload_touches_what_has_changed_and_nothing_else() -> None:
    """S3-15: the ref, the call in flight and the queue of an unchanged server notice nothing."""
    events = Events()
    same, changed, gone, new = House("same"), House("changed"), House("gone"), House("new")
    async with open_servers(gone.config(), same.config(max_in_flight=1), changed.config(), observers=[events]) as group:
        refs = dict(group)
        calls = [Outcome(), Outcome()]
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(call.of, group["same"].call_tool, "hold")
            await wait_all_tasks_blocked()
            before = len(events)
            summary = await group.reload(
                new.config(), changed.config(request_timeout=5.0), same.config(max_in_flight=1)
            )
            assert (same.held, group["same"].statistics().queued) == (1, 1)
            same.let_go.set()
        assert summary.added == ("new",)
        assert summary.removed == ("gone",)
        assert summary.changed == ("changed",)
        assert summary.unchanged == ("same",)
        assert not summary.failed
        assert [text_of(await call.result()) for call in calls] == ["same", "same"]
        assert not [event for event in events[before:] if event.actor.startswith("same") and wanted(event)]
        assert [*group] == [ref.name for ref in group.active] == [*group.status()] == ["new", "changed", "same"]
        assert group["same"] is refs["same"]
        assert group["changed"] is refs["changed"]
        assert [group[name].statistics().incarnation for name in group] == [1, 2, 1]
        assert [server for server, _ in tools_of(group)] == ["new", "new", "changed", "changed", "same", "same"]
    assert sorted(changes(events)) == ["ConfigChanged changed", "ServerAdded new", "ServerRemoved gone"]
    [event] = events.of(ConfigChanged)
    assert event.fields == ("request_timeout",)


def wanted(event: Event) -> bool:
    return not type(event).__name__.startswith("Request")


async def test_what_was_queued_for_a_changed_server_is_served_by_the_new_one() -> None:
    """The call in flight ends with its connection; the queued ones wait for the next one, whatever its limits."""
    old, new = House("old"), House("new")
    before = old.config("a", max_in_flight=1, mailbox_size=2, overflow="fail")
    async with open_servers(before, drain_timeout=0) as group:
        ref = group["a"]
        flying, queued = Outcome(), [Outcome(), Outcome()]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flying.of, ref.call_tool, "hold")
            await wait_all_tasks_blocked()
            for call in queued:
                nursery.start_soon(call.of, ref.call_tool, "who")
            await wait_all_tasks_blocked()
            await group.reload(new.config("a", mailbox_size=1, overflow="wait"))
        assert isinstance(flying.error, ConnectionLost)
        assert [text_of(await call.result()) for call in queued] == ["new", "new"]
        assert ref.config.mailbox_size == 1
        assert group._supervisor.child("a:supervisor").state == "running"


async def test_the_new_timeout_counts_for_requests_that_wait(autojump_clock: MockClock) -> None:
    """From their call on, as the old one did."""
    slow, call = House("slow"), Outcome()
    slow.entered = trio.Event()
    before = slow.config(connect="lazy", connect_timeout=100.0)
    async with open_servers(before) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["slow"].call_tool, "who")
        await trio.sleep(10)
        nursery.start_soon(group.reload, attrs.evolve(before, request_timeout=15.0))
        with pytest.raises(RequestTimedOut, match="timed out after 15 s"):
            await call.result()
        assert trio.current_time() == pytest.approx(15.0)
        slow.entered.set()


async def test_a_filter_counts_at_once() -> None:
    a = House("a")
    async with open_servers(a.config()) as group:
        await group.reload(a.config(tool_filter=ToolFilter(deny=["hold"])))
        assert tools_of(group) == [("a", "who")]
        with pytest.raises(ToolNotFound):
            await group["a"].call_tool("hold")


async def test_a_call_that_waits_is_checked_by_the_new_filter(autojump_clock: MockClock) -> None:
    """S3-15: it was permitted when it was made, and is not sent any more."""
    a, held, denied, permitted = House("a"), Outcome(), Outcome(), Outcome()
    async with open_servers(a.config(max_in_flight=1)) as group, trio.open_nursery() as nursery:
        nursery.start_soon(held.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(denied.of, group["a"].call_tool, "hold")
        nursery.start_soon(permitted.of, group["a"].call_tool, "who")
        await wait_all_tasks_blocked()
        nursery.start_soon(_set_after, 1.0, a.let_go)
        await group.reload(a.config(max_in_flight=1, tool_filter=ToolFilter(deny=["hold"])))
        assert text_of(await held.result()) == "a"
        assert text_of(await permitted.result()) == "a"
        with pytest.raises(ToolNotFound):
            await denied.result()
    assert a.held == 1


async def _set_after(seconds: float, event: trio.Event) -> None:
    await trio.sleep(seconds)
    event.set()


async def test_a_stopped_server_stays_stopped() -> None:
    """It has its new configuration once it is started."""
    events = Events()
    a = House("a")
    async with open_servers(a.config(), observers=[events]) as group:
        await group["a"].stop()
        events.clear()
        await group.reload(House("new").config("a"))
        assert not events.states("a")
        with pytest.raises(ServerUnavailable, match="is stopped"):
            await group["a"].call_tool("who")
        await group["a"].start()
        assert await who(group, "a") == "new"


@pytest.mark.parametrize(("connect", "state"), [("lazy", "pending"), ("eager", "ready")])
async def test_a_lazy_server_that_was_not_used_is_connected_if_it_is_eager_now(connect: Any, state: str) -> None:
    async with open_servers(House("a").config(connect="lazy")) as group:
        await group.reload(House("new").config("a", connect=connect))
        assert group["a"].state == state
        assert await who(group, "a") == "new"


async def test_a_failed_server_is_tried_again_with_its_new_configuration() -> None:
    async with open_servers(absent("a", restarts=NEVER), absent("b", restarts=LATER)) as group:
        assert [*group.errors] == ["a", "b"]
        await group.reload(House("a").config(), House("b").config())
        assert not group.errors
        assert [await who(group, name) for name in group] == ["a", "b"]


async def test_a_required_server_that_fails_with_its_new_configuration_can_be_restarted() -> None:
    """S1-12: the reload raises; all of it is done, and what ran before runs on. The server is tried again later."""
    fault = Fault()
    async with open_servers(House("a").config(), House("b").config(required=True)) as group:
        fault.on_enter = RuntimeError("not today")
        with pytest.raises(ConnectFailed, match="not today"):
            await group.reload(House("a").config(), fault.config("b", required=True), House("c").config())
        assert [*group] == ["a", "b", "c"]
        assert [ref.state for ref in group.configured] == ["ready", group["b"].state, "ready"]
        assert group["b"].state in ("backoff", "connecting")
        assert [group[name].statistics().incarnation for name in ("a", "c")] == [2, 1]
        with pytest.raises(ConnectFailed, match="not today"):
            await group["b"].restart()
        fault.on_enter = None
        await group["b"].restart()
        assert text_of(await group["b"].call_tool("ping")) == "pong"


async def test_a_configuration_that_is_not_valid_changes_nothing(tmp_path: Path) -> None:
    """S3-15: all of it is validated before anything is touched."""
    events = Events()
    broken, required = tmp_path / "broken.json", tmp_path / "required.json"
    broken.write_text('{"mcpServers": ')
    required.write_text('{"mcpServers": {"x": {"required": true}}}')
    a = House("a")
    async with open_servers(a.config(), observers=[events]) as group:
        events.clear()
        for wrong in ([broken], [required], [tmp_path / "absent.json"], [a.config(), a.config()], [7]):
            with pytest.raises(ConfigError):
                await group.reload(House("b").config(), *wrong)
        assert not events
        assert not group.errors
        assert (await group.reload()).unchanged == ("a",)


async def test_an_entry_that_is_not_valid_leaves_its_server_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = House("a"), House("b")
    entries: dict[str, Any] = {"a": {"command": {"no": 1}}, "z": {"command": 7}}
    async with open_servers(a.config(), b.config()) as group:
        summary = await group.reload(b.config(), {"mcpServers": entries})
        assert summary.unchanged == ("b", "a")
        assert [*summary.failed] == ["a", "z"]
        assert [*group] == ["b", "a"]
        assert [*group.errors] == ["a", "z"]
        assert not group.failed  # "a" is well, as it was configured before
        assert await who(group, "a") == "a"
        with pytest.raises(KeyError, match="could not be loaded"):
            group["z"]
        await group.reload(a.config(), b.config())
        assert not group.errors
    assert "command" in caplog.text


async def test_a_reload_without_arguments_reads_the_files_again(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"

    def write(*names: str) -> None:
        file.write_text(json.dumps({"mcpServers": {name: {"command": "/nowhere/at-all"} for name in names}}))

    write("a", "b")
    async with open_servers(file) as group:
        before = dict(group)
        write("c", "a")
        summary = await group.reload()
        assert (summary.added, summary.removed, summary.unchanged) == (("c",), ("b",), ("a",))
        assert group["a"] is before["a"]
        await group.reload(load_config(file))
        write("a")
        assert (await group.reload()).unchanged == ("c", "a")  # what was given last is not a file
        assert (await group.reload({"mcpServers": {}})).removed == ("c", "a")


@pytest.mark.parametrize(
    ("old", "new", "failed", "expected"),
    [
        ("a b c", "c b a", "", (" ", "", "c b a", "c b a")),
        ("a b c", "d b a", "", ("d", "c", "b a", "d b a")),
        ("a b", "", "b", ("", "a", "b", "b")),
        ("a", "a", "a", ("", "", "a", "a")),
    ],
)
def test_the_difference_of_two_configurations(old: str, new: str, failed: str, expected: tuple[str, ...]) -> None:
    def config(name: str) -> ServerConfig:
        return absent(name)

    error = ConfigError("wrong", source="x")
    merged = Merged([config(name) for name in new.split()], dict.fromkeys(failed.split(), error))
    merged.servers.append(absent("off", enabled=False))
    found = compare({name: config(name) for name in old.split()}, merged)
    added, removed, unchanged, order = (tuple(each.split()) for each in expected)
    servers = tuple(map(config, order))
    assert found == ServerDifference(
        added=tuple(map(config, added)), removed=removed, changed=(), unchanged=unchanged, servers=servers
    )


def test_a_secret_counts_in_the_difference() -> None:
    def config(token: str) -> ServerConfig:
        return ServerConfig("a", Stdio("x", env={"TOKEN": token}))

    assert compare({"a": config("1")}, Merged([config("1")])).unchanged == ("a",)
    assert compare({"a": config("1")}, Merged([config("2")])).changed == (config("2"),)


# --- several changes, and the end of the group ----------------------------------------------------------------------


async def test_changes_of_the_set_are_made_one_after_the_other() -> None:
    """The second begins when the first is complete, so both find a set that does not change under them."""
    slow = House("slow")
    slow.entered = trio.Event()
    async with open_servers(House("a").config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(group.add, slow.config(required=True))
        await wait_all_tasks_blocked()
        nursery.start_soon(group.reload, House("b").config(), slow.config(required=True))
        await wait_all_tasks_blocked()
        nursery.start_soon(group.add, House("c").config())
        await wait_all_tasks_blocked()
        assert [*group] == ["a"]
        slow.entered.set()
        await wait_all_tasks_blocked()
        assert [*group] == ["b", "slow", "c"]


async def test_two_changes_that_touch_the_same_servers_do_not_deadlock() -> None:
    """The order of the group may change between them."""
    houses = [House("a"), House("b"), House("c")]
    async with open_servers(*(house.config() for house in houses)) as group, trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(group.reconnect, "a", "b", "c")
            order = houses if number % 2 else houses[::-1]
            nursery.start_soon(group.reload, *(house.config(request_timeout=5.0 + number) for house in order))
        await wait_all_tasks_blocked()
        await group.wait_ready()
        assert [await who(group, house.name) for house in houses] == ["a", "b", "c"]


async def test_reconnects_that_name_servers_in_another_order_do_not_wait_for_each_other_for_ever(
    autojump_clock: MockClock,
) -> None:
    async with open_servers(House("a").config(), House("b").config()) as group:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.reconnect, "a", "b")
                nursery.start_soon(group.reconnect, "b", "a")
                nursery.start_soon(partial(group.reconnect, failed_only=False))
        assert [ref.state for ref in group.configured] == ["ready", "ready"]
        assert [ref.statistics().incarnation for ref in group.configured] == [2, 2]


@pytest.mark.parametrize("delay", range(0, 60, 3))
async def test_a_caller_may_be_cancelled_at_any_moment(delay: int) -> None:
    """The reload is made, or not begun; the group works in either case, and takes the next one."""
    first = [House("a").config(), House("b").config()]
    second = [House("c").config(), House("b2").config("b")]
    async with open_servers(*first) as group:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(group.reload, *second)
                for _ in range(delay):
                    await trio.lowlevel.checkpoint()
                scope.cancel("the caller has changed its mind")
        await wait_all_tasks_blocked()
        assert [*group] in (["a", "b"], ["c", "b"])
        await group.wait_ready()
        await group.reload(*first)
        assert [await who(group, name) for name in group] == ["a", "b"]


async def test_a_change_after_the_block_is_refused(said: Said) -> None:
    async with open_servers(House("a").config()) as group:
        pass
    config = House("b").config()
    for attempt in (lambda: group.add(config), lambda: group.remove("a"), lambda: group.reload(config)):
        with pytest.raises(ServerUnavailable) as caught:
            await attempt()
        said("a closed group was changed", str(caught.value))


@pytest.mark.parametrize("required", [False, True])
async def test_a_group_that_is_closed_ends_a_change(required: bool) -> None:
    slow = House("slow")
    slow.entered = trio.Event()
    adding = Outcome()
    async with trio.open_nursery() as nursery, open_servers(House("a").config()) as group:
        nursery.start_soon(adding.of, group.add, slow.config(required=required, connect_timeout=None))
        await wait_all_tasks_blocked()
    assert isinstance(adding.error, ServerUnavailable)


async def test_a_parked_server_that_is_lazy_now_shows_the_tools_that_it_had() -> None:
    """C-61, C-64: they are deferred, as those of any server that rests."""
    a = House("a")
    async with open_servers(a.config(restarts=NEVER)) as group:
        known = tools_of(group)
        a.break_down.set()
        await group["a"].wait_state("failed")
        assert (known, tools_of(group)) == ([("a", "who"), ("a", "hold")], [])
        await group.reload(a.config(connect="lazy", restarts=NEVER))
        assert (group["a"].state, tools_of(group), a.starts) == ("pending", known, 1)
        assert [tool.deferred for tool in group.tools] == [True, True]
        assert await who(group, "a") == "a"


@pytest.mark.parametrize("calling", [False, True])
async def test_a_reload_from_eager_to_lazy_connects_nothing(calling: bool, autojump_clock: MockClock) -> None:
    """C-64: the server rests until it is used, after its calls in flight."""
    a, call = House("a"), Outcome()
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        if calling:
            nursery.start_soon(call.of, group["a"].call_tool, "hold")
            await wait_all_tasks_blocked()
            nursery.start_soon(group.reload, a.config(connect="lazy"))
            await group["a"].wait_state("stopping")
            a.let_go.set()
        else:
            await group.reload(a.config(connect="lazy"))
        await group["a"].wait_state("pending")
        await trio.sleep(100)
        assert (group["a"].state, a.starts, len(group.tools) > 0) == ("pending", 1, True)
        assert call.error is None
        assert await who(group, "a") == "a"
        assert a.starts == 2


async def test_a_reload_to_lazy_ends_a_connect_and_a_failed_server_rests() -> None:
    """C-64."""
    slow, fault = House("slow"), Fault()
    fault.on_enter = RuntimeError("not today")
    async with open_servers(slow.config(), fault.config("b", restarts=NEVER)) as group, trio.open_nursery() as nursery:
        slow.entered = trio.Event()
        nursery.start_soon(group["slow"].restart)
        await group["slow"].wait_state("connecting")
        assert group["b"].state == "failed"
        fault.on_enter = None
        await group.reload(slow.config(connect="lazy"), fault.config("b", connect="lazy"))
        assert [ref.state for ref in group.configured] == ["pending", "pending"]
        slow.entered.set()
        assert await who(group, "slow") == "slow"
        assert text_of(await group["b"].call_tool("ping")) == "pong"


async def test_add_does_not_wait_for_the_calls_of_a_server_that_is_removed(autojump_clock: MockClock) -> None:
    """C-65: but for those of its own name."""
    a, b, call, removal, again = House("a"), House("b"), Outcome(), Outcome(), Outcome()
    async with open_servers(a.config()) as group, trio.open_nursery() as nursery:
        nursery.start_soon(call.of, group["a"].call_tool, "hold")
        await wait_all_tasks_blocked()
        nursery.start_soon(removal.of, group.remove, "a")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        nursery.start_soon(again.of, group.add, House("a2").config("a"))
        await group.add(b.config())
        assert (await who(group, "b"), trio.current_time() - began) == ("b", 0)
        await trio.sleep(10)
        assert (removal.over, again.over, call.over) == (False, False, False)
        a.let_go.set()
        await again.result()
        assert [text_of(await call.result()), *[await who(group, name) for name in group]] == ["a", "b", "a2"]


@pytest.mark.parametrize("change", ["start", "restart", "reload", "replace"])
async def test_a_change_that_a_stop_overtakes_says_so(change: str) -> None:
    """C-62: no change succeeds while the server is stopped, whatever it was doing."""
    house, changing = House("a"), Outcome()
    async with open_servers(house.config(required=True)) as group, trio.open_nursery() as nursery:
        await group["a"].stop() if change == "start" else None
        house.entered = trio.Event()
        config = house.config(required=True, stop_timeout=7.0)
        changes: dict[str, Any] = {"reload": partial(group.reload, config), "replace": partial(group.replace, config)}
        nursery.start_soon(changing.of, changes.get(change) or getattr(group["a"], change))
        await group["a"].wait_state("connecting")
        await group["a"].stop()
        with pytest.raises(ServerUnavailable, match="was stopped meanwhile by another call of stop"):
            await changing.result()
        assert group["a"].state == "stopped"


async def test_the_failure_of_a_required_server_reaches_each_caller_that_waits_for_it() -> None:
    """C-62: each gets an error of its own."""
    fault, outcomes = Fault(), [Outcome() for _ in range(3)]
    async with open_servers(fault.config("b", required=True)) as group:
        fault.on_enter = RuntimeError("not today")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outcomes[0].of, group["b"].restart)
            await group["b"].wait_state("stopping", "stopped", "connecting")
            nursery.start_soon(outcomes[1].of, group["b"].start)
            nursery.start_soon(outcomes[2].of, group.reload, fault.config("b", required=True, stop_timeout=7.0))
        assert [type(each.error) for each in outcomes] == [ConnectFailed] * 3
        assert len({id(each.error) for each in outcomes}) == 3
