"""Assign public names to the tools of a group.

Public names must be valid for every model provider, distinct and stable. Otherwise a server that is added could take
over the name of another server's tool, and a model would call the wrong tool.

Owns: nothing.
Writes: nothing.
Calls: nothing.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from json.encoder import encode_basestring_ascii as _quoted
from operator import attrgetter
from string import Formatter
from sys import intern
from typing import Final, NamedTuple

import attrs

from .._errors import ConfigError
from .._text import some_of

# --- Public names -----------------------------------------------------------------------------------------------------

# A template (`DEFAULT_NAMING`) makes a public name from the names of server and tool. A public name has 1 to 64 of the
# characters ``A-Z a-z 0-9 _ -``. Illegal names are changed, and two may then be equal. So a name that could mean more
# than one tool ends in a short hash of server and tool:
#
# - a name in which a character was replaced, or which was shortened;
# - a name of a tool whose server's name contains ``__`` or ends in ``_``: the separator ``__`` is ambiguous;
# - a name that seems to end in a hash already;
# - a name that two tools would still share, as with the template ``{tool}``.
#
# So with the default template a name depends neither on other servers nor on the order of tools, unless two hashes are
# equal.


DEFAULT_NAMING: Final = "mcp__{server}__{tool}"
MAX_LENGTH: Final = 64  # characters: the tightest limit of the large model providers

_HASH_LENGTH: Final = 8  # hexadecimal digits
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_LOOKS_HASHED: Final = re.compile(rf".*_[0-9a-f]{{{_HASH_LENGTH}}}", re.DOTALL)

ToolKey = tuple[str, str]
"""The configured name of a server, and its own name of a tool."""


def public_name(server: str, tool: str, naming: str = "mcp__{server}__{tool}") -> str:
    """Return the public name of one tool, regardless of other tools.

    With the default template this is the name from `assign_names`, unless two hashes are equal.

    Args:
        server: the server's configured name.
        tool: the server's own name of the tool.
        naming: the template; ``{server}`` and ``{tool}`` are replaced. Default ``"mcp__{server}__{tool}"``.

    Raises:
        ConfigError: `naming` is not a valid template.
    """
    check_naming(naming)
    return base_name(server, tool, naming)


def base_name(server: str, tool: str, naming: str) -> str:
    """Return the `public_name` for a valid template."""
    return plain_name(server, tool, naming) or hashed_name(server, tool, naming)


def assign_names(tools: Iterable[ToolKey], naming: str = "mcp__{server}__{tool}") -> dict[ToolKey, str]:
    """Return a unique public name for every tool.

    Args:
        tools: the tools as ``(server, tool)``; duplicates are ignored.
        naming: the template; ``{server}`` and ``{tool}`` are replaced. Default ``"mcp__{server}__{tool}"``.

    Returns:
        The names in the order of `tools`; no name depends on the order.

    Raises:
        ConfigError: `naming` is not a valid template.
    """
    check_naming(naming)
    return distinct({key: base_name(*key, naming) for key in dict.fromkeys(tools)}, naming)


def distinct(names: dict[ToolKey, str], naming: str) -> dict[ToolKey, str]:
    """Return the names; each duplicate gets a hash, or another hash."""
    attempts: Counter[ToolKey] = Counter()
    names = dict(names)
    # Equal names are all plain or all hashed. Plain names get a hash, and equal hashes (one chance in four billion, or
    # a malicious server) another. All of them change, not all but one: otherwise a server could take over the plain
    # name of another server's tool.
    while len(uses := Counter(names.values())) < len(names):
        for key in [key for key, name in names.items() if uses[name] > 1]:
            names[key] = hashed_name(*key, naming, attempts[key])
            attempts[key] += 1
    return names


def check_naming(naming: object) -> None:
    """Refuse a template that cannot make valid, distinct names.

    Raises:
        ConfigError: `naming` has no ``{tool}``, an unknown field, or a character that a public name cannot have.
    """
    if not isinstance(naming, str):
        raise _bad_naming(f"naming is a {type(naming).__name__}; give a str such as {DEFAULT_NAMING!r}")
    remedy = "use {tool}, {server} and the characters A-Z a-z 0-9 _ -, for example 'mcp__{server}__{tool}'"
    try:
        pieces = list(Formatter().parse(naming))
    except ValueError as exc:
        raise _bad_naming(f"naming={naming!r} cannot be parsed ({exc}); {remedy}") from None
    fields = [field for _, field, _, _ in pieces if field is not None]
    if unknown := sorted({*fields} - {"server", "tool"}):
        raise _bad_naming(f"naming={naming!r} has the unknown field {{{unknown[0]}}}; {remedy}")
    if "tool" not in fields:
        raise _bad_naming(f"naming={naming!r} has no {{tool}}, so all tools of a server would have one name; {remedy}")
    literal = "".join(text for text, _, _, _ in pieces)
    if _ILLEGAL.search(literal) or any(spec or conversion for _, _, spec, conversion in pieces):
        raise _bad_naming(f"naming={naming!r} contains characters that a tool's name cannot have; {remedy}")


def _bad_naming(message: str) -> ConfigError:
    return ConfigError(message, path="naming")


def plain_name(server: str, tool: str, naming: str) -> str | None:
    """Return the name without a hash, or None if it could mean another tool too."""
    name = naming.format(server=server, tool=tool)
    blurred = "__" in server + "_"
    legal = 0 < len(name) <= MAX_LENGTH and not _ILLEGAL.search(name)
    return name if legal and not blurred and not _LOOKS_HASHED.fullmatch(name) else None


def hashed_name(server: str, tool: str, naming: str, attempt: int = 0) -> str:
    """Return the name with a hash at the end; another `attempt` gives another hash."""
    # JSON separates the parts unambiguously; `json.dumps` takes 2 µs more.
    identity = f"[{_quoted(server)}, {_quoted(tool)}{f', {attempt}' if attempt else ''}]"
    digest = hashlib.sha256(identity.encode("ascii")).hexdigest()[:_HASH_LENGTH]
    readable = _ILLEGAL.sub("_", naming.format(server=server, tool=tool))
    return f"{readable[: MAX_LENGTH - 1 - _HASH_LENGTH]}_{digest}"


# --- The names of all tools -------------------------------------------------------------------------------------------

# Tools with *similar* names form a group; only tools of one group can get the same name. So a change concerns only the
# groups of added and removed tools. Each `ToolName` is made before the change, in some microseconds.


_ILLEGAL_FOLDED: Final = re.compile(r"[^a-z0-9_-]")
_NAMED: Final = 8  # tools named in one message

_COMPARED_CHARACTERS: Final = 128
"""Maximum characters of a tool's name to compare; normalizing more takes long."""


