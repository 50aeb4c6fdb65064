"""Servers that are connected when they are first asked for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from mcp.server.mcpserver import MCPServer
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    ConfigError,
    ConnectionLost,
    InProcess,
    RequestTimedOut,
    ServerConfig,
    ServerUnavailable,
    StateChanged,
    Stdio,
    open_servers,
)
from mcp_actors.kernel import Event
from mcp_actors.servers.group._lifecycle import LifecycleActor

from .groups import AT_ONCE, BOUND, NEVER, after, crash, pids_in, server, until
from .houses import absent
from .links import MARGIN, text_of


async def test_opening_a_group_does_not_start_a_lazy_server(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    events: list[Event] = []
    lazy = server("lazy", "--pid-file", str(pids), connect="lazy")
    async with open_servers(lazy, server("eager"), observers=[events.append]) as servers:
        assert (servers["lazy"].state, servers["eager"].state) == ("pending", "ready")
        assert [ref.name for ref in servers.active] == ["eager"]
        assert servers.errors == {}
        assert not pids.exists()
    assert not pids.exists()
    assert not any(event.actor == "lazy" for event in events)


async def test_the_first_call_connects_it(tmp_path: Path) -> None:
    """S4-11: and then it is a server like any other."""
    reasons: list[str] = []

    def note_reason(event: Event) -> None:
        if isinstance(event, StateChanged) and event.new == "connecting":
            reasons.append(event.reason)

    async with open_servers(server("a", connect="lazy"), observers=[note_reason]) as servers:
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"
        assert servers["a"].state == "ready"
        assert servers["a"].statistics().restarts == 0
        assert "add" in {tool.name for tool in servers.tools}
        await crash(servers, "a")
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"
        assert servers["a"].statistics().restarts == 1
    assert reasons == ["first connect", "connect number 2"]


async def test_concurrent_first_callers_share_one_attempt(tmp_path: Path) -> None:
    """S4-11: all of them are answered by one process."""
    pids = tmp_path / "pids"
    sums: dict[int, str] = {}
    async with open_servers(server("a", "--pid-file", str(pids), connect="lazy")) as servers:

        async def add(number: int) -> None:
            sums[number] = text_of(await servers["a"].call_tool("add", {"a": number, "b": 100}))

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(add, number)
    assert sums == {number: str(number + 100) for number in range(50)}
    assert len(pids_in(pids)) == 1


async def test_the_first_calls_to_different_servers_connect_them_side_by_side(tmp_path: Path) -> None:
    """Each of them waits for all the others to be started."""
    started = {name: tmp_path / name for name in "abcdef"}
    waiting = until(*started.values())
    configs = [after(name, f"echo x > '{path}'; {waiting}", connect="lazy") for name, path in started.items()]
    async with open_servers(*configs) as servers, trio.open_nursery() as nursery:
        for name in servers:
            nursery.start_soon(servers[name].list_tools)


async def test_the_first_calls_to_very_many_servers_connect_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than changes may wait in the mailbox of an actor by default."""
    monkeypatch.setattr(LifecycleActor, "max_in_flight", 1)
    names = [f"s{number}" for number in range(256 + 10)]
    configs = [absent(name, connect="lazy", restarts=NEVER) for name in names]
    failed: set[str] = set()

    async def call(name: str) -> None:
        with pytest.raises(ServerUnavailable, match="not found"):
            await servers[name].call_tool("add")
        failed.add(name)

    async with open_servers(*configs, max_servers=len(configs)) as servers, trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(call, name)
    assert failed == {*names}


async def test_the_first_caller_may_leave_and_the_connect_goes_on(tmp_path: Path) -> None:
    async with open_servers(server("a", "--start-delay", "0.3", connect="lazy")) as servers:
        with trio.move_on_after(0.05) as patience:
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
        assert patience.cancelled_caught
        with trio.fail_after(BOUND):
            await servers["a"].wait_state("ready")


