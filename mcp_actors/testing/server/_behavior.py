"""The SDK's server with a middleware that commits faults."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import anyio
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

from ._faults import Ask, Crash, Delay, Duplicate, Fail, Fault, Flood, Garble, Gate, Hang, HttpError, Noise
from ._script import Connected, Received, Script

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult

CONNECTION: Final[ContextVar[Connected]] = ContextVar("CONNECTION")
"""The connection over which a request came. The SDK handles requests in the context of the task that read them."""

QUESTION: Final = {"type": "object", "properties": {"answer": {"type": "string"}}}


class Behavior:
    """One SDK server: for one connection over a stream, or for all of an HTTP endpoint."""

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
        """Send a notification that the tools have changed, to all clients that want one."""
        for session in list(self._sessions.values()):
            await session.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    def note_cancelled(self, params: Mapping[str, Any]) -> None:
        """Note that the client has cancelled a request that runs.

        A middleware would be too late: the SDK cancels the request first, and in the modern era hides the message.
        """
        if (request := self._in_flight.pop(params.get("requestId"), None)) is not None:
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
        """Note a message, and commit the fault that the script has for it (as a middleware of the SDK)."""
        params = ctx.params or {}
        if ctx.request_id is None:
            return await call_next(ctx)
        name = params.get("name") or params.get("uri")
        connection = CONNECTION.get()
        request = Received(ctx.method, name, params.get("arguments") or {}, connection.number)
        self._script.receive(request)
        self._refuse_other_era(ctx.method)
        if "inputResponses" in params:  # the second leg of an `Ask`
            self._script.answers.extend(params["inputResponses"].values())
            return await call_next(ctx)
        self._in_flight[ctx.request_id] = request
        try:
            fault = self._script.take(ctx.method, name)
            return await self._commit(fault, ctx, call_next, connection)
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
    """Commit the part of a fault that comes before the request is carried out."""
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
