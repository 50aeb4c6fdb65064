"""Measure foreign JSON, and read the valid items of a list.

- `walk`, `members_of`, `measured` and `bytes_in` go through unchecked JSON-like data, and find its size and depth.
- `ItemReader` reads the items of a list in JSON text that the parser refuses as a whole. `UnreadableItem` replaces an
  item, `UnparsedText` marks a text. `JSON_TOKEN` and `BRACKETS` find where values begin and end.

``catalog``, ``config``, ``transports`` and ``servers`` use this file. It parses with pydantic-core and `json`, and
imports no other file of the package. It does no I/O, does not log, and keeps no state outside of the objects that it
makes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import define, field, frozen
from pydantic_core import from_json

# --- Walk through unchecked JSON-like data, and measure it ------------------------------------------------------------

# Such data may be nested a hundred thousand levels deep, or contain itself. So nothing here recurses, and a caller that
# has seen enough stops the walk: what is inside a value is not touched before the next value is asked for.


LEAST: Final = 8
"""Bytes that every value counts for. The cost of data grows with the number of its values: a million times ``1`` takes
longer to handle than a million letters."""


def walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield a value and everything inside it, each with its depth (1 for the value itself), parents first.

    The keys of an object are not yielded. The walk has no end if a value contains itself.
    """
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        each, depth = pending.pop()
        yield each, depth
        inner: Iterable[Any] = ()
        if (members := members_of(each)) is not None:
            inner = members.values()
        elif isinstance(each, (list, tuple)):
            inner = each
        pending += [(item, depth + 1) for item in inner]


def members_of(value: Any) -> Mapping[str, Any] | None:
    """Return the members of an object; also of a pydantic model, whose extra fields may hold anything."""
    if isinstance(value, Mapping):
        return value
    return dict(value) if hasattr(value, "model_fields_set") else None


def measured(value: Any, enough: int) -> tuple[int, int, bool]:
    """Return about how many bytes a value takes as JSON, how deep it is, and whether all of it was measured.

    The walk ends as soon as the value is known to take more than `enough` bytes.
    """
    size = deepest = 0
    for each, depth in walk(value):
        own, is_nested = _own_size(each, enough)
        size += own
        deepest = max(deepest, depth) if is_nested else deepest
        if size > enough:
            return size, deepest, False
    return size, deepest, True


def _own_size(value: Any, enough: int) -> tuple[int, bool]:
    """Return the bytes of a value without the values inside it, and whether it is an object or an array."""
    if isinstance(value, str):
        return bytes_in(value), False
    if (members := members_of(value)) is not None:
        size = 2 + 2 * len(members)
        if size <= enough:  # else reading the keys may take long
            size += sum(bytes_in(str(key), least=2) for key in members)
        return max(LEAST, size), True
    if isinstance(value, (list, tuple)):
        return max(LEAST, 2 + len(value)), True
    return LEAST, False


def bytes_in(text: str, *, least: int = LEAST) -> int:
    """Return how many bytes a string takes with its quotes; characters that JSON escapes count as themselves."""
    return max(least, 2 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))))


# --- Read the items of a list in JSON text that is invalid ------------------------------------------------------------

# The parser refuses the whole text for one value that is nested too deeply, for half of a surrogate pair or for a byte
# that is not UTF-8. If that is in an item of a list, the other items can still be used. So brackets and strings are
# searched for where each item begins and ends, and each is parsed alone. Whether the text is JSON is decided by the
# parser, never by this search.


TOKENS: Final = 256
"""Tokens between two pauses: a tenth of a millisecond."""

# An unterminated string matches up to the end of the text. If it did not match, the search would begin again at each of
# its characters, in quadratic time.
JSON_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

BRACKETS: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
"""How many levels deeper the text is after a bracket."""

_SPACE: Final = b" \t\r\n"

_PROBLEMS: Final = {
    "recursion limit": "its JSON is nested more than 200 levels deep",
    "hex escape": "a string in its JSON has half of a surrogate pair",
}
"""Words of the parser's error → the problem of the item."""


