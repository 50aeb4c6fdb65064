"""Use a group of servers where an MCP client session is expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mcp.types import (
    LATEST_PROTOCOL_VERSION,
    CallToolResult,
    ListToolsResult,
    ServerCapabilities,
    ToolsCapability,
)

from ._offer import Offer, PromptsAndResources, as_listed

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from ..bridge import AsyncioServerGroup
    from ..config import ToolContext


class McpClient(PromptsAndResources):
    """A group of servers with the methods of ``mcp.ClientSession`` that list and call tools.

    Pass it to a library that takes a session: the MCP helpers of ``anthropic``, ``dspy``, ``llama-index-tools-mcp``, or
    ``agent-framework`` (there as ``session=``). Tools have their public names. `call_tool` returns a result with
    ``is_error`` as it is, and raises the errors of the call: the library decides how to present both. Prompts and
    resources need an adapter of exactly one server.

    Any number of agents may use one at the same time. It owns no connection, and cannot be closed.

    Args:
        group: the group that `mcp_actors.bridge.open_servers` yields.
        servers: the names of the servers whose tools to offer. Default None: all.
        context: the agent and run, for the predicates of `ToolFilter`. Default None: unknown; then `list_tools` fails
            if a filter has a predicate.
        tool_cache: False asks the servers for their tools in each `list_tools`, for servers that do not notify changes.
            Default True: the tools that they listed last.

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
        """The version of the protocol whose types this object speaks; each server may speak another."""
        return LATEST_PROTOCOL_VERSION

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capability to list and call tools."""
        return ServerCapabilities(tools=ToolsCapability())

    async def list_tools(self, cursor: str | None = None, *, params: object = None) -> ListToolsResult:
        """Return the tools to offer now, in one page.

        Args:
            cursor: ignored, because all tools are in one page.
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
        return await self._offer.call(name, arguments, progress=progress_callback, meta=meta)
