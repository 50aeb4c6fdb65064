"""The requests that list resources, their templates and prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define
from mcp.types import (
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    Prompt,
    Resource,
    ResourceTemplate,
)

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


PROMPTS: Final[Kind[ListPromptsResult, Prompt]] = Kind(
    "prompts/list",
    "prompts",
    "prompts",
    lambda can: can.prompts,
    lambda client: client.list_prompts,
    lambda page: page.prompts,
)


@define(eq=False)
class KeepResources(ListRequest[None]):
    """List all resources, templates and prompts, and keep them (``ServerConfig.keep_resources``)."""

    operation: ClassVar[str] = "resources/list"

    async def send_past(self, client: Client, record: ServerRecord, past: PastSession | None) -> None:
        """Request every page of each, and show the result."""
        ticket = record.resources.begin()
        resources = await all_pages(client, record, past, RESOURCES)
        templates = await all_pages(client, record, past, TEMPLATES)
        record.resources.show(ticket, resources, templates, await all_pages(client, record, past, PROMPTS))
