"""Collect the bytes of one message, and split a stream into lines.

Of a message over a limit only the two ends are kept. Each byte is looked at once, so a long message in small pieces
does not take quadratic time.
"""

from __future__ import annotations

import re
from collections import deque
from io import BytesIO
from typing import Final

from ._unreadable import LONG, Excerpt
from ._values import Excess, ValueCounter

SPACE: Final = 16
"""Maximum bytes of space after a message whose line is ended by a carriage return alone."""

SKIPPED: Final = 16
"""Maximum size of a skipped response, as a multiple of the limit. One without an end must not be read for ever."""


FEW: Final = 4
"""So few lines of one read are not searched for blank ones."""

# A carriage return between two messages ends a line: some servers write no other line end. It cannot be part of a valid
# message there. Between the values of one message it is space.
_RETURN: Final = re.compile(rb"(?<=[}\]])[ \t]*+\r\s*+(?=[{\[])")

_BLANK: Final = re.compile(rb"\n\s++")


class LongLine(Excerpt):
    """The beginning and the end of a message that exceeds a limit.

    Attributes:
        excess: the limit that it exceeds.
    """

    def __init__(self, begun: bytes | memoryview, excess: Excess) -> None:
        super().__init__(begun)
        self.excess = excess


class PartialMessage:
    """A message that is still arriving.

    Args:
        max_bytes: the maximum size of the message.
        max_values: the maximum number of its JSON values.

    Attributes:
        coming: its beginning, if it is long.
        skipped: its two ends, once it is over a limit; then the rest is not kept.
    """

    def __init__(self, max_bytes: float, max_values: float) -> None:
        self.coming: Excerpt | None = None
        self.skipped: LongLine | None = None
        self._max_bytes = max_bytes
        self._max_values = max_values
        self._counter = ValueCounter()
        # `BytesIO.getvalue` returns the bytes without a copy, and parsers do not copy `bytes` either.
        self._data = BytesIO()

    @property
    def empty(self) -> bool:
        """True if nothing has arrived."""
        return self._data.tell() == 0 and self.skipped is None

    @property
    def complete(self) -> bool:
        """True if a whole array or object has arrived, so what follows does not belong to it."""
        if self.skipped is not None or self._counter.depth != 0:
            return False
        last = bytes(self._data.getbuffer()[-SPACE:]).rstrip()
        return last.endswith((b"}", b"]"))

    @property
    def value(self) -> bytes | LongLine:
        """The bytes that have arrived, or the two ends of a message over a limit."""
        return self.skipped or self._data.getvalue()

    def append(self, data: bytes) -> None:
        """Take the next bytes of the message."""
        if self.skipped is not None:
            self.skipped.extend(data)
            return
        if self.coming is not None:
            self.coming.size += len(data)
        self._data.write(data)
        self._counter.feed(data)
        if self._data.tell() > self._max_bytes:
            self._skip("bytes")
        elif self._counter.values > self._max_values:
            self._skip("values")
        elif self.coming is None and self._data.tell() > LONG:
            self.coming = Excerpt(self._data.getbuffer())

    def _skip(self, excess: Excess) -> None:
        self.coming = self.skipped = LongLine(self._data.getbuffer(), excess)
        self._data = BytesIO()


class LineSplitter:
    """Takes bytes as they arrive and returns whole lines, without their newline. Most blank lines are dropped.

    Args:
        max_line_bytes: the maximum size of a line.
        max_values: the maximum number of JSON values of a line that arrives in several pieces. (One piece holds few.)

    Attributes:
        whole: the lines that have arrived; take them with `pop`.
        partial: the line that is still arriving.
    """

    def __init__(self, max_line_bytes: int, max_values: int) -> None:
        self.whole: deque[bytes | LongLine] = deque()
        self.partial: PartialMessage = PartialMessage(max_line_bytes, max_values)
        self._max_line_bytes = max_line_bytes
        self._max_values = max_values

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        lines = data.split(b"\n")
        if len(lines) > FEW:
            # Thousands of blank lines are one match here, and would be thousands of steps of the reader.
            lines = _BLANK.sub(b"\n", data).split(b"\n")
        begun = lines.pop()
        if self.partial.empty:
            self.whole.extend(lines)
        else:
            self._take(lines)
        if begun:
            self._begin(begun)

    def _take(self, lines: list[bytes]) -> None:
        """Take the ends of lines. The first one is the end of the line that is still arriving."""
        if lines and not self.partial.empty:
            self.partial.append(lines.pop(0))
            self.whole.append(self._take_partial())
        self.whole.extend(lines)

    def _begin(self, begun: bytes) -> None:
        """Take bytes without a newline after them; a carriage return may end a line, too."""
        if b"\r" not in begun:
            self.partial.append(begun)
            return
        if begun.startswith(b"\r") and self.partial.complete:
            self.whole.append(self._take_partial())
        *lines, begun = _RETURN.split(begun)
        self._take(lines)
        self.partial.append(begun)
        if begun.endswith(b"\r") and self.partial.complete:
            self.whole.append(self._take_partial())

    def put_back(self, line: bytes) -> bool:
        """Take a line that cannot be parsed again, if it is several lines with carriage returns between them."""
        lines = _RETURN.split(line) if len(line) <= LONG and b"\r" in line else [line]
        if len(lines) > 1:
            self.whole.extendleft(reversed(lines))
        return len(lines) > 1

    def _take_partial(self) -> bytes | LongLine:
        taken, self.partial = self.partial.value, PartialMessage(self._max_line_bytes, self._max_values)
        return taken

    def pop(self) -> bytes | LongLine | None:
        """Return the next whole line; None if it has not arrived yet."""
        if not self.whole:
            return None
        line = self.whole.popleft()
        return LongLine(line, "bytes") if isinstance(line, bytes) and len(line) > self._max_line_bytes else line

    def take_rest(self) -> bytes:
        """Return the bytes after the last newline, once; empty if they exceed a limit."""
        rest = self._take_partial()
        return rest if isinstance(rest, bytes) else b""
