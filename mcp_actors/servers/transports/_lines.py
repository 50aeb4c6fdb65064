"""Cuts a stream of bytes into lines, each byte looked at once."""

from __future__ import annotations

from collections import deque
from io import BytesIO

from ._values import TooManyValues, ValueCounter

__all__ = ["LineSplitter", "LineTooLong"]


class LineTooLong(Exception):
    """A line is longer than allowed, ended or not."""


class LineSplitter:
    """Takes bytes as they come and gives whole lines, without their newline.

    Args:
        max_line_bytes: how long a line may be.
        max_values: how many values of JSON a line may have, if it comes in several pieces. (One piece holds few.)

    Attributes:
        whole: the lines that have come; to be taken with `pop`.
    """

    def __init__(self, max_line_bytes: int, max_values: int) -> None:
        self.whole: deque[bytes] = deque()
        self._max_line_bytes = max_line_bytes
        self._max_values = max_values
        self._counter = ValueCounter()
        # Its `getvalue` gives what was written without another copy, and as `bytes`, which parsers do not copy either.
        self._begun = BytesIO()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        *lines, begun = data.split(b"\n")
        if lines and self._begun.tell():
            self._begin(lines[0])
            if self._counter.values > self._max_values:
                return  # nothing is to come after it
            lines[0] = self._begun.getvalue()
            self._begun, self._counter = BytesIO(), ValueCounter()
        self.whole.extend(lines)
        self._begin(begun)

    def _begin(self, data: bytes) -> None:
        self._begun.write(data)
        self._counter.feed(data)

    def pop(self) -> bytes | None:
        """Return the next whole line, or None if it has not all come yet.

        Raises:
            LineTooLong, TooManyValues: the next line, or what has come of it, is over a limit. Lines before it were
                returned.
        """
        line = self.whole.popleft() if self.whole else None
        if line is None and self._counter.values > self._max_values:
            raise TooManyValues
        if (self._begun.tell() if line is None else len(line)) > self._max_line_bytes:
            raise LineTooLong
        return line
