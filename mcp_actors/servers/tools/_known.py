"""A tool as a server lists it, with what was made of it once, when it came: nothing of that is done again.

To copy a schema into a form that nobody can change, and to hash it, takes as long as the server wants, up to its
limits. So it is done tool by tool, with checkpoints between; what is left to do in one step afterwards (which tools are
new, which are hidden, what the catalogue of the group shows) is a matter of names and hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from attrs import field, frozen

from ...catalog import CatalogTool, pin
from ..basics import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.types import Tool

__all__ = ["KnownTool", "known_tools"]


@frozen
class KnownTool:
    """One tool of one server. Two are equal if they are the same JSON: to Python alone, 1 and true would be, too.

    Attributes:
        tool: as the server lists it; nobody changes it.
        pin: its SHA-256.
        shown: what the catalogue shows of it, but for its public name.
    """

    tool: Tool
    pin: str
    shown: CatalogTool = field(eq=False, repr=False)

    @classmethod
    def of(cls, server: str, tool: Tool) -> Self:
        """Work out what is known of a tool."""
        shown = CatalogTool.from_listing(server, tool, tool.name)
        return cls(tool, pin(shown), shown)

    @property
    def name(self) -> str:
        """Its name as the server calls it."""
        return self.tool.name


async def known_tools(server: str, tools: Iterable[Tool]) -> tuple[KnownTool, ...]:
    """Work out what is known of each tool; of several of one name, of the first: a second one is judged by nobody.

    **Cancellation**: leaves soon; there may be no checkpoint.
    """
    known: dict[str, KnownTool] = {}
    turns = Turns()
    for tool in tools:
        if tool.name not in known:
            known[tool.name] = KnownTool.of(server, tool)
            await turns.take()
    return tuple(known.values())
