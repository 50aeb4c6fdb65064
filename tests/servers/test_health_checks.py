"""Health checks in virtual time, with a server in the same process that answers on request."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from typing import Any, Final

import pytest
import trio
import trio.lowlevel
from mcp import MCPError
from mcp.server import Server
from mcp.types import CallToolRequestParams, CallToolResult, EmptyResult, ListToolsResult, TextContent, Tool
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import (
    ConnectionLost,
    HealthPolicy,
    InProcess,
    RequestTimedOut,
    RestartPolicy,
    ServerConfig,
    ServerUnavailable,
    StateChanged,
    open_servers,
)
from mcp_actors.servers import ServerGroup

from .fleet import calls
from .groups import AT_ONCE, Events, server as stdio_server, state

FAST: Final = HealthPolicy(interval=10, timeout=1, silence=30)


class Moody:
    """A server that answers pings, lists and calls while it is well, and else not at all."""

    def __init__(self) -> None:
        self.well = trio.Event()
        self.well.set()
        self.pings: list[float] = []
        self.refusal: MCPError | None = None
        self.ignores_pings = False
        self.server: Server[Any] = Server(
            "moody", on_ping=self._ping, on_list_tools=self._list_tools, on_call_tool=self._call
        )

    def freeze(self) -> None:
        """Answer nothing from now on."""
        self.well = trio.Event()

    def config(self, name: str = "a", **options: Any) -> ServerConfig:
        """Configure it; legacy, where the SDK leaves the answer to a ping to us."""
        return ServerConfig(
            name, InProcess(self.server), **{"protocol": "legacy", "health": FAST, "restarts": AT_ONCE, **options}
        )

    async def _ping(self, context: object, params: object) -> EmptyResult:
        self.pings.append(trio.current_time())
        await self.well.wait()
        if self.ignores_pings:
            await trio.sleep_forever()
        if self.refusal is not None:
            raise self.refusal
        return EmptyResult()

    async def _list_tools(self, context: object, params: object) -> ListToolsResult:
        await self.well.wait()
        return ListToolsResult(tools=[Tool(name="hold", input_schema={"type": "object"})])

    async def _call(self, context: object, params: CallToolRequestParams) -> CallToolResult:
        await self.well.wait()
        await trio.sleep((params.arguments or {}).get("seconds", 0))
        return CallToolResult(content=[TextContent(type="text", text="held")])


@asynccontextmanager
async def moody(**options: Any) -> AsyncIterator[tuple[Moody, ServerGroup, Events]]:
    """Open a group of one such server."""
    server, events = Moody(), Events()
    with trio.fail_after(5_000):  # of virtual time, as there is always another check to come
        async with open_servers(server.config(**options), observers=[events]) as servers:
            events.clear()
            yield server, servers, events


def changes(events: Events) -> list[tuple[str, float]]:
    """Return the states that came, and when."""
    return [(event.new, event.time) for event in events.of(StateChanged)]


async def test_a_server_that_answers_is_asked_once_an_interval_and_nothing_happens(autojump_clock: MockClock) -> None:
    """S2-28."""
    async with moody() as (server, servers, events):
        await trio.sleep(35)
        assert server.pings == [10, 20, 30]
        assert changes(events) == []
        health = servers.status()["a"].health
        assert (health.status, health.failures, health.last_error) == ("healthy", 0, None)
        assert health.last_check is not None
        assert (health.last_check.status, health.last_check.checked_at.tzinfo) == ("healthy", UTC)


async def test_without_an_interval_it_is_never_asked(autojump_clock: MockClock) -> None:
    """S2-28."""
    async with moody(health=HealthPolicy(interval=None)) as (server, _, _):
        await trio.sleep(1000)
        assert server.pings == []


async def test_a_silent_server_goes_down_the_ladder_is_restarted_and_given_up(autojump_clock: MockClock) -> None:
    """S2-24, S2-25: the next check follows a failed one at once, but a restart waits for ``silence``."""
    async with moody(health=HealthPolicy(interval=10, timeout=1, silence=3)) as (server, servers, events):
        server.freeze()
        await servers["a"].wait_state("connecting")
        server.well.set()
        await servers["a"].wait_state("ready")
        server.freeze()
        await servers["a"].wait_state("failed")
    assert changes(events)[:8] == [
        ("degraded", 12),
        ("unhealthy", 13),
        ("backoff", 15),
        ("connecting", 15),
        ("ready", 15),
        ("unhealthy", 17),
        ("backoff", 21),
        ("failed", 21),
    ]


async def test_an_answer_resets_the_health(autojump_clock: MockClock) -> None:
    """S2-25: it says what it was, and what it is."""
    async with moody() as (server, servers, events):
        server.freeze()
        await servers["a"].wait_state("unhealthy")
        assert servers.connected == servers.failed == servers.configured
        assert servers.active == ()
        assert not servers.tools.find("mcp__a__hold").available
        error = servers.errors["a"]
        assert isinstance(error, RequestTimedOut)
        assert (error.limit, error.seconds) == ("health_timeout", 1)
        assert servers.status()["a"].health.failures == 3
        server.well.set()
        await servers["a"].wait_state("ready")
        assert (servers.errors, servers.failed, servers.active) == ({}, (), servers.configured)
    assert changes(events)[:3] == [("degraded", 12), ("unhealthy", 13), ("ready", 13)]
    assert "3 failures in a row" in events.of(StateChanged)[1].reason
    assert "answers again" in events.of(StateChanged)[2].reason


async def test_an_error_is_an_answer(autojump_clock: MockClock) -> None:
    """S2-27: a server that refuses to be pinged is alive."""
    async with moody() as (server, servers, events):
        server.refusal = MCPError(-32601, "Method not found")
        assert (await servers["a"].check_health()).status == "healthy"
        await trio.sleep(55)
        assert (changes(events), len(server.pings)) == ([], 6)


async def test_requests_that_time_out_in_silence_are_evidence_and_ask_for_a_check(autojump_clock: MockClock) -> None:
    """A-13, B-06: three in a row, long before a check is due; a burst is one of them."""
    policy = HealthPolicy(interval=3600, timeout=100, silence=1000)
    async with moody(health=policy, request_timeout=5) as (server, servers, events):
        await servers["a"].check_health()
        server.freeze()
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(expect_timeout, servers)
        assert changes(events) == [("degraded", 10), ("unhealthy", 15)]
        assert server.pings == [0, 5]


async def expect_timeout(servers: ServerGroup) -> None:
    """Call the tool, in vain."""
    with pytest.raises(RequestTimedOut):
        await servers["a"].call_tool("hold")


async def expect_loss(servers: ServerGroup) -> None:
    """Call the tool of a server that is going to be restarted."""
    with pytest.raises(ConnectionLost, match="health check timed out after"):
        await servers["a"].call_tool("hold")


async def test_a_slow_tool_is_not_evidence_against_a_server_that_answers(autojump_clock: MockClock) -> None:
    """A-13: what is asked after the first time-out is answered."""
    async with moody(request_timeout=5) as (_, servers, events):
        for _ in range(10):
            with pytest.raises(RequestTimedOut):
                await servers["a"].call_tool("hold", {"seconds": 60})
        assert changes(events) == []


async def test_an_answered_request_is_a_sign_of_health(autojump_clock: MockClock) -> None:
    """S2-25: at once, and also if no check is answered."""
    async with moody() as (server, servers, _):
        assert (await servers["a"].check_health()).status == "healthy"
        server.ignores_pings = True
        await servers["a"].wait_state("unhealthy")
        await servers["a"].call_tool("hold")
        assert servers["a"].state == "ready"
        assert servers.status()["a"].health.failures == 0


async def test_a_check_overtakes_all_queued_requests(autojump_clock: MockClock) -> None:
    """B-07: past a full mailbox and past ``max_in_flight=1``, and takes no slot."""
    async with moody(max_in_flight=1, mailbox_size=1, request_timeout=None) as (server, servers, events):
        async with calls(5, servers["a"].call_tool, "hold", {"seconds": 25}):
            await trio.sleep(24)
            assert server.pings == [10, 20]
            health = await servers["a"].check_health()
            assert (health.status, health.latency) == ("healthy", 0)
        assert changes(events) == []


async def test_check_health_can_be_called_within_a_request(autojump_clock: MockClock) -> None:
    """B-07: it does not wait for the request that it is asked from, whatever ``max_in_flight`` is."""
    found = []

    async def ask(request: Any, call_next: Any) -> Any:
        found.append(await servers["a"].check_health())
        return await call_next(request)

    async with moody(max_in_flight=1, middleware=(ask,)) as (_, servers, _):
        await servers["a"].call_tool("hold")
    assert [health.status for health in found] == ["healthy"]


async def test_a_server_that_has_left_its_group_is_unhealthy() -> None:
    async with open_servers(stdio_server("a"), stdio_server("b")) as servers:
        refs = servers["a"], servers["b"]
        await servers.remove("a")
        found = [await refs[0].check_health()]
    found.append(await refs[1].check_health())
    assert [(each.status, each.message) for each in found] == [("unhealthy", "is stopped")] * 2


async def test_a_server_that_is_busy_is_not_restarted_while_its_request_has_time(autojump_clock: MockClock) -> None:
    """B-07: a single-threaded server in a tool of ten minutes is unhealthy meanwhile, and no more than that."""
    async with moody(request_timeout=None) as (server, servers, events):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers["a"].call_tool, "hold")
            server.freeze()
            await trio.sleep(600)
            assert state(servers, "a") == "unhealthy"
            server.well.set()
        assert state(servers, "a") == "ready"
    assert events.states("a")[:3] == ["degraded", "unhealthy", "ready"]


async def test_a_request_sent_after_the_silence_began_does_not_prevent_a_restart(autojump_clock: MockClock) -> None:
    """B-06: the server cannot be busy with it, so traffic does not keep a frozen server for ever."""
    async with moody(request_timeout=None) as (server, servers, events):
        server.freeze()
        await servers["a"].wait_state("unhealthy")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_loss, servers)
            await servers["a"].wait_state("connecting")
            server.well.set()
    new, time = changes(events)[2]
    assert new == "backoff"
    assert time == pytest.approx(30, abs=FAST.timeout)


async def test_restarts_for_silence_can_be_disabled(autojump_clock: MockClock) -> None:
    """B-06: ``silence=None``."""
    async with moody(health=HealthPolicy(silence=None)) as (server, servers, _):
        server.freeze()
        await trio.sleep(2_000)
        assert servers["a"].state == "unhealthy"
        server.well.set()


async def test_a_request_to_an_unhealthy_server_is_sent_or_refused_as_it_was_configured(
    autojump_clock: MockClock,
) -> None:
    """S2-42: it is sent, as its answer would be the cure; with ``when_down="fail"`` it says so at once."""
    server = Moody()
    patient, hasty = server.config("patient"), server.config("hasty", when_down="fail")
    async with open_servers(patient, hasty) as servers:
        server.freeze()
        await servers["patient"].wait_state("unhealthy")
        await servers["hasty"].wait_state("unhealthy")
        with pytest.raises(ServerUnavailable) as refused:
            await servers["hasty"].call_tool("hold")
        assert (refused.value.state, type(refused.value.last_error)) == ("unhealthy", RequestTimedOut)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers["patient"].call_tool, "hold")
            await trio.lowlevel.checkpoint()
            server.well.set()
        assert servers["patient"].state == "ready"


async def test_a_server_that_ignores_pings_is_asked_for_its_tools(autojump_clock: MockClock) -> None:
    """B-07: what it answered when it was connected it answers now, so it is alive."""
    async with moody(health=HealthPolicy(warn_after=2, unhealthy_after=2)) as (server, servers, events):
        server.ignores_pings = True
        await trio.sleep(1000)
        assert changes(events) == []
        assert len(server.pings) == 1
        assert servers["a"].state == "ready"


async def test_a_server_that_is_not_connected_is_not_asked(autojump_clock: MockClock) -> None:
    """S2-26, S2-27: its health says so at once."""
    async with moody(connect="lazy") as (server, servers, _):
        health = await servers["a"].check_health()
        assert (health.status, health.latency, servers["a"].state) == ("unhealthy", None, "pending")
        assert "pending" in health.message
        assert servers.status()["a"].health.status == "unknown"
        assert server.pings == []


async def test_checks_of_different_servers_never_wait_for_each_other(autojump_clock: MockClock) -> None:
    """S2-29."""
    frozen, well = Moody(), Moody()
    async with open_servers(frozen.config("frozen"), well.config("well")) as servers:
        frozen.freeze()
        await trio.sleep(25)
        assert well.pings == [10, 20]
        assert (servers["well"].state, servers["frozen"].state) == ("ready", "unhealthy")
        frozen.well.set()


async def test_a_failing_check_does_not_stop_the_checks(autojump_clock: MockClock) -> None:
    """S2-29."""
    async with moody(health=HealthPolicy(interval=10, timeout=1, silence=None)) as (server, servers, _):
        await servers["a"].check_health()
        server.freeze()
        await trio.sleep(100)
        assert server.pings == [0, *range(10, 100)]
        server.well.set()
        await servers["a"].wait_state("ready")
        server.pings.clear()
        await trio.sleep(25)
        assert len(server.pings) == 2


async def test_a_failing_server_is_logged_as_a_warning_with_the_reason(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """S2-24: both steps, and the recovery as an information."""
    caplog.set_level(logging.INFO, "mcp_actors.servers")
    async with moody() as (server, servers, _):
        server.freeze()
        await servers["a"].wait_state("unhealthy")
        server.well.set()
        await servers["a"].wait_state("ready")
    told = [(record.levelname, record.getMessage()) for record in caplog.records if "health" in record.getMessage()]
    told += [("INFO", record.getMessage()) for record in caplog.records if "recovered" in record.getMessage()]
    assert [level for level, _ in told] == ["WARNING", "WARNING", "INFO"]
    assert all(words in text for words, (_, text) in zip(["degraded", "unhealthy", "answers again"], told, strict=True))


async def test_a_server_that_was_given_up_is_tried_again_like_any_other(autojump_clock: MockClock) -> None:
    """S2-25: by its restart policy, once a minute; and explicitly, with nothing held against it."""
    policy = HealthPolicy(interval=10, timeout=1, restart_after=3, fail_after=3, silence=1)
    async with moody(health=policy, restarts=RestartPolicy(park_retry=60)) as (server, servers, events):
        server.ignores_pings = True
        server.freeze()
        await servers["a"].wait_state("failed")
        assert servers.status()["a"].retry_at is not None
        server.well.set()
        server.ignores_pings = False
        await servers["a"].wait_state("ready")
        server.freeze()
        await servers["a"].wait_state("failed")
        server.well.set()
        await servers["a"].restart()
        assert servers.status()["a"].health.failures == 0
    assert next(at for new, at in changes(events) if new == "failed") == 13


async def test_a_check_is_due_by_the_wall_clock_after_a_suspend(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2-28: the clock that Trio sleeps by stood still meanwhile."""
    async with moody(health=HealthPolicy(interval=3600)) as (server, _, _):
        await wait_all_tasks_blocked()
        wall = time.time() + 7200
        monkeypatch.setattr("time.time", lambda: wall)
        mock_clock.jump(11)
        await wait_all_tasks_blocked(0.01)
        assert server.pings == [11]
