"""The requests that list resources and their templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define
from mcp.types import ListResourcesResult, ListResourceTemplatesResult, Resource, ResourceTemplate

from ._pages import Kind, ListRequest, PastSession, all_pages

if TYPE_CHECKING:
    from mcp import Client

    from ..record import ServerRecord

RESOURCES: Final[Kind[ListResourcesResult, Resource]] = Kind(
    "resources/list",
    "resources",
    "resources",
    lambda can: can.resources,
    lambda client: client.list_resources,
    lambda page: page.resources,
)

TEMPLATES: Final[Kind[ListResourceTemplatesResult, ResourceTemplate]] = Kind(
    "resources/templates/list",
    "resource templates",
    "resourceTemplates",
    lambda can: can.resources,
    lambda client: client.list_resource_templates,
    lambda page: page.resource_templates,
)


@define(eq=False)
class KeepResources(ListRequest[None]):
    """List all resources and templates, and keep them (``ServerConfig.keep_resources``)."""

    operation: ClassVar[str] = "resources/list"

    async def send_past(self, client: Client, record: ServerRecord, past: PastSession | None) -> None:
        """Request every page of both, and show the result."""
        ticket = record.resources.begin()
        resources = await all_pages(client, record, past, RESOURCES)
        record.resources.show(ticket, resources, await all_pages(client, record, past, TEMPLATES))
