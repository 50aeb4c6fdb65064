"""The public names of all tools, updated incrementally (`NameBook`).

The rules are those of ``_public``. Tools with *similar* names form a group; only tools of one group can get the same
name. So when tools are added or removed, only their groups are named again, and the cost depends on the size of the
change.

The part that depends on one tool alone is derived before (`ToolName`), tool by tool, which takes some microseconds.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from sys import intern
from typing import Final, NamedTuple

import attrs

from ._public import DEFAULT_NAMING, ToolKey, distinct, hashed_name, plain_name

_ILLEGAL_FOLDED: Final = re.compile(r"[^a-z0-9_-]")
_NAMED: Final = 8  # tools that one message names

_COMPARED: Final = 128
"""Characters of a tool's name that are compared, twice as many as a public name has; normalizing more takes long."""


@attrs.frozen
class NameCollision:
    """Tools whose public names differ only in a hash, or in upper and lower case.

    Their own names differ only in case, in how letters are composed, or in characters that public names cannot have.
    Their public names are unique, but people and models may confuse them.

    Attributes:
        tools: the tools as ``(server, name)``, sorted.
        public_names: their public names, in the same order.
    """

    tools: tuple[ToolKey, ...]
    public_names: tuple[str, ...]

    def __str__(self) -> str:
        pairs = list(zip(self.tools, self.public_names, strict=True))
        named = [f"{tool!r:.80} of server {server!r} (here {name!r})" for (server, tool), name in pairs[:_NAMED]]
        more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
        return f"tools with similar names: {', '.join(named)}{more}"


class ToolName(NamedTuple):
    """The names of one tool that depend on no other tool.

    Attributes:
        key: the name of its server, and its own name.
        base: its public name, unless other tools have similar ones.
        alike: the same for all tools with similar names.
        hashed: its public name if that of another tool would be the same.
    """

    key: ToolKey
    base: str
    alike: str
    hashed: str

    @classmethod
    def of(cls, key: ToolKey, naming: str) -> ToolName:
        """Derive the names of a tool, with a template that has been checked."""
        plain, hashed = plain_name(*key, naming), intern(hashed_name(*key, naming))
        base, alike = (plain, plain.lower()) if plain else (hashed, _alike(key, naming))
        # Interned, because most are equal, and so that their hashes are known when a book is made.
        return cls(key, intern(base), intern(alike), hashed)


_ALIKE: Final = attrgetter("alike")
_NAMED_KEY: Final = attrgetter("base", "key")


