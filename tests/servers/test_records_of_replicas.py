"""The record of a server with replicas, event by event."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from trio.testing import MockClock

from mcp_actors import InProcess, LimitExceeded, ServerConfig
from mcp_actors.kernel import Crashed, Event, Restarting, Started, StartFailed, Starting, Stopping
from mcp_actors.servers import Flooded, LimitReached, ReplicaChanged, ServerState
from mcp_actors.servers.record import ServerRecord
from mcp_actors.servers.record._states import rank
from mcp_actors.servers.ref import ServerEntry, Wish
from mcp_actors.servers.ref._operations import outcome_of

from .replicated import begin, replicated

FIRST, SECOND = "shop:1", "shop:2"


class Pair:
    """The record of a server with two replicas, without the actors whose events it follows."""

    def __init__(self, **options: Any) -> None:
        self.emitted: list[Event] = []
        config = replicated(ServerConfig("shop", InProcess(MCPServer("shop")), **options), 2)
        self.record = ServerRecord(config, self.emitted.append, required=False)

    def follow(self, kind: type[Event], replica: str, incarnation: int = 1, **fields: Any) -> list[Event]:
        event = kind(actor=replica, incarnation=incarnation, time=trio.current_time(), **fields)
        return list(self.record.follow(event))

    def fail(self, replica: str, why: str, incarnation: int = 1) -> None:
        """Let a connect fail; another one follows."""
        self.follow(StartFailed, replica, incarnation, error=OSError(why))
        self.follow(Restarting, replica, incarnation, attempt=1, delay=1.0)


async def test_the_incarnation_and_the_failures_are_those_of_the_best_replica() -> None:
    pair = Pair()
    for replica, incarnation in ((FIRST, 1), (SECOND, 1), (SECOND, 2)):
        pair.follow(Starting, replica, incarnation)
        pair.fail(replica, "it refuses", incarnation)
    life = pair.record.life
    assert (life.state, life.incarnation, life.failures) == ("backoff", 1, 1)
    pair.follow(Starting, SECOND, 3)
    assert (life.state, life.incarnation, life.failures) == ("connecting", 3, 2)
    pair.follow(Started, SECOND, 3)
    assert (life.state, life.incarnation, life.failures, life.error) == ("ready", 3, 0, None)


async def test_the_reason_follows_the_best_replica_also_if_the_state_stays() -> None:
    """Each change of a replica is an event that has its own reason."""
    pair = Pair()
    pair.follow(Starting, FIRST)
    pair.follow(Starting, SECOND)
    pair.fail(SECOND, "it refuses")
    [changed] = pair.follow(Starting, SECOND, 2)
    assert isinstance(changed, ReplicaChanged)
    assert (changed.replica, changed.reason) == (SECOND, "connect number 2")
    assert pair.record.life.reason == "first connect"
    pair.fail(FIRST, "it refuses")
    assert (pair.record.life.state, pair.record.life.reason) == ("connecting", "connect number 2")


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("stopping", "connecting"),  # its requests are being finished
        ("connecting", "backoff"),
        ("backoff", "needs_auth"),  # it comes back by itself
        ("needs_auth", "failed"),  # the remedy is known
    ],
)
def test_the_state_is_that_of_the_replica_that_promises_the_most(better: ServerState, worse: ServerState) -> None:
    assert rank(better) < rank(worse)


async def test_a_wait_for_a_server_ends_when_all_its_replicas_are_overdue(autojump_clock: MockClock) -> None:
    pair = Pair(connect_timeout=10)
    life = pair.record.life
    waits = partial(
        outcome_of, Wish(cast("ServerEntry", SimpleNamespace(record=pair.record)), life.wanted, life.wanted)
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for replica in (FIRST, SECOND):
                pair.follow(Starting, replica)
            [wait] = begin(nursery, 1, waits)
            await trio.sleep(10)
            pair.record.connections[1].life.note_overdue("the second one is late")
            await trio.sleep(10)
            assert (wait.over, life.overdue) == (False, None)
            pair.record.connections[0].life.note_overdue("the first one is late")
            assert await wait.result() == "done"
    assert life.overdue == "the first one is late"


async def test_the_credentials_of_every_replica_are_masked() -> None:
    pair = Pair()
    for replica, secret in zip(pair.record.connections, ("hunter-one", "hunter-two"), strict=True):
        replica.session.masker.add(f"<{replica.name}>", secret)
    pair.record.catalog._reporter.over_limit(LimitExceeded("hunter-one or hunter-two", server="shop"))
    [event] = pair.emitted
    assert isinstance(event, LimitReached)
    assert str(event.error) == "<shop:1> or <shop:2>"


async def test_an_event_of_a_replica_is_one_of_its_server() -> None:
    pair = Pair()
    pair.record.connections[1].life.emit(Flooded, limit=100)
    [event] = pair.emitted
    assert isinstance(event, Flooded)
    assert (event.server, event.limit) == ("shop", 100)


async def test_a_draining_server_says_so_though_its_replicas_serve() -> None:
    pair = Pair()
    life = pair.record.life
    for replica in (FIRST, SECOND):
        pair.follow(Starting, replica)
        pair.follow(Started, replica)
    life.begin_to_drain(2, 30.0, life.connections)
    assert (life.state, life.reason) == ("stopping", "finishing 2 requests, for at most 30 s")
    pair.record.connections[1].life.note_failure(OSError("it broke down"))
    pair.follow(Stopping, SECOND, reason="shutdown")
    assert (life.state, life.reason) == ("stopping", "finishing 2 requests, for at most 30 s")


async def test_a_replica_that_is_late_is_noticed_when_the_last_one_that_serves_is_lost() -> None:
    pair = Pair()
    for replica in (FIRST, SECOND):
        pair.follow(Starting, replica)
    pair.follow(Started, FIRST)
    pair.record.connections[1].life.note_overdue("the second one is late")
    pair.follow(Crashed, FIRST, error=OSError("it broke down"))
    assert (pair.record.life.state, pair.record.life.overdue) == ("connecting", "the second one is late")
