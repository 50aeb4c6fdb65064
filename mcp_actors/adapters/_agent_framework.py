"""Offer a group to Microsoft's Agent Framework as a context provider.

The tools of a group may change during a run. The framework shows the model a list of tools, and looks up called tools
in the same list. So a chat middleware updates the list before each request to the model.

Owns: approval rules for tools.
Writes: tools and instructions of agent runs; requests to servers.
Calls: bridge, config, _offer.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence, Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, Literal, Never

from agent_framework import ChatContext, ChatMiddleware, Content, ContextProvider, FunctionTool
from agent_framework.exceptions import ToolExecutionException

from ..bridge import AsyncioServerGroup
from ..config import ToolContext
from ._offer import Approvals, Offer, binary_of, check_options, failure_text, meta_of, parts_of

if TYPE_CHECKING:
    from agent_framework import AgentSession, SessionContext, SupportsAgentRun
    from mcp.types import CallToolResult

    from ..catalog import CatalogTool

# Remedy → options of `agent_framework.MCPTool` and its subclasses.
MCP_TOOL_OPTIONS: Final = {
    "set approval": "approval_mode",
    "set source_id": "name",
    "set ServerConfig(tool_filter=…)": "allowed_tools",
    "set ServerConfig(request_timeout=…, limits=…)": "request_timeout max_host_payload_size_bytes",
    "set ServerConfig(middleware=…)": "parse_tool_results tool_result_content additional_tool_argument_names",
    "give its command or URL to open_servers()": "command args env encoding url mcp_client session",
    "give it to Http(…)": "http_client static_headers header_provider terminate_on_close",
    "set Callbacks(sampling=…)": "client sampling_approval_callback sampling_max_tokens sampling_max_requests",
    "get prompts by servers[…].get_prompt(…)": "load_prompts parse_prompt_results",
    "leave it out": "tool_name_prefix load_tools use_progressive_disclosure always_load "
    "description additional_properties task_options",
}


class AgentFrameworkProvider(ContextProvider):
    """A group of servers, for ``Agent(context_providers=[…])`` of Agent Framework (``agent-framework-core``).

    At each turn of a run, the model gets the agent's own tools, and the group's current tools under their public names.
    A tool of the agent hides a tool of the group with the same name. The predicate of a `ToolFilter` gets the agent and
    the run's ``AgentSession``. Agents and runs may share a provider, which owns no connection.

    Results are text and data, as with ``MCPTool(tool_result_content="both")``; structured content is left out if a text
    says the same, and links are texts. ``_meta`` is in ``additional_properties``. A tool that reports a failure raises
    ``ToolExecutionException``; errors of a call (`McpActorsError`, `mcp.MCPError`) are raised unchanged. The
    framework shows both to the model as ``Error: Function failed.``; with
    ``function_invocation_configuration={"include_detailed_errors": True}`` of the chat client, with their text.

    **Cancellation** of a run cancels its calls, at the server too, and is not an output of the tool.

    Args:
        group: from `mcp_actors.bridge.open_servers`.
        servers: the names of the servers to offer. Default None: all.
        tool_cache: False lists tools at each turn, for servers that do not notify changes. Default True: the last
            lists.
        include_instructions: True adds the instructions of the servers to the agent's, at each run (see
            `server_instructions`). Trust the servers. Default False.
        approval: which tools a person must approve before each call: ``"always"``, ``"never"`` (default), or names.
            A name is public, or means all tools with this name on their servers. While a name means no listed tool, all
            tools need approval.
        source_id: the framework's name for the provider, unique within an agent. Default: the names of the servers.

    Raises:
        TypeError: `group` is not a group of the bridge, `approval` is not a collection of names, or an option of
            ``agent_framework.MCPTool`` is not supported here.
        ValueError: `approval` is another str.
        KeyError: the group has no such server.
    """

    def __init__(
        self,
        group: AsyncioServerGroup,
        *,
        servers: Iterable[str] | None = None,
        tool_cache: bool = True,
        include_instructions: bool = False,
        approval: Literal["always", "never"] | Collection[str] = "never",
        source_id: str | None = None,
        **others: Never,
    ) -> None:
        check_options(AgentFrameworkProvider, MCP_TOOL_OPTIONS, others)
        if isinstance(approval, str) and approval not in ("always", "never"):
            remedy = f"give 'always', 'never', or a collection of names of tools, like approval=[{approval!r}]"
            raise ValueError(f"AgentFrameworkProvider: approval={approval!r} is not valid; {remedy}")
        if not isinstance(approval, Sequence | AbstractSet) or not all(isinstance(name, str) for name in approval):
            raise TypeError(f"AgentFrameworkProvider: approval={approval!r:.60} is not valid; list names of tools")
        self._offer = Offer.of(group, servers, tool_cache=tool_cache)
        self._include_instructions = include_instructions
        self._always = approval == "always"
        names = {} if isinstance(approval, str) else dict.fromkeys(approval, True)
        self._approvals = Approvals(self._offer, "AgentFrameworkProvider: approval", names)
        super().__init__(source_id or self._offer.label)

    def __repr__(self) -> str:
        return f"<AgentFrameworkProvider {self.source_id!r}: {self._offer!r}>"

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Add the tools to a run, before its first turn, which may begin with an approved call.

        Raises:
            ServerUnavailable: the block of the group has exited.
        """
        who = ToolContext(agent, run=session)
        known = await self._offer.known_tools(who)
        own = getattr(agent, "default_options", {}).get("tools") or ()
        context.extend_tools(self.source_id, self._functions(known, own))
        context.extend_middleware(self.source_id, _EachTurn(self, who))
        if self._include_instructions and (text := self._offer.instructions(known)):
            context.extend_instructions(self.source_id, text)

    async def update(self, options: dict[str, Any], context: ToolContext) -> None:
        """Replace the tools of this provider in the options of a run."""
        tools: list[Any] = options.setdefault("tools", [])
        others = [tool for tool in tools if not (isinstance(tool, _Function) and tool._provider is self)]
        # In place: the framework looks up calls in this very list, and would not find the new tools in another.
        tools[:] = [*others, *self._functions(await self._offer.tools(context), others)]

    def _functions(self, tools: Iterable[CatalogTool], others: Iterable[Any]) -> list[FunctionTool]:
        taken = {getattr(other, "name", None) for other in others}
        asks = (lambda _: True) if self._always else self._approvals.judge()
        return [_Function(self, self._offer, tool, asks(tool)) for tool in tools if tool.public_name not in taken]