@attrs.frozen(kw_only=True, eq=False)
class NameBook:
    """The public names of tools. It is immutable; `changed` returns a new one.

    Attributes:
        naming: the template of the names.
        keys: the tool of each public name.
        odd: the public names that differ from `ToolName.base`.
    """

    naming: str = DEFAULT_NAMING
    keys: Mapping[str, ToolKey] = attrs.Factory(dict)
    odd: Mapping[ToolKey, str] = attrs.Factory(dict)
    _groups: Mapping[str, tuple[ToolName, ...]] = attrs.Factory(dict)
    _crowded: frozenset[str] = frozenset()
    _redrawn: bool = False

    def public_name(self, tool: ToolName) -> str:
        """Return the public name of a tool."""
        return self.odd.get(tool.key, tool.base)

    @cached_property
    def collisions(self) -> tuple[NameCollision, ...]:
        """The groups with several tools, sorted."""
        groups = sorted(sorted(self._groups[alike]) for alike in self._crowded)
        return tuple(
            NameCollision(tuple(tool.key for tool in group), tuple(map(self.public_name, group))) for group in groups
        )

    def changed(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> tuple[NameBook, frozenset[ToolKey]]:
        """Return the book without `gone` and with `new` tools, and the other tools that were renamed.

        This is one step of the event loop. So for a tool whose name is similar to no other, nothing is called.
        """
        similar = self._similar(gone, new)
        if not similar:
            book = self._with_lone(gone, new)
        else:
            book = self._with_lone(*([tool for tool in each if tool.alike not in similar] for each in (gone, new)))
            book = book._with_crowd(*([tool for tool in each if tool.alike in similar] for each in (gone, new)))
        concerned: Iterable[str] = similar
        if self._redrawn or len(book.keys) < len(self.keys) - len(gone) + len(new):
            # Two short hashes are equal, or were until now. This may concern tools of any group, so name all of them.
            book = book._with_distinct_names()
            concerned = book._groups
        stayed = {*chain.from_iterable(self._groups.get(alike, ()) for alike in concerned)}.difference(gone)
        return book, frozenset(tool.key for tool in stayed if book.public_name(tool) != self.public_name(tool))

    def _similar(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> frozenset[str]:
        """Return the groups that have several tools before or after a change."""
        arrived = {tool.alike for tool in new}
        similar = arrived.intersection(self._groups) | self._crowded.intersection([tool.alike for tool in gone])
        if len(arrived) < len(new):
            similar.update(alike for alike, uses in Counter(map(_ALIKE, new)).items() if uses > 1)
        return frozenset(similar)

    def _with_lone(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> NameBook:
        """Return the book after a change of tools that are alone in their groups."""
        groups, keys, odd = dict(self._groups), dict(self.keys), dict(self.odd)
        for tool in gone:
            del groups[tool.alike], keys[odd.pop(tool.key, tool.base)]
        groups.update(zip(map(_ALIKE, new), zip(new, strict=True), strict=True))
        keys.update(map(_NAMED_KEY, new))
        return attrs.evolve(self, groups=groups, keys=keys, odd=odd)

    def _with_crowd(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> NameBook:
        """Return the book after a change of any tools; all tools of their groups are named again."""
        groups, keys, odd = dict(self._groups), dict(self.keys), dict(self.odd)
        left, touched = set(gone), dict[str, list[ToolName]]()
        for alike in dict.fromkeys(tool.alike for tool in (*gone, *new)):
            before = groups.pop(alike, ())
            touched[alike] = [tool for tool in before if tool not in left]
            for tool in before:
                keys.pop(odd.pop(tool.key, tool.base), None)  # two have one key while there are equal hashes
        for tool in new:
            touched[tool.alike].append(tool)
        for tool, name in _named(touched.values()):
            keys[name] = tool.key
            if name != tool.base:
                odd[tool.key] = name
        groups.update((alike, tuple(group)) for alike, group in touched.items() if group)
        crowded = self._crowded.difference(touched) | {alike for alike, group in touched.items() if len(group) > 1}
        return attrs.evolve(self, groups=groups, keys=keys, odd=odd, crowded=crowded)

    def _with_distinct_names(self) -> NameBook:
        """Return the book with all tools named again, so that no two names are equal."""
        apart = dict(_named(self._groups.values()))
        names = distinct({tool.key: tool.base for tool in apart}, self.naming)
        odd = {tool.key: names[tool.key] for tool in apart if names[tool.key] != tool.base}
        redrawn = any(names[tool.key] != name for tool, name in apart.items())
        return attrs.evolve(self, keys={name: key for key, name in names.items()}, odd=odd, redrawn=redrawn)


def _named(groups: Iterable[Collection[ToolName]]) -> Iterator[tuple[ToolName, str]]:
    """Yield the names of the tools in some groups, which are final unless two hashes are equal."""
    for group in groups:
        bases = [tool.base for tool in group]
        if len({*bases}) == len(bases):
            yield from zip(group, bases, strict=True)
        else:
            uses = Counter(bases)
            yield from ((tool, tool.base if uses[tool.base] == 1 else tool.hashed) for tool in group)


def _alike(key: ToolKey, naming: str) -> str:
    """Return a key that is the same for all tools with similar names."""
    server, tool = key
    name = naming.format(server=server, tool=tool[:_COMPARED])
    if not name.isascii():
        name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return _ILLEGAL_FOLDED.sub("_", name.casefold())
