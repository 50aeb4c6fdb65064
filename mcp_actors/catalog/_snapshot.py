"""All tools of a group of servers at one moment.

A snapshot is made in one step of the event loop, which must be short even with thousands of tools. So each tool is
prepared before (`CatalogEntry`), and a snapshot reuses the parts of unchanged servers.

Owns: prepared tools.
Writes: nothing.
Calls: _names, _pins, _tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Self, overload

import attrs

from .._pickling import Frozen
from ._names import NameBook, NameCollision, ToolKey, ToolName, check_naming
from ._pins import pin
from ._tools import CatalogTool, ListedTool

# --- A listed tool ----------------------------------------------------------------------------------------------------

# An entry has the tool's names, and its `CatalogTool` objects, already made. A snapshot only moves these between dicts.


def place_of(*, available: bool, deferred: bool) -> int:
    """Return a state's index in `CatalogEntry.variants`."""
    return available + 2 * deferred


@attrs.frozen(eq=False)
class CatalogEntry:
    """A tool of a server, prepared for snapshots.

    Attributes:
        name: names that depend on no other tool.
        variants: the tool, named ``name.base``, in each state of its server (`place_of`); None if not prepared.
    """

    name: ToolName
    variants: list[CatalogTool | None] = attrs.field(repr=False)

    @classmethod
    def of(cls, server: str, tool: ListedTool, naming: str, *, remembered: bool = False) -> Self:
        """Prepare a tool.

        Args:
            server: the configured name of the server.
            tool: the listed tool.
            naming: the template of public names, already checked; the same as that of the snapshots.
            remembered: True for a tool of an earlier run; `prepare` adds the other variants.
        """
        name = ToolName.of((server, tool.name), naming)
        entry = cls(name, [None] * 4)
        place = place_of(available=False, deferred=remembered)
        entry.variants[place] = CatalogTool.from_listing(server, tool, name.base, available=False, deferred=remembered)
        if not remembered:
            entry.prepare()
        return entry

    def prepare(self) -> None:
        """Prepare the tool for all usual states of a server."""
        for place in range(3):  # not the last: a server shows no remembered tools while it serves
            self.variant(place)

    def variant(self, place: int) -> CatalogTool:
        tool = self.variants[place]
        if tool is None:
            other = next(filter(None, self.variants))
            tool = attrs.evolve(other, available=bool(place & 1), deferred=bool(place & 2))
            self.variants[place] = tool
        return tool


def _listed(tools: Iterable[ListedTool | CatalogEntry]) -> tuple[ListedTool | CatalogEntry, ...]:
    return tuple(tools)


def _cataloged(tools: Iterable[CatalogTool]) -> tuple[CatalogTool, ...]:
    return tuple(tools)


@attrs.frozen
class Listing:
    """The listing of one server.

    Attributes:
        server: the configured name of the server.
        tools: the tools in listed order. Of several with the same name, the first is kept. The tools of a long list
            are prepared (`CatalogEntry`).
        available: whether the server is serving; copied to `CatalogTool.available`.
        deferred: True if an earlier run of the program stored the listing, and the server has not connected since;
            copied to `CatalogTool.deferred`.
    """

    server: str
    tools: tuple[ListedTool | CatalogEntry, ...] = attrs.field(converter=_listed)
    available: bool = True
    deferred: bool = False


# --- The parts of a snapshot ------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Section:
    """The tools of one server in a snapshot.

    Attributes:
        listing: the listing of the server, or None if unknown.
        version: see `CatalogSnapshot.versions`.
        tools: the tools by their own names, in listed order.
        entries: the entries of the tools; empty if unknown.
    """

    listing: Listing | None
    version: int
    tools: dict[str, CatalogTool]
    entries: dict[str, CatalogEntry]


@attrs.frozen(eq=False)
class _Parts:
    """The parts of a snapshot, from which the next is made; `sections` by server name, in configured order."""

    whole: tuple[CatalogTool, ...]
    sections: dict[str, _Section]
    book: NameBook


def _taken_apart(tools: tuple[CatalogTool, ...], generation: int) -> _Parts:
    """Return the parts of a snapshot made of tools instead of listings."""
    sections: dict[str, _Section] = {}
    keys: dict[str, ToolKey] = {}
    for tool in tools:
        section = sections.setdefault(tool.server, _Section(None, generation, {}, {}))
        if section.tools.setdefault(tool.name, tool) is not tool:
            raise ValueError(f"server {tool.server!r} has two tools {tool.name!r}; leave one of them out")
        if keys.setdefault(tool.public_name, (tool.server, tool.name)) != (tool.server, tool.name):
            raise ValueError(f"two tools have the public name {tool.public_name!r}; give names with assign_names(...)")
    return _Parts(tools, sections, NameBook(keys=keys))


