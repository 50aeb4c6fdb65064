"""The requests that list resources and their templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import define

from ._pages import all_pages
from ._request import Request

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Resource, ResourceTemplate

    from ..record import ServerRecord

__all__ = ["KeepResources", "all_resources", "all_templates"]


async def all_resources(client: Client, record: ServerRecord) -> tuple[Resource, ...]:
    """Request every page of the server's resources; return nothing if it has no resources capability."""
    can, fetch = client.server_capabilities.resources, client.list_resources
    return await all_pages(client, record, can, fetch, lambda page: page.resources, what="resources")


async def all_templates(client: Client, record: ServerRecord) -> tuple[ResourceTemplate, ...]:
    """Request every page of the server's resource templates; return nothing if it has no resources capability."""
    can, fetch = client.server_capabilities.resources, client.list_resource_templates
    return await all_pages(client, record, can, fetch, lambda page: page.resource_templates, what="resource templates")


@define(eq=False)
class KeepResources(Request[None]):
    """List all resources and templates, and keep them (``ServerConfig.keep_resources``)."""

    operation: ClassVar[str] = "resources/list"

    async def send(self, client: Client, record: ServerRecord) -> None:
        """Request every page of both, and show the result."""
        ticket = record.resources.begin()
        resources = await all_resources(client, record)
        record.resources.show(ticket, resources, await all_templates(client, record))