@attrs.frozen
class NameCollision:
    """Tools whose public names differ only in a hash, or in upper and lower case.

    The tools' own names differ only in case, composition of letters, or characters that public names cannot have. The
    public names are unique, but people and models may confuse them.

    Attributes:
        tools: the tools as ``(server, name)``, sorted.
        public_names: their public names, in the same order.
    """

    tools: tuple[ToolKey, ...]
    public_names: tuple[str, ...]

    def __str__(self) -> str:
        pairs = list(zip(self.tools, self.public_names, strict=True))
        return f"tools with similar names: {some_of(pairs, _NAMED, _of_server)}"


def _of_server(pair: tuple[ToolKey, str]) -> str:
    (server, tool), name = pair
    return f"{tool!r:.80} of server {server!r} (here {name!r})"


class ToolName(NamedTuple):
    """The names of a tool, as far as they depend on no other tool.

    Attributes:
        key: the name of the server, and the tool's own name.
        base: the public name, unless other tools have similar names.
        alike: the common key of all tools with similar names.
        hashed: the public name if another tool has the same `base`.
    """

    key: ToolKey
    base: str
    alike: str
    hashed: str

    @classmethod
    def of(cls, key: ToolKey, naming: str) -> ToolName:
        plain, hashed = plain_name(*key, naming), intern(hashed_name(*key, naming))
        base, alike = (plain, plain.lower()) if plain else (hashed, _alike(key, naming))
        # Interned: equal names are one object, whose hash is known when a book is made.
        return cls(key, intern(base), intern(alike), hashed)


_ALIKE: Final = attrgetter("alike")
_NAMED_KEY: Final = attrgetter("base", "key")


