"""All tools of a group of servers at one moment.

The next snapshot reuses the parts of the servers whose tools have not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import overload

import attrs

from ._pins import pin
from ._tools import CatalogTool, ListedTool
from .names import DEFAULT_NAMING, NameBook, NameCollision, ToolKey, check_naming


def _listed(tools: Iterable[ListedTool]) -> tuple[ListedTool, ...]:
    return tuple(tools)


def _cataloged(tools: Iterable[CatalogTool]) -> tuple[CatalogTool, ...]:
    return tuple(tools)


@attrs.frozen
class Listing:
    """The listing of one server.

    Attributes:
        server: the configured name of the server.
        tools: its tools in listed order. If several have the same name, the first one is kept.
        available: whether the server is serving; copied to `CatalogTool.available`.
        deferred: True if an earlier run of the program stored the listing, and the server has not connected since;
            copied to `CatalogTool.deferred`.
    """

    server: str
    tools: tuple[ListedTool, ...] = attrs.field(converter=_listed)
    available: bool = True
    deferred: bool = False


@attrs.frozen(eq=False)
class _Section:
    """The tools of one server in a snapshot.

    Attributes:
        listing: the listing that it was made from, or None if that is unknown.
        version: see `CatalogSnapshot.versions`.
        tools: the tools by their own names, in listed order.
    """

    listing: Listing | None
    version: int
    tools: dict[str, CatalogTool]


@attrs.frozen(eq=False)
class _Parts:
    """The parts of a snapshot, from which the next one is made.

    Attributes:
        whole: all tools, in order.
        sections: the sections of the servers by name, in configured order.
        book: the public names.
    """

    whole: tuple[CatalogTool, ...]
    sections: dict[str, _Section]
    book: NameBook


def _taken_apart(tools: tuple[CatalogTool, ...], generation: int) -> _Parts:
    """Return the parts of a snapshot that was made from tools instead of listings."""
    sections: dict[str, _Section] = {}
    keys: dict[str, ToolKey] = {}
    for tool in tools:
        section = sections.setdefault(tool.server, _Section(None, generation, {}))
        if section.tools.setdefault(tool.name, tool) is not tool:
            raise ValueError(f"server {tool.server!r} has two tools {tool.name!r}; leave one of them out")
        if keys.setdefault(tool.public_name, (tool.server, tool.name)) != (tool.server, tool.name):
            raise ValueError(f"two tools have the public name {tool.public_name!r}; give names with assign_names(...)")
    return _Parts(tools, sections, NameBook(names={key: name for name, key in keys.items()}, keys=keys))


def _next(parts: _Parts, listings: Iterable[Listing], generation: int) -> _Parts:
    """Return the parts of the next snapshot; sections of unchanged servers are the same objects."""
    now: dict[str, Listing] = {}
    for listing in listings:
        if listing.server in now:
            raise ValueError(f"there are two listings of server {listing.server!r}; give one")
        now[listing.server] = listing
    old = parts.sections
    changed = {server for server, listing in now.items() if server not in old or not _is_same(old[server], listing)}
    if not changed and list(old) == list(now):
        return parts
    before = {(server, name) for server in old if server not in now or server in changed for name in old[server].tools}
    after = {(server, tool.name): None for server in now if server in changed for tool in now[server].tools}
    book, renamed = parts.book.changed(before - after.keys(), [key for key in after if key not in before])
    to_rename = {server for server, _ in renamed}
    sections: dict[str, _Section] = {}
    for server, listing in now.items():
        if server in changed:
            sections[server] = _Section(listing, generation, _tools_of(listing, old.get(server), book))
        elif server in to_rename:
            sections[server] = attrs.evolve(old[server], version=generation, tools=_renamed(old[server], book))
        else:
            sections[server] = old[server]
    return _Parts(tuple(chain.from_iterable(each.tools.values() for each in sections.values())), sections, book)


def _is_same(section: _Section, listing: Listing) -> bool:
    """Return whether a listing would make the same section."""
    old = section.listing
    return old is not None and _marks(old) == _marks(listing) and _same_tools(old.tools, listing.tools)


def _same_tools(old: tuple[ListedTool, ...], new: tuple[ListedTool, ...]) -> bool:
    # Equality alone is not enough: in Python 1 == True, but in a schema they differ. So equal tools are also compared
    # by their pins, which are computed only then; most listings are the same object or differ at once.
    return old is new or (old == new and all(pin(one) == pin(other) for one, other in zip(old, new, strict=True)))


def _marks(listing: Listing) -> tuple[bool, bool]:
    return listing.available, listing.deferred


def _tools_of(listing: Listing, old: _Section | None, book: NameBook) -> dict[str, CatalogTool]:
    """Return the tools of a listing by name; copy the old ones if only their marks have changed."""
    available, deferred = _marks(listing)
    if old is not None and old.listing is not None and old.listing.tools is listing.tools:
        return {
            name: attrs.evolve(tool, public_name=book.names[tool.server, name], available=available, deferred=deferred)
            for name, tool in old.tools.items()
        }
    tools: dict[str, CatalogTool] = {}
    for tool in listing.tools:
        if tool.name not in tools:
            public_name = book.names[listing.server, tool.name]
            tools[tool.name] = CatalogTool.from_listing(
                listing.server, tool, public_name, available=available, deferred=deferred
            )
    return tools


def _renamed(section: _Section, book: NameBook) -> dict[str, CatalogTool]:
    """Return the tools of a section with their current public names."""
    names = {name: book.names[tool.server, name] for name, tool in section.tools.items()}
    return {
        name: tool if tool.public_name == names[name] else attrs.evolve(tool, public_name=names[name])
        for name, tool in section.tools.items()
    }


@attrs.frozen(repr=False)
class CatalogSnapshot(Sequence[CatalogTool]):
    """All tools of a group at one moment: an immutable sequence, in configured then listed order.

    A snapshot never changes; the group replaces its current snapshot with a new one.

    Args:
        tools: the tools. Their public names must differ.
        generation: the number of changes before this snapshot, which grows from one snapshot of a group to the next.
            Default 0.

    Raises:
        ValueError: two tools have the same public name.
    """

    tools: tuple[CatalogTool, ...] = attrs.field(default=(), converter=_cataloged)
    generation: int = attrs.field(default=0, kw_only=True)
    _made_of: _Parts | None = attrs.field(default=None, kw_only=True, eq=False, alias="_made_of")

    def __attrs_post_init__(self) -> None:
        _ = self._parts  # raises at once if two tools have the same name

    @cached_property
    def _parts(self) -> _Parts:
        if self._made_of is not None and self._made_of.whole is self.tools:
            return self._made_of
        return _taken_apart(self.tools, self.generation)

    @classmethod
    def from_listings(
        cls, listings: Iterable[Listing], *, generation: int = 0, naming: str = DEFAULT_NAMING
    ) -> CatalogSnapshot:
        """Return a snapshot of the listings of several servers.

        Args:
            listings: one per server, in configured order.
            generation: the number of the snapshot.
            naming: the template of the public names.

        Raises:
            ConfigError: `naming` is not a valid template.
            ValueError: there are two listings of one server.
        """
        check_naming(naming)
        parts = _next(_Parts((), {}, NameBook(naming=naming)), listings, generation)
        return cls(parts.whole, generation=generation, _made_of=parts)

    def updated(self, listings: Iterable[Listing]) -> CatalogSnapshot:
        """Return the next snapshot, from the current listings; return this one if nothing has changed.

        The cost depends on the size of the change, and hardly on the number of tools: the tools of unchanged servers
        are the same objects as before.

        The template of the names is kept. (A snapshot that was made from tools has the default template.)

        Args:
            listings: one per server, in configured order. A listing whose ``tools`` are the same object as before is
                not compared.

        Raises:
            ValueError: there are two listings of one server.
        """
        from_tools = self._parts is not self._made_of
        parts = _next(_Parts((), {}, NameBook()) if from_tools else self._parts, listings, self.generation + 1)
        if parts is self._parts:
            return self
        return CatalogSnapshot(parts.whole, generation=self.generation + 1, _made_of=parts)

    @property
    def versions(self) -> Mapping[str, int]:
        """The generation in which each server's tools, their names or marks changed last.

        As long as the version of a server is the same, so is ``of(server)``.
        """
        return MappingProxyType({name: section.version for name, section in self._parts.sections.items()})

    @property
    def collisions(self) -> tuple[NameCollision, ...]:
        """The tools whose public names are easily confused; see `NameCollision`."""
        return self._parts.book.collisions()

    def find(self, public_name: str) -> CatalogTool:
        """Return the tool with a public name.

        Raises:
            KeyError: no tool has this name.
        """
        server, name = self._parts.book.keys[public_name]
        return self._parts.sections[server].tools[name]

    def of(self, server: str) -> tuple[CatalogTool, ...]:
        """Return the tools of one server in listed order; an empty tuple if the server is unknown."""
        section = self._parts.sections.get(server)
        return () if section is None else tuple(section.tools.values())

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
