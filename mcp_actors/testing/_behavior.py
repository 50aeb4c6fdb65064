"""The script of a test server: its tools and planned faults.

Tests and connections, in several threads, share the script. A middleware of the SDK's server commits most faults, and
marks answers whose bytes the connection must spoil.

Owns: the script; the SDK's server; requests in flight.
Writes: marks on answers; messages to clients. Crashes connections; calls the test's functions.
Calls: _signal.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import anyio
from attrs import define, field, frozen
from mcp import MCPError
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged
from mcp.types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    Tool,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ._signal import Signal

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult


# --- The faults of a scripted server ----------------------------------------------------------------------------------


@frozen
class Crash:
    """Carry out the request, and die before the answer: the process is killed, or the connections are reset."""


@frozen
class Hang:
    """Carry out the request, and never answer."""


@frozen
class Delay:
    """Wait `seconds` before carrying out the request."""

    seconds: float


@frozen
class Fail:
    """Answer with a JSON-RPC error, without carrying out the request."""

    message: str = "failed as scripted"
    code: int = -32603  # an internal error
    data: object = None


@frozen
class Garble:
    """Carry out the request, and send `line` as a line, or as the body, instead of the answer."""

    line: bytes = b'{"jsonrpc": "2.0", "id": 1, "resu'


@frozen
class Noise:
    """Carry out the request, and send `line` as a line, or as an event of a stream, before the answer."""

    line: bytes = b"debug: a print() in the server"


@frozen
class Duplicate:
    """Carry out the request, and answer twice."""


@frozen
class Flood:
    """Send `number` notifications of progress of unknown requests, then carry out the request and answer."""

    number: int


@frozen
class Ask:
    """Ask the user (elicitation), in the way of the era, before carrying out the request."""

    message: str = "Go on?"


@frozen
class HttpError:
    """Answer with an HTTP status; over other transports, with a JSON-RPC error."""

    status: int
    headers: Mapping[str, str] = field(factory=dict)


class Gate:
    """Keep the request waiting until the test opens the gate. Several gates let a test choose the order of answers."""

    def __init__(self) -> None:
        self._opened = Signal()

    def __repr__(self) -> str:
        return f"<Gate, {'open' if self._opened.is_set() else 'closed'}>"

    def open(self) -> None:
        """Let the request go on. Any thread may call this method."""
        self._opened.set()

    async def wait(self) -> None:
        """Wait until the gate is open."""
        await self._opened.wait()


Fault: TypeAlias = Ask | Crash | Delay | Duplicate | Fail | Flood | Garble | Gate | Hang | HttpError | Noise


# --- A script: tools, planned faults and received requests ------------------------------------------------------------


Era: TypeAlias = Literal["both", "legacy", "modern"]
Answer: TypeAlias = "str | Callable[[dict[str, Any]], object]"

CONNECT: Final = "connect"


class Connected(Protocol):
    """An open connection, as the script sees it. Any thread may call the methods."""

    number: int

    def mark(self, request_id: object, fault: Garble | Duplicate | Noise) -> None:
        """Let a fault happen to the answer to a request."""

    def crash(self) -> None:
        """End at once, like a killed process."""

    def freeze(self) -> None:
        """Take and send nothing until `thaw`."""

    def thaw(self) -> None:
        """Go on."""

    def notify(self) -> None:
        """Send a notification that the tools have changed."""


@frozen
class Received:
    """A request that a scripted server received.

    Attributes:
        method: such as ``tools/call``.
        name: the name of the tool or prompt, or the URI of the resource; None for other requests.
        arguments: the arguments of a tool or prompt.
        connection: the number of the connection, from 1.
    """

    method: str
    name: str | None = None
    arguments: Mapping[str, Any] = field(factory=dict)
    connection: int = 1


@frozen
class ScriptedTool:
    name: str
    answer: Answer
    description: str
    input_schema: Mapping[str, Any]


@define
class _Planned:
    fault: Fault
    method: str
    name: str | None
    times: float


def _is(method: str, kind: str) -> bool:
    return method == kind or (kind == CONNECT and method in ("initialize", "server/discover"))


@define(eq=False)
class Script:
    """Shared by all connections of a server, perhaps in other threads.

    Attributes:
        answers: the user's answers to `Ask`, as in the protocol.
        refusing: True while connects are refused.
    """

    name: str
    era: Era
    tools: dict[str, ScriptedTool] = field(factory=dict)
    received: list[Received] = field(factory=list)
    cancelled: list[Received] = field(factory=list)
    answers: list[Mapping[str, Any]] = field(factory=list)
    connections: list[Connected] = field(factory=list)
    refusing: bool = False
    _planned: list[_Planned] = field(factory=list)
    _connected: int = 0
    _news: list[Signal] = field(factory=list)
    _lock: Any = field(factory=threading.RLock)

    def plan(self, fault: Fault, method: str, name: str | None, times: float) -> None:
        with self._lock:
            self._planned.append(_Planned(fault, method, name, times))

    def forget_faults(self) -> None:
        with self._lock:
            self._planned.clear()

    def take(self, method: str, name: str | None, *, http: bool = False) -> Fault | None:
        """Return and count the fault planned for a request; with `http`, only an `HttpError`."""
        with self._lock:
            for each in self._planned:
                if _is(method, each.method) and each.name in (None, name):
                    if http and not isinstance(each.fault, HttpError):
                        return None
                    each.times -= 1
                    if each.times <= 0:
                        self._planned.remove(each)
                    return each.fault
            return None

    def receive(self, received: Received) -> None:
        with self._lock:
            self.received.append(received)
            news, self._news = self._news, []
        for each in news:
            each.set()

    async def wait_received(self, method: str, name: str | None, number: int) -> Received:
        """Wait until `number` requests of a kind have arrived; return the last."""
        while True:
            signal = Signal()
            with self._lock:
                found = [each for each in self.received if _is(each.method, method) and name in (None, each.name)]
                if len(found) < number:
                    self._news.append(signal)
            if len(found) >= number:
                return found[number - 1]
            await signal.wait()

    def connect(self, connection: Connected) -> int:
        with self._lock:
            self._connected += 1
            self.connections.append(connection)
            return self._connected

    def disconnect(self, connection: Connected) -> None:
        with self._lock:
            self.connections.remove(connection)


# --- The SDK's server, with a middleware that commits the faults ------------------------------------------------------


CONNECTION: Final[ContextVar[Connected]] = ContextVar("CONNECTION")
"""The connection of a request: the SDK handles requests in the context of the reading task."""

QUESTION: Final = {"type": "object", "properties": {"answer": {"type": "string"}}}


class Behavior:
    """One SDK server: for one connection over a stream, or for a whole HTTP endpoint."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._bus = InMemorySubscriptionBus()
        self._sessions: dict[str | None, Any] = {}
        self._in_flight: dict[object, Received] = {}
        self.server: Server[Any] = Server(
            script.name,
            version="1",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.server.middleware.append(self._act)

    async def notify(self) -> None:
        for session in list(self._sessions.values()):
            await session.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    def note_cancelled(self, params: Mapping[str, Any]) -> None:
        """Note that the client has cancelled a running request.

        A middleware would be too late: the SDK cancels first, and hides the message in the modern era.
        """
        request = self._in_flight.pop(params.get("requestId"), None)
        if request is not None and request.method != "subscriptions/listen":  # which a client ends by cancelling
            self._script.cancelled.append(request)

    # --- the SDK's side ---------------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Any, _: object) -> ListToolsResult:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            session_id = None if ctx.request is None else ctx.request.headers.get("mcp-session-id")
            self._sessions[session_id] = ctx.session
        tools = [
            Tool(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))
            for tool in list(self._script.tools.values())
        ]
        return ListToolsResult(tools=tools)

    async def _call_tool(self, _: object, params: Any) -> CallToolResult:
        tool = self._script.tools.get(params.name)
        if tool is None:
            return CallToolResult(content=[TextContent(text=f"Unknown tool: {params.name}")], is_error=True)
        answer = tool.answer(params.arguments or {}) if callable(tool.answer) else tool.answer
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, CallToolResult):
            return answer
        if isinstance(answer, dict):
            return CallToolResult(content=[], structured_content=answer)
        return CallToolResult(content=[TextContent(text=str(answer))])

    async def _act(self, ctx: Any, call_next: CallNext) -> HandlerResult:
        """Note a request, and commit its planned fault (middleware of the SDK)."""
        params = ctx.params or {}
        if ctx.request_id is None:
            return await call_next(ctx)
        name = params.get("name") or params.get("uri")
        connection = CONNECTION.get()
        request = Received(ctx.method, name, params.get("arguments") or {}, connection.number)
        self._script.receive(request)
        self._refuse_other_era(ctx.method)
        if "inputResponses" in params:  # second leg of an `Ask`
            self._script.answers.extend(params["inputResponses"].values())
            return await call_next(ctx)
        self._in_flight[ctx.request_id] = request
        try:
            return await self._commit(self._script.take(ctx.method, name), ctx, call_next, connection)
        finally:
            self._in_flight.pop(ctx.request_id, None)

    def _refuse_other_era(self, method: str) -> None:
        if self._script.era == "legacy" and method == "server/discover":
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        if self._script.era == "modern" and method == "initialize":
            supported = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
            raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", supported)

    async def _commit(self, fault: Fault | None, ctx: Any, call_next: CallNext, connection: Connected) -> HandlerResult:
        if isinstance(fault, Ask):
            return await self._ask(fault.message, ctx, call_next)
        await _before(fault, ctx)
        if isinstance(fault, Garble | Duplicate | Noise):
            connection.mark(ctx.request_id, fault)
        result = await call_next(ctx)
        if isinstance(fault, Crash):
            connection.crash()
        if isinstance(fault, Crash | Hang):
            await anyio.sleep_forever()
        return result

    async def _ask(self, message: str, ctx: Any, call_next: CallNext) -> HandlerResult:
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            params = ElicitRequestFormParams(message=message, requested_schema=QUESTION)
            return InputRequiredResult(input_requests={"question": ElicitRequest(params=params)}, request_state="asked")
        answer = await ctx.session.elicit_form(message, QUESTION, related_request_id=ctx.request_id)
        self._script.answers.append(answer.model_dump(by_alias=True, exclude_none=True))
        return await call_next(ctx)


async def _before(fault: Fault | None, ctx: Any) -> None:
    match fault:
        case Delay(seconds):
            await anyio.sleep(seconds)
        case Gate():
            await fault.wait()
        case Fail(message, code, data):
            raise MCPError(code, message, data)
        case HttpError(status):
            raise MCPError(INTERNAL_ERROR, f"HTTP status {status}")
        case Flood(number):
            for count in range(number):
                await ctx.session.send_progress_notification("unknown token", count)
