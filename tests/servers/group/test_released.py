"""A server that was removed is held by nothing of its group."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.server.mcpserver import MCPServer
from trio.testing import wait_all_tasks_blocked

from mcp_actors import (
    ConnectFailed,
    Http,
    InProcess,
    ServerConfig,
    ServerRef,
    ServerUnavailable,
    Sse,
    Stdio,
    open_servers,
)
from mcp_actors.servers._deadlines import Deadlines, DeadlineTimer
from mcp_actors.servers._dispatcher import LinkDispatcher
from mcp_actors.servers._session import ConnectionSession
from mcp_actors.servers.connection import ServerActor
from mcp_actors.servers.connection._direct import DirectRequests, WindDown
from mcp_actors.servers.record import ServerRecord
from mcp_actors.servers.requests import ListTools
from mcp_actors.transports import Link, Masker
from mcp_actors.transports._link import Lifeline

from ..faults.http_faults import faulty_server
from ..groups import existing
from ..links import hanging_look_up
from ..peers import SsePeer
from ..processes import eventually
from ..scripted_server import command

OF_A_CONNECTION: Final = (ServerActor, ConnectionSession, WindDown, DirectRequests, Link, Lifeline, Masker)


def configured(kind: str, **options: Any) -> ServerConfig:
    if kind == "in process":
        return ServerConfig("a", InProcess(MCPServer("a")), **options)
    program, args = command()
    return ServerConfig("a", Stdio(program, args, env={"API_KEY": "s3cret-s3cret"}), protocol="legacy", **options)


@contextmanager
def without_collector() -> Iterator[None]:
    """Let objects die by their last reference only, not by the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def parts_of(record: ServerRecord) -> dict[str, weakref.ref[Any]]:
    """Refer weakly to a record and to all that belongs to its server."""
    config, catalog = record.config, record.catalog
    parts = {
        "record": record,
        "configuration": config,
        "credentials": config.transport,
        "life": record.life,
        "deadlines": record.calls.deadlines,
        "catalogue": catalog,
        "validators": catalog.checks,
        "listeners": record.listeners,
        "subscriptions": record.subscriptions,
        **{f"health of {each.name}": each.health for each in record.connections},
    }
    return {name: weakref.ref(each) for name, each in parts.items()}


def living(parts: dict[str, weakref.ref[Any]]) -> list[str]:
    return [name for name, part in parts.items() if part() is not None]


@pytest.mark.parametrize("seconds", [86_400.0, None])
@pytest.mark.parametrize("kind", ["in process", "stdio", "replicas"])
async def test_all_that_belongs_to_a_removed_server_is_released_at_once(kind: str, seconds: float | None) -> None:
    """D-56: without the garbage collector, whatever its request_timeout, and although other servers are used."""
    limits = {"request_timeout": seconds, "progress_timeout": seconds}
    async with open_servers(ServerConfig("other", InProcess(MCPServer("other")))) as group:
        await group.add(configured(kind, **limits, **({"replicas": 2} if kind == "replicas" else {})))
        await group["a"].wait_state("ready")
        await group["a"].list_tools()
        with suppress(MCPError):  # or a result that is an error
            await group["a"].call_tool("no such tool")
        await group["other"].list_tools()
        await wait_all_tasks_blocked()
        with without_collector():
            parts = parts_of(group._roster.records["a"])
            assert living(parts) == [*parts]
            await group.remove("a")
            await wait_all_tasks_blocked()
            assert living(parts) == []
        await group["other"].list_tools()


async def test_a_server_that_is_removed_while_its_program_is_looked_up_is_released_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-56: the thread of the look-up may hang for hours, on a dead file server."""
    with hanging_look_up(monkeypatch) as begun:
        async with open_servers() as group, trio.open_nursery() as nursery:

            async def add() -> None:
                with suppress(ServerUnavailable):  # removed while it starts
                    await group.add(configured("stdio", required=False))

            nursery.start_soon(add)
            await begun.wait()
            with without_collector():
                parts = parts_of(group._roster.records["a"])
                await group.remove("a")
                await wait_all_tasks_blocked()
                assert living(parts) == []


async def test_a_server_that_is_removed_while_a_replica_opens_its_session_is_released_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-56: anyio keeps the cancellation of a task that it starts, and so the frames of the connect."""
    run, starting = LinkDispatcher.run, []

    async def second_never_starts(self: LinkDispatcher, *args: Any, **options: Any) -> None:
        starting.append(self.server)
        if len(starting) == 2:
            await trio.sleep_forever()
        await run(self, *args, **options)

    async with open_servers() as group:
        monkeypatch.setattr(LinkDispatcher, "run", second_never_starts)
        await group.add(configured("stdio", replicas=2))
        await eventually(lambda: len(starting) == 2 and group["a"].state == "ready")
        starting.clear()
        with without_collector():
            parts = parts_of(group._roster.records["a"])
            await group.remove("a")
            await wait_all_tasks_blocked()
            assert living(parts) == []


