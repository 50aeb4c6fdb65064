"""A listed tool with its hash and immutable form.

Freezing and hashing a schema takes time that the server controls, up to its limits, and deriving names takes some too.
All this is therefore done tool by tool with checkpoints in between. The later steps (which tools are new, hidden,
shown) compare only names and hashes, so each fits in one synchronous step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from attrs import field, frozen

from ...catalog import CatalogEntry, pin
from ...catalog.names import DEFAULT_NAMING
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
        entry: what snapshots of the group's catalogue show of it.
        name: the tool's name on its server.
    """

    tool: Tool = field(eq=False)  # to compare all of thousands of models would be a long step
    pin: str
    beyond_pin: object = field(repr=False)
    entry: CatalogEntry = field(eq=False, repr=False)
    name: str = field(eq=False)  # not a property, because each listing is searched by it several times

    @classmethod
    def of(cls, server: str, tool: Tool, naming: str = DEFAULT_NAMING) -> Self:
        """Freeze and hash a tool, and derive its public name from the template of the group."""
        entry = CatalogEntry.of(server, tool, naming)
        return cls(tool, pin(entry.variants[0]), (tool.execution, tool.icons), entry, tool.name)


async def known_tools(
    server: str, tools: Iterable[Tool], naming: str, before: Iterable[KnownTool]
) -> tuple[KnownTool, ...]:
    """Do as `KnownTool.of` for each tool. Of several tools with one name only the first counts.

    A tool that was known before and has not changed is the same object as before. So lists that hardly differ are
    compared quickly, and when one replaces the other, not all tools are released in one step.

    **Cancellation**: leaves at the next tool. There is no checkpoint if the list is short.
    """
    known: dict[str, KnownTool] = {}
    earlier = {each.name: each for each in before}
    time_slice = TimeSlice()
    for tool in tools:
        if tool.name not in known:
            now, then = KnownTool.of(server, tool, naming), earlier.get(tool.name)
            known[tool.name] = then if then is not None and then == now else now
            await time_slice.checkpoint()
    return tuple(known.values())
