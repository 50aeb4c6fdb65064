"""Offer a group to the OpenAI Agents SDK as one server.

A tool has a public name in the Agents SDK, and another name on its server. Guardrails and approval functions judge each
name, and must permit both. ``tool_meta_resolver`` gets the name on the server first. If that call returns None, a
second call gets the public name.

Owns: nothing.
Writes: requests to servers.
Calls: bridge, _offer.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from agents import ToolGuardrailFunctionOutput
from agents.mcp import MCPServer
from mcp.types import CallToolResult, Tool

from .._errors import ConfigError
from ..bridge import AsyncioServerGroup
from ._offer import (
    CARRIED_OUT,
    Approvals,
    Offer,
    PromptsAndResources,
    as_listed,
    check_options,
    context_of,
    first_answer,
    presented,
)

if TYPE_CHECKING:
    from agents import Agent, AgentBase, RunContextWrapper, ToolInputGuardrail, ToolOutputGuardrail
    from agents.mcp import MCPToolCustomDataExtractor, MCPToolMetaResolver
    from agents.mcp.server import RequireApprovalSetting
    from agents.tool import ToolErrorFunction
    from agents.tool_context import ToolContext

# Remedy → refused options of servers in `agents.mcp`. The key `CARRIED_OUT` has the supported options.
MCP_SERVER_OPTIONS: Final = {
    CARRIED_OUT: "name require_approval failure_error_function use_structured_content tool_meta_resolver "
    "custom_data_extractor tool_input_guardrails tool_output_guardrails",
    "give its command or URL to open_servers()": "params",
    "set tool_cache": "cache_tools_list",
    "set ServerConfig(tool_filter=…)": "tool_filter",
    "set ServerConfig(request_timeout=…, limits=…)": "client_session_timeout_seconds max_list_pages",
    "set ServerConfig(retry=…)": "max_retry_attempts retry_backoff_seconds_base retry_backoff_seconds_max",
    "set Callbacks(message=…)": "message_handler",
}


class MCPServerOptions(TypedDict, total=False):
    """The options of ``agents.mcp.MCPServer`` that `OpenAIAgentsServer` carries out."""

    require_approval: RequireApprovalSetting
    failure_error_function: ToolErrorFunction | None
    use_structured_content: bool
    tool_meta_resolver: MCPToolMetaResolver | None
    custom_data_extractor: MCPToolCustomDataExtractor | None
    tool_input_guardrails: list[ToolInputGuardrail[Any]] | None
    tool_output_guardrails: list[ToolOutputGuardrail[Any]] | None


class OpenAIAgentsServer(PromptsAndResources, MCPServer):
    """A group of servers, for ``Agent(mcp_servers=[…])`` of the OpenAI Agents SDK (``openai-agents``).

    The tools are those of the group at each turn, under their public names; the predicate of a `ToolFilter` gets the
    agent and the run's ``RunContextWrapper``. Agents and runs may share an adapter, which owns no connection:
    connecting and cleaning up do nothing.

    A result with ``is_error`` is the tool's output, as with the servers of the SDK. An error of a call goes to the
    ``failure_error_function`` of this adapter or of the agent. Without a function, the SDK describes the error to the
    model; with ``failure_error_function=None``, the error ends the run, as the cause of an
    ``agents.exceptions.AgentsException``.

    **Cancellation** of a run cancels its calls, at the server too, and is not an output of the tool.

    Args:
        group: from `mcp_actors.bridge.open_servers`.
        servers: the names of the servers to offer. Default None: all.
        tool_cache: False lists tools at each turn, for servers that do not notify changes. Default True: the last
            lists.
        name: the SDK's name for the adapter, in traces and errors. Default: the names of the servers.
        options: those of ``agents.mcp.MCPServer``: ``failure_error_function``, ``require_approval``,
            ``use_structured_content`` and so on. Further options of subclasses are refused. A name in
            ``require_approval`` is the public name of a tool, or the name on the server; while a name means no listed
            tool, all tools need approval. A function as ``require_approval``, and guardrails, are called with the name
            on the server and then with the public name, and both calls must permit. ``tool_meta_resolver`` and
            ``custom_data_extractor`` are called with the names of the server and its tool; if they return None, with
            the `name` of this adapter and the public name.

    Raises:
        TypeError: `group` is not a group of the bridge, or an option is refused or does not exist.
        KeyError: the group has no such server.
    """

    def __init__(
        self,
        group: AsyncioServerGroup,
        *,
        servers: Iterable[str] | None = None,
        tool_cache: bool = True,
        name: str | None = None,
        **given: Unpack[MCPServerOptions],
    ) -> None:
        check_options(OpenAIAgentsServer, MCP_SERVER_OPTIONS, given)
        options: dict[str, Any] = {**given}
        self._offer = Offer.of(group, servers, tool_cache=tool_cache)
        self._name = name or self._offer.label
        self._approval: Any = self._normalize_needs_approval(require_approval=options.pop("require_approval", None))
        if isinstance(self._approval, dict):
            self._approval = Approvals(self._offer, "OpenAIAgentsServer: require_approval", self._approval)
        for option in ("tool_meta_resolver", "custom_data_extractor"):
            if resolver := options.get(option):
                options[option] = partial(self._resolve, resolver)
        for option in ("tool_input_guardrails", "tool_output_guardrails"):
            options[option] = [self._by_both_names(each) for each in options.get(option) or ()]
        approval = self._approval if isinstance(self._approval, bool) else self._needs_approval_by_name
        super().__init__(require_approval=approval, **options)

    def __repr__(self) -> str:
        return f"<OpenAIAgentsServer {self._name!r}: {self._offer!r}>"

    @property
    def name(self) -> str:
        """The name of the server for the SDK."""
        return self._name

    def instructions(self, text: str = "") -> Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]:
        """Return ``Agent(instructions=…)``: `text`, and below, at each turn, the instructions of the servers.

        These are as in `server_instructions`, for the agent and the run. Trust the servers.
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
            ConfigError: a server's ToolFilter has a predicate, and there is neither agent nor context; or the agent
                changes names that the guardrails here need.
            ServerUnavailable: the block of the group has exited.
        """
        guarded = self.tool_input_guardrails or self.tool_output_guardrails
        if guarded and agent is not None and agent.mcp_config.get("include_server_in_tool_names"):
            raise ConfigError("OpenAIAgentsServer: guardrails need public names; omit include_server_in_tool_names")
        found = await self._offer.tools(context_of(agent, run_context))
        if isinstance(self._approval, Approvals):
            self._approval.judge()  # warns of names that no tool has
        return [as_listed(tool) for tool in found]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool by its public name; return the whole result as content, like `McpClient`."""
        return presented(await self._offer.call(tool_name, arguments, meta=meta))

    async def _needs_approval_by_name(self, run: Any, agent: Any, tool: Tool) -> bool:
        """Apply ``require_approval`` to a tool by both names."""
        if (known := self._offer.find(tool.name)) is None:
            return True  # the tool was renamed or removed since this turn began
        if isinstance(self._approval, Approvals):
            return self._approval.judge()(known)
        named = (tool.model_copy(update={"name": name}) for name in dict.fromkeys((known.name, tool.name)))
        return bool(await first_answer(lambda each: self._approval(run, agent, each), named, bool))

    async def _resolve(self, resolver: Callable[[Any], Any], context: Any) -> Any:
        known = self._offer.find(context.tool_name)
        own = [] if known is None else [replace(context, server_name=known.server, tool_name=known.name)]
        return await first_answer(resolver, [*own, context], lambda answer: answer is not None)

    def _by_both_names(self, guardrail: Any) -> Any:
        """Return a guardrail that judges a tool by both names."""

        async def judge(data: Any) -> Any:
            name = data.context.tool_name
            if (known := self._offer.find(name)) is None:  # so its own name is not known
                return ToolGuardrailFunctionOutput.reject_content(f"tool {name!r} is no longer listed")
            both = (replace(data, context=_named(data.context, each)) for each in dict.fromkeys((known.name, name)))
            return await first_answer(guardrail.run, both, lambda output: output.behavior["type"] != "allow")

        return replace(guardrail, guardrail_function=judge, name=guardrail.get_name())


def _named(context: ToolContext[Any], name: str) -> ToolContext[Any]:
    named = copy.copy(context)
    named.tool_name = name
    named.tool_call = named.tool_call and named.tool_call.model_copy(update={"name": name})
    return named