async def test_a_start_that_fails_by_a_removal_keeps_nothing() -> None:
    """D-56."""

    async def start(ref: ServerRef) -> None:
        with suppress(ServerUnavailable):
            await ref.start()

    async with open_servers(configured("stdio", connect="lazy")) as group, trio.open_nursery() as nursery:
        with without_collector():
            parts = parts_of(group._roster.records["a"])
            nursery.start_soon(start, group["a"])
            await eventually(lambda: group["a"].state == "connecting")
            await group.remove("a")
            await wait_all_tasks_blocked()
            assert {*living(parts)} <= {"configuration", "credentials"}  # those of the sources, which a reload reads


async def test_a_required_server_that_could_not_be_added_is_released_at_once() -> None:
    """D-56."""
    program = Stdio("no-such-program", env={"API_KEY": "s3cret-s3cret"})
    async with open_servers() as group:
        with without_collector():
            before = existing(ServerRecord)
            with suppress(ConnectFailed):
                await group.add(ServerConfig("a", program, required=True))
            await wait_all_tasks_blocked()
            assert existing(ServerRecord) == before


@contextmanager
def serving(kind: str) -> Iterator[ServerConfig]:
    match kind:
        case "http":
            with faulty_server("legacy") as server:
                yield ServerConfig("a", Http(f"http://127.0.0.1:{server.port}/mcp"))
        case "sse":
            with closing(SsePeer()) as peer:
                yield ServerConfig("a", Sse(peer.url("/sse")))
        case _:
            yield configured(kind.rpartition(", ")[2], **({"protocol": "legacy"} if kind.startswith("legacy") else {}))


@pytest.mark.parametrize("kind", ["in process", "legacy, in process", "stdio", "http", "sse"])
async def test_all_that_belongs_to_an_old_connection_is_released_at_once(kind: str) -> None:
    """D-56: without the garbage collector, with the credentials that its link knows."""
    gc.collect()
    others = {id(each): each for each in existing(*OF_A_CONNECTION)}
    with serving(kind) as config:
        async with open_servers(config) as group:
            await group["a"].restart()
            if kind == "stdio":
                with suppress(MCPError):
                    await group["a"].call_tool("no such tool")
            await group["a"].list_tools()
            with without_collector():
                found = [each for each in existing(*OF_A_CONNECTION) if id(each) not in others]
                parts = {f"{number}: {type(each).__name__}": weakref.ref(each) for number, each in enumerate(found)}
                assert len({type(each) for each in found}) >= len(OF_A_CONNECTION) - 1
                del found
                await group["a"].restart()
                await wait_all_tasks_blocked()
                assert living(parts) == []


async def test_a_ref_that_the_program_keeps_shows_a_removed_server() -> None:
    """D-56: nothing else keeps it."""
    async with open_servers(configured("stdio", replicas=2, required=True)) as group:
        ref = group["a"]
        parts = parts_of(ref._record)
        await group.remove("a")
        await wait_all_tasks_blocked()
        status = ref.statistics()
        assert (status.state, status.replicas.total, status.replicas.serving) == ("stopped", 2, 0)
        assert (status.reason, ref.stderr_tail, ref.tool_changes.added) == ("asked to stop", "", ())
        with pytest.raises(ServerUnavailable, match="was removed from its group"):
            await ref.call_tool("any")
        with without_collector():
            assert {"record", "configuration", "credentials"} <= {*living(parts)}
            del ref
            assert living(parts) == ["configuration", "credentials"]  # those of the sources, which a reload reads


async def test_progress_that_comes_after_the_end_of_a_request_keeps_nothing() -> None:
    """D-56: its caller has left, and the server has not read that yet."""
    timer = DeadlineTimer()
    deadlines = Deadlines("a", 60.0, 60.0, timer)
    with deadlines.begin(ListTools()) as deadline:
        deadline.renew()
        assert [*timer.used] == [deadlines]
    deadline.renew()
    assert (len(deadlines._idle), [*timer.used]) == (0, [])
