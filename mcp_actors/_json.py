"""Measure foreign JSON, and read text that a strict parser refuses.

Data may be huge or deeper than Python's stack, and may contain itself. Text may have half of a surrogate pair, invalid
bytes, or a list with an item that cannot be parsed.

Owns: nothing.
Writes: nothing.
Calls: nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from attrs import define, field, frozen
from pydantic_core import PydanticSerializationError, from_json, to_json

# --- Walk through unchecked JSON-like data, and measure it ------------------------------------------------------------

# No function recurses. `walk` looks inside a value only when the caller requests the next value, so a caller can stop
# early.


LEAST_BYTES: Final = 8
"""Minimum bytes counted for a value: handling a short value takes time, too."""


def walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield a value and all values inside, each with its depth (1 for the value itself), parents first.

    Keys of objects are not yielded. The walk has no end if a value contains itself.
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
    """Return the members of an object, or of a pydantic model with its extra fields."""
    if isinstance(value, Mapping):
        return value
    return dict(value) if hasattr(value, "model_fields_set") else None


def measured(value: Any, enough: int) -> tuple[int, int, bool]:
    """Return the approximate bytes of a value as JSON, its depth, and whether all was measured.

    The walk ends when more than `enough` bytes are found.
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
    """Return the bytes of a value, excluding members, and whether it is an object or an array."""
    if isinstance(value, str):
        return bytes_in(value), False
    if (members := members_of(value)) is not None:
        size = 2 + 2 * len(members)
        if size <= enough:  # else reading the keys may take long
            size += sum(bytes_in(str(key), least=2) for key in members)
        return max(LEAST_BYTES, size), True
    if isinstance(value, (list, tuple)):
        return max(LEAST_BYTES, 2 + len(value)), True
    return LEAST_BYTES, False


def bytes_in(text: str, *, least: int = LEAST_BYTES) -> int:
    """Return the bytes of a string with quotes; characters that JSON escapes count as themselves."""
    return max(least, 2 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))))


# --- Read text that JSON allows and UTF-8 does not --------------------------------------------------------------------

# JavaScript cuts texts within an emoji, Java encodes an emoji as two halves (CESU-8), and old programs write other
# encodings. The parser refuses these parts. In a text for people or models they become U+FFFD. In a text that is
# compared or sent back, U+FFFD would make another name or cursor, so the item becomes an `UnreadableItem`.


_HALF: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NOT_UNICODE: Final = "a name, URI or schema in its JSON has half of a surrogate pair or a byte that is not UTF-8"

_IDENTIFYING: Final = ("name", "uri", "uriTemplate", "url", "elicitationId", "progressToken", "requestId")
_OF_LISTS: Final = ("tools", "resources", "resourceTemplates", "prompts", "content", "contents", "messages")
_SCHEMA: Final = (dict.fromkeys(("title", "description", "$comment"), "shown"), "schema")

_PLACE_WITHIN: Final[dict[str, tuple[dict[str, str], str]]] = {
    "message": ({"result": "result", "params": "item", **dict.fromkeys(("jsonrpc", "id", "method"), "kept")}, "free"),
    "result": (
        dict.fromkeys(_OF_LISTS, "items") | dict.fromkeys(("nextCursor", "requestState", "inputRequests"), "alone"),
        "free",
    ),
    "item": (
        dict.fromkeys(("_meta", "structuredContent", "data"), "free")
        | dict.fromkeys(("inputSchema", "outputSchema", "requestedSchema"), "schema")
        | dict.fromkeys(_IDENTIFYING, "kept"),
        "item",
    ),
    "schema": _SCHEMA,
    "shown": _SCHEMA,
}
"""Kind of an object → the kinds of some members by name, and of all other members.

Texts that are *kept* or in a *schema* are compared or sent back; others are only read. An `UnreadableItem` may replace
each of the *items* of a list, and a value that is *alone*.
"""

_BOUNDARIES: Final = frozenset({"kept", "schema"})


def read_json(text: bytes) -> Any:
    """Parse a message, also with text that UTF-8 cannot represent.

    Raises:
        ValueError: not JSON, or nested too deeply; or such text is in a message of many values, in the id, or, outside
            a result, in a text that is compared or sent back.
    """
    try:
        return from_json(text)
    except ValueError:
        return _SurrogateReader().message(text)