async def test_the_time_to_connect_counts_for_the_first_request() -> None:
    config = server("a", "--never-answer", connect="lazy", request_timeout=0.3, stop_timeout=0.3)
    async with open_servers(config) as servers:
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match=r"tools/call 'add' timed out after 0.3 s .*was not sent"):
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
        assert trio.current_time() - began < 0.3 + MARGIN


async def test_a_lazy_server_that_cannot_be_connected_says_why() -> None:
    """S2-09: at the first call, with the name of the command."""
    config = ServerConfig("a", Stdio("no-such-program-anywhere"), connect="lazy", restarts=NEVER)
    async with open_servers(config) as servers:
        with pytest.raises(ServerUnavailable, match="no-such-program-anywhere"):
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
        assert servers["a"].state == "failed"


async def test_a_lazy_server_whose_first_connect_fails_is_tried_again(tmp_path: Path) -> None:
    flags = ("--fail-first", "1", str(tmp_path / "starts"))
    async with open_servers(server("a", *flags, connect="lazy", restarts=AT_ONCE)) as servers:
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"


@pytest.mark.parametrize("how", ["start", "wait_ready", "restart", "list_tools", "reconnect"])
async def test_every_request_connects_a_lazy_server(how: str) -> None:
    async with open_servers(server("a", connect="lazy")) as servers:
        ref = servers["a"]
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "start": ref.start,
            "wait_ready": ref.wait_ready,
            "restart": ref.restart,
            "list_tools": ref.list_tools,
            "reconnect": partial(servers.reconnect, "a"),
        }
        with trio.fail_after(BOUND):
            await ways[how]()
            await ref.wait_state("ready")


async def test_a_lazy_server_that_was_stopped_is_not_woken_by_a_call() -> None:
    async with open_servers(server("a", connect="lazy")) as servers:
        await servers["a"].start()
        await servers["a"].stop()
        with pytest.raises(ServerUnavailable, match=r"is stopped; .*start\(\)"):
            await servers["a"].list_tools()


def here(name: str, **options: Any) -> ServerConfig:
    """Configure a lazy server in this process with a tool that says its name."""
    library = MCPServer(name)
    library.add_tool(lambda: name, name="who", description="Say its name.")
    # Not the modern era: a connect that is cancelled there may leave a coroutine of the SDK that was never awaited.
    return ServerConfig(name, InProcess(library), connect="lazy", protocol="legacy", **options)


async def tasks_of(number: int) -> int:
    """Return how many tasks there are while a group of so many lazy servers is open."""
    async with open_servers(*(here(f"s{each}") for each in range(number))):
        await wait_all_tasks_blocked()
        return trio.lowlevel.current_statistics().tasks_living


async def test_a_lazy_server_that_was_not_used_has_no_task() -> None:
    assert await tasks_of(20) == await tasks_of(1)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_lazy_server_is_drawn_as_stopped_until_it_is_used(replicas: int) -> None:
    async with open_servers(server("a", connect="lazy", replicas=replicas)) as servers:
        states = {node.id: node.state for node in servers.tree().walk()}
        assert (states["a:supervisor"], states["a"]) == ("stopped", "stopped")
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"
        states = {node.id: node.state for node in servers.tree().walk()}
        assert (states["a:supervisor"], states["a"]) == ("running", "running")


@pytest.mark.parametrize("ticks", range(12))
async def test_a_lazy_server_that_is_stopped_while_its_first_call_wakes_it_stays_stopped(
    ticks: int, caplog: pytest.LogCaptureFixture
) -> None:
    """At each step on the way from the call to the connection; what waits is answered."""
    outcomes: list[str] = []
    async with open_servers(here("a")) as servers:

        async def call() -> None:
            try:
                outcomes.append(text_of(await servers["a"].call_tool("who")))
            except (ServerUnavailable, ConnectionLost) as exc:
                outcomes.append(type(exc).__name__)

        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                await servers["a"].stop()
            assert servers["a"].state == "stopped"
            assert len(outcomes) == 1
            await servers["a"].start()
            assert text_of(await servers["a"].call_tool("who")) == "a"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("ticks", range(1, 9))
