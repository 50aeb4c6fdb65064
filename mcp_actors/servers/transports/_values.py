"""How many values a message has, found out before it is parsed: to parse it is one step, in which nothing else runs."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["TooManyValues", "ValueCounter"]

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_REST: Final = re.compile(rb"(?:[^\"\\]++|\\.)*+", re.DOTALL)
"""Of a string that began earlier: up to its end, to the end of the data, or to a backslash there."""


class TooManyValues(Exception):
    """A message has more values than it may have."""


class ValueCounter:
    """Counts the values of JSON text as it comes, by the commas, brackets and braces that are not in strings.

    That is about how many there are: one less at least, and one more for each array or object that is empty.

    Attributes:
        values: how many there were so far.
    """

    def __init__(self) -> None:
        self.values = 0
        self._in_string = False
        self._escaped = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes, which may begin and end anywhere."""
        if not data:
            return
        begin = 0
        if self._in_string:
            begin = self._string_end(data)
            if self._in_string:
                return
        bare, opening, begun = _STRING.sub(b"", data[begin:]).partition(b'"')
        self.values += bare.count(b",") + bare.count(b"[") + bare.count(b"{")
        self._in_string = bool(opening)
        self._escaped = (len(begun) - len(begun.rstrip(b"\\"))) % 2 == 1

    def _string_end(self, data: bytes) -> int:
        """Return where the string ends in which the data begins; if it does not, note that."""
        found = _REST.match(data, 1 if self._escaped else 0)
        end = found.end() if found is not None else 0
        self._in_string = data[end : end + 1] != b'"'
        self._escaped = self._in_string and end < len(data)
        return end + 1
