"""A start that does not wait for every server, because their tools are remembered. Against real processes."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    ConfigError,
    ConnectFailed,
    InvalidArguments,
    ServerUnavailable,
    ToolNotFound,
    open_servers,
)
from mcp_actors.kernel import EventHub, GaveUp, StartFailed, Starting
from mcp_actors.servers.group._open import StartGate
from mcp_actors.servers.group._tree import GroupLimits, Roster

from ...messages import Said
from ..fleet import Outcome
from ..groups import AT_ONCE, BOUND, LATER, NEVER, overtaken, pids_in, reach, server, state
from ..links import MARGIN, text_of
from ..processes import state_of
from ..remembering import Server, change, deferred, remembered
from ..scripted_server import TOOLS

CALL = {"a": 40, "b": 2}


async def test_remembered_tools_are_there_before_their_server_and_a_call_waits_for_it(tmp_path: Path) -> None:
    """S3-09: the start does not wait for a server whose tools are remembered.

    S3-12: a deferred tool waits, then calls.
    """
    a = Server(tmp_path)
    await a.run_once()
    go = a.hold()
    async with open_servers(a.config(), catalog_store=a.store, start_gate=0) as group:
        tool = group.find_tool("mcp__a__add")
        assert (tool.name, tool.deferred, tool.available) == ("add", True, False)
        assert (tool.description, tool.input_schema["type"]) == ("Add two integers.", "object")
        assert len(group.tools) == len(TOOLS)
        assert (state(group, "a"), dict(group.errors)) == ("connecting", {})
        async with trio.open_nursery() as nursery:
            calls = [Outcome(), Outcome()]
            nursery.start_soon(calls[0].of, group.call_tool, "mcp__a__add", CALL)
            nursery.start_soon(calls[1].of, group["a"].call_tool, "add", CALL)
            await wait_all_tasks_blocked()
            assert [call.over for call in calls] == [False, False]
            go()
        assert [text_of(call.value) for call in calls] == ["42", "42"]
        assert deferred(group) == {"a": False}
        assert group.find_tool("mcp__a__add").available


async def test_the_start_waits_for_the_gate_and_no_longer(tmp_path: Path) -> None:
    """S3-09: and the deadline counts from the call."""
    a = Server(tmp_path)
    await a.run_once()
    a.hold()
    began = trio.current_time()
    async with open_servers(a.config(), catalog_store=a.store, start_gate=0.25) as group:
        assert 0.25 <= trio.current_time() - began < 0.25 + MARGIN
        assert deferred(group) == {"a": True}


async def test_a_start_in_which_all_are_quick_does_not_wait_for_the_gate(tmp_path: Path) -> None:
    a, b = Server(tmp_path, "a"), Server(tmp_path, "b")
    await a.run_once()
    with trio.fail_after(BOUND):
        async with open_servers(a.config(), b.config(), catalog_store=a.store, start_gate=3600) as group:
            assert (state(group, "a"), state(group, "b")) == ("ready", "ready")


async def test_the_block_begins_only_when_it_is_decided_what_follows_a_failed_connect() -> None:
    """Between a failed connect and the decision of the supervisor, the server is still shown as connecting."""
    roster = Roster(EventHub(()), strict=False, callbacks=None, limits=GroupLimits())
    [record] = roster.enter(server("b", restarts=NEVER))
    gate, opened = StartGate([record], None), Outcome()
    common: dict[str, Any] = {"actor": "b", "incarnation": 1, "time": trio.current_time()}
    error = ConnectFailed("server 'b': its process exited", server="b", phase="negotiate")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opened.of, gate.wait)
        record.follow(Starting(**common))
        record.follow(StartFailed(**common, error=error))
        record.life.note_change()
        await wait_all_tasks_blocked()
        assert (record.life.state, opened.over) == ("connecting", False)
        record.follow(GaveUp(**common, error=error, retry_in=None))
        await wait_all_tasks_blocked()
        assert (record.life.state, opened.over) == ("failed", True)


@pytest.mark.parametrize("why", ["nothing is remembered", "it is required", "all are required"])
async def test_some_servers_are_waited_for_whatever_the_gate(why: str, tmp_path: Path) -> None:
    """S3-09: one of which nothing is remembered, and one that is required."""
    a = Server(tmp_path)
    if why != "nothing is remembered":
        await a.run_once()
    a.behave("--start-delay", "0.3")
    options: dict[str, Any] = {"strict": True} if why == "all are required" else {}
    config = a.config(required=why == "it is required")
    async with open_servers(config, catalog_store=a.store, start_gate=0, **options) as group:
        assert state(group, "a") == "ready"
        assert deferred(group) == {"a": False}


async def test_one_server_that_is_waited_for_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """They are connected side by side: each of these answers only once the other was started."""
    a, b = Server(tmp_path, "a"), Server(tmp_path, "b")
    await a.run_once()
    a.behave(first=f"echo > '{tmp_path}/a.up'; while [ ! -e '{tmp_path}/b.up' ]; do sleep 0.01; done")
    b.behave(first=f"echo > '{tmp_path}/b.up'; while [ ! -e '{tmp_path}/a.up' ]; do sleep 0.01; done")
    configs = (a.config(), b.config(required=True))
    async with open_servers(*configs, catalog_store=a.store, start_gate=0) as group:
        await reach(group, "a", "ready")
        assert state(group, "b") == "ready"


async def test_a_server_that_comes_late_replaces_its_tools_and_what_is_remembered(tmp_path: Path) -> None:
    """S3-10: late completion replaces that server's tools, and updates what is remembered.

    S3-16: late servers appear.
    """
    a = Server(tmp_path)
    await a.run_once("--tools", "1")
    assert "tool_0" in remembered(a.file())
    go = a.hold()
    async with open_servers(a.config(), catalog_store=a.store, start_gate=0) as group:
        assert group.find_tool("mcp__a__tool_0").deferred
        before = group.tools
        go()
        await reach(group, "a", "ready")
        assert {tool.name for tool in group.tools} == set(TOOLS)
        assert group.tools.generation > before.generation
    assert set(remembered(a.file())) == set(TOOLS)


async def test_a_deferred_tool_that_is_not_there_any_more_says_so_and_is_not_called(tmp_path: Path, said: Said) -> None:
    a = Server(tmp_path)
    await a.run_once("--tools", "1")
    go = a.hold()
    async with open_servers(a.config(), catalog_store=a.store, start_gate=0) as group:
        async with trio.open_nursery() as nursery:
            gone, unknown = Outcome(), Outcome()
            nursery.start_soon(gone.of, group.call_tool, "mcp__a__tool_0")
            nursery.start_soon(unknown.of, group["a"].call_tool, "tool_9")
            await wait_all_tasks_blocked()
            go()
        error = gone.error
        assert isinstance(error, ToolNotFound)
        assert error.server == "a"
        said("a remembered tool was not found", str(error), tools=", ".join(map(repr, TOOLS)))
        # A tool that was not remembered may exist without being listed; only the server knows.
        assert text_of(unknown.value) == "tool_9"


async def test_arguments_are_checked_by_what_the_tool_asks_for_now(tmp_path: Path) -> None:
    """And not by what it asked for in an earlier run."""
    a = Server(tmp_path)
    await a.run_once()

    def swap_requirements(content: dict[str, Any]) -> None:
        schemas = {tool["name"]: tool["inputSchema"] for tool in content["tools"]}
        schemas["echo"]["required"], schemas["pid"]["required"] = [], ["something"]

    change(a.file(), swap_requirements)
    go = a.hold()
    async with open_servers(a.config(), catalog_store=a.store, start_gate=0) as group:
        async with trio.open_nursery() as nursery:
            echo, pid = Outcome(), Outcome()
            nursery.start_soon(echo.of, group.call_tool, "mcp__a__echo")
            nursery.start_soon(pid.of, group.call_tool, "mcp__a__pid")
            await wait_all_tasks_blocked()
            go()
        assert isinstance(echo.error, InvalidArguments)
        assert text_of(pid.value) == str(group["a"].statistics().pid)


async def test_a_failure_after_the_gate_is_recorded_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-10: late failures are logged."""
    a = Server(tmp_path)
    await a.run_once()
    go = a.hold("--exit-at-start", "3")
    async with open_servers(a.config(restarts=LATER), catalog_store=a.store, start_gate=0) as group:
        assert dict(group.errors) == {}
        go()
        await reach(group, "a", "backoff")
        assert isinstance(group.errors["a"], ConnectFailed)
        assert deferred(group) == {"a": True}
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage().startswith("server 'a': connect failed, retrying: its process exited with code 3 while")


