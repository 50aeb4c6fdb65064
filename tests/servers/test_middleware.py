"""The user's middleware around tool calls."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent

from mcp_actors import (
    ConfigError,
    ConnectionLost,
    Http,
    InProcess,
    RequestTimedOut,
    RetryPolicy,
    ServerConfig,
    ServerUnavailable,
    Stdio,
    open_servers,
)
from mcp_actors.config import CallNext, ToolRequest
from mcp_actors.servers import ServerRef
from mcp_actors.servers._dispatcher import LAST_REPORTS

from ..messages import Said
from .faults.http_faults import faulty_server
from .fleet import kept_of
from .groups import AT_ONCE, server
from .links import text_of
from .test_request_timeouts import Patient, patient


def answer(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


async def test_middleware_is_around_every_tool_call_the_first_outermost() -> None:
    """S4-16: it sees the request and the answer."""
    seen: list[str] = []

    async def outer(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        seen.append(f"outer {request.server} {request.name} {request.arguments}")
        result = await call_next(request)
        seen.append(f"outer {text_of(result)}")
        return result

    async def inner(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        seen.append("inner")
        return await call_next(request)

    async with open_servers(server("a", middleware=[outer, inner])) as servers:
        await servers["a"].list_tools()
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"
    assert seen == ["outer a add {'a': 1, 'b': 2}", "inner", "outer 3"]


async def test_middleware_can_add_metadata_and_change_arguments() -> None:
    """S4-16: what it lets go on is what the server gets."""

    async def add(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        arguments = {**(request.arguments or {}), "b": 40}
        return await call_next(attrs.evolve(request, arguments=arguments, meta={"tenant": "acme"}))

    here = MCPServer("here")

    @here.tool()
    async def plus(ctx: Context[Any], a: int, b: int) -> str:
        return f"{a + b} for {dict(ctx.request_context.meta or {})['tenant']}"

    async with open_servers(ServerConfig("a", InProcess(here), middleware=(add,))) as servers:
        assert text_of(await servers["a"].call_tool("plus", {"a": 2, "b": 0})) == "42 for acme"


async def test_middleware_can_answer_a_call_itself() -> None:
    """S4-16: then the server hears nothing."""

    async def refuse(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        if request.name == "fail":
            return answer("not allowed")
        return await call_next(request)

    async with open_servers(server("a", middleware=(refuse,))) as servers:
        assert text_of(await servers["a"].call_tool("fail")) == "not allowed"
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_an_exception_of_middleware_reaches_the_caller() -> None:
    async def raising(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        raise PermissionError(f"{request.name} needs an approval")

    async with open_servers(server("a", middleware=(raising,))) as servers:
        with pytest.raises(PermissionError, match="add needs an approval"):
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
        assert servers["a"].state == "ready"


async def test_middleware_sees_that_the_connection_is_lost_and_is_not_cancelled() -> None:
    seen: list[BaseException] = []

    async def watch(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        try:
            return await call_next(request)
        except BaseException as exc:
            seen.append(exc)
            await trio.lowlevel.checkpoint()
            return answer("from the cache")

    async with open_servers(server("a", "--die-in", "add", middleware=(watch,), restarts=AT_ONCE)) as servers:
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "from the cache"
    [lost] = seen
    assert isinstance(lost, ConnectionLost)
    assert lost.outcome == "unknown"


async def test_middleware_runs_within_the_time_of_the_request(autojump_clock: trio.testing.MockClock) -> None:
    left: list[str] = []

    async def ask_somebody(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        try:
            await trio.sleep(100)
        finally:
            left.append(request.name)
        return await call_next(request)

    async with patient(request_timeout=10, middleware=(ask_somebody,)) as (ref, here):
        began = trio.current_time()
        with pytest.raises(RequestTimedOut):
            await ref.call_tool("sleep", {"name": "a", "seconds": 1})
        assert trio.current_time() - began == 10
    assert left == ["sleep"]
    assert here.begun == []


async def test_progress_timeout_is_suspended_while_middleware_waits(autojump_clock: trio.testing.MockClock) -> None:
    async def ask_somebody(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        await trio.sleep(100)
        return await call_next(request)

    async with patient(request_timeout=1000, progress_timeout=5, middleware=(ask_somebody,)) as (ref, _):
        assert text_of(await ref.call_tool("sleep", {"name": "a", "seconds": 1})) == "a"


async def test_an_answer_leaves_the_progress_timeout_of_another_call_of_middleware(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def send_two(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call_next, attrs.evolve(request, arguments={"name": "b", "seconds": 1}))
            return await call_next(request)

    async with patient(request_timeout=1000, progress_timeout=5, middleware=(send_two,)) as (ref, _):
        began = trio.current_time()
        with pytest.raises(RequestTimedOut, match="after 5 s without progress"):
            await ref.call_tool("sleep", {"name": "a", "seconds": 500})
        assert trio.current_time() - began == 6


async def test_a_restart_waits_for_the_messages_of_middleware_and_not_for_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def think(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        result = await call_next(request)
        await trio.sleep(100)
        return result

    async with patient(request_timeout=1000, middleware=(think,)) as (ref, here), trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(ref.call_tool, "sleep", {"name": "a", "seconds": 2})
        await trio.sleep(1)
        await ref.restart()
        assert trio.current_time() - began == 2
    assert here.cancelled == []


async def test_each_call_of_middleware_waits_a_second_for_reports(autojump_clock: trio.testing.MockClock) -> None:
    """Even if two of them have been answered and their reports are being handled."""
    ended = list[float]()

    async def send_two(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        began = trio.current_time()

        async def send(delay: float) -> None:
            await trio.sleep(delay)
            await call_next(request)
            ended.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, 0.5)
            nursery.start_soon(send, 0)
        return answer("both")

    async def hang(progress: float, total: float | None, message: str | None) -> None:
        await trio.sleep_forever()

    async with patient(middleware=(send_two,)) as (ref, _):
        arguments = {"steps": 1, "seconds": 0, "pause": 0}
        assert text_of(await ref.call_tool("work", arguments, progress=hang)) == "both"
    assert ended == [LAST_REPORTS, 0.5 + LAST_REPORTS]


@pytest.mark.parametrize(
    ("given", "shown"),
    [(print, "<builtin_function_or_method>"), ([print, 3], "<a tuple with an int in it>"), (3, "<int>")],
)
def test_an_invalid_middleware_is_refused(given: object, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig("a", Stdio("x"), middleware=given)  # type: ignore[arg-type]  # a mistake
    assert str(caught.value) == (
        f"server 'a': middleware={shown} is not valid; give a tuple of functions (request, call_next)"
    )


# --- each call that middleware lets go on is a message like any other -------------------------------------------------


async def test_middleware_takes_no_slot_before_it_lets_a_call_go_on() -> None:
    """Also a call of the same server in between, which would wait for itself otherwise."""
    asked, answered = trio.Event(), trio.Event()

    async def ask_somebody(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        if request.arguments == {"a": 1, "b": 1}:
            asked.set()
            await answered.wait()
            await servers["a"].call_tool("add", {"a": 2, "b": 2})
        return await call_next(request)

    async with (
        open_servers(server("a", middleware=(ask_somebody,), max_in_flight=1)) as servers,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(servers["a"].call_tool, "add", {"a": 1, "b": 1})
        await asked.wait()
        assert (servers["a"].statistics().in_flight, servers["a"].statistics().queued) == (0, 0)
        assert text_of(await servers["a"].call_tool("add", {"a": 1, "b": 2})) == "3"
        answered.set()


async def test_a_call_that_was_not_sent_waits_for_the_next_connection_unnoticed_by_middleware() -> None:
    """The middleware runs once."""
    seen: list[str] = []
    with faulty_server() as http:

        async def watch(request: ToolRequest, call_next: CallNext) -> CallToolResult:
            seen.append("begins")
            result = await call_next(request)
            seen.append(text_of(result))
            return result

        config = ServerConfig("web", Http(http.url()), middleware=(watch,), restarts=AT_ONCE)
        async with open_servers(config) as servers, trio.open_nursery() as nursery:
            http.die()
            nursery.start_soon(servers["web"].call_tool, "sleep", {"seconds": 0})
            await servers["web"].wait_state("backoff", "connecting")
            http.listen()
        assert http.methods().count("tools/call") == 1
    assert seen == ["begins", "slept 0"]


async def test_a_call_that_middleware_has_partly_sent_is_not_repeated() -> None:
    """A-09: all of it would be done again."""
    begun: list[str] = []

    async def twice(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        begun.append(request.name)
        await call_next(request)
        await servers["a"].stop()
        return await call_next(request)

    retry = RetryPolicy(attempts=3)
    async with open_servers(server("a", middleware=(twice,), retry=retry)) as servers:
        with pytest.raises(ServerUnavailable) as caught:
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
    assert caught.value.outcome == "unknown"
    assert begun == ["add"]


async def test_a_timeout_after_the_first_of_two_calls_leaves_the_outcome_unknown(
    autojump_clock: trio.testing.MockClock, said: Said
) -> None:
    async def then_think(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        result = await call_next(request)
        await trio.sleep(100)
        return result

    async with patient(request_timeout=10, middleware=(then_think,)) as (ref, here):
        with pytest.raises(RequestTimedOut) as caught:
            await ref.call_tool("sleep", {"name": "a", "seconds": 1})
        assert here.begun == ["a"]
        assert kept_of(ref) == 0
    assert caught.value.outcome == "unknown"
    said("request timed out in middleware that has sent it", str(caught.value))


async def test_a_group_that_closes_lets_middleware_finish_what_was_accepted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    results: list[str] = []
    asked = trio.Event()

    async def ask_somebody(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        asked.set()
        await trio.sleep(5)
        return await call_next(request)

    async def call(ref: ServerRef) -> None:
        results.append(text_of(await ref.call_tool("sleep", {"name": "a", "seconds": 1})))

    async with trio.open_nursery() as nursery, patient(middleware=(ask_somebody,)) as (ref, _):
        nursery.start_soon(call, ref)
        await asked.wait()
    assert results == ["a"]


async def test_middleware_that_outlives_its_group_still_has_a_timeout(autojump_clock: trio.testing.MockClock) -> None:
    asked = trio.Event()

    async def ask_somebody(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        asked.set()
        await trio.sleep(1000)
        return await call_next(request)

    async def call(ref: ServerRef) -> None:
        with pytest.raises(RequestTimedOut):
            await ref.call_tool("sleep", {"name": "a", "seconds": 1})

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        here = Patient()
        config = ServerConfig("here", InProcess(here.mcp), middleware=(ask_somebody,), request_timeout=90)
        async with open_servers(config, drain_timeout=1) as servers:
            nursery.start_soon(call, servers["here"])
            await asked.wait()
    assert trio.current_time() - began == 90
    assert here.begun == []


async def test_a_call_that_middleware_lets_go_on_after_its_end_is_refused() -> None:
    kept: list[CallNext] = []

    async def keep(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        kept.append(call_next)
        return answer("not yet")

    request = ToolRequest(server="a", name="fail")
    async with open_servers(server("a", middleware=(keep,))) as servers:
        assert text_of(await servers["a"].call_tool("fail")) == "not yet"
        with pytest.raises(RuntimeError, match=r"call_next\(\) called after the request had ended; nothing was sent"):
            await kept[0](request)
        assert servers["a"].statistics().latency.done == 1
