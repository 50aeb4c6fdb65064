"""Calls whose result goes to a function instead of a waiting task."""

from __future__ import annotations

from pathlib import Path

import outcome
import pytest
import trio
from mcp import MCPError
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult
from trio.testing import MockClock, wait_all_tasks_blocked as settle

from mcp_actors import (
    Backoff,
    BreakerPolicy,
    ConnectionLost,
    InProcess,
    LimitExceeded,
    RequestTimedOut,
    RetryPolicy,
    ServerConfig,
    ServerUnavailable,
    ToolFilter,
    ToolNotFound,
    open_servers,
)
from mcp_actors.servers import PendingRequest

from .groups import AT_ONCE, BOUND, server
from .links import text_of

SOON = RetryPolicy(backoff=Backoff())


class Call:
    """A call that was sent, and its notification: the result, or that it has to be finished."""

    def __init__(self, pending: PendingRequest[CallToolResult]) -> None:
        self.answers: list[CallToolResult | None] = []
        self.told = trio.Event()
        self.pending = pending
        pending.send(self._take)

    def _take(self, answer: outcome.Value[CallToolResult] | None) -> None:
        self.answers.append(None if answer is None else answer.value)
        self.told.set()

    async def result(self) -> CallToolResult | None:
        with trio.fail_after(BOUND):
            await self.told.wait()
        [answer] = self.answers
        return answer

    async def finish(self) -> CallToolResult:
        assert await self.result() is None
        return await self.pending.finish()


class Napping:
    """A server in this process with one tool, which takes ten seconds."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.mcp = MCPServer("napping")
        self.mcp.add_tool(self.nap, name="nap")

    async def nap(self) -> str:
        try:
            await trio.sleep(10)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        return "slept"


async def test_a_result_is_delivered_and_the_call_is_over() -> None:
    async with open_servers(server("a")) as servers:
        arguments = {"text": "x"}
        for pending in (
            servers["a"].send_tool_call("echo", arguments),
            servers.send_tool_call("mcp__a__echo", arguments),
        ):
            call = Call(pending)
            assert call.answers == []
            result = await call.result()
            assert result is not None
            assert text_of(result) == "x"
        assert servers["a"].statistics().latency.done == 2
        assert not servers["a"]._record.calls.deadlines._requests


async def test_a_tool_that_may_not_be_called_is_refused_at_once() -> None:
    async with open_servers(server("a", tool_filter=ToolFilter(deny=["echo"]))) as servers:
        with pytest.raises(ToolNotFound, match="is hidden by its ToolFilter"):
            servers["a"].send_tool_call("echo", {"text": "x"})
        with pytest.raises(ToolNotFound):
            servers.send_tool_call("echo", {"text": "x"})


async def test_the_error_of_a_server_is_raised_by_finish() -> None:
    async with open_servers(server("a", "--error-on-call", "-32000", "not today")) as servers:
        with pytest.raises(MCPError, match="not today"):
            await Call(servers["a"].send_tool_call("echo", {"text": "x"})).finish()
        assert servers["a"].statistics().latency.failed == 1


@pytest.mark.parametrize(("idempotent", "sent"), [(True, 3), (None, 1)])
async def test_finish_sends_a_call_again_only_if_that_does_no_harm(
    tmp_path: Path, idempotent: bool | None, sent: int
) -> None:
    """A-09: the attempt that was made without a task counts too."""
    log = tmp_path / "log"
    async with open_servers(
        server("a", "--die-in", "add", "--log-file", str(log), restarts=AT_ONCE, retry=SOON)
    ) as servers:
        call = Call(servers["a"].send_tool_call("add", {"a": 1, "b": 2}, idempotent=idempotent))
        with pytest.raises(ConnectionLost):
            await call.finish()
    assert log.read_text().splitlines().count("tools/call add") == sent


async def test_a_call_has_its_time_from_when_it_was_prepared(autojump_clock: MockClock) -> None:
    """S2-12: also without a task."""
    here = Napping()
    async with open_servers(ServerConfig("here", InProcess(here.mcp), request_timeout=3)) as servers:
        call = Call(servers["here"].send_tool_call("nap"))
        with pytest.raises(RequestTimedOut, match="after 3 s"):
            await call.finish()
        assert trio.current_time() == 3
        await settle()
        assert here.cancelled == 1


@pytest.mark.parametrize("breaker", [None, BreakerPolicy()])
async def test_a_call_whose_time_is_over_before_it_is_sent_is_not_sent(
    autojump_clock: MockClock, breaker: BreakerPolicy | None
) -> None:
    here = Napping()
    config = ServerConfig("here", InProcess(here.mcp), request_timeout=3, breaker=breaker)
    async with open_servers(config) as servers:
        pending = servers["here"].send_tool_call("nap")
        if breaker is not None:
            assert Call(pending).answers == [None]
        await trio.sleep(5)
        with pytest.raises(RequestTimedOut, match="was not sent"):
            await (Call(pending).finish() if breaker is None else pending.finish())
        assert trio.current_time() == 5


async def test_a_withdrawn_call_is_cancelled_at_the_server_and_nothing_is_delivered(autojump_clock: MockClock) -> None:
    """A-18."""
    here = Napping()
    async with open_servers(ServerConfig("here", InProcess(here.mcp), request_timeout=3)) as servers:
        call = Call(servers["here"].send_tool_call("nap"))
        await settle()
        call.pending.withdraw()
        await settle()
        assert here.cancelled == 1
        await trio.sleep(60)
        assert call.answers == []
        assert servers["here"].statistics().in_flight == 0


async def test_a_full_mailbox_and_a_stopped_server_are_errors_about_the_server() -> None:
    options = {"max_in_flight": 1, "mailbox_size": 1, "overflow": "fail"}
    async with open_servers(server("a", **options)) as servers:
        calls = [Call(servers["a"].send_tool_call("sleep", {"seconds": 600})) for _ in range(3)]
        with pytest.raises(LimitExceeded, match="mailbox full"):
            await calls[2].finish()
        await servers["a"].stop()
        with pytest.raises(ServerUnavailable, match="was stopped during tools/call 'sleep'"):
            await calls[0].finish()
        with pytest.raises(ServerUnavailable, match=r"is stopped; .*start\(\)") as queued:
            await calls[1].finish()
        assert queued.value.state == "stopped"  # as it is now, and not as it was when that was decided
        with pytest.raises(ServerUnavailable, match="is stopped"):
            await Call(servers["a"].send_tool_call("echo", {"text": "x"})).finish()


async def test_with_a_breaker_a_call_is_a_task_from_the_beginning() -> None:
    flags = ("--error-on-call", "-32603", "broken")
    async with open_servers(server("a", *flags, breaker=BreakerPolicy(failures=1), retry=SOON)) as servers:
        call = Call(servers["a"].send_tool_call("echo", {"text": "x"}))
        assert call.answers == [None]
        with pytest.raises(MCPError, match="broken"):
            await call.finish()