def _next(parts: _Parts, listings: Iterable[Listing], generation: int) -> _Parts:
    """Return the parts of the next snapshot.

    The sections of servers whose tools, names and marks (``available``, ``deferred``) are the same are reused.
    """
    # All of this is one step of the event loop. So nothing is called for a prepared tool, unless a similar tool changes
    # its name.
    now: dict[str, Listing] = {}
    for listing in listings:
        if listing.server in now:
            raise ValueError(f"there are two listings of server {listing.server!r}; give one")
        now[listing.server] = listing
    old = parts.sections
    changed = {server for server, listing in now.items() if server not in old or not _is_same(old[server], listing)}
    if not changed and list(old) == list(now):
        return parts
    before = {server: section.entries for server, section in old.items()}
    after = {
        server: _entries(listing, old.get(server), parts.book.naming) if server in changed else before[server]
        for server, listing in now.items()
    }
    gone, new = _names_missing(before, after), _names_missing(after, before)
    book, renamed = parts.book.changed(gone, new) if gone or new else (parts.book, frozenset())
    affected = changed.union(server for server, _ in renamed)
    sections = {
        server: _Section(listing, generation, _tools_of(after[server], listing, book), after[server])
        if server in affected
        else old[server]
        for server, listing in now.items()
    }
    return _Parts(tuple(chain.from_iterable(each.tools.values() for each in sections.values())), sections, book)


def _is_same(section: _Section, listing: Listing) -> bool:
    old = section.listing
    return old is not None and _place(old) == _place(listing) and _same_tools(old.tools, listing.tools)


def _same_tools(old: tuple[ListedTool | CatalogEntry, ...], new: tuple[ListedTool | CatalogEntry, ...]) -> bool:
    # In Python 1 == True, but in a schema they differ: compare equal tools by pins too. This is slow but rare, as most
    # listings are the same object or differ at once.
    return old is new or (
        old == new
        and all(
            isinstance(one, CatalogEntry) or isinstance(other, CatalogEntry) or pin(one) == pin(other)
            for one, other in zip(old, new, strict=True)
        )
    )


def _place(listing: Listing) -> int:
    return place_of(available=listing.available, deferred=listing.deferred)


def _entries(listing: Listing, old: _Section | None, naming: str) -> dict[str, CatalogEntry]:
    """Return the entries of a listing by name; the same object as before if only marks have changed."""
    if old is not None and old.listing is not None and old.listing.tools is listing.tools:
        return old.entries
    entries: dict[str, CatalogEntry] = {}
    for tool in listing.tools:
        entry = tool if isinstance(tool, CatalogEntry) else CatalogEntry.of(listing.server, tool, naming)
        entries.setdefault(entry.name.key[1], entry)
    return entries


def _names_missing(
    these: Mapping[str, Mapping[str, CatalogEntry]], others: Mapping[str, Mapping[str, CatalogEntry]]
) -> list[ToolName]:
    names: list[ToolName] = []
    for server, entries in these.items():
        other = others.get(server, {})
        if entries is not other:
            names += [entry.name for name, entry in entries.items() if name not in other]
    return names


def _tools_of(entries: Mapping[str, CatalogEntry], listing: Listing, book: NameBook) -> dict[str, CatalogTool]:
    place = _place(listing)
    tools = {name: entry.variants[place] or entry.variant(place) for name, entry in entries.items()}
    if unlike := book.unlike_base:
        named = [(name, unlike[entry.name.key]) for name, entry in entries.items() if entry.name.key in unlike]
        tools.update((name, attrs.evolve(tools[name], public_name=public_name)) for name, public_name in named)
    return tools


# --- The snapshot -----------------------------------------------------------------------------------------------------


@attrs.frozen(repr=False)
class CatalogSnapshot(Sequence[CatalogTool]):
    """All tools of a group at one moment: an immutable sequence, in configured then listed order.

    A snapshot never changes; the group replaces its current snapshot.

    Args:
        tools: the tools.
        generation: the number of changes before this snapshot, growing from one snapshot of a group to the next.
            Default 0.

    Raises:
        ValueError: two tools have the same public name, or the same server and name.
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
        cls, listings: Iterable[Listing], *, generation: int = 0, naming: str = "mcp__{server}__{tool}"
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
        are the same objects as before. The template of the names is kept (the default for a snapshot made of tools).

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
        """The generation in which each server's tools, names or marks last changed.

        While the version of a server is the same, ``of(server)`` is the same.
        """
        return Frozen({name: section.version for name, section in self._parts.sections.items()})

    @property
    def collisions(self) -> tuple[NameCollision, ...]:
        """The tools whose public names are easily confused; see `NameCollision`."""
        return self._parts.book.collisions

    def find(self, public_name: str) -> CatalogTool:
        """Return the tool with a public name.

        Raises:
            KeyError: no tool has this name.
        """
        try:
            server, name = self._parts.book.keys[public_name]
        except KeyError:
            near = [tool.public_name for tool in self.tools if tool.name == public_name]
            raise KeyError(f"no tool has the public name {public_name!r}; similar: {near[:3]}") from None
        return self._parts.sections[server].tools[name]

    def _schema_of(self, public_name: str) -> Mapping[str, Any] | None:
        return self.find(public_name).input_schema if public_name in self._parts.book.keys else None

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
        try:
            return self.tools[index]
        except TypeError:
            problem = f"tools are found by number, not by {index!r:.80}"
            raise TypeError(f"{problem}; write find(public_name), or of(server) for those of a server") from None

    def __repr__(self) -> str:
        servers = len({tool.server for tool in self.tools})
        return f"<CatalogSnapshot {self.generation}: {len(self)} tools of {servers} servers>"
