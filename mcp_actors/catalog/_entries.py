"""A listed tool, prepared for the snapshots that show it.

A snapshot is made in one step of the event loop, however many tools there are. What takes time for a single tool is
therefore done before, tool by tool: its schemas are frozen, its names are derived, and there is one `CatalogTool` for
each state in which its server can be. Making the snapshot only moves these between dicts.
"""

from __future__ import annotations

from typing import Self

import attrs

from ._tools import CatalogTool, ListedTool
from .names import ToolName

__all__ = ["CatalogEntry", "place_of"]


def place_of(*, available: bool, deferred: bool) -> int:
    """Return the place of a `CatalogTool` with these marks in `CatalogEntry.variants`."""
    return available + 2 * deferred


@attrs.frozen(eq=False)
class CatalogEntry:
    """A tool of a server, prepared for snapshots.

    Attributes:
        name: its names.
        variants: the tool under its ``name.base``, with each pair of marks; see `place_of`.
    """

    name: ToolName
    variants: tuple[CatalogTool, ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, server: str, tool: ListedTool, naming: str) -> Self:
        """Prepare a tool.

        Args:
            server: the configured name of the server.
            tool: the listed tool.
            naming: the template of the public names, which has been checked. It must be that of the snapshots.
        """
        name = ToolName.of((server, tool.name), naming)
        first = CatalogTool.from_listing(server, tool, name.base, available=False)
        others = (
            attrs.evolve(first, available=available, deferred=deferred)
            for deferred, available in ((False, True), (True, False), (True, True))
        )
        return cls(name, (first, *others))
