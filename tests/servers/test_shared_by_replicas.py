"""Parts that the replicas of a server share.

Subscriptions, listings, approvals, the log level; and real processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import Any, Final

import pytest
import trio
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, ListRootsResult
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import (
    BreakerPolicy,
    Callbacks,
    ConnectionLost,
    RetryPolicy,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    bridge,
)
from mcp_actors.cli._check import _row
from mcp_actors.cli._connect import masker_of
from mcp_actors.kernel import Event, SupervisorRef
from mcp_actors.servers import (
    ReplicaChanged,
    ResourceUpdated,
    ServerGroup,
    ToolsDiffer,
)

from .changing import Changing, wait_shown
from .groups import AT_ONCE, BOUND, LATER, Events, server
from .library import TOOL, Library
from .links import text_of
from .processes import eventually
from .replicated import Shop, begin, open_servers, replica_states, replicated, server_states, who
from .scripted_server import command
from .test_kept_resources import announce

ONCE: Final = RetryPolicy(attempts=1)

# --- once for all replicas --------------------------------------------------------------------------------------------


def pool_of(group: ServerGroup, name: str) -> SupervisorRef:
    return group._supervisor.child(f"{name}:supervisor", SupervisorRef).child(name, SupervisorRef)


def owner(group: ServerGroup, name: str) -> str:
    """Return the name of the replica that has the subscriptions of a server."""
    connection: Any = group._roster.records[name].subscriptions.connection
    found: str = connection.actor.name
    return found


async def test_one_replica_has_the_subscriptions_and_another_takes_over(autojump_clock: MockClock) -> None:
    """S2-30: the server is subscribed to once; whichever replica is asked, and with a gap when it is lost."""
    library, uri = Library(), "file:///a"
    config = replicated(library.config(protocol="legacy"), 3)
    async with open_servers(config) as group:
        await trio.sleep(1)
        ref = group["library"]
        async with ref.subscribe(uri) as changes, ref.subscribe("file:///b"):
            assert [method for method in library.methods() if "subscribe" in method] == ["resources/subscribe"] * 2
            await library.change(uri)
            assert await anext(changes) == ResourceUpdated(uri)
            await pool_of(group, "library").stop_child(owner(group, "library"), keep_mailbox=True)
            assert await anext(changes) == ResourceUpdated(uri, missed=True)
            await trio.sleep(1)  # the other subscription is renewed too
            assert [method for method in library.methods() if "subscribe" in method] == ["resources/subscribe"] * 4
            await library.change(uri)
            assert await anext(changes) == ResourceUpdated(uri)
        await trio.sleep(1)
        assert library.subscribed == {}


async def test_a_subscription_does_not_notice_other_replicas_come_and_go(autojump_clock: MockClock) -> None:
    """Only the replica that has it renews it; otherwise its subscriber would read everything again."""
    library, uri = Library(), "file:///a"
    async with open_servers(replicated(library.config(protocol="legacy"), 2)) as group:
        await trio.sleep(1)
        pool = pool_of(group, "library")
        async with group["library"].subscribe(uri) as changes:
            [other] = {"library:1", "library:2"} - {owner(group, "library")}
            for change in (partial(pool.stop_child, keep_mailbox=True), pool.restart_child):
                await change(other)
                await trio.sleep(1)
                assert repr(changes) == "<Subscription to 1 resources, 0 changed>"
            await library.change(uri)
            assert await anext(changes) == ResourceUpdated(uri)


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_subscription_is_asked_for_again_if_the_replica_is_lost_meanwhile(
    autojump_clock: MockClock, attempts: int
) -> None:
    """If the policy allows it; otherwise the error names the replica, because the server still serves."""
    asked: list[object] = []

    async def hang_once(ctx: Any, params: Any) -> Any:
        asked.append(ctx.session)
        if len(asked) == 1:
            await trio.sleep_forever()
        return await library.subscribe(ctx, params)

    library = Library(on_subscribe_resource=hang_once)
    config = replicated(library.config(protocol="legacy", retry=RetryPolicy(attempts=attempts)), 2)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        await trio.sleep(1)
        pool = pool_of(group, "library")
        first = owner(group, "library")
        [other] = {"library:1", "library:2"} - {first}
        await pool.stop_child(other, keep_mailbox=True)
        await pool.restart_child(other)  # so it is next: the pool gives a message to the one that was used last
        await trio.sleep(1)

        async def subscribe() -> None:
            async with group["library"].subscribe("file:///a"):
                pass

        [outcome] = begin(nursery, 1, subscribe)
        await settle()
        assert [pool.child(name).statistics().in_flight for name in (first, other)] == [1, 1]
        nursery.start_soon(partial(pool.stop_child, first, keep_mailbox=True))
        with trio.fail_after(30):
            if attempts == 1:
                with pytest.raises(ConnectionLost, match=f"connection of replica '{first}' lost") as lost:
                    await outcome.result()
                assert lost.value.outcome == "unknown"
            else:
                await outcome.result()
        assert len(asked) == len(set(asked)) == min(attempts, 2)


LOSSES: Final = [("1", "2"), ("2", "3"), ("3", "1")]
"""Two of three replicas that are lost one after the other, so that each is once the first one."""


@pytest.mark.parametrize("losses", LOSSES)
async def test_changed_tools_are_listed_once_for_all_replicas(
    autojump_clock: MockClock, losses: tuple[str, ...]
) -> None:
    """S2-30: one of them lists, and another one when that is lost."""
    changing = Changing("legacy")
    async with open_servers(replicated(changing.config(), 3)) as group:
        await trio.sleep(60)
        for lost in (*losses, None):
            await group["here"].list_tools()
            before = changing.asked
            await changing.change(notices=3)
            await wait_shown(group, f"v{changing.version}", "same")
            await trio.sleep(60)
            assert changing.asked == before + 1
            if lost is not None:
                await pool_of(group, "here").stop_child(f"here:{lost}")


@pytest.mark.parametrize("losses", LOSSES)
async def test_changed_resources_are_listed_once_for_all_replicas(
    autojump_clock: MockClock, losses: tuple[str, ...]
) -> None:
    """S3-06: as the tools are."""
    library = Library()
    config = replicated(library.config(protocol="legacy", keep_resources=True), 3)
    async with open_servers(config) as group:
        ref = group["library"]
        await trio.sleep(60)
        for number, lost in enumerate((*losses, None)):
            await ref.list_tools()
            library.resources = library.resources[number:]
            before = len(library.asked)
            await announce(library)
            await trio.sleep(60)
            assert ref.resources == tuple(library.resources)
            again = [method for method, cursor in library.asked[before:] if cursor is None]
            assert again.count("resources/list") == 1
            if lost is not None:
                await pool_of(group, "library").stop_child(f"library:{lost}")


async def test_all_replicas_are_ready_again_once_one_of_them_has_listed_the_tools(autojump_clock: MockClock) -> None:
    """S2-23: the list is that of the server, so its failure is over for all of them."""
    changing, events = Changing("legacy"), Events()
    changing.answers = [MCPError(INTERNAL_ERROR, "the list is lost")] * 3
    config = replicated(changing.config(static_tools=[{"name": "same", "inputSchema": {"type": "object"}}]), 2)
    async with open_servers(config, observers=[events]) as group:
        await wait_shown(group, "v1", "same")
        assert changing.asked == 4
        for replica in group["here"].statistics().replicas.each:
            assert replica_states(events, replica.name) == ["connecting", "degraded", "ready"]
    assert server_states(events, "here") == ["connecting", "degraded", "ready", "stopping", "stopped"]


async def test_tools_are_accepted_once(autojump_clock: MockClock) -> None:
    """S2-30: one difference for all replicas that list the same tools, and one approval."""
    library, events = Library(), Events()
    config = replicated(library.config(protocol="legacy", on_tool_change="block"), 2)
    async with open_servers(config, observers=[events]) as group:
        await trio.sleep(1)
        ref = group["library"]
        library.tools = [TOOL, TOOL.model_copy(update={"name": "new"})]
        await ref.list_tools()
        assert len(events.of(ToolsDiffer)) == 1
        assert [tool.name for tool in group.tools] == ["search"]
        await ref.approve_tools(ref.tool_changes, "new")
        assert [tool.name for tool in group.tools] == ["search", "new"]
        await ref.restart()
        await trio.sleep(1)
        assert [tool.name for tool in group.tools] == ["search", "new"]


async def test_a_lost_replica_does_not_open_the_breaker_while_another_one_serves(autojump_clock: MockClock) -> None:
    """S2-30: its calls fail together, which says nothing about the others."""
    shop = Shop()
    config = shop.config(2, restarts=LATER, breaker=BreakerPolicy(failures=2, reset_after=600), retry=ONCE)
    async with open_servers(config) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        calls = begin(nursery, 6, ref.call_tool, "hold")
        await settle()
        shop.sessions[0].break_down.set()
        await settle()
        assert [type(call.error) for call in calls if call.over] == [ConnectionLost] * 3
        assert await who(group) == "2"
        shop.sessions[1].break_down.set()
        await settle()
        assert [type(call.error) for call in calls] == [ConnectionLost] * 6
        with pytest.raises(ServerUnavailable, match="circuit breaker open"):
            await who(group)


async def test_the_log_level_is_set_at_every_replica(autojump_clock: MockClock) -> None:
    """S4-23: at those that are connected, and at each that connects later."""
    library = Library()
    config = replicated(library.config(protocol="legacy"), 3)
    async with open_servers(config) as group:
        await trio.sleep(1)
        await group["library"].set_log_level("error")
        assert [about for method, about in library.asked if method == "logging/setLevel"] == ["error"] * 3
        await pool_of(group, "library").stop_child("library:2", keep_mailbox=True)
        await group["library"].set_log_level("info")
        await pool_of(group, "library").restart_child("library:2")
        await trio.sleep(1)
        assert [about for method, about in library.asked if method == "logging/setLevel"][3:] == ["info"] * 3


async def test_every_connected_replica_is_notified_of_changed_roots(autojump_clock: MockClock) -> None:
    notified: list[object] = []

    async def roots(_: object) -> ListRootsResult:
        raise AssertionError

    async def note(ctx: Any, _: object) -> None:
        notified.append(ctx.session)

    library = Library(on_roots_list_changed=note)
    config = replicated(library.config(protocol="legacy", callbacks=Callbacks(roots=roots)), 3)
    async with open_servers(config) as group:
        await trio.sleep(1)
        await group["library"].send_roots_list_changed()
        await settle()
        assert len(set(notified)) == len(notified) == 3
        await pool_of(group, "library").stop_child("library:2")
        await group["library"].send_roots_list_changed()
        await settle()
        assert len(notified) == 5


# --- other views ------------------------------------------------------------------------------------------------------


async def test_the_table_of_the_command_line_shows_how_many_replicas_serve(autojump_clock: MockClock) -> None:
    """S2-33: in the column of the state."""
    shop = Shop()
    async with open_servers(shop.config(restarts=LATER)) as group:
        await trio.sleep(1)
        assert _row(group["shop"].statistics(), trio.current_time())[1] == "ready 3/3"
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        assert _row(group["shop"].statistics(), trio.current_time())[1] == "ready 2/3"


async def test_the_table_of_the_command_line_shows_the_processes_that_run(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with open_servers(shop.config()) as group:
        await trio.sleep(1)
        for number in (0, 2):
            group._roster.records["shop"].connections[number].session.pid = 101 + number
        assert _row(group["shop"].statistics(), trio.current_time())[3] == "101 103"


async def test_the_command_line_masks_the_credentials_of_a_server_with_replicas() -> None:
    """B-18, D-01: with the masker of a connection. The server itself has none."""
    program, args = command()
    config = ServerConfig("a", Stdio(program, args, env={"API_KEY": "s3cret-s3cret"}), replicas=2, required=True)
    async with open_servers(config) as group:
        assert "s3cret" not in masker_of(group["a"])("the key is s3cret-s3cret")


# --- processes --------------------------------------------------------------------------------------------------------


async def test_kill_minus_9_of_one_process_of_three_takes_only_its_own_calls() -> None:
    """S2-30, S2-33: with calls in flight in each; another process replaces it, and the others never notice."""
    config = server("a", replicas=3, restarts=AT_ONCE, request_timeout=None)
    pids: list[int | None] = []

    def note(event: Event) -> None:
        if isinstance(event, ReplicaChanged) and event.new == "backoff":
            pids.extend(each.pid for each in ref.statistics().replicas.each if each.name == event.replica)

    async with open_servers(config, observers=[note]) as group:
        ref = group["a"]
        with trio.fail_after(BOUND):
            await eventually(lambda: ref.statistics().replicas.serving == 3)
            async with trio.open_nursery() as nursery:
                calls = begin(nursery, 6, ref.call_tool, "sleep", {"seconds": 3600})
                await eventually(lambda: ref.statistics().in_flight == 6)
                before = ref.statistics().replicas
                assert (before.total, before.active, before.idle) == (3, 3, 0)
                victim = max(before.each, key=lambda each: each.in_flight)
                others = {each.pid for each in before.each} - {victim.pid}
                assert victim.pid is not None
                os.kill(victim.pid, signal.SIGKILL)
                await eventually(lambda: sum(call.over for call in calls) == victim.in_flight)
                assert ref.state == "ready"
                assert pids == [None]
                await eventually(lambda: ref.statistics().replicas.serving == 3)
                after = ref.statistics().replicas
                assert {each.pid for each in after.each} - {victim.pid} > others
                lost = [call.error for call in calls if call.over]
                assert [type(error) for error in lost] == [ConnectionLost] * victim.in_flight
                assert "SIGKILL" in str(lost[0])
                answers = {int(text_of(await ref.call_tool("pid"))) for _ in range(3)}
                assert answers <= {each.pid for each in after.each}
                assert sum(call.over for call in calls) == victim.in_flight
                nursery.cancel_scope.cancel()


def test_asyncio_has_the_same_replicas() -> None:
    """S2-30, S2-33: with the same statistics."""

    async def main() -> None:
        async with bridge.open_servers(server("a", replicas=2, required=True)) as group:
            ref = group["a"]
            answers = await asyncio.gather(*(ref.call_tool("pid") for _ in range(4)))
            replicas = ref.statistics().replicas
            assert (replicas.total, replicas.active, replicas.idle) == (2, 0, 2)
            assert {int(text_of(each)) for each in answers} <= {each.pid for each in replicas.each}

    asyncio.run(main())