async def test_a_late_server_that_is_given_up_shows_no_tools_any_more(tmp_path: Path) -> None:
    a = Server(tmp_path)
    await a.run_once()
    go = a.hold("--exit-at-start", "3")
    async with open_servers(a.config(restarts=NEVER), catalog_store=a.store, start_gate=0) as group:
        async with trio.open_nursery() as nursery:
            call = Outcome()
            nursery.start_soon(call.of, group.call_tool, "mcp__a__add", CALL)
            await wait_all_tasks_blocked()
            go()
        assert isinstance(call.error, ServerUnavailable)
        assert "exited with code 3" in str(call.error)
        assert state(group, "a") == "failed"
        assert len(group.tools) == 0
        a.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(overtaken, group["a"].start)
            await reach(group, "a", "connecting")
            assert deferred(group) == {"a": True}
            nursery.start_soon(group["a"].stop)


async def test_remembered_tools_stay_shown_while_a_server_is_retried(tmp_path: Path) -> None:
    """S3-12: also a call that was made before the first of several attempts."""
    a = Server(tmp_path)
    await a.run_once()
    go = a.hold("--fail-first", "2", str(tmp_path / "starts"))
    async with open_servers(a.config(restarts=AT_ONCE), catalog_store=a.store, start_gate=0) as group:
        async with trio.open_nursery() as nursery:
            call = Outcome()
            nursery.start_soon(call.of, group.call_tool, "mcp__a__add", CALL)
            await wait_all_tasks_blocked()
            go()
        assert text_of(call.value) == "42"


