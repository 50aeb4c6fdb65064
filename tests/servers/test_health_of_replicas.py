"""The health of a server with replicas: what its checks, a drain and a start make of one that does not answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import ConnectionLost, HealthPolicy, ServerGroup, StateChanged, open_servers
from mcp_actors.kernel import ActorRef
from mcp_actors.servers import Draining, Health, NotSupported
from mcp_actors.servers.record import ConnectionRecord
from mcp_actors.servers.ref import _ref

from .groups import FOR_A_WHILE, LATER, Events
from .replicated import Shop, begin, who

UNCHECKED = HealthPolicy(interval=None)


def replicas_of(group: ServerGroup) -> tuple[ConnectionRecord, ...]:
    return group._roster.records["shop"].connections


def let_fail(*replicas: ConnectionRecord) -> None:
    """Count a failure of a check for each."""
    for each in replicas:
        each.health._climb(each.health.ladder.failed(trio.current_time(), trio.current_time()))


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_a_server_is_drained_while_one_of_its_replicas_answers(autojump_clock: MockClock, failing: int) -> None:
    shop, events = Shop(), Events()
    async with (
        open_servers(shop.config(2, health=UNCHECKED), observers=[events]) as group,
        trio.open_nursery() as nursery,
    ):
        await trio.sleep(1)
        begin(nursery, 2, group["shop"].call_tool, "hold")
        await settle()
        let_fail(*replicas_of(group)[:failing])
        nursery.start_soon(group["shop"].restart)
        await trio.sleep(1)
        assert len(events.of(Draining)) == (failing < 2)
        shop.let_go()


async def test_a_lost_replica_does_not_hide_that_the_others_do_not_answer(autojump_clock: MockClock) -> None:
    """Neither from a drain nor from the status, which is that of the best connected one."""
    shop, events = Shop(), Events()
    config = shop.config(2, health=UNCHECKED, restarts=LATER)
    async with open_servers(config, observers=[events]) as group, trio.open_nursery() as nursery:
        ref = group["shop"]
        await trio.sleep(1)
        let_fail(*replicas_of(group)[:1])
        assert ref.statistics().health.failures == 0
        let_fail(*replicas_of(group)[1:])
        assert ref.statistics().health.failures == 1
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        [lost] = [each for each in replicas_of(group) if each.life.state == "backoff"]
        lost.health.forgive()
        assert ref.statistics().health.failures == 1
        begin(nursery, 1, ref.call_tool, "hold")
        await settle()
        nursery.start_soon(ref.restart)
        await trio.sleep(1)
        assert not events.of(Draining)
        shop.let_go()


async def test_an_explicit_start_forgives_all_replicas(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with open_servers(shop.config(2, health=UNCHECKED)) as group:
        await trio.sleep(1)
        let_fail(*replicas_of(group))
        await group["shop"].stop()
        await group["shop"].start()
        await trio.sleep(1)
        assert [each.health.failing for each in replicas_of(group)] == [False, False]
        let_fail(*replicas_of(group))
        await group["shop"].start()  # it serves, so nothing begins anew
        assert [each.health.failing for each in replicas_of(group)] == [True, True]


async def test_a_request_about_the_session_does_not_wait_for_a_replica_that_is_down(autojump_clock: MockClock) -> None:
    """Nor does a check, whose result is the worst of the connected ones."""
    shop = Shop()
    async with open_servers(shop.config(2, restarts=LATER, health=UNCHECKED)) as group:
        await trio.sleep(1)
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        begun = trio.current_time()
        with pytest.raises(NotSupported, match="logging"):
            await group["shop"].set_log_level("info")
        assert (await group["shop"].check_health()).status == "healthy"
        assert trio.current_time() == begun


async def test_the_reason_of_a_server_is_that_of_its_best_replica(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    shop, events = Shop(), Events()
    config = shop.config(2, connect="lazy", restarts=FOR_A_WHILE, health=UNCHECKED, connect_timeout=None)
    async with open_servers(config, observers=[events]) as group:
        ref = group["shop"]
        await who(group)
        await trio.sleep(1)
        shop.open = trio.Event()
        for session in list(shop.sessions):
            session.break_down.set()
            await settle()
        assert (ref.state, ref.statistics().reason) == ("connecting", "connect number 2")
        assert events.of(StateChanged)[-1].reason == "connect number 2"
        shop.refuses = 2
        shop.open.set()
        await trio.sleep(1)
        assert ref.state == "failed"
        parked = [text for text in caplog.messages if "parked" in text]
        assert len([text for text in parked if "replica" in text and "next attempt in" in text]) == 2
        info = ref.info
        await group.reload(shop.config(1, restarts=FOR_A_WHILE))
        await ref.wait_ready()
        assert ref.statistics().reason == "connected, 2 tools"
        assert info.name == ref.info.name == "shop"


@pytest.mark.parametrize(
    ("latencies", "result"), [((0.1, 0.3, 0.2), ("healthy", 0.3)), ((0.1, None, 0.2), ("unhealthy", None))]
)
async def test_a_check_returns_the_worst_result(
    latencies: tuple[float | None, ...],
    result: tuple[str, float | None],
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(record: ConnectionRecord, _: ActorRef) -> Health:
        latency = latencies[replicas_of(group).index(record)]
        await trio.sleep(latency or 0.0)
        status: Literal["healthy", "unhealthy"] = "unhealthy" if latency is None else "healthy"
        return Health(status=status, message="checked", latency=latency, checked_at=datetime.now(UTC))

    monkeypatch.setattr(_ref, "check_health", check)
    async with open_servers(Shop().config(3, health=UNCHECKED)) as group:
        await trio.sleep(1)
        worst = await group["shop"].check_health()
        assert (worst.status, worst.latency) == result


async def test_a_lost_replica_is_not_idle_and_keeps_its_error(autojump_clock: MockClock) -> None:
    """S2-33: and the other one has neither a restart nor an error."""
    shop = Shop()
    async with open_servers(shop.config(2, restarts=LATER, health=UNCHECKED)) as group:
        await trio.sleep(1)
        shop.sessions[0].break_down.set()
        await trio.sleep(1)
        replicas = group["shop"].statistics().replicas
        assert (replicas.total, replicas.active, replicas.idle) == (2, 0, 1)
        lost, other = sorted(replicas.each, key=lambda each: each.state)
        assert (lost.state, type(lost.last_error), lost.restarts) == ("backoff", ConnectionLost, 0)
        assert (other.state, other.last_error, other.restarts) == ("ready", None, 0)
        await group["shop"].restart()
        await trio.sleep(1)
        again = group["shop"].statistics().replicas.each
        assert [(each.incarnation, each.restarts) for each in again] == [(2, 1), (2, 1)]
