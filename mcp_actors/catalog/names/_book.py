"""The public names of all tools, updated incrementally (`NameBook`).

The rules are those of ``_public``. Tools with *similar* names form a group; only tools of one group can get the same
name. So when tools are added or removed, only their groups are named again, and the cost depends on the size of the
change.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from ._public import DEFAULT_NAMING, ToolKey, assign_names, base_name, hashed_name

__all__ = ["NameBook", "NameCollision"]

_ILLEGAL: Final = re.compile(r"[^a-z0-9_-]")
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


@attrs.frozen(kw_only=True, eq=False)
class NameBook:
    """The public names of tools. It is immutable; `changed` returns a new one.

    Attributes:
        naming: the template of the names.
        names: the public name of each tool.
        keys: the tool of each public name.
    """

    naming: str = DEFAULT_NAMING
    names: Mapping[ToolKey, str] = attrs.Factory(dict)
    keys: Mapping[str, ToolKey] = attrs.Factory(dict)
    _groups: Mapping[str, frozenset[ToolKey]] = attrs.Factory(dict)
    _crowded: frozenset[str] = frozenset()
    _redrawn: bool = False

    def collisions(self) -> tuple[NameCollision, ...]:
        """Return the groups with several tools, sorted."""
        groups = sorted(tuple(sorted(self._groups[alike])) for alike in self._crowded)
        return tuple(NameCollision(keys, tuple(self.names[key] for key in keys)) for keys in groups)

    def changed(self, gone: Iterable[ToolKey], new: Iterable[ToolKey]) -> tuple[NameBook, frozenset[ToolKey]]:
        """Return the book without `gone` and with `new` tools, and the other tools that were renamed."""
        touched = self._regrouped(gone, new)
        after = _named(touched.values(), self.naming)
        names, keys = dict(self.names), dict(self.keys)
        for key in (key for alike in touched for key in self._groups.get(alike, ())):
            del keys[names.pop(key)]
        names.update(after)
        keys.update((name, key) for key, name in after.items())
        groups = {**self._groups, **touched}
        for alike in [alike for alike, group in touched.items() if not group]:
            del groups[alike]
        redrawn = self._redrawn or len(keys) < len(names)
        if redrawn:
            # Two short hashes are equal, or were until now. This may concern tools of any group, so name all of them.
            apart = _named(groups.values(), self.naming)
            names = assign_names(apart, self.naming)
            keys = {name: key for key, name in names.items()}
            redrawn = names != apart
        crowded = self._crowded.difference(touched) | {alike for alike, group in touched.items() if len(group) > 1}
        book = NameBook(naming=self.naming, names=names, keys=keys, groups=groups, crowded=crowded, redrawn=redrawn)
        renamed = (key for key in (names if redrawn or self._redrawn else after) if key in self.names)
        return book, frozenset(key for key in renamed if names[key] != self.names[key])

    def _regrouped(self, gone: Iterable[ToolKey], new: Iterable[ToolKey]) -> dict[str, frozenset[ToolKey]]:
        """Return the groups that lose or gain tools, as they are afterwards."""
        touched: dict[str, frozenset[ToolKey]] = {}
        for keys, change in ((gone, frozenset.difference), (new, frozenset.union)):
            for key in keys:
                alike = _alike(key, self.naming)
                group = touched[alike] if alike in touched else self._groups.get(alike, frozenset())
                touched[alike] = change(group, {key})
        return touched


def _named(groups: Iterable[Collection[ToolKey]], naming: str) -> dict[ToolKey, str]:
    """Return the names of the tools in some groups, which are final unless two hashes are equal."""
    named: dict[ToolKey, str] = {}
    for group in groups:
        if len(group) == 1:  # as nearly all are, also of thousands of tools
            named.update((key, base_name(*key, naming)) for key in group)
            continue
        names = {key: base_name(*key, naming) for key in group}
        uses = Counter(names.values())
        named.update((key, name if uses[name] == 1 else hashed_name(*key, naming)) for key, name in names.items())
    return named


def _alike(key: ToolKey, naming: str) -> str:
    """Return a key that is the same for all tools with similar names."""
    server, tool = key
    name = naming.format(server=server, tool=tool[:_COMPARED])
    if not name.isascii():
        name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return _ILLEGAL.sub("_", name.casefold())
