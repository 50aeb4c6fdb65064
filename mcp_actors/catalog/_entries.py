"""A listed tool, prepared for the snapshots that show it.

A snapshot is made in one step of the event loop, however many tools there are. So the work on a single tool is
done before, tool by tool: its schemas are frozen, its names are derived, and there is one `CatalogTool` for each state
in which its server usually is. Making the snapshot only moves these between dicts.

A remembered tool (`CatalogEntry.of`) is prepared only as such: of a thousand servers that are configured, few are used.
"""

from __future__ import annotations

from typing import Final, Self

import attrs

from ._tools import CatalogTool, ListedTool
from .names import ToolName


def place_of(*, available: bool, deferred: bool) -> int:
    """Return the place of a `CatalogTool` with these marks in `CatalogEntry.variants`."""
    return available + 2 * deferred


_PLACES: Final = 4
_USUAL: Final = tuple(
    place_of(available=here, deferred=late) for here, late in ((False, False), (True, False), (False, True))
)
"""The places for the states of a server that has listed its tools. One that serves shows no remembered tools."""


@attrs.frozen(eq=False)
class CatalogEntry:
    """A tool of a server, prepared for snapshots.

    Attributes:
        name: its names.
        variants: the tool under its ``name.base``, with each pair of marks; see `place_of`. None if it is not prepared.
    """

    name: ToolName
    variants: list[CatalogTool | None] = attrs.field(repr=False)

    @classmethod
    def of(cls, server: str, tool: ListedTool, naming: str, *, remembered: bool = False) -> Self:
        """Prepare a tool.

        Args:
            server: the configured name of the server.
            tool: the listed tool.
            naming: the template of the public names, which has been checked. It must be that of the snapshots.
            remembered: True for a tool that may never be anything but remembered; else `prepare` prepares it.
        """
        name = ToolName.of((server, tool.name), naming)
        entry = cls(name, [None] * _PLACES)
        place = place_of(available=False, deferred=remembered)
        entry.variants[place] = CatalogTool.from_listing(server, tool, name.base, available=False, deferred=remembered)
        if not remembered:
            entry.prepare()
        return entry

    def prepare(self) -> None:
        """Prepare the tool for all usual states of a server that lists it."""
        for place in _USUAL:
            self.variant(place)

    def variant(self, place: int) -> CatalogTool:
        """Return the tool with the marks of this place."""
        tool = self.variants[place]
        if tool is None:
            other = next(filter(None, self.variants))
            tool = attrs.evolve(other, available=bool(place & 1), deferred=bool(place & 2))
            self.variants[place] = tool
        return tool
