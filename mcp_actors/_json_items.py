"""Read the items of a list in JSON text that is invalid.

The parser refuses the whole text for one value that is nested too deeply, for half of a surrogate pair or for a byte
that is not UTF-8. If that is in an item of a list, the other items can still be used. So brackets and strings are
searched for where each item begins and ends, and each is parsed alone. Whether the text is JSON is decided by the
parser, never by this search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from attrs import define, field, frozen
from pydantic_core import from_json

TOKENS: Final = 256
"""Tokens between two pauses: a tenth of a millisecond."""

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

_STEPS: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}

_SPACE: Final = b" \t\r\n"

_PROBLEMS: Final = {
    "recursion limit": "its JSON is nested more than 200 levels deep",
    "hex escape": "a string in its JSON has half of a surrogate pair",
}
"""What is wrong with an item, by words of the parser's error."""


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
        for count, match in enumerate(_TOKEN.finditer(self._text)):
            if count % TOKENS == TOKENS - 1:
                yield
            token = match[0]
            step = _STEPS.get(token, 0)
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
