"""What libraries take that want an MCP client: `list_tools` and `call_tool`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mcp.types import (
    LATEST_PROTOCOL_VERSION,
    CallToolResult,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    ServerCapabilities,
    ToolsCapability,
)

from ._offer import Offer, as_listed

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from ..bridge import AsyncioServerGroup
    from ..config import ToolContext

__all__ = ["McpClient"]


class McpClient:
    """A group of servers in the shape of ``mcp.ClientSession``, for libraries that take one to list and call tools.

    Such are the MCP helpers of ``anthropic``, ``dspy``, ``llama-index-tools-mcp`` and ``agent-framework`` (there as
    ``session=``). Tools have their public names. What fails is told as those libraries tell it: a result with
    ``is_error`` is returned, and is theirs to present; what our calls raise leaves `call_tool` as it is.

    Any number of agents may use one at the same time. It owns no connection, and cannot be closed.

    Args:
        group: what `mcp_actors.bridge.open_servers` gives.
        servers: the names of the servers whose tools to offer. Default None: all.
        context: for whom the tools are, for the predicates of `ToolFilter`. Default None: for nobody in particular.

    Raises:
        TypeError: `group` is no group of the bridge.
        KeyError: the group has no such server.
    """

    def __init__(
        self, group: AsyncioServerGroup, *, servers: Iterable[str] | None = None, context: ToolContext | None = None
    ) -> None:
        self._offer = Offer.of(group, servers)
        self._context = context

    def __repr__(self) -> str:
        return f"<McpClient: {self._offer!r}>"

    # Some libraries look at these before they list tools.

    @property
    def initialize_result(self) -> None:
        """None, as of a session of the newest protocol, which has no handshake and no ping."""

    @property
    def protocol_version(self) -> str:
        """The version of the protocol whose types this object speaks; each server may speak another."""
        return LATEST_PROTOCOL_VERSION

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """That there are tools."""
        return ServerCapabilities(tools=ToolsCapability())

    async def list_tools(self, cursor: str | None = None, *, params: object = None) -> ListToolsResult:
        """The tools to offer now, in one page. The servers are not asked.

        Args:
            cursor: for those who give one; there is one page only.
            params: likewise.

        Raises:
            ConfigError: a server's ToolFilter has a predicate, and there is no context.
            ServerUnavailable: the group was left.
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
        """Call a tool by its public name, as `mcp_actors.ServerGroup.call_tool`.

        **Cancellation**: the caller leaves at once, and the server is told.
        """
        return await self._offer.call(name, arguments, progress=progress_callback, meta=meta)

    async def list_prompts(self, cursor: str | None = None, *, params: object = None) -> ListPromptsResult:
        """All prompts of the server. A `ValueError` if it is not one server; so below."""
        return ListPromptsResult(prompts=list(await self._offer.one_server("prompts").list_prompts()))

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> GetPromptResult:
        """A prompt of the server."""
        return await self._offer.one_server("prompts").get_prompt(name, arguments)

    async def list_resources(self, cursor: str | None = None, *, params: object = None) -> ListResourcesResult:
        """All resources of the server, in one page."""
        return ListResourcesResult(resources=list(await self._offer.one_server("resources").list_resources()))

    async def list_resource_templates(
        self, cursor: str | None = None, *, params: object = None
    ) -> ListResourceTemplatesResult:
        """All resource templates of the server, in one page."""
        templates = await self._offer.one_server("resources").list_resource_templates()
        return ListResourceTemplatesResult(resource_templates=list(templates))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """The contents of a resource of the server."""
        return await self._offer.one_server("resources").read_resource(uri)
