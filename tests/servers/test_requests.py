"""Requests to a server: how many at a time, what their callers see, and what the server hears of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS
from trio.testing import wait_all_tasks_blocked

from mcp_actors import InProcess, LimitExceeded, ServerConfig, ToolNotFound, open_servers
from mcp_actors.servers import ServerRef

from .fleet import PROMPT, Outcome, calls, pid_of, wait_calls
from .groups import BOUND, NEVER, expire_once, server
from .links import text_of
from .processes import eventually, state_of

LONG = {"seconds": 600}


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


# --- many at a time -------------------------------------------------------------------------------------------------


async def test_two_hundred_tasks_share_one_server_and_each_gets_its_own_answer() -> None:
    """S4-18: many tasks may use one server, which closes when its scope ends."""
    sums: dict[int, str] = {}

    async def add(ref: ServerRef, number: int) -> None:
        sums[number] = text_of(await ref.call_tool("add", {"a": number, "b": 1000}))

    async with open_servers(server("a")) as servers:
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(add, servers["a"], number)
        pid = pid_of(servers["a"])
    assert sums == {number: str(number + 1000) for number in range(200)}
    assert state_of(pid) == "gone"


async def test_calls_run_side_by_side(tmp_path: Path) -> None:
    """A-26: what the protocol allows to be concurrent is concurrent."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log))) as servers:
        with trio.CancelScope() as scope:
            async with calls(20, servers["a"].call_tool, "sleep", LONG):
                await wait_calls(log, 20)
                scope.cancel("all are with the server")


async def test_no_more_than_max_in_flight_are_with_the_server(tmp_path: Path) -> None:
    """Further requests wait in the mailbox, not at the server."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), max_in_flight=3)) as servers:
        with trio.CancelScope() as scope:
            async with calls(8, servers["a"].call_tool, "sleep", LONG):
                await wait_calls(log, 3)
                await wait_all_tasks_blocked()
                assert (servers["a"].statistics().in_flight, servers["a"].statistics().queued) == (3, 5)
                scope.cancel("enough was seen")
        await servers["a"].call_tool("pid")
    assert lines(log).count("tools/call sleep") == 3


async def test_max_in_flight_of_one_serializes_calls_and_lists(tmp_path: Path) -> None:
    """S1-17: no request reaches the server before the one before it was answered, a list of tools included."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), max_in_flight=1)) as servers:
        async with trio.open_nursery() as nursery:
            first, listing, last = Outcome(), Outcome(), Outcome()
            nursery.start_soon(first.of, servers["a"].call_tool, "sleep", LONG)
            await wait_calls(log, 1)
            before = lines(log)
            nursery.start_soon(listing.of, servers["a"].list_tools)
            await wait_all_tasks_blocked()
            nursery.start_soon(last.of, servers["a"].call_tool, "pid")
            await wait_all_tasks_blocked()
            assert servers["a"].statistics().queued == 2
            assert lines(log) == before
            nursery.cancel_scope.cancel("the first call need not end")
        await servers["a"].call_tool("echo", {"text": "in order"})
    assert "tools/call pid" not in lines(log)


async def test_a_serialized_server_answers_in_the_order_asked(tmp_path: Path) -> None:
    """Calls and lists alike."""
    log = tmp_path / "log"
    config = server("a", "--log-file", str(log), max_in_flight=1)
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(servers["a"].call_tool, "sleep", {"seconds": 0.1})
        for request in (servers["a"].list_tools, lambda: servers["a"].call_tool("pid")):
            await wait_all_tasks_blocked()
            nursery.start_soon(request)
    assert lines(log)[-4:] == ["tools/call sleep", "tools/list", "tools/call pid", "eof"]


async def test_a_full_mailbox_that_may_not_wait_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = server("a", "--log-file", str(log), max_in_flight=1, mailbox_size=1, overflow="fail")
    async with open_servers(config) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(servers["a"].call_tool, "sleep", LONG)
        await wait_calls(log, 1)
        nursery.start_soon(servers["a"].call_tool, "pid")
        await wait_all_tasks_blocked()
        with pytest.raises(LimitExceeded, match="server 'a': mailbox full: 1 requests are queued"):
            await servers["a"].call_tool("pid")
        nursery.cancel_scope.cancel("enough was seen")