class _EachTurn(ChatMiddleware):
    """Brings the tools of one run up to date before each request to the model."""

    def __init__(self, provider: AgentFrameworkProvider, who: ToolContext) -> None:
        self._provider = provider
        self._who = who

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        if isinstance(context.options, dict) and context.options.get("tool_choice") != "none":
            await self._provider.update(context.options, self._who)
        await call_next()


class _Function(FunctionTool):
    def __init__(self, provider: AgentFrameworkProvider, offer: Offer, tool: CatalogTool, needs_approval: bool) -> None:
        async def call(**arguments: Any) -> list[Content]:
            result = await offer.call(tool.public_name, arguments)
            if result.is_error:
                raise ToolExecutionException(failure_text(result))
            return _contents(result)

        super().__init__(
            name=tool.public_name,
            description=tool.description or tool.title or tool.name,
            approval_mode="always_require" if needs_approval else "never_require",
            func=call,
            input_model={"type": "object", "properties": {}, **copy.deepcopy(dict(tool.input_schema))},
            additional_properties={"mcp_server": tool.server, "mcp_tool": tool.name},
        )
        self._call = call
        self._provider = provider  # private, so that the framework does not serialize it

    def __call__(self, /, **arguments: Any) -> Awaitable[list[Content]]:
        """Call the tool. The framework's own method would take an argument ``self``."""
        return self._call(**arguments)


# --- Results ----------------------------------------------------------------------------------------------------------


def _contents(result: CallToolResult) -> list[Content]:
    more = {"additional_properties": {"_meta": meta}} if (meta := meta_of(result)) else {}
    return [_content(part, more) for part in parts_of(result)]


def _content(part: Any, more: dict[str, Any]) -> Content:
    if part.type == "text":
        return Content.from_text(part.text, **more)
    data, media_type = binary_of(part)
    return Content.from_data(data=base64.b64decode(data), media_type=media_type, **more)
