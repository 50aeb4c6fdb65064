"""The user's middleware around tool calls."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent

from mcp_actors import ConfigError, ConnectionLost, Http, InProcess, RequestTimedOut, ServerConfig, Stdio, open_servers
from mcp_actors.config import CallNext, ToolRequest

from ..messages import Said
from .faults.http_faults import faulty_server
from .groups import AT_ONCE, server
from .links import text_of
from .test_request_timeouts import patient


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


async def test_when_the_process_dies_middleware_gets_an_error_or_is_cancelled() -> None:
    seen: list[BaseException] = []

    async def watch(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        try:
            return await call_next(request)
        except BaseException as exc:
            seen.append(exc)
            raise

    async with open_servers(server("a", "--die-in", "add", middleware=(watch,), restarts=AT_ONCE)) as servers:
        with pytest.raises(ConnectionLost):
            await servers["a"].call_tool("add", {"a": 1, "b": 2})
    assert len(seen) == 1
    assert isinstance(seen[0], (ConnectionLost, trio.Cancelled))


async def test_middleware_runs_within_the_time_of_the_request(autojump_clock: trio.testing.MockClock) -> None:
    left: list[str] = []

    async def ask_somebody(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        try:
            await trio.sleep(100)
        finally:
            left.append(request.name)
        return await call_next(request)

    async with patient(request_timeout=10, middleware=(ask_somebody,)) as (ref, here):
        with pytest.raises(RequestTimedOut):
            await ref.call_tool("sleep", {"name": "a", "seconds": 1})
        await trio.testing.wait_all_tasks_blocked()
    assert left == ["sleep"]
    assert here.begun == []


async def test_progress_timeout_is_suspended_while_middleware_waits(autojump_clock: trio.testing.MockClock) -> None:
    async def ask_somebody(request: ToolRequest, call_next: CallNext) -> CallToolResult:
        await trio.sleep(100)
        return await call_next(request)

    async with patient(request_timeout=1000, progress_timeout=5, middleware=(ask_somebody,)) as (ref, _):
        assert text_of(await ref.call_tool("sleep", {"name": "a", "seconds": 1})) == "a"


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


# --- a connection that ends before a call was sent --------------------------------------------------------------------


async def test_middleware_sees_an_unsent_call_as_an_error_and_the_call_is_requeued(said: Said) -> None:
    """The next connection makes the call, through the middleware again."""
    seen: list[ConnectionLost] = []

    with faulty_server() as http:

        async def watch(request: ToolRequest, call_next: CallNext) -> CallToolResult:
            try:
                return await call_next(request)
            except ConnectionLost as exc:
                seen.append(exc)
                http.listen()
                raise

        config = ServerConfig("web", Http(http.url()), middleware=(watch,), restarts=AT_ONCE)
        async with open_servers(config) as servers:
            http.die()
            assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "slept 0"
    [error] = seen
    assert error.outcome == "not_sent"
    said("call not sent, as middleware sees it", str(error))


async def test_the_outcome_of_middleware_for_an_unsent_call_counts() -> None:
    with faulty_server() as http:

        async def instead(request: ToolRequest, call_next: CallNext) -> CallToolResult:
            try:
                return await call_next(request)
            except ConnectionLost:
                return answer("from the cache")

        config = ServerConfig("web", Http(http.url()), middleware=(instead,), restarts=AT_ONCE)
        async with open_servers(config) as servers:
            http.die()
            assert text_of(await servers["web"].call_tool("sleep", {"seconds": 0})) == "from the cache"


async def test_a_call_that_middleware_has_partly_sent_is_not_requeued() -> None:
    """A-09: all of it would be done again."""
    with faulty_server() as http:

        async def twice(request: ToolRequest, call_next: CallNext) -> CallToolResult:
            await call_next(request)
            http.die()
            try:
                return await call_next(request)
            finally:
                http.listen()

        config = ServerConfig("web", Http(http.url()), middleware=(twice,), restarts=AT_ONCE)
        async with open_servers(config) as servers:
            with pytest.raises(ConnectionLost, match="before tools/call 'sleep' was sent again; the earlier") as caught:
                await servers["web"].call_tool("sleep", {"seconds": 0})
        assert caught.value.outcome == "unknown"
        assert http.methods().count("tools/call") == 1
