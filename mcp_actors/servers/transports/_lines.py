"""Cuts a stream of bytes into lines, each byte looked at once."""

from __future__ import annotations

from collections import deque
from io import BytesIO

__all__ = ["LineSplitter", "LineTooLong"]


class LineTooLong(Exception):
    """A line is longer than allowed, ended or not."""


class LineSplitter:
    """Takes bytes as they come and gives whole lines, without their newline.

    Attributes:
        whole: the lines that have come; to be taken with `pop`.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self.whole: deque[bytes] = deque()
        self._max_line_bytes = max_line_bytes
        # Its `getvalue` gives what was written without another copy, and as `bytes`, which parsers do not copy either.
        self._begun = BytesIO()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        *lines, begun = data.split(b"\n")
        if lines and self._begun.tell():
            self._begun.write(lines[0])
            lines[0] = self._begun.getvalue()
            self._begun = BytesIO()
        self.whole.extend(lines)
        self._begun.write(begun)

    def pop(self) -> bytes | None:
        """Return the next whole line, or None if it has not all come yet.

        Raises:
            LineTooLong: the next line, or what has come of it, is over the limit. Lines before it were returned.
        """
        line = self.whole.popleft() if self.whole else None
        if (self._begun.tell() if line is None else len(line)) > self._max_line_bytes:
            raise LineTooLong
        return line
