"""Offer a group to Microsoft's Agent Framework as a context provider.

`AgentFrameworkProvider` adds the tools of the group to each run, and its chat middleware brings them up to date before
each turn, in the list that the framework shares between model and calls ("progressive tool exposure"). Each tool is a
``FunctionTool`` that calls through the offer. Below, results become ``Content``. It keeps no tools between runs, opens
no connection, and leaves it to the framework which errors a model is shown.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Literal

import pydantic_core
from agent_framework import ChatContext, ChatMiddleware, Content, ContextProvider, FunctionTool
from agent_framework.exceptions import ToolExecutionException

from ..config import ToolContext
from ._offer import Offer, failure_text

if TYPE_CHECKING:
    from agent_framework import AgentSession, SessionContext, SupportsAgentRun
    from mcp.types import CallToolResult, ContentBlock

    from ..bridge import AsyncioServerGroup
    from ..catalog import CatalogTool


class AgentFrameworkProvider(ContextProvider):
    """A group of servers, for ``Agent(context_providers=[…])`` of Agent Framework (``agent-framework-core``).

    Its tools are those of the group at each turn of a run, under their public names; of two tools of one name the
    agent's own is offered. A `ToolFilter`'s predicate is asked with the agent and the ``AgentSession`` of the run. Any
    number of agents and runs may use one at the same time. It owns no connection.

    Results are those of ``agent_framework.MCPTool``: structured content if there is some, otherwise text and data. A
    tool that reports a failure raises ``ToolExecutionException``; errors of a call (`McpActorsError`, `mcp.MCPError`)
    leave the tool unchanged. The framework shows both to the model as ``Error: Function failed.``; with
    ``function_invocation_configuration={"include_detailed_errors": True}`` of the chat client, with their text.

    **Cancellation** of a run cancels its calls, at the server too, and is not an output of the tool.

    Args:
        group: the group that `mcp_actors.bridge.open_servers` yields.
        servers: the names of the servers whose tools to offer. Default None: all.
        tool_cache: False asks the servers for their tools at each turn, for servers that do not notify changes.
            Default True: the tools that they listed last.
        include_instructions: True adds the instructions of the servers to those of the agent, at each run (see
            `server_instructions`). Trust the servers. Default False.
        approval: which tools a person must approve before each call: ``"always"``, ``"never"`` (default), or the public
            names of some.
        source_id: the framework's name for it, unique among the providers of an agent. Default: the names of the
            servers.

    Raises:
        TypeError: `group` is not a group of the bridge.
        ValueError: `approval` is another text.
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
    ) -> None:
        if isinstance(approval, str) and approval not in ("always", "never"):
            raise ValueError(
                f"AgentFrameworkProvider: approval={approval!r} is not valid; give 'always', 'never', "
                f"or a collection of public names, like approval=[{approval!r}]"
            )
        self._offer = Offer.of(group, servers, tool_cache=tool_cache)
        self._include_instructions = include_instructions
        self._approval = approval
        super().__init__(source_id or self._offer.label)

    def __repr__(self) -> str:
        return f"<AgentFrameworkProvider {self.source_id!r}: {self._offer!r}>"

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Add the tools to a run, before its first turn because it may begin with a call that was approved.

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
        """Replace the tools of this provider in the options of a run by the current ones."""
        tools: list[Any] = options.setdefault("tools", [])
        others = [tool for tool in tools if not (isinstance(tool, _Function) and tool._provider is self)]
        # In place: the framework looks up calls in this list.
        tools[:] = [*others, *self._functions(await self._offer.tools(context), others)]

    def _functions(self, tools: Iterable[CatalogTool], others: Iterable[Any]) -> list[FunctionTool]:
        taken = {getattr(other, "name", None) for other in others}
        return [_Function(self, self._offer, tool, self._mode(tool)) for tool in tools if tool.public_name not in taken]

    def _mode(self, tool: CatalogTool) -> Literal["always_require", "never_require"]:
        asked = self._approval == "always" or (self._approval != "never" and tool.public_name in self._approval)
        return "always_require" if asked else "never_require"


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
    """One tool of a provider."""

    def __init__(self, provider: AgentFrameworkProvider, offer: Offer, tool: CatalogTool, approval_mode: Any) -> None:
        async def call(**arguments: Any) -> list[Content]:
            result = await offer.call(tool.public_name, arguments)
            if result.is_error:
                raise ToolExecutionException(failure_text(result))
            return _contents(result)

        super().__init__(
            name=tool.public_name,
            description=tool.description or tool.title or tool.name,
            approval_mode=approval_mode,
            func=call,
            input_model={"type": "object", "properties": {}, **copy.deepcopy(dict(tool.input_schema))},
            additional_properties={"mcp_server": tool.server, "mcp_tool": tool.name},
        )
        self._call = call
        self._provider = provider  # private, so that the framework does not serialize it

    def __call__(self, /, **arguments: Any) -> Awaitable[list[Content]]:
        """Call the tool. The framework's own method would take an argument ``self`` for itself."""
        return self._call(**arguments)


# --- Convert results into content of Agent Framework ------------------------------------------------------------------


def _contents(result: CallToolResult) -> list[Content]:
    if result.structured_content is not None:
        return [Content.from_text(pydantic_core.to_json(result.structured_content).decode())]
    return [_content(part) for part in result.content] or [Content.from_text("null")]


def _content(part: ContentBlock) -> Content:
    match part.type:
        case "text":
            return Content.from_text(part.text)
        case "image" | "audio":
            return _data(part.data, part.mime_type)
        case "resource":
            held = part.resource
            if hasattr(held, "text"):
                return Content.from_text(held.text)
            return _data(held.blob, held.mime_type)
        case _:
            return Content.from_uri(uri=str(part.uri), media_type=part.mime_type)


def _data(data: str, media_type: str | None) -> Content:
    return Content.from_data(data=base64.b64decode(data), media_type=media_type or "application/octet-stream")