async def test_a_server_can_be_stopped_and_reconnected_while_its_first_connect_hangs(tmp_path: Path) -> None:
    a, b = Server(tmp_path, "a"), Server(tmp_path, "b")
    await a.run_once()
    await b.run_once()
    for each in (a, b):
        each.hold()
    configs = (a.config(), b.config())
    async with open_servers(*configs, catalog_store=a.store, start_gate=0) as group:
        with trio.fail_after(BOUND):
            await group["a"].stop()
            assert (state(group, "a"), deferred(group)) == ("stopped", {"b": True})
            b.behave()
            await group.reconnect("b")
        assert (state(group, "b"), deferred(group)) == ("ready", {"b": False})


# --- what ends a start ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["in the gate", "after it"])
async def test_a_deadline_around_a_start_with_a_gate_fires_at_once(tmp_path: Path, known: bool) -> None:
    """A-27: while it waits for the gate, and for a server of which nothing is remembered; nothing is left."""
    a = Server(tmp_path)
    if known:
        await a.run_once()
        a.pids.unlink()
    a.hold()
    began = trio.current_time()
    with trio.move_on_after(0.3) as scope:
        gate = math.inf if known else 0
        async with open_servers(a.config(), catalog_store=a.store, start_gate=min(gate, 3600)):
            pytest.fail("the block must not run")
    assert scope.cancelled_caught
    assert trio.current_time() - began < 0.3 + 0.5 + MARGIN
    assert [state_of(pid) for pid in pids_in(a.pids)] == []


async def test_a_server_that_ends_its_group_does_so_as_without_a_gate(tmp_path: Path) -> None:
    """Before the block it is a failed start, later the end of the block."""
    a = Server(tmp_path)
    options: dict[str, Any] = {"on_failure": "raise", "restarts": NEVER}
    for gate in (None, 0):
        a.behave("--exit-at-start", "3")
        with pytest.raises(ConnectFailed, match="server 'a': its process exited with code 3"):
            async with open_servers(a.config(**options), catalog_store=a.store, start_gate=gate):
                pytest.fail("the block must not run")
    await a.run_once()
    go = a.hold("--exit-at-start", "3")

    async def run() -> None:
        async with open_servers(a.config(**options), catalog_store=a.store, start_gate=0):
            go()
            await trio.sleep_forever()

    with pytest.raises(ServerUnavailable, match=r"closed its group .*exited with code 3"):
        await run()


async def test_the_failure_of_a_required_server_stops_servers_that_were_not_awaited(tmp_path: Path) -> None:
    a = Server(tmp_path)
    await a.run_once()
    a.hold()
    broken = server("b", "--exit-at-start", "3", required=True)
    with pytest.raises(ConnectFailed, match="server 'b': its process exited with code 3"):
        async with open_servers(a.config(), broken, catalog_store=a.store, start_gate=0):
            pytest.fail("the block must not run")


# --- lazy servers ---------------------------------------------------------------------------------------------------


async def test_a_lazy_server_shows_what_is_remembered_and_the_first_call_connects_it(tmp_path: Path) -> None:
    """S4-11: so it can be called by a public name before it was ever connected."""
    a = Server(tmp_path)
    await a.run_once()
    a.pids.unlink()
    async with open_servers(a.config(connect="lazy"), catalog_store=a.store) as group:
        assert (state(group, "a"), deferred(group)) == ("pending", {"a": True})
        assert not a.pids.exists()
        assert text_of(await group.call_tool("mcp__a__add", CALL)) == "42"
        assert (state(group, "a"), deferred(group)) == ("ready", {"a": False})


# --- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [True, -1, math.nan, math.inf, "0.25"])
async def test_a_gate_that_is_not_a_number_of_seconds_is_refused(gate: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"start_gate=.* is not a number of seconds; pass 0 or more"):
        async with open_servers(server("a"), catalog_store=tmp_path, start_gate=gate):
            pytest.fail("the block must not run")


async def test_a_gate_without_a_catalog_store_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"start_gate=0\.25 .* without a catalog_store.*; add catalog_store=True"):
        async with open_servers(server("a"), start_gate=0.25):
            pytest.fail("the block must not run")
