"""Offer a group to the OpenAI Agents SDK as an MCP server.

`OpenAIAgentsServer` answers from the offer: it lists and calls tools, makes instructions for an agent, and has prompts
and resources if it has one server. It keeps no tools between turns. Connecting and cleaning up do nothing, and failures
are left to that SDK.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from agents.mcp import MCPServer
from mcp.types import CallToolResult, Tool

from ._offer import Offer, PromptsAndResources, as_listed, context_of

if TYPE_CHECKING:
    from agents import Agent, AgentBase, RunContextWrapper

    from ..bridge import AsyncioServerGroup


class OpenAIAgentsServer(PromptsAndResources, MCPServer):
    """A group of servers, for ``Agent(mcp_servers=[…])`` of the OpenAI Agents SDK (``openai-agents``).

    Its tools are those of the group at each turn, under their public names; a `ToolFilter`'s predicate is asked with
    the agent and the run's ``RunContextWrapper``. Any number of agents and runs may use one at the same time. It owns
    no connection: connecting and cleaning up do nothing.

    A result with ``is_error`` is the tool's output, as with the servers of the SDK. An error of a call goes to the
    SDK's ``failure_error_function``: if none is given here or to the agent, the SDK describes it to the model; with
    ``failure_error_function=None`` it ends the run, as ``agents.exceptions.AgentsException`` with our error as
    its cause.

    **Cancellation** of a run cancels its calls, at the server too, and is not an output of the tool.

    Args:
        group: the group that `mcp_actors.bridge.open_servers` yields.
        servers: the names of the servers whose tools to offer. Default None: all.
        tool_cache: False asks the servers for their tools at each turn, for servers that do not notify changes.
            Default True: the tools that they listed last.
        name: the SDK's name for it, in its traces and errors. Default: the names of the servers.
        options: those of ``agents.mcp.MCPServer``: ``failure_error_function``, ``require_approval``,
            ``use_structured_content`` and so on.

    Raises:
        TypeError: `group` is not a group of the bridge, or an option does not exist.
        KeyError: the group has no such server.
    """

    def __init__(
        self,
        group: AsyncioServerGroup,
        *,
        servers: Iterable[str] | None = None,
        tool_cache: bool = True,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._offer = Offer.of(group, servers, tool_cache=tool_cache)
        self._name = name or self._offer.label

    def __repr__(self) -> str:
        return f"<OpenAIAgentsServer {self._name!r}: {self._offer!r}>"

    @property
    def name(self) -> str:
        """The name of the server for the SDK."""
        return self._name

    def instructions(self, text: str = "") -> Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]:
        """Return ``Agent(instructions=…)``: this text, and below it the instructions of the servers at each turn.

        These are the instructions of `server_instructions`, for the agent and the run. Trust the servers.
        """

        async def instruct(run_context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
            tools = await self._offer.known_tools(context_of(agent, run_context))
            return "\n\n".join(part for part in (text, self._offer.instructions(tools)) if part)

        return instruct

    async def connect(self) -> None:
        """Do nothing: the group is connected."""

    async def cleanup(self) -> None:
        """Do nothing: the connections are the group's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Do nothing: the connections are the group's."""

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase[Any] | None = None
    ) -> list[Tool]:
        """Return the tools to offer to an agent now.

        Raises:
            ConfigError: a server's ToolFilter has a predicate, and there is neither agent nor context.
            ServerUnavailable: the block of the group has exited.
        """
        return [as_listed(tool) for tool in await self._offer.tools(context_of(agent, run_context))]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool by its public name, like `mcp_actors.ServerGroup.call_tool`."""
        return await self._offer.call(tool_name, arguments, meta=meta)
