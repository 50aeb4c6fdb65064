"""A listed tool with its hash and immutable form.

Freezing and hashing a schema takes time that the server controls, up to its limits. It is therefore done tool by tool
with checkpoints in between. The later steps (which tools are new, hidden, shown) compare only names and hashes, so each
fits in one synchronous step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from attrs import field, frozen

from ...catalog import CatalogTool, pin
from ..basics import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.types import Tool

__all__ = ["KnownTool", "known_tools"]


@frozen
class KnownTool:
    """One tool of one server. Two are equal if they are the same JSON (plain Python equality takes 1 for true).

    Attributes:
        tool: the tool as the server lists it; never modified.
        pin: its SHA-256.
        beyond_pin: what that does not cover.
        shown: its entry in the group's catalogue, without a public name.
        name: the tool's name on its server.
    """

    tool: Tool = field(eq=False)  # to compare all of thousands of models would be a long step
    pin: str
    beyond_pin: object = field(repr=False)
    shown: CatalogTool = field(eq=False, repr=False)
    name: str = field(eq=False)  # not a property, because each listing is searched by it several times

    @classmethod
    def of(cls, server: str, tool: Tool) -> Self:
        """Freeze and hash a tool."""
        shown = CatalogTool.from_listing(server, tool, tool.name)
        return cls(tool, pin(shown), (tool.execution, tool.icons), shown, tool.name)


async def known_tools(server: str, tools: Iterable[Tool]) -> tuple[KnownTool, ...]:
    """Freeze and hash each tool. Of several tools with one name only the first counts.

    **Cancellation**: leaves at the next tool. There is no checkpoint if the list is short.
    """
    known: dict[str, KnownTool] = {}
    time_slice = TimeSlice()
    for tool in tools:
        if tool.name not in known:
            known[tool.name] = KnownTool.of(server, tool)
            await time_slice.checkpoint()
    return tuple(known.values())
