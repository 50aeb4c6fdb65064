"""Notes: a small MCP server over stdio with resources and prompts, for the examples."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resources import TextResource
from mcp.types import Completion, PromptReference, ResourceTemplateReference

notes = MCPServer(
    "notes",
    version="1.0",
    log_level="WARNING",
    instructions="Read a note before you change it.",
)
pages = {"shopping": "eggs", "ideas": "a kitchen as a server"}


@notes.resource("note:///shopping", mime_type="text/plain")
def shopping() -> str:
    """Read the shopping list."""
    return pages["shopping"]


@notes.resource("note:///{page}", mime_type="text/plain")
def read(page: str) -> str:
    """Read any page."""
    return pages[page]


@notes.tool()
async def add(page: str, line: str, ctx: Context[Any]) -> str:
    """Add a line to a page, and tell those who have subscribed to it."""
    pages[page] = f"{pages.get(page, '')}, {line}"
    await ctx.notify_resource_updated(f"note:///{page}")
    return "added"


@notes.tool()
async def begin(page: str, ctx: Context[Any]) -> str:
    """Begin a page, and tell those who keep a list of them."""
    pages[page] = ""
    notes.add_resource(TextResource(uri=f"note:///{page}", name=page, text=""))
    await ctx.notify_resources_changed()
    return "begun"


@notes.prompt()
def plan(meal: str) -> str:
    """Plan a meal."""
    return f"Plan {meal} with what is on note:///shopping."


@notes.completion()  # type: ignore[no-untyped-call, untyped-decorator]  # the SDK has no types here
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: Any, context: Any
) -> Completion:
    """Complete the name of a page."""
    return Completion(
        values=[page for page in sorted(pages) if page.startswith(argument.value)]
    )


if __name__ == "__main__":
    notes.run()
