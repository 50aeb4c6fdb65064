"""A listed tool with its hash and immutable form.

Freezing and hashing a schema takes time that the server controls, up to its limits, and deriving names takes some too.
All this is therefore done tool by tool with checkpoints in between. The later steps (which tools are new, hidden,
shown) compare only names and hashes, so each fits in one synchronous step.

The hash of a remembered tool is computed when it is first needed, which may be never (`KnownTool.remembered`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from attrs import field, frozen

from ..._tasks import TimeSlice
from ...catalog import CatalogEntry, pin
from ...catalog._names import DEFAULT_NAMING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.types import Tool


@frozen(eq=False)
class KnownTool:
    """One tool of one server. Two are equal if they are the same JSON (plain Python equality takes 1 for true).

    Attributes:
        tool: the tool as the server lists it; never modified.
        entry: what snapshots of the group's catalogue show of it.
        name: the tool's name on its server.
    """

    tool: Tool
    entry: CatalogEntry = field(repr=False)
    name: str  # not a property, because each listing is searched by it several times

    @classmethod
    def of(cls, server: str, tool: Tool, naming: str = DEFAULT_NAMING) -> Self:
        """Freeze and hash a tool, and derive its public name from the template of the group."""
        known = cls(tool, CatalogEntry.of(server, tool, naming), tool.name)
        _ = known.pin
        return known

    @classmethod
    def remembered(cls, server: str, tool: Tool, naming: str) -> Self:
        """Do the same for a tool that a server has listed in an earlier run, but for the hash."""
        return cls(tool, CatalogEntry.of(server, tool, naming, remembered=True), tool.name)

    @cached_property
    def pin(self) -> str:
        """The SHA-256 of the tool."""
        return pin(self.tool)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KnownTool):
            return NotImplemented
        # The models are not compared: that would be a long step for thousands of them.
        return self.pin == other.pin and _beyond_pin(self.tool) == _beyond_pin(other.tool)


def _beyond_pin(tool: Tool) -> object:
    """Return what the hash of a tool does not cover."""
    return tool.execution, tool.icons


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
            if then is not None and then == now:
                then.entry.prepare()  # it may have been remembered only
                now = then
            known[tool.name] = now
            await time_slice.checkpoint()
    return tuple(known.values())
