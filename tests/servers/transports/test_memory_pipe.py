"""Legacy servers that are objects in this process: plain requests without a task of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
import pytest
import trio
from attrs import define, field
from mcp import MCPError
from mcp.server import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolResult,
    ElicitResult,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    ListToolsResult,
    Tool,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_actors import Callbacks, ConnectionLost, InProcess, LimitExceeded, ServerConfig, open_servers
from mcp_actors.servers._deadlines import Deadlines
from mcp_actors.servers._dispatcher import CURRENT_QUESTION, ServerQuestion
from mcp_actors.servers.requests import ListTools
from mcp_actors.transports import RequestUnderWay
from mcp_actors.transports._exchange import exchange_lines
from mcp_actors.transports._in_process import SHUTDOWN_GRACE, LegacyServerLink, MemoryPipe
from mcp_actors.transports._link import Lifeline

from ..answers import BY_SESSION
from ..fleet import calls
from ..groups import AT_ONCE
from ..links import text_of
from ..processes import BOUND

pytestmark = pytest.mark.own_way

WHO: Final[ContextVar[str]] = ContextVar("who")


@define(eq=False)
class Line:
    """A line that notes what becomes of it."""

    number: int
    method: bytes = b'"m"'
    fate: list[str] = field(factory=list)
    sent: bool | None = None

    @property
    def line(self) -> bytes:
        """A request."""
        return b'{"jsonrpc":"2.0","id":%d,"method":%b}\n' % (self.number, self.method)

    def withdrawn(self) -> None:
        self.fate.append("withdrawn")


def of_session(number: int) -> SessionMessage:
    """Return a message that has no line."""
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="m"))


def id_of(message: SessionMessage) -> object:
    """Return the id of a request."""
    assert isinstance(message.message, JSONRPCRequest)
    return message.message.id


def config(server: Server[Any] | MCPServer, **options: Any) -> ServerConfig:
    """Configure a legacy server."""
    return ServerConfig("a", InProcess(server), protocol="legacy", **options)


def serve(call: Callable[[Any, Any], Any]) -> Server[Any]:
    """Return a server with one tool."""

    async def list_tools(context: object, params: object) -> ListToolsResult:
        await trio.lowlevel.checkpoint()
        return ListToolsResult(tools=[Tool(name="say", input_schema={"type": "object"})])

    return Server("a", on_list_tools=list_tools, on_call_tool=call)


# --- the pipe -------------------------------------------------------------------------------------------------------


async def test_no_message_overtakes_another() -> None:
    pipe, lines = MemoryPipe(), [Line(1), Line(3)]
    assert pipe.offer(lines[0])
    pipe.put(object(), of_session(2))
    assert pipe.offer(lines[1])
    assert [id_of(await pipe.receive()) for _ in range(3)] == [1, 2, 3]
    assert [line.sent for line in lines] == [True, True]


async def test_a_reader_waits_for_a_message_and_yields_between_two() -> None:
    pipe, received = MemoryPipe(), list[object]()

    async def read() -> None:
        while True:
            received.append(id_of(await pipe.receive()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        for number in range(3):
            pipe.offer(Line(number))
        assert received == []
        for _ in range(3):
            before = len(received)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert len(received) <= before + 2
        await wait_all_tasks_blocked()
        assert received == [0, 1, 2]
        nursery.cancel_scope.cancel()


async def test_lines_that_were_not_read_can_be_withdrawn() -> None:
    pipe, lines = MemoryPipe(), [Line(number) for number in range(3)]
    for line in lines:
        pipe.offer(line)
    pipe.put(object(), of_session(3))
    await pipe.receive()
    pipe.withdraw(lines[1])
    pipe.withdraw_all()
    assert [(line.sent, line.fate) for line in lines] == [(True, []), (None, []), (None, ["withdrawn"])]
    assert id_of(await pipe.receive()) == 3


async def test_a_closed_pipe_takes_nothing_and_ends_after_what_it_has() -> None:
    pipe = MemoryPipe()
    pipe.offer(Line(1))
    await pipe.aclose()
    assert pipe.offer(Line(2)) is False
    with pytest.raises(MCPError, match="Connection closed"):
        await exchange_lines(pipe, RequestUnderWay("m", {}))
    assert id_of(await pipe.receive()) == 1
    with pytest.raises(anyio.EndOfStream):
        await pipe.receive()


async def test_a_server_that_sends_without_end_lets_other_tasks_run() -> None:
    sent = list[int]()

    async def call(context: Any, params: Any) -> None:
        while True:
            await context.session.send_tool_list_changed()
            sent.append(len(sent))

    async with open_servers(config(serve(call))) as servers, trio.open_nursery() as nursery:
        nursery.start_soon(servers["a"].call_tool, "say")
        while not sent:
            await trio.lowlevel.checkpoint()
        before = len(sent)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert len(sent) <= before + 20
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        (JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=CONNECTION_CLOSED, message="Connection closed")), True),
        (JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=CONNECTION_CLOSED, message="mine")), False),
        (JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=7, message="Connection closed")), False),
    ],
)
async def test_an_answer_of_a_server_that_ends_loses_the_connection(message: JSONRPCMessage, lost: bool) -> None:
    losses = list[bool]()
    link = LegacyServerLink(Server("a"), Lifeline(lambda: losses.append(True)))
    await link.take(message)
    assert losses == [True] * lost


# --- a server -------------------------------------------------------------------------------------------------------


async def test_a_plain_call_has_no_task_but_its_handler() -> None:
    ids, release = list[Any](), trio.Event()

    async def call(context: Any, params: Any) -> CallToolResult:
        ids.append(context.request_id)
        await release.wait()
        return CallToolResult(content=[])

    async with open_servers(config(serve(call))) as servers:
        await wait_all_tasks_blocked()  # some tasks of the connect end soon
        idle = trio.lowlevel.current_statistics().tasks_living
        async with calls(10, servers["a"].call_tool, "say"):
            await wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().tasks_living <= idle + 20  # of the callers and the handlers
            assert servers["a"].statistics().in_flight == 10
            release.set()
        await servers["a"].call_tool("say", meta=BY_SESSION)
    assert len(set(ids)) == 11


@pytest.mark.parametrize("max_in_flight", [1, 10])
async def test_a_handler_runs_in_the_context_variables_of_its_caller(max_in_flight: int) -> None:
    """Also if its call has waited for the one before."""
    seen = list[tuple[str, str]]()

    async def call(context: Any, params: Any) -> CallToolResult:
        await trio.lowlevel.checkpoint()
        seen.append((WHO.get(), params.arguments["who"]))
        return CallToolResult(content=[])

    async with open_servers(config(serve(call), max_in_flight=max_in_flight)) as servers:

        async def caller(who: str) -> None:
            WHO.set(who)
            await servers["a"].call_tool("say", {"who": who})

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(caller, str(number))
    assert sorted(seen) == [(str(number), str(number)) for number in range(5)]


async def test_a_handler_is_not_a_part_of_the_request_of_its_caller() -> None:
    """Otherwise it would suspend the time-out of that request, and not of its own."""
    seen, server = list[object](), MCPServer("a")

    @server.tool()
    async def ask(ctx: Context) -> str:
        return str((await ctx.session.elicit_form("Which one?", {"type": "object", "properties": {}})).action)

    async def answer(*_: object) -> ElicitResult:
        seen.append(CURRENT_QUESTION.get().attempt)
        return ElicitResult(action="decline")

    async with open_servers(config(server, callbacks=Callbacks(elicitation=answer))) as servers:
        with Deadlines("b", None, None).begin(ListTools()) as attempt:
            CURRENT_QUESTION.set(ServerQuestion(attempt))
            await servers["a"].call_tool("ask")
            assert CURRENT_QUESTION.get().attempt is attempt
    assert seen == [None]


@pytest.mark.parametrize(("seconds", "left"), [(SHUTDOWN_GRACE - 0.5, True), (SHUTDOWN_GRACE + 0.5, False)])
async def test_a_server_has_time_to_leave_its_lifespan(seconds: float, left: bool, autojump_clock: MockClock) -> None:
    ends = list[bool]()

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        yield
        await trio.sleep(seconds)
        ends.append(True)

    async with open_servers(config(Server("a", lifespan=lifespan))):
        began = trio.current_time()
    assert ends == [True] * left
    assert trio.current_time() - began == pytest.approx(min(seconds, SHUTDOWN_GRACE))


async def test_a_server_may_change_what_it_is_given() -> None:
    async def call(context: Any, params: Any) -> CallToolResult:
        await trio.lowlevel.checkpoint()
        params.arguments["list"].append(1)
        return CallToolResult(content=[])

    arguments: dict[str, list[int]] = {"list": []}
    async with open_servers(config(serve(call))) as servers:
        await servers["a"].call_tool("say", arguments)
    assert arguments == {"list": []}


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("what", ["levels", "digits"])
async def test_arguments_that_no_parser_accepts_reach_a_server_in_this_process(era: str, what: str) -> None:
    """They harm no other call. Validation refuses them, unless it is off."""
    server, may_answer = MCPServer("a"), trio.Event()

    @server.tool()
    async def say(value: Any) -> str:
        return type(value).__name__

    @server.tool()
    async def wait() -> str:
        await may_answer.wait()
        return "waited"

    options: dict[str, Any] = {"protocol": era, "validate": "off"}
    value: Any = 10**5000
    if what == "levels":
        for _ in range(240):
            value = [value if isinstance(value, list) else 1]
    async with open_servers(ServerConfig("a", InProcess(server), **options)) as servers:
        async with calls(1, servers["a"].call_tool, "wait") as (waiting,):
            assert text_of(await servers["a"].call_tool("say", {"value": value})) == type(value).__name__
            may_answer.set()
        assert text_of(waiting.value) == "waited"


@pytest.mark.parametrize("max_in_flight", [1, 10])
async def test_a_server_asks_in_the_middle_of_a_call(max_in_flight: int) -> None:
    """Its question is answered in the context variables of the caller, and may call the server if a slot is free."""
    server = MCPServer("a")

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.session.elicit_form("Which one?", {"type": "object", "properties": {}})
        return str(answer.action)

    @server.tool()
    async def add() -> str:
        return "added"

    async def answer(*_: object) -> ElicitResult:
        assert WHO.get() == "caller"
        if max_in_flight > 1:
            assert text_of(await servers["a"].call_tool("add")) == "added"
        else:
            with pytest.raises(LimitExceeded, match="this call would deadlock"):
                await servers["a"].call_tool("add")
        return ElicitResult(action="decline")

    options = {"max_in_flight": max_in_flight, "callbacks": Callbacks(elicitation=answer)}
    async with open_servers(config(server, **options)) as servers:
        WHO.set("caller")
        with trio.fail_after(BOUND):
            assert text_of(await servers["a"].call_tool("ask")) == "decline"


async def test_a_tool_that_raises_cancelled_error_ends_the_connection_and_no_more() -> None:
    """The SDK serves a legacy server in one task group, which it breaks. Each caller gets the error at once."""
    server = MCPServer("a")

    @server.tool()
    async def shut_down() -> str:
        raise asyncio.CancelledError("shutting down")

    @server.tool()
    async def wait() -> None:
        await trio.sleep_forever()

    @server.tool()
    async def say() -> str:
        return "said"

    async with open_servers(config(server, restarts=AT_ONCE)) as servers:
        async with calls(2, servers["a"].call_tool, "wait") as outcomes:
            await wait_all_tasks_blocked()
            with pytest.raises(ConnectionLost, match=r"tools/call 'shut_down', which may have taken effect"):
                await servers["a"].call_tool("shut_down")
        assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 2
        assert text_of(await servers["a"].call_tool("say")) == "said"
        assert servers["a"].statistics().incarnation == 2


async def test_stopping_with_calls_in_flight_is_not_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    async def call(context: Any, params: Any) -> None:
        await trio.sleep_forever()

    async with open_servers(config(serve(call), stop_timeout=0.01)) as servers:
        async with calls(2, servers["a"].call_tool, "say") as outcomes:
            await wait_all_tasks_blocked()
            await servers["a"].stop()
        assert [type(outcome.error).__name__ for outcome in outcomes] == ["ServerUnavailable"] * 2
        assert servers["a"].statistics().failures == 0
    assert "lost" not in caplog.text
