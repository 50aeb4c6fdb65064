"""Split a stream of bytes into lines of limited length.

Of a line over a limit only the two ends are kept. Each byte is looked at once, so a long line in small pieces does not
take quadratic time.
"""

from __future__ import annotations

from collections import deque
from io import BytesIO

from ._unreadable import LONG, Excerpt
from ._values import Excess, ValueCounter

__all__ = ["LineSplitter", "LongLine"]


class LongLine(Excerpt):
    """The beginning and the end of a line that exceeds a limit.

    Attributes:
        excess: the limit that it exceeds.
    """

    def __init__(self, begun: bytes | memoryview, excess: Excess) -> None:
        super().__init__(begun)
        self.excess = excess


class LineSplitter:
    """Takes bytes as they arrive and returns whole lines, without their newline.

    Args:
        max_line_bytes: the maximum size of a line.
        max_values: the maximum number of JSON values of a line that arrives in several pieces. (One piece holds few.)

    Attributes:
        whole: the lines that have arrived; take them with `pop`.
        coming: the beginning of the line that is still arriving, if it is long.
        skipped: the same, once that line is over a limit.
    """

    def __init__(self, max_line_bytes: int, max_values: int) -> None:
        self.whole: deque[bytes | LongLine] = deque()
        self.coming: Excerpt | None = None
        self.skipped: LongLine | None = None
        self._max_line_bytes = max_line_bytes
        self._max_values = max_values
        self._counter = ValueCounter()
        # `BytesIO.getvalue` returns the bytes without a copy, and parsers do not copy `bytes` either.
        self._begun = BytesIO()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        *lines, begun = data.split(b"\n")
        if lines and (self._begun.tell() or self.skipped):
            self._begin(lines.pop(0))
            self.whole.append(self.skipped or self._begun.getvalue())
            self._begun, self._counter, self.coming, self.skipped = BytesIO(), ValueCounter(), None, None
        self.whole.extend(lines)
        self._begin(begun)

    def _begin(self, data: bytes) -> None:
        if self.skipped is not None:
            self.skipped.extend(data)
            return
        if self.coming is not None:
            self.coming.size += len(data)
        self._begun.write(data)
        self._counter.feed(data)
        if self._begun.tell() > self._max_line_bytes:
            self._skip("bytes")
        elif self._counter.values > self._max_values:
            self._skip("values")
        elif self.coming is None and self._begun.tell() > LONG:
            self.coming = Excerpt(self._begun.getbuffer())

    def _skip(self, excess: Excess) -> None:
        self.coming = self.skipped = LongLine(self._begun.getbuffer(), excess)
        self._begun = BytesIO()

    def pop(self) -> bytes | LongLine | None:
        """Return the next whole line; None if it has not arrived yet."""
        if not self.whole:
            return None
        line = self.whole.popleft()
        return LongLine(line, "bytes") if isinstance(line, bytes) and len(line) > self._max_line_bytes else line

    def take_rest(self) -> bytes:
        """Return the bytes after the last newline, once; empty if they exceed a limit."""
        rest, self._begun = self._begun.getvalue(), BytesIO()
        return rest
