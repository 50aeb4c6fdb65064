"""Show foreign text, measure and read foreign JSON, and describe errors.

- `plain_text` makes the text of a server safe for logs and terminals. `one_line` drops what `HIDDEN` finds, for a
  search in the text, and `indented` indents further lines, so that none looks like a message of its own.
- `walk`, `members_of`, `measured` and `bytes_in` go through unchecked JSON-like data, and find its size and depth.
- `ItemReader` reads the items of a list in JSON text that the parser refuses as a whole. `UnreadableItem` replaces an
  item, `UnparsedText` marks a text. `JSON_TOKEN` and `BRACKETS` find where values begin and end.
- `problem_of` describes an error in one line, and `bad_option` makes that of an option of `open_servers`.
  `own_shortage` finds a shortage of this program or machine among the causes of an error, with its remedy (`Shortage`);
  `shortage_of` names one that a retry may not meet.
- `LOGGERS` are the names of the package's loggers.

``auth``, ``catalog``, ``config``, ``transports``, ``servers``, ``bridge``, ``cli`` and ``_tasks`` use this file, and
the kernel uses `plain_text`. Of the package it imports ``_errors``; it parses with pydantic-core and `json`. It does no
I/O, does not log, and keeps no state outside of the objects that it makes.
"""

from __future__ import annotations

import errno
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import define, field, frozen
from pydantic_core import from_json

from ._errors import ConfigError, ServerError

# --- Make foreign text safe for logs and terminals --------------------------------------------------------------------

# The text of a server reaches people through logs and terminals, where some characters have effects. Escape sequences
# move the cursor or rewrite the screen or the clipboard; a line break forges a log line; bidirectional marks reorder
# words; zero-width characters hide words or make two names look alike. None of them is needed for reading. Programs
# get such text unchanged: this is only for text that is shown.


DEFAULT_LIMIT: Final = 1000
"""Characters: a dozen lines of a terminal."""

_READ_PER_SHOWN: Final = 8
"""Characters that are read for each one that may be shown, so that skipping hidden ones takes a bounded time."""

# The sequences of ECMA-48, each as a whole; the rest of a broken one is text. No repeated class contains an
# introducer, so a failed match never scans text again and the time is linear.
_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, screen
    r"|(?:\x1b[P\]X^_]|[\x90\x9d\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # OSC …: titles, links
    r"|\x1b[ -/]*[0-~]"  # all others: character sets, resets
)

# Characters that are not drawn: controls (Cc) that are not whitespace, formats (Cf), and those of other categories that
# Unicode calls default-ignorable.
_UNDRAWN: Final = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)

HIDDEN: Final = re.compile(f"{_ESCAPE.pattern}|[{_UNDRAWN}]")
"""Escape sequences, and characters that are not drawn. `plain_text` drops them."""

_WHITESPACE: Final = re.compile(r"\s")

_BARE_LINE: Final = re.compile(r"\n(?=\S)")


def plain_text(text: str, *, limit: int = DEFAULT_LIMIT, lines: bool = False) -> str:
    """Return foreign text as it may be shown to people.

    Escape sequences and characters that control something, set the direction of writing or have no width are dropped.
    All whitespace, including tabs, becomes a space. Code points that are not characters (surrogates, or unknown to this
    Python) become U+FFFD, the replacement character. Whitespace at the end is removed.

    Args:
        text: the text of a server.
        limit: the most characters that are returned; a text that was cut ends in ``…``. Default 1000.
        lines: True keeps line breaks, where several lines do no harm. Default False: they become spaces.
    """
    seen = text[: limit * _READ_PER_SHOWN]
    if not (seen.isascii() and seen.isprintable()):
        bare = HIDDEN.sub("", seen)
        if not lines:
            bare = bare.replace("\n    ", "\n")  # undo `indented`
        # Each line as a whole if possible, because a look at each character takes many times as long.
        each = (line if line.isprintable() else "".join(map(_shown, line)) for line in bare.splitlines())
        seen = ("\n" if lines else " ").join(each)
    seen = seen.rstrip()
    complete = len(seen) <= limit and len(text) <= limit * _READ_PER_SHOWN
    return seen if complete else f"{seen[: limit - 1]}…"


def one_line(text: str) -> str:
    """Return a text without what is hidden, and with a space for each character of whitespace. It may be of any length.

    A text that is not `plain_text` yet is searched in this form, in which people would read it.
    """
    return _WHITESPACE.sub(" ", HIDDEN.sub("", text))


def indented(text: str) -> str:
    """Indent all lines but the first, so that none of them can be mistaken for a separate message."""
    return _BARE_LINE.sub("\n    ", text)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return "" if unicodedata.category(character) in ("Cc", "Cf") else "\ufffd"


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


# --- Describe errors, recognize temporary shortages, and name the loggers ---------------------------------------------


LOGGERS: Final = tuple(
    f"mcp_actors.{name}"
    for name in ("auth", "bridge", "catalog", "config", "kernel", "servers", "servers.http", "servers.stderr")
)
"""The loggers of this package."""

PROBLEM: Final = 2000
"""Characters of an error within another message: more than our own errors have; it cuts those of servers."""


def problem_of(error: BaseException) -> str:
    """Return an error's text in one line, without its server's name, which the message around it has already."""
    words = str(error) or type(error).__name__
    if isinstance(error, ServerError):
        words = words.removeprefix(f"server {error.server!r}: ")
    return plain_text(words, limit=PROBLEM)


def bad_option(name: str, value: object, problem: str) -> ConfigError:
    """Return the error for an argument of `open_servers`."""
    return ConfigError(f"{name}={value!r} {problem}", source="open_servers", path=name)


_TASKS: Final = "raise the limit of processes and threads (ulimit -u, in a container its limit of pids)"

_REMEDIES: Final = {
    errno.EAGAIN: _TASKS,
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this system (sysctl fs.file-max)",
    errno.ENOBUFS: "raise the limit of memory for sockets (sysctl net.core.wmem_max and net.ipv4.tcp_mem)",
    errno.ENOMEM: "free memory, or raise the limit of memory (ulimit -v, in a container its limit of memory)",
}
"""Error number of a shortage of this program or machine → its remedy."""

_NO_THREAD: Final = "can't start new thread"
"""The words of Python's `RuntimeError`."""

_PASSING: Final = {errno.ETXTBSY, errno.EINTR, errno.EIO}
"""Further errors that the next attempt may not meet."""


@frozen
class Shortage:
    """A shortage of this program or machine. It says nothing about a server.

    Attributes:
        what: its description.
        remedy: the limit to raise.
    """

    what: str
    remedy: str


def own_shortage(error: BaseException | None) -> Shortage | None:
    """Return the shortage that has caused an exception; None if it has another cause."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _REMEDIES:
            return Shortage(os.strerror(cause.errno), _REMEDIES[cause.errno])
        if isinstance(cause, RuntimeError) and str(cause).startswith(_NO_THREAD):
            return Shortage(_NO_THREAD, _TASKS)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, also in groups: a host may have several addresses."""
    seen, open_ends = set[int](), [error]
    while open_ends:
        cause = open_ends.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            open_ends.append(cause.__cause__)
            # The HTTP library hides the cause of its errors by ``from None``. But an error may also be raised where a
            # full pipe or socket was handled, which is not a shortage.
            if cause.__cause__ is None and not isinstance(cause.__context__, BlockingIOError):
                open_ends.append(cause.__context__)
            open_ends += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()


def shortage_of(error: BaseException) -> str | None:
    """Return the system's description of a shortage that a retry may not meet; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in _REMEDIES.keys() | _PASSING:
        return None
    return os.strerror(error.errno)