@pytest.mark.parametrize(
    "changes", ["start stop start", "stop start", "start stop start stop start", "stop start stop"]
)
async def test_the_latest_start_or_stop_of_an_unused_server_wins(changes: str, ticks: int) -> None:
    """At each step of the others. Only a start that a stop has overtaken says so (C-62)."""
    refused: list[tuple[str, str]] = []
    async with open_servers(here("a")) as servers:

        async def make(change: str) -> None:
            try:
                await getattr(servers["a"], change)()
            except ServerUnavailable as exc:
                refused.append((change, str(exc)))

        with trio.fail_after(BOUND):
            async with trio.open_nursery() as nursery:
                for change in changes.split():
                    nursery.start_soon(make, change)
                    for _ in range(ticks):
                        await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked()
            assert servers["a"].state == ("ready" if changes.endswith("start") else "stopped")
    assert all(change == "start" and "was stopped meanwhile" in text for change, text in refused)


async def test_a_request_after_a_stop_has_begun_does_not_start_an_unused_server() -> None:
    async with open_servers(here("a")) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(servers["a"].stop)
        while servers["a"].state == "pending":
            await trio.lowlevel.checkpoint()
        with pytest.raises(ServerUnavailable, match="is stopped"):
            await servers["a"].call_tool("who")


@pytest.mark.parametrize("ticks", range(12))
async def test_a_lazy_server_may_be_removed_at_each_step_of_its_first_start(
    ticks: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_servers(here("a"), here("b")) as servers, trio.open_nursery() as nursery:

        async def start() -> None:
            with suppress(ServerUnavailable):
                await servers["a"].start()

        with trio.fail_after(BOUND):
            nursery.start_soon(start)
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            if "a" in servers:
                await servers.remove("a")
            assert list(servers) == ["b"]
            await servers.add(here("a"))
            assert text_of(await servers["a"].call_tool("who")) == "a"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_lazy_server_that_is_stopped_before_its_first_use_can_be_started() -> None:
    async with open_servers(here("a")) as servers:
        await servers["a"].stop()
        assert servers["a"].state == "stopped"
        with pytest.raises(ServerUnavailable, match=r"is stopped; .*start\(\)"):
            await servers["a"].call_tool("who")
        await servers["a"].start()
        assert text_of(await servers["a"].call_tool("who")) == "a"


async def test_a_reload_leaves_an_unused_server_without_a_task_and_wakes_one_that_is_no_longer_lazy() -> None:
    async with open_servers(here("a"), here("b")) as servers:
        await servers.reload(here("a", max_in_flight=2), here("b", max_in_flight=2))
        await wait_all_tasks_blocked()
        assert {node.state for node in servers.tree().walk() if ":supervisor" in node.id} == {"stopped"}
        await servers.reload(here("a"), evolve(here("b"), connect="eager"))
        assert [(ref.name, ref.state) for ref in servers.configured] == [("a", "pending"), ("b", "ready")]
        assert text_of(await servers["a"].call_tool("who")) == "a"


def test_a_server_cannot_be_lazy_and_required() -> None:
    with pytest.raises(ConfigError, match="server 'a': connect='lazy' is not valid; a required server is connected"):
        ServerConfig("a", Stdio("x"), connect="lazy", required=True)


def test_an_unknown_way_to_connect_is_refused() -> None:
    with pytest.raises(ConfigError, match="server 'a': connect='later' is not valid; choose 'eager' or 'lazy'"):
        ServerConfig("a", Stdio("x"), connect="later")  # type: ignore[arg-type]  # a typo


async def test_a_lazy_server_of_a_group_that_was_left_says_so() -> None:
    """Not in the kernel's words."""
    async with open_servers(server("a", connect="lazy"), server("b", connect="lazy")) as servers:
        pass
    for ask in (servers["a"].list_tools, servers["b"].wait_ready):
        with pytest.raises(ServerUnavailable, match=r"its open_servers\(\) block has exited"):
            await ask()