@attrs.frozen(kw_only=True, eq=False)
class NameBook:
    """The public names of tools.

    A book never changes; `changed` returns another.

    Attributes:
        naming: the template of the names.
        keys: public name → tool.
        unlike_base: tool → public name, if different from `ToolName.base`.
    """

    naming: str = DEFAULT_NAMING
    keys: Mapping[str, ToolKey] = attrs.Factory(dict)
    unlike_base: Mapping[ToolKey, str] = attrs.Factory(dict)
    _groups: Mapping[str, tuple[ToolName, ...]] = attrs.Factory(dict)
    _crowded: frozenset[str] = frozenset()
    _redrawn: bool = False  # True while two hashes are equal

    def public_name(self, tool: ToolName) -> str:
        return self.unlike_base.get(tool.key, tool.base)

    @cached_property
    def collisions(self) -> tuple[NameCollision, ...]:
        """The groups with several tools, sorted."""
        groups = sorted(sorted(self._groups[alike]) for alike in self._crowded)
        return tuple(
            NameCollision(tuple(tool.key for tool in group), tuple(map(self.public_name, group))) for group in groups
        )

    def changed(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> tuple[NameBook, frozenset[ToolKey]]:
        """Return the book without `gone` and with `new` tools, and which of the rest were renamed."""
        # This is one step of the event loop, for up to thousands of tools. So nothing is called for a tool whose name
        # is similar to no other; only the few in groups of several are named one by one.
        similar = self._similar(gone, new)
        if not similar:
            book = self._with_lone(gone, new)
        else:
            book = self._with_lone(*([tool for tool in each if tool.alike not in similar] for each in (gone, new)))
            book = book._with_crowd(*([tool for tool in each if tool.alike in similar] for each in (gone, new)))
        concerned: Iterable[str] = similar
        if self._redrawn or len(book.keys) < len(self.keys) - len(gone) + len(new):
            # Two short hashes are equal, or were until now, perhaps of different groups: name all tools.
            book = book._with_distinct_names()
            concerned = book._groups
        stayed = {*chain.from_iterable(self._groups.get(alike, ()) for alike in concerned)}.difference(gone)
        return book, frozenset(tool.key for tool in stayed if book.public_name(tool) != self.public_name(tool))

    def _similar(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> frozenset[str]:
        """Return the groups with several tools before or after a change."""
        arrived = {tool.alike for tool in new}
        similar = arrived.intersection(self._groups) | self._crowded.intersection([tool.alike for tool in gone])
        if len(arrived) < len(new):
            similar.update(alike for alike, uses in Counter(map(_ALIKE, new)).items() if uses > 1)
        return frozenset(similar)

    def _with_lone(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> NameBook:
        """Return the book after a change of tools that are alone in their groups."""
        groups, keys, unlike = dict(self._groups), dict(self.keys), dict(self.unlike_base)
        for tool in gone:
            del groups[tool.alike], keys[unlike.pop(tool.key, tool.base)]
        groups.update(zip(map(_ALIKE, new), zip(new, strict=True), strict=True))
        keys.update(map(_NAMED_KEY, new))
        return attrs.evolve(self, groups=groups, keys=keys, unlike_base=unlike)

    def _with_crowd(self, gone: Sequence[ToolName], new: Sequence[ToolName]) -> NameBook:
        """Return the book after a change of any tools, with their groups named again."""
        groups, keys, unlike = dict(self._groups), dict(self.keys), dict(self.unlike_base)
        left, touched = set(gone), dict[str, list[ToolName]]()
        for alike in dict.fromkeys(tool.alike for tool in (*gone, *new)):
            before = groups.pop(alike, ())
            touched[alike] = [tool for tool in before if tool not in left]
            for tool in before:
                keys.pop(unlike.pop(tool.key, tool.base), None)  # two tools share a name while two hashes are equal
        for tool in new:
            touched[tool.alike].append(tool)
        for tool, name in _named(touched.values()):
            keys[name] = tool.key
            if name != tool.base:
                unlike[tool.key] = name
        groups.update((alike, tuple(group)) for alike, group in touched.items() if group)
        crowded = self._crowded.difference(touched) | {alike for alike, group in touched.items() if len(group) > 1}
        return attrs.evolve(self, groups=groups, keys=keys, unlike_base=unlike, crowded=crowded)

    def _with_distinct_names(self) -> NameBook:
        """Return the book with all tools named again, without equal names."""
        apart = dict(_named(self._groups.values()))
        names = distinct({tool.key: tool.base for tool in apart}, self.naming)
        unlike = {tool.key: names[tool.key] for tool in apart if names[tool.key] != tool.base}
        redrawn = any(names[tool.key] != name for tool, name in apart.items())
        return attrs.evolve(self, keys={name: key for key, name in names.items()}, unlike_base=unlike, redrawn=redrawn)


def _named(groups: Iterable[Collection[ToolName]]) -> Iterator[tuple[ToolName, str]]:
    """Yield the names in some groups, final unless two hashes are equal."""
    for group in groups:
        bases = [tool.base for tool in group]
        if len({*bases}) == len(bases):
            yield from zip(group, bases, strict=True)
        else:
            uses = Counter(bases)
            yield from ((tool, tool.base if uses[tool.base] == 1 else tool.hashed) for tool in group)


def _alike(key: ToolKey, naming: str) -> str:
    server, tool = key
    name = naming.format(server=server, tool=tool[:_COMPARED_CHARACTERS])
    if not name.isascii():
        name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return _ILLEGAL_FOLDED.sub("_", name.casefold())
