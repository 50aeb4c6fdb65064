"""Offer chosen servers' tools, prompts and resources to an agent framework.

All adapters share `Offer`. `Approvals` decides by name which tools need approval. Many frameworks show a model only a
part of a tool result, so `parts_of` turns structured content and links into text.

Owns: names that `Approvals` has warned about; names seen on several tools.
Writes: requests to servers; the log.
Calls: bridge, catalog, config.
"""

from __future__ import annotations

import base64
import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from mcp.types import (
    LATEST_PROTOCOL_VERSION,
    CallToolResult,
    ContentBlock,
    GetPromptResult,
    ImageContent,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    ServerCapabilities,
    TextContent,
    Tool,
    ToolsCapability,
)

from .._errors import ServerUnavailable, ToolNotFound
from .._foreign import Log, answer_of
from .._misuse import nearest, unknown_argument
from .._text import plain_text
from ..bridge import AsyncioServerGroup, AsyncioServerRef
from ..bridge._open import list_tools_again
from ..catalog import data_text, decoded, text_of
from ..config import ProgressCallback, ToolContext

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from ..catalog import CatalogTool

logger = Log("mcp_actors.adapters")


@frozen(repr=False)
class Offer:
    """The tools of a group, or of some of its servers, under their public names.

    Attributes:
        names: the servers, without repetitions; None for all.
        tool_cache: False asks the servers for their tools at each turn.
    """

    group: AsyncioServerGroup
    names: tuple[str, ...] | None
    tool_cache: bool = True

    @classmethod
    def of(cls, group: AsyncioServerGroup, servers: Iterable[str] | None, *, tool_cache: bool = True) -> Offer:
        """Check the arguments of an adapter, and return its offer."""
        if not isinstance(group, AsyncioServerGroup):
            raise TypeError(f"{group!r} is not an AsyncioServerGroup; {_remedy(group)}")
        if servers is None:
            return cls(group, None, tool_cache)
        if isinstance(servers, str):
            raise TypeError(f"servers={servers!r} is not a collection of names; give servers=[{servers!r}]")
        names = tuple(dict.fromkeys(servers))
        for name in names:
            group[name]
        return cls(group, names, tool_cache)

    def __repr__(self) -> str:
        return repr(self.group) if self.names is None else f"{', '.join(self.names)} of {self.group!r}"

    @property
    def label(self) -> str:
        return "mcp_actors" if self.names is None else "-".join(self.names) or "none"

    async def tools(self, context: ToolContext | None) -> tuple[CatalogTool, ...]:
        """Return the tools for the next turn. Without `tool_cache`, ask the active servers first.

        The failure of a server is logged, and its last list counts.
        """
        if not self.tool_cache:
            mine = (server for server in self.group.active if self.names is None or server.name in self.names)
            await list_tools_again(mine)
        return await self.known_tools(context)

    async def known_tools(self, context: ToolContext | None) -> tuple[CatalogTool, ...]:
        """Return the tools to offer to a model, without those for user interfaces only. Send no request."""
        return tuple(tool for tool in self.of_servers(await self.group.list_tools(context)) if _for_models(tool))

    def of_servers(self, tools: Iterable[CatalogTool]) -> list[CatalogTool]:
        return [tool for tool in tools if self.names is None or tool.server in self.names]

    def find(self, public_name: str) -> CatalogTool | None:
        with suppress(KeyError):
            return self.group.tools.find(public_name)
        return None

    def instructions(self, tools: Iterable[CatalogTool]) -> str:
        """Return the instructions of the servers of `tools`, each under the server's name, or ``""``."""
        parts: list[str] = []
        for name in dict.fromkeys(tool.server for tool in tools):
            # A server may be removed meanwhile, or have remembered tools and no connection yet.
            with suppress(KeyError, ServerUnavailable):
                if (text := self.group[name].info.instructions) is not None and text.strip():
                    parts.append(f"Instructions of the MCP server {name!r}:\n{text.strip()}")
        return "\n\n".join(parts)

    async def call(
        self,
        public_name: str,
        arguments: Mapping[str, Any] | None,
        *,
        progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool by its public name, like `ServerGroup.call_tool`."""
        if self.names is not None and (server := self.group.find_tool(public_name).server) not in self.names:
            problem = f"tool {public_name!r} is not offered here, because it belongs to server {server!r}"
            remedy = f"add that to servers (now: {', '.join(self.names) or 'none'})"
            raise ToolNotFound(f"{problem}; {remedy}", server=server)
        return await self.group.call_tool(public_name, arguments, progress=progress, meta=meta)


def _for_models(tool: CatalogTool) -> bool:
    """Return False for a tool that only a user interface may call (MCP Apps, SEP-1865)."""
    match tool.meta:
        case {"ui": {"visibility": list(audiences)}}:
            return "model" in audiences
    return True


def _remedy(group: object) -> str:
    if isinstance(group, AsyncioServerRef):
        return f"give the group that it belongs to, and servers=[{group.name!r}]"
    return (
        "give the group of 'async with mcp_actors.bridge.open_servers(...) as group' (in a program on Trio: "
        "loop.view(group), with mcp_actors.bridge.open_asyncio_loop)"
    )


def context_of(agent: object, run: object) -> ToolContext | None:
    return None if agent is None and run is None else ToolContext(agent=agent, run=run)


def as_listed(tool: CatalogTool) -> Tool:
    """Return a copy of a tool as a type of the SDK, under the public name."""
    return Tool.model_validate(
        {
            "name": tool.public_name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": copy.deepcopy(tool.input_schema),
            "outputSchema": copy.deepcopy(tool.output_schema),
            "annotations": tool.annotations,
            "_meta": copy.deepcopy(tool.meta),
        }
    )


# --- Results ----------------------------------------------------------------------------------------------------------


SILENT: Final = "the tool failed and gave no reason"


def parts_of(result: CallToolResult) -> list[ContentBlock]:
    """Return the parts of a result to show: texts, images, audio and other binary data, and at least one part.

    Servers put data into structured content, into content or into both, and libraries show a model only some. So
    structured content becomes a text, unless a text says the same. Embedded texts become texts, and links too, because
    a model's provider cannot fetch what only the server can read.
    """
    parts = [_shown(part) for part in result.content]
    if (data := data_text(result)) is not None:
        parts.append(TextContent(text=data))
    return parts or [TextContent(text=SILENT if result.is_error else "the tool returned nothing")]


def _shown(part: ContentBlock) -> ContentBlock:
    if part.type == "text":
        return part
    if (text := text_of(part)) is not None:
        return TextContent(text=text)
    data, mime_type = binary_of(part)
    try:
        held = decoded(data)
    except ValueError:
        held = b""
    if not held:
        return TextContent(text=plain_text(f"[a part of the type {mime_type!r:.80} that is empty or is not base64]"))
    data = base64.b64encode(held).decode()
    if part.type != "resource":
        return part.model_copy(update={"data": data})
    if mime_type.startswith("image/"):
        return ImageContent(data=data, mime_type=mime_type)
    return part.model_copy(update={"resource": part.resource.model_copy(update={"blob": data})})


def presented(result: CallToolResult) -> CallToolResult:
    return result.model_copy(update={"content": parts_of(result)})


def binary_of(part: Any) -> tuple[str, str]:
    if part.type == "resource":
        return part.resource.blob, part.resource.mime_type or "application/octet-stream"
    return part.data, part.mime_type


def meta_of(result: CallToolResult) -> dict[str, Any]:
    """Return the ``_meta`` of a result, without the keys of the protocol."""
    return {key: each for key, each in (result.meta or {}).items() if not key.startswith("io.modelcontextprotocol/")}


def failure_text(result: CallToolResult, silent: str = SILENT) -> str:
    words = [part.text if part.type == "text" else f"[{part.type}]" for part in parts_of(result)]
    has_reason = bool(result.content) or result.structured_content is not None
    return (has_reason and "\n".join(filter(None, words))) or silent


# --- Options of a framework -------------------------------------------------------------------------------------------


CARRIED_OUT: Final = ""  # the key of the options that an adapter carries out


def check_options(adapter: type, table: Mapping[str, str], given: Iterable[str]) -> None:
    """Refuse each option that an adapter does not carry out, with a remedy.

    Args:
        adapter: the class of the adapter; its last parameter takes the options.
        table: a remedy, or `CARRIED_OUT` → options of the framework's own class, separated by spaces.
        given: the names of the options.
    """
    for option in given:
        remedy = next((each for each, names in table.items() if option in names.split()), None)
        if remedy is None:
            *known, _ = inspect.signature(adapter).parameters
            known += table.get(CARRIED_OUT, "").split()
            raise unknown_argument(adapter.__name__, option, dict.fromkeys(known))
        if remedy != CARRIED_OUT:
            raise TypeError(f"{adapter.__name__}: option {option!r} is not supported here; {remedy}")


class Approvals:
    """The approvals that an option gives by the names of tools.

    | a name | its effect |
    |---|---|
    | that requires approval | the tool with this public name, and all tools with this own name, need approval |
    | that exempts | exempts the tool with this public name, or else the only tool with this own name |
    | that means no listed tool | every tool needs approval, because the name may be misspelled |

    An own name exempts no tool if several tools ever had the name, or if it looks like the public name of a tool of
    another server, which may just not be listed.

    Args:
        option: the adapter and the option, for warnings.
        names: name → True to require approval, False to exempt.
    """

    def __init__(self, offer: Offer, option: str, names: Mapping[str, bool]) -> None:
        self._offer = offer
        self._option = option
        self._names = dict(names)
        self._warned: set[tuple[str, bool]] = set()
        self._several: set[str] = set()

    def judge(self) -> Callable[[CatalogTool], bool]:
        """Return a function that decides whether a tool needs approval, by what is listed now."""
        listed = self._offer.of_servers(self._offer.group.tools)
        meant = {name: [tool for tool in listed if self._means(name, tool)] for name in self._names}
        for name, tools in meant.items():
            if len(tools) > 1:
                self._several.add(name)
            if listed and len(tools) != 1 and (name, not tools) not in self._warned:
                self._warned.add((name, not tools))
                self._warn(name, tools, listed)

        def needs_approval(tool: CatalogTool) -> bool:
            by_public_name, by_own_name = self._names.get(tool.public_name), self._names.get(tool.name)
            if by_public_name or by_own_name or not all(meant.values()):
                return True
            if by_own_name is None or (by_public_name is False and tool.public_name != tool.name):
                return False
            return tool.name in self._several or tool not in meant[tool.name]

        return needs_approval

    def _means(self, name: str, tool: CatalogTool) -> bool:
        """Return True if a name means a tool. A name that exempts, and looks public, is not read as an own name."""
        if name == tool.public_name or name != tool.name or self._names[name]:
            return name in (tool.public_name, tool.name)
        group = self._offer.group
        naming = group._target._roster.naming
        if begin := naming.partition("{")[0]:
            return not name.startswith(begin)
        others = (naming.format(server=each, tool="\n").partition("\n") for each in group if each != tool.server)
        taken = (name.startswith(begin) and name.endswith(end) for begin, _, end in others)
        return "{server}" not in naming or not any(taken)

    def _warn(self, name: str, tools: Sequence[CatalogTool], listed: Iterable[CatalogTool]) -> None:
        if tools:
            effect = "all of them need approval" if self._names[name] else "none is exempt by its own name"
            public_names = ", ".join(tool.public_name for tool in tools)
            problem = f"several tools have the name {name!r}, so {effect}; give public names: {public_names}"
        else:
            known = {each.casefold(): each for tool in listed for each in (tool.public_name, tool.name)}
            near = "".join(f" (did you mean {known[each]!r}?)" for each in nearest(name.casefold(), known))
            problem = f"no listed tool has the name {name!r}{near}, so every tool needs approval; correct or remove it"
        logger.warning("%s: %s", self._option, plain_text(problem))


async def first_answer(ask: Callable[[Any], Any], questions: Iterable[Any], decides: Callable[[Any], bool]) -> Any:
    """Ask a function of the program, async or not, until an answer decides; return the last answer."""
    answer: Any = None
    for question in questions:
        answer = await answer_of(ask(question))
        if decides(answer):
            break
    return answer


# --- Instructions -----------------------------------------------------------------------------------------------------


async def server_instructions(
    group: AsyncioServerGroup, *, servers: Iterable[str] | None = None, context: ToolContext | None = None
) -> str:
    """Return the instructions of the servers of a group about their tools, for the system prompt of an agent.

    A model follows these texts like yours, so choose servers that you trust. A server is left out if it has no
    instructions, was never connected, or has no tool on offer. No request is sent.

    Args:
        group: from `mcp_actors.bridge.open_servers`.
        servers: the names of the servers. Default None: all.
        context: the agent and run, for the predicates of `ToolFilter`. Default None: unknown.

    Returns:
        The instructions of each server under a line with its name, in configured order; empty if there are none.

    Raises:
        ConfigError: a server's ToolFilter has a predicate, and there is no context.
        ServerUnavailable: the block of the group has exited.
        TypeError: `group` is not a group of the bridge.
        KeyError: the group has no such server.
    """
    offer = Offer.of(group, servers)
    return offer.instructions(await offer.known_tools(context))


# --- Prompts and resources --------------------------------------------------------------------------------------------

# Prompts and resources have no public names: an adapter of several servers could not find the server.


class PromptsAndResources:
    """The methods of a client session for prompts and resources. Each list has one page."""

    _offer: Offer

    async def list_prompts(self, cursor: str | None = None, *, params: object = None) -> ListPromptsResult:
        """Return all prompts of the server. All methods here raise `ValueError` unless there is exactly one server."""
        return ListPromptsResult(prompts=list(await self._only_server("prompts").list_prompts()))

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        """Return a prompt of the server."""
        return await self._only_server("prompts").get_prompt(name, arguments)

    async def list_resources(self, cursor: str | None = None, *, params: object = None) -> ListResourcesResult:
        """Return all resources of the server."""
        return ListResourcesResult(resources=list(await self._only_server("resources").list_resources()))

    async def list_resource_templates(
        self, cursor: str | None = None, *, params: object = None
    ) -> ListResourceTemplatesResult:
        """Return all resource templates of the server."""
        templates = await self._only_server("resources").list_resource_templates()
        return ListResourceTemplatesResult(resource_templates=list(templates))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return the contents of a resource of the server."""
        return await self._only_server("resources").read_resource(uri)

    def _only_server(self, kind: str) -> AsyncioServerRef:
        group, names = self._offer.group, self._offer.names
        names = tuple(group) if names is None else names
        if len(names) != 1:
            problem = f"{kind} need an adapter of one server, and this one has {len(names)}"
            remedy = "make one with servers=['NAME'], or use group['NAME']"
            raise ValueError(f"{problem} ({', '.join(names) or 'none'}); {remedy}")
        return group[names[0]]


# --- A client session -------------------------------------------------------------------------------------------------


class McpClient(PromptsAndResources):
    """A group of servers with the methods of ``mcp.ClientSession`` that list and call tools.

    Pass the client to a library that takes a session: the MCP helpers of ``anthropic``, ``dspy`` or
    ``llama-index-tools-mcp``. Tools have their public names. `call_tool` returns a result with ``is_error``, and raises
    the errors of the call; the library decides how to present both. Most libraries show a model only the content of a
    result, so the content has everything: structured content, unless a text says the same; embedded texts and links, as
    texts; and a text for an empty result. Prompts and resources need exactly one server.

    Agents may share a client, which owns no connection and cannot be closed.

    Args:
        group: from `mcp_actors.bridge.open_servers`.
        servers: the names of the servers to offer. Default None: all.
        context: the agent and run, for the predicates of `ToolFilter`. Default None: unknown; then `list_tools` fails
            if a filter has a predicate.
        tool_cache: False asks the servers in each `list_tools`, for servers that do not notify changes. Default True:
            the last lists.

    Raises:
        TypeError: `group` is not an `AsyncioServerGroup`.
        KeyError: the group has no such server.
    """

    def __init__(
        self,
        group: AsyncioServerGroup,
        *,
        servers: Iterable[str] | None = None,
        context: ToolContext | None = None,
        tool_cache: bool = True,
    ) -> None:
        self._offer = Offer.of(group, servers, tool_cache=tool_cache)
        self._context = context

    def __repr__(self) -> str:
        return f"<McpClient: {self._offer!r}>"

    # Some libraries read these before they list tools.

    @property
    def initialize_result(self) -> None:
        """None, as in a session of the newest protocol, which has no handshake and no ping."""

    @property
    def protocol_version(self) -> str:
        """The protocol version of the types of this object; each server may speak another."""
        return LATEST_PROTOCOL_VERSION

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capability to list and call tools."""
        return ServerCapabilities(tools=ToolsCapability())

    async def list_tools(self, cursor: str | None = None, *, params: object = None) -> ListToolsResult:
        """Return the tools to offer now, in one page.

        Args:
            cursor: ignored.
            params: ignored.

        Raises:
            ConfigError: a server's ToolFilter has a predicate, and there is no context.
            ServerUnavailable: the block of the group has exited.
        """
        return ListToolsResult(tools=[as_listed(tool) for tool in await self._offer.tools(self._context)])

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        progress_callback: ProgressFnT | None = None,
        meta: dict[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool by its public name, like `mcp_actors.ServerGroup.call_tool`.

        **Cancellation**: the caller leaves at once, and the server is asked to cancel the call.
        """
        return presented(await self._offer.call(name, arguments, progress=progress_callback, meta=meta))
