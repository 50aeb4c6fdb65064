"""Prompts and resources of an adapter that has one server.

Unlike tools, they have no public names, so an adapter of several servers could not tell whose they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.types import (
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
)

if TYPE_CHECKING:
    from ..bridge import AsyncioServerRef
    from ._offer import Offer


class PromptsAndResources:
    """The methods of a client session for prompts and resources. Each list has one page."""

    _offer: Offer

    async def list_prompts(self, cursor: str | None = None, *, params: object = None) -> ListPromptsResult:
        """Return all prompts of the server. This and the methods below raise `ValueError` unless there is just one."""
        return ListPromptsResult(prompts=list(await self._only_server("prompts").list_prompts()))

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        """Return a prompt of the server."""
        return await self._only_server("prompts").get_prompt(name, arguments)

    async def list_resources(self, cursor: str | None = None, *, params: object = None) -> ListResourcesResult:
        """Return all resources of the server, in one page."""
        return ListResourcesResult(resources=list(await self._only_server("resources").list_resources()))

    async def list_resource_templates(
        self, cursor: str | None = None, *, params: object = None
    ) -> ListResourceTemplatesResult:
        """Return all resource templates of the server, in one page."""
        templates = await self._only_server("resources").list_resource_templates()
        return ListResourceTemplatesResult(resource_templates=list(templates))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Return the contents of a resource of the server."""
        return await self._only_server("resources").read_resource(uri)

    def _only_server(self, kind: str) -> AsyncioServerRef:
        group, names = self._offer.group, self._offer.names
        names = tuple(group) if names is None else names
        if len(names) != 1:
            raise ValueError(
                f"{kind} need an adapter of one server, and this one has {len(names)} ({', '.join(names) or 'none'}); "
                f"make one with servers=['NAME'], or use group['NAME']"
            )
        return group[names[0]]