class UnparsedText(str):
    """A mark in the ``data`` of an error, and the text that it stands for, which cannot be parsed.

    It is equal to the mark alone, and is pickled and shown as it.
    """

    text: bytes = b""

    @classmethod
    def of(cls, mark: str, text: bytes) -> UnparsedText:
        """Return a mark with a text."""
        self = cls(mark)
        self.text = text
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


@frozen
class UnreadableItem:
    """Stands for an item that cannot be parsed.

    Attributes:
        name: its name; None if that cannot be found.
        problem: a phrase that says why.
    """

    name: str | None
    problem: str


@define(eq=False)
class ItemReader:
    """Reads the text of an object, in which one list is parsed item by item.

    Args:
        text: the text, perhaps that of a list with this object alone.
        path: the names of the members that lead from the object to the list.

    Attributes:
        value: the object, once `steps` has ended. An item that cannot be parsed is an `UnreadableItem`.
    """

    _text: bytes
    _path: tuple[str, ...]
    value: Any = field(default=None, init=False)
    _places: list[tuple[int, int]] = field(factory=list, init=False)
    _names: dict[int, bytes] = field(factory=dict, init=False)

    def steps(self) -> Iterator[None]:
        """Read the text. Each step takes about as long as the parser needs for one item.

        Raises:
            ValueError: the rest of the text cannot be parsed, or the list is not there.
        """
        yield from self._search()
        items = []
        for number, (begin, end) in enumerate(self._places):
            items.append(self._item(number, self._text[begin:end]))
            yield
        whole = from_json(self._without_items())
        self.value = found = whole[0] if type(whole) is list and len(whole) == 1 else whole
        holder = None
        for name in self._path:
            holder, found = found, found.get(name) if type(found) is dict else None
        if holder is None or type(found) is not list:
            raise ValueError("the list was not found")
        if found != list(range(len(items))):
            raise ValueError("the list is there twice")
        holder[self._path[-1]] = items

    def _search(self) -> Iterator[None]:
        """Find the beginning and the end of each item, and its name."""
        names = [b'"%b"' % name.encode() for name in self._path]
        outer = 2 if self._text.lstrip(_SPACE).startswith(b"[") else 1
        depth = known = begin = 0  # known: the names of the path that lead here
        earlier = last = b""
        for count, match in enumerate(JSON_TOKEN.finditer(self._text)):
            if count % TOKENS == TOKENS - 1:
                yield
            token = match[0]
            step = BRACKETS.get(token, 0)
            if known == len(names):
                if depth == outer + known and token not in b",:]}":
                    begin = match.start()
                    self._places.append((begin, match.end()))
                elif depth == outer + known + 1:
                    if step < 0:
                        self._places[-1] = begin, match.end()
                    elif last == b":" and earlier == b'"name"':
                        self._names[len(self._places) - 1] = token
            elif depth == outer + known and step > 0 and last == b":" and earlier == names[known]:
                known += 1
            depth += step
            if step < 0 and depth < outer + known:
                known = max(known - 1, 0)
            earlier, last = last, token

    def _item(self, number: int, text: bytes) -> object:
        try:
            return from_json(text)
        except ValueError as exc:
            found = next((each for word, each in _PROBLEMS.items() if word in str(exc)), None)
            return UnreadableItem(self._name(number), found or f"its JSON cannot be parsed ({exc})")

    def _name(self, number: int) -> str | None:
        text = self._names.get(number, b"null").decode("utf-8", "replace")
        try:
            name = json.loads(text, strict=False)
        except ValueError:
            return None
        # What is left of a surrogate pair cannot be written to a log.
        return name.encode("utf-8", "replace").decode() if isinstance(name, str) else None

    def _without_items(self) -> bytes:
        """Return the text with a number in place of each item."""
        pieces, done = [], 0
        for number, (begin, end) in enumerate(self._places):
            pieces += [self._text[done:begin], b"%d" % number]
            done = end
        return b"".join([*pieces, self._text[done:]])
