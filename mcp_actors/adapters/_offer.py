"""What all adapters share: which tools of a group an agent is offered, and the calls of these."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pydantic_core
from attrs import frozen
from mcp.types import CallToolResult, Tool

from .._errors import ToolNotFound
from ..bridge import AsyncioServerGroup, AsyncioServerRef
from ..config import ToolContext

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from ..catalog import CatalogTool

__all__ = ["Offer", "as_listed", "context_of", "said"]


@frozen(repr=False)
class Offer:
    """The tools of a group, or of some of its servers, under their public names. It owns nothing of the group.

    Attributes:
        group: the group.
        names: of the servers, without repetitions; None for all there are.
    """

    group: AsyncioServerGroup
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, group: AsyncioServerGroup, servers: Iterable[str] | None) -> Offer:
        """Check what the user of an adapter gave, and keep it.

        Raises:
            TypeError: `group` is no group of the bridge, or `servers` is no collection of names.
            KeyError: the group has no such server.
        """
        if not isinstance(group, AsyncioServerGroup):
            raise TypeError(f"{group!r} is not the group that an adapter needs; {_remedy(group)}")
        if servers is None:
            return cls(group, None)
        if isinstance(servers, str):
            raise TypeError(f"servers={servers!r}: give a collection of names, like servers=[{servers!r}]")
        names = tuple(dict.fromkeys(servers))
        for name in names:
            group[name]
        return cls(group, names)

    def __repr__(self) -> str:
        return repr(self.group) if self.names is None else f"{', '.join(self.names)} of {self.group!r}"

    @property
    def label(self) -> str:
        """A name for it."""
        return "mcp_actors" if self.names is None else "-".join(self.names) or "none"

    async def tools(self, context: ToolContext | None) -> tuple[CatalogTool, ...]:
        """Return the tools to offer to a model now. No server is asked, so an agent may ask at each of its turns.

        Raises:
            ConfigError: a server's ToolFilter has a predicate, and there is no context.
            ServerUnavailable: the group was left.
            RuntimeError: this is not the event loop of the group.
        """
        tools = await self.group.list_tools(context)
        return tuple(tool for tool in tools if (self.names is None or tool.server in self.names) and _for_models(tool))

    async def call(
        self,
        public_name: str,
        arguments: Mapping[str, Any] | None,
        *,
        progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool by its public name, as `ServerGroup.call_tool`.

        Raises:
            ToolNotFound: there is no such tool now, or it is one of another server.
        """
        if self.names is not None and (server := self.group.find_tool(public_name).server) not in self.names:
            raise ToolNotFound(
                f"there is no tool {public_name!r} here: it is one of server {server!r}, and only the tools of "
                f"{', '.join(self.names) or 'no server'} are offered",
                server=server,
            )
        return await self.group.call_tool(public_name, arguments, progress=progress, meta=meta)

    def one_server(self, what: str) -> AsyncioServerRef:
        """The server, if it is one. Only tools have public names; what else servers offer is theirs alone.

        Args:
            what: what is asked for: ``"prompts"``.

        Raises:
            ValueError: there are several, or none.
        """
        names = tuple(self.group) if self.names is None else self.names
        if len(names) != 1:
            raise ValueError(
                f"{what} are asked of one server, and here are {len(names)} ({', '.join(names)}); make an adapter for "
                f"one, with servers=['NAME'], or ask the group: group['NAME']"
            )
        return self.group[names[0]]


def _for_models(tool: CatalogTool) -> bool:
    """Return False for a tool that only a user interface may call (MCP Apps, SEP-1865)."""
    match tool.meta:
        case {"ui": {"visibility": list(audiences)}}:
            return "model" in audiences
        case _:
            return True


def _remedy(group: object) -> str:
    if isinstance(group, AsyncioServerRef):
        return f"give the group that it belongs to, and servers=[{group.name!r}]"
    return (
        "give what 'async with mcp_actors.bridge.open_servers(...)' gives (in a program on Trio: "
        "loop.view(group), with mcp_actors.bridge.open_asyncio_loop)"
    )


def context_of(agent: object, run: object) -> ToolContext | None:
    """Whom tools are listed for; None if nobody said so."""
    return None if agent is None and run is None else ToolContext(agent=agent, run=run)


def as_listed(tool: CatalogTool) -> Tool:
    """Return a tool as the SDK has it, under its public name. It is a copy, and may be changed."""
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


def said(result: CallToolResult) -> str:
    """Return what a result says, as text for a model."""
    words = "\n".join(part.text for part in result.content if part.type == "text")
    if words or result.structured_content is None:
        return words or "the tool failed, and does not say why"
    return pydantic_core.to_json(result.structured_content).decode()