class _SurrogateReader:
    """Reads one text with surrogates, within 50 000 values and 200 levels."""

    def __init__(self) -> None:
        self._left = 50_000  # values: they take twenty milliseconds, in a single step

    def _parsed(self, text: bytes) -> Any:
        """Parse a text. Each byte or escape that UTF-8 does not allow becomes a surrogate."""
        decoded = text.decode("utf-8", "surrogateescape")
        if decoded.lstrip()[:1] in ("{", "[") and (_ESCAPED_HALF.search(decoded) or _HALF.search(decoded)):
            with suppress(RecursionError):
                return json.loads(decoded)
        raise ValueError("not an object with such text")

    def message(self, text: bytes) -> Any:
        read = self._read(self._parsed(text), "message")
        for message in read if type(read) is list else [read]:
            if type(message) is not dict or not _is_unicode({**message, "result": None}):
                raise ValueError(_NOT_UNICODE)
        return read

    def item(self, text: bytes) -> Any:
        return self._alone(self._parsed(text))

    def _alone(self, value: Any) -> Any:
        read = self._read(value, "kept" if type(value) is str else "item")
        if _is_unicode(read):
            return read
        return UnreadableItem(_logged(value.get("name") if type(value) is dict else None), _NOT_UNICODE)

    def _read(self, value: Any, place: str, depth: int = 1) -> Any:
        """Replace surrogates in texts that are only read; `place` is a kind in `_PLACE_WITHIN`."""
        self._left -= 1
        if self._left < 0 or depth > 200:  # the limit of the parser
            raise ValueError("it is too long or nested too deeply")
        if place == "alone":
            return self._alone(value)
        if type(value) is str:
            return value if place in _BOUNDARIES else _shown(value)
        if type(value) is list:
            inside = "alone" if place == "items" else place
            return [self._read(each, inside, depth + 1) for each in value]
        if type(value) is not dict:
            return value
        places, others = _PLACE_WITHIN.get(place, ({}, place))
        return {
            key if others in _BOUNDARIES else _shown(key): self._read(each, places.get(key, others), depth + 1)
            for key, each in value.items()
        }


def _shown(text: str) -> str:
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _is_unicode(value: Any) -> bool:
    try:
        to_json(value)
    except (PydanticSerializationError, ValueError):
        return False
    return True


def _logged(name: object) -> str | None:
    """Replace surrogates in a name for a log."""
    return name.encode("utf-8", "replace").decode() if isinstance(name, str) else None


# --- Read the items of a list in JSON text that is invalid ------------------------------------------------------------

# The parser refuses the whole text for one value that is nested too deeply. So a search for brackets and strings finds
# where each item of a list begins and ends, and each item is parsed alone. Only the parser decides what is JSON.


TOKENS: Final = 256
"""Tokens between two pauses: a tenth of a millisecond."""

# In linear time, or a hostile text would block the event loop. An unterminated string matches up to the end, because
# the search would otherwise begin again at each of its characters; possessive quantifiers do not go back.
JSON_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)

BRACKETS: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
"""How many levels deeper the text is after a bracket."""


class UnparsedText(str):
    """A mark in the ``data`` of an error, with the text that cannot be parsed.

    Equal to the mark alone, and pickled and shown without the text.
    """

    text: bytes = b""

    @classmethod
    def of(cls, mark: str, text: bytes) -> UnparsedText:
        self = cls(mark)
        self.text = text
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


@frozen
class UnreadableItem:
    """Stands for an item that cannot be parsed.

    Attributes:
        name: the item's name; None if not found.
        problem: a phrase with the reason.
    """

    name: str | None
    problem: str


@define(eq=False)
class ItemReader:
    """Reads the text of an object, with one list inside item by item.

    Args:
        text: the text, perhaps a list with only this object.
        path: the names of the members from the object to the list.

    Attributes:
        value: the object, once `steps` has ended, with an `UnreadableItem` for each item that cannot be parsed.
    """

    _text: bytes
    _path: tuple[str, ...]
    value: Any = field(default=None, init=False)
    _places: list[tuple[int, int]] = field(factory=list, init=False)
    _names: dict[int, bytes] = field(factory=dict, init=False)

    def steps(self) -> Iterator[None]:
        """Read the text. Each step takes about as long as parsing one item.

        Raises:
            ValueError: the rest of the text cannot be parsed, or the list is missing.
        """
        yield from self._search()
        items = []
        for number, (begin, end) in enumerate(self._places):
            items.append(self._item(number, self._text[begin:end]))
            yield
        whole = read_json(self._without_items())
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
        names = [b'"%b"' % name.encode() for name in self._path]
        outer = 2 if self._text.lstrip(b" \t\r\n").startswith(b"[") else 1
        depth = known = begin = 0  # known: how many names of the path lead here
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
            with suppress(ValueError):
                return _SurrogateReader().item(text)
            deep = "its JSON is nested more than 200 levels deep" if "recursion limit" in str(exc) else None
            return UnreadableItem(self._name(number), deep or f"its JSON cannot be parsed ({exc})")

    def _name(self, number: int) -> str | None:
        text = self._names.get(number, b"null").decode("utf-8", "replace")
        try:
            name = json.loads(text, strict=False)
        except ValueError:
            return None
        return _logged(name)

    def _without_items(self) -> bytes:
        pieces, done = [], 0
        for number, (begin, end) in enumerate(self._places):
            pieces += [self._text[done:begin], b"%d" % number]
            done = end
        return b"".join([*pieces, self._text[done:]])
