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

from ._pages import Kind, all_pages
from ._request import Request

if TYPE_CHECKING:
    from ..record import ServerRecord
    from ..session import Session

RESOURCES: Final[Kind[ListResourcesResult, Resource]] = Kind(
    "resources/list",
    "resources",
    "resources",
    lambda can: can.resources,
    lambda page: page.resources,
)

TEMPLATES: Final[Kind[ListResourceTemplatesResult, ResourceTemplate]] = Kind(
    "resources/templates/list",
    "resource templates",
    "resourceTemplates",
    lambda can: can.resources,
    lambda page: page.resource_templates,
)


PROMPTS: Final[Kind[ListPromptsResult, Prompt]] = Kind(
    "prompts/list",
    "prompts",
    "prompts",
    lambda can: can.prompts,
    lambda page: page.prompts,
)


@define(eq=False)
class KeepResources(Request[None]):
    """List all resources, templates and prompts, and keep them (``ServerConfig.keep_resources``)."""

    operation: ClassVar[str] = "resources/list"

    async def send(self, session: Session, record: ServerRecord) -> None:
        """Request every page of each, and show the result."""
        ticket = record.resources.begin()
        resources = await all_pages(session, record, RESOURCES)
        templates = await all_pages(session, record, TEMPLATES)
        record.resources.show(ticket, resources, templates, await all_pages(session, record, PROMPTS))
