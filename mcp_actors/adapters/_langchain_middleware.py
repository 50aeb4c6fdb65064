"""Offer a group's current tools to an agent of LangChain.

An agent is built with a list of tools, but the tools of a group change. So the middleware adds the group's tools at
each turn. When the model calls a tool, the middleware finds the tool.

Owns: nothing.
Writes: requests to servers.
Calls: bridge, config, _langchain, _offer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import SystemMessage
from langchain_core.runnables import ensure_config
from langchain_core.tools import BaseTool

from ..bridge import AsyncioServerGroup
from ..config import ToolContext
from ._langchain import tool_of
from ._offer import Offer

if TYPE_CHECKING:
    from langchain.agents.middleware import ModelRequest, ModelResponse, ToolCallRequest
    from langchain_core.tools import ToolException


class LangChainMiddleware(AgentMiddleware[Any, Any, Any]):
    """A group of servers, for ``create_agent(middleware=[…])`` of LangChain.

    At each turn, the agent is offered its own tools and the current tools of the group, under their public names. A
    tool of the agent hides a tool of the group with the same name. In the `ToolContext` for the predicate of a
    `ToolFilter`, `agent` is the agent's name (``create_agent(name=…)``). `run` is LangGraph's ``Runtime`` when tools
    are listed, and its ``ToolRuntime`` when a tool is called. Several agents, and several runs of an agent, may share a
    middleware, which owns no connection.

    Only tools that the agent may use are called. If a tool was removed, is hidden from the agent, or was invented by
    the model, LangChain answers that the tool is not valid. Results and failures are those of `langchain_tools`; the
    errors also pass through LangChain's own middleware, such as ``ToolErrorMiddleware``.

    **Cancellation** of a run cancels its calls, at the servers too; the model gets no result. The agent is awaited
    (``ainvoke``, ``astream``); a synchronous ``invoke`` is refused.

    Args:
        group: from `mcp_actors.bridge.open_servers`.
        servers: the names of the servers to offer. Default None: all.
        tool_cache: False lists tools at each turn, for servers that do not notify changes. Default True uses
            the last lists.
        include_instructions: True adds the instructions of the servers to the system message (see
            `server_instructions`). Trust the servers. Default False.
        name: LangChain's name for the middleware, unique within an agent. Default: the names of the servers.
        handle_tool_error: how LangChain handles a ``ToolException``, see `langchain_tools`. Default: raised.

    Raises:
        TypeError: `group` is not a group of the bridge.
        KeyError: the group has no such server.
    """

    def __init__(
        self,
        group: AsyncioServerGroup,
        *,
        servers: Iterable[str] | None = None,
        tool_cache: bool = True,
        include_instructions: bool = False,
        name: str | None = None,
        handle_tool_error: bool | str | Callable[[ToolException], Any] = False,
    ) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = ()  # for the agent when built; tools of the group follow at each turn
        self._offer = Offer.of(group, servers, tool_cache=tool_cache)
        self._include_instructions = include_instructions
        self._name = name or self._offer.label
        self._tool_of = partial(tool_of, self._offer, handle_tool_error=handle_tool_error)

    def __repr__(self) -> str:
        return f"<LangChainMiddleware {self._name!r}: {self._offer!r}>"

    @property
    def name(self) -> str:
        """The name of the middleware for LangChain."""
        return self._name

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Offer the tools of this turn to the model."""
        tools = await self._offer.tools(_context(request))
        if self._include_instructions and (text := self._offer.instructions(tools)):
            request = request.override(system_message=_extended(request.system_message, text))
        taken = {tool.name for tool in request.tools if isinstance(tool, BaseTool)}
        offered = [self._tool_of(tool) for tool in tools if tool.public_name not in taken]
        return await handler(request.override(tools=[*request.tools, *offered]))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Give LangChain the tool that the model calls, if the group has it."""
        if request.tool is None:  # the agent was not built with this tool
            # A model may call any name, so the tools are checked again.
            for tool in await self._offer.known_tools(_context(request)):
                if tool.public_name == request.tool_call["name"]:
                    request = request.override(tool=self._tool_of(tool))
        return await handler(request)


def _context(request: ModelRequest[Any] | ToolCallRequest) -> ToolContext:
    return ToolContext(ensure_config().get("metadata", {}).get("lc_agent_name"), run=request.runtime)


def _extended(message: SystemMessage | None, text: str) -> SystemMessage:
    if message is None:
        return SystemMessage(text)
    return SystemMessage([*message.content_blocks, {"type": "text", "text": f"\n\n{text}"}])