# --- callers that leave ---------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_leaves_at_once_and_the_server_is_notified(tmp_path: Path) -> None:
    """A-14: other callers are not affected, and the slot is free again."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), max_in_flight=2)) as servers:
        ref, sibling = servers["a"], Outcome()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sibling.of, ref.call_tool, "sleep", {"seconds": 0.5})
            await wait_calls(log, 1)
            with trio.CancelScope() as scope:
                async with calls(1, ref.call_tool, "sleep", LONG):
                    await wait_calls(log, 2)
                    cancelled = trio.current_time()
                    scope.cancel("its caller lost interest")
            assert trio.current_time() - cancelled < PROMPT
            await eventually(lambda: any(line.startswith("notifications/cancelled") for line in lines(log)))
            await eventually(lambda: ref.statistics().in_flight <= 1)
            assert text_of(await ref.call_tool("echo", {"text": "free"})) == "free"
        assert text_of(sibling.value) == "slept 0.5"
    assert sum(line.startswith("notifications/cancelled") for line in lines(log)) == 1


async def test_the_server_never_sees_a_request_that_was_cancelled_in_the_queue(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), max_in_flight=1)) as servers:
        ref = servers["a"]
        with trio.CancelScope() as first_scope:
            async with calls(1, ref.call_tool, "sleep", LONG):
                await wait_calls(log, 1)
                with trio.CancelScope() as scope:
                    async with calls(1, ref.call_tool, "count"):
                        await wait_all_tasks_blocked()
                        assert ref.statistics().queued == 1
                        scope.cancel("its caller lost interest")
                assert ref.statistics().queued == 0
                first_scope.cancel("make room")
        await ref.call_tool("pid")
    assert "tools/call count" not in lines(log)


async def test_a_deadline_of_the_caller_bounds_a_call(tmp_path: Path) -> None:
    """A-14: there are no time-out arguments; a cancel scope around a call does it, and the server hears of it."""
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log))) as servers, trio.open_nursery() as nursery:
        with trio.move_on_after(BOUND) as scope:
            nursery.start_soon(expire_once, scope, lambda: "tools/call sleep" in lines(log))
            await servers["a"].call_tool("sleep", LONG)
        assert scope.cancelled_caught
        assert 0 <= trio.current_time() - scope.deadline < PROMPT
        await eventually(lambda: any(line.startswith("notifications/cancelled") for line in lines(log)))
        assert servers["a"].state == "ready"


async def test_a_deadline_of_the_caller_includes_the_wait_for_a_turn(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_servers(server("a", "--log-file", str(log), max_in_flight=1)) as servers:
        with trio.CancelScope() as scope:
            async with calls(1, servers["a"].call_tool, "sleep", LONG):
                await wait_calls(log, 1)
                with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
                    await servers["a"].call_tool("pid")
                scope.cancel("enough was seen")
    assert "tools/call pid" not in lines(log)


# --- answers --------------------------------------------------------------------------------------------------------


async def test_an_error_of_the_server_passes_through_unchanged() -> None:
    async with open_servers(server("a")) as servers:
        with pytest.raises(MCPError) as caught:
            await servers["a"].call_tool("no such tool")
        assert (caught.value.code, caught.value.message) == (INVALID_PARAMS, "Unknown tool: no such tool")
        assert servers["a"].state == "ready"


@pytest.mark.parametrize("text", ["try again later", "Connection closed"])
async def test_a_server_may_use_the_code_of_a_closed_connection(text: str) -> None:
    """An answer with any code and text does not end an open connection."""
    async with open_servers(server("a", "--error-on-call", str(CONNECTION_CLOSED), text, restarts=NEVER)) as servers:
        for _ in range(2):
            with pytest.raises(MCPError) as caught:
                await servers["a"].call_tool("pid")
            assert (caught.value.code, caught.value.message) == (CONNECTION_CLOSED, text)
        assert servers["a"].state == "ready"


async def test_a_result_that_is_an_error_is_returned() -> None:
    async with open_servers(server("a")) as servers:
        result = await servers["a"].call_tool("fail")
        assert result.is_error
        assert text_of(result) == "failed as asked"


async def test_public_names_reach_the_right_server() -> None:
    async with open_servers(server("a"), server("b")) as servers:
        tools = [tool.public_name for tool in servers.tools if tool.name == "pid"]
        pids = [int(text_of(await servers.call_tool(name))) for name in tools]
        assert pids == [pid_of(servers["a"]), pid_of(servers["b"])]
        with pytest.raises(ToolNotFound, match="did you mean"):
            await servers.call_tool(tools[0] + "x")


# --- progress -------------------------------------------------------------------------------------------------------


async def test_progress_reaches_the_caller() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with open_servers(server("a", "--progress", "3")) as servers:
        await servers["a"].call_tool("sleep", {"seconds": 0.1}, progress=hear)
    assert sorted(heard) == [(1.0, None, None), (2.0, None, None), (3.0, None, None)]


async def test_a_progress_callback_may_call_the_same_server() -> None:
    """There is no deadlock and no complaint as long as a slot is free."""
    answers: list[str] = []
    done = trio.Event()

    async with open_servers(server("a", "--progress", "1", max_in_flight=2)) as servers:

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            answers.append(text_of(await servers["a"].call_tool("echo", {"text": "from a callback"})))
            done.set()

        with trio.fail_after(BOUND):
            await servers["a"].call_tool("sleep", {"seconds": 0.1}, progress=hear)
            await done.wait()
    assert answers == ["from a callback"]


async def test_a_progress_callback_that_raises_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    async def hear(progress: float, total: float | None, message: str | None) -> None:
        raise ValueError("a mistake in the callback")

    async with open_servers(server("a", "--progress", "2", restarts=NEVER)) as servers:
        result = await servers["a"].call_tool("sleep", {"seconds": 0.1}, progress=hear)
        assert text_of(result) == "slept 0.1"
        assert text_of(await servers["a"].call_tool("echo", {"text": "still here"})) == "still here"
    assert "a mistake in the callback" in caplog.text


@pytest.mark.parametrize("max_in_flight", [1, 2])
async def test_code_that_runs_inside_a_call_may_call_the_same_server_if_there_is_room(max_in_flight: int) -> None:
    """A tool of an in-process server, and its progress callback, run within the very call they belong to.

    Where they would wait for themselves, an error about the server is raised at once.
    """
    here, heard = MCPServer("here"), Outcome()

    @here.tool()
    async def outer(context: Context[Any, Any]) -> str:
        await context.report_progress(1)
        return "the outer answer"

    @here.tool()
    def inner() -> str:
        return "the inner answer"

    config = ServerConfig("here", InProcess(here), max_in_flight=max_in_flight, restarts=NEVER)
    async with open_servers(config) as servers:

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            await heard.of(servers["here"].call_tool, "inner")

        with trio.fail_after(BOUND):
            result = await servers["here"].call_tool("outer", progress=hear)
    assert text_of(result) == "the outer answer"
    if max_in_flight == 1:
        assert isinstance(heard.error, LimitExceeded)
        assert "raise max_in_flight" in str(heard.error)
    else:
        assert text_of(heard.value) == "the inner answer"
