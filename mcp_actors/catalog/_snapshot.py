"""All tools of a group at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import attrs

from ._names import DEFAULT_NAMING, assign_names
from ._tools import CatalogTool, ListedTool


def _listed(tools: Iterable[ListedTool]) -> tuple[ListedTool, ...]:
    return tuple(tools)


def _cataloged(tools: Iterable[CatalogTool]) -> tuple[CatalogTool, ...]:
    return tuple(tools)


@attrs.frozen
class Listing:
    """What one server listed.

    Attributes:
        server: the configured name of the server.
        tools: its tools in the order it listed them. Of several of one name the first counts.
        available: whether it is serving right now; False marks its tools.
        deferred: whether this is what it listed in an earlier run, and it has listed nothing yet in this one; True
            marks its tools.
    """

    server: str
    tools: tuple[ListedTool, ...] = attrs.field(converter=_listed)
    available: bool = True
    deferred: bool = False


def _by_name(snapshot: CatalogSnapshot) -> dict[str, CatalogTool]:
    found: dict[str, CatalogTool] = {}
    for tool in snapshot.tools:
        if found.setdefault(tool.public_name, tool) is not tool:
            raise ValueError(f"two tools have the public name {tool.public_name!r}; give names with assign_names(...)")
    return found


@attrs.frozen(repr=False)
class CatalogSnapshot(Sequence[CatalogTool]):
    """All tools of a group at one moment: an immutable sequence, in configured then listed order.

    A snapshot never changes; what changes is which snapshot is the current one.

    Args:
        tools: the tools. Their public names must differ.
        generation: how many changes came before; a later snapshot of the same group has a larger number. Default 0.

    Raises:
        ValueError: two tools have the same public name.
    """

    tools: tuple[CatalogTool, ...] = attrs.field(default=(), converter=_cataloged)
    generation: int = attrs.field(default=0, kw_only=True)
    _index: dict[str, CatalogTool] = attrs.field(init=False, eq=False, default=attrs.Factory(_by_name, takes_self=True))

    @classmethod
    def from_listings(
        cls, listings: Iterable[Listing], *, generation: int = 0, naming: str = DEFAULT_NAMING
    ) -> CatalogSnapshot:
        """Return the snapshot of what several servers listed.

        Args:
            listings: one per server, in configured order.
            generation: the number of the snapshot.
            naming: the template of the public names.

        Raises:
            ConfigError: `naming` is no such template.
        """
        listed: dict[tuple[str, str], tuple[Listing, ListedTool]] = {}
        for listing in listings:
            for tool in listing.tools:
                listed.setdefault((listing.server, tool.name), (listing, tool))
        names = assign_names(listed, naming)
        tools = (
            CatalogTool.from_listing(
                listing.server, tool, names[key], available=listing.available, deferred=listing.deferred
            )
            for key, (listing, tool) in listed.items()
        )
        return cls(tools, generation=generation)

    def find(self, public_name: str) -> CatalogTool:
        """Return the tool of a public name.

        Raises:
            KeyError: there is none.
        """
        return self._index[public_name]

    def of(self, server: str) -> tuple[CatalogTool, ...]:
        """Return the tools of one server, in listed order; none if it is unknown."""
        return tuple(tool for tool in self.tools if tool.server == server)

    def __len__(self) -> int:
        return len(self.tools)

    def __iter__(self) -> Iterator[CatalogTool]:
        return iter(self.tools)

    @overload
    def __getitem__(self, index: int) -> CatalogTool: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[CatalogTool]: ...

    def __getitem__(self, index: int | slice) -> CatalogTool | Sequence[CatalogTool]:
        return self.tools[index]

    def __repr__(self) -> str:
        servers = len({tool.server for tool in self.tools})
        return f"<CatalogSnapshot {self.generation}: {len(self)} tools of {servers} servers>"
