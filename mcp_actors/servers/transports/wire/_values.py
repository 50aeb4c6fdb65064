"""Limit the bytes and JSON values of one message.

Parsing a message is a single step in which no other task runs, and millions of small numbers take seconds. So values
are counted before, while the bytes arrive.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import frozen

Excess: TypeAlias = Literal["bytes", "values"]
"""The limit that a message exceeds."""


@frozen
class MessageLimits:
    """The maximum size of one message, and the words for a message that exceeds it.

    Attributes:
        bytes: the maximum size in bytes.
        values: the maximum number of JSON values (``Limits.max_message_values``).
        option: the option that sets `bytes`; None if it is fixed.
    """

    bytes: int
    values: int
    option: str | None = None

    def response_too_large(self, excess: Excess) -> str:
        """Return the reason and the remedy for a response over a limit."""
        limit, remedy = self.exceeded(excess)
        return f"the response is too large ({limit}); the request may have taken effect; {remedy}"

    def message_too_large(self, excess: Excess) -> str:
        """Return the reason and the remedy for any other message over a limit, which ends the connection."""
        limit, remedy = self.exceeded(excess)
        return f"a message from the server is too large ({limit}); {remedy}"

    def exceeded(self, excess: Excess) -> tuple[str, str]:
        """Return the limit that is exceeded, and the remedy."""
        if excess == "values":
            return (
                f"more than {self.values} JSON values",
                "raise limits=Limits(max_message_values=…) if that is expected",
            )
        remedy = f"raise {self.option} if that is expected" if self.option is not None else "request less data"
        return f"more than {self.bytes} bytes", remedy


class TooManyValues(Exception):
    """A message exceeds the limit on JSON values."""


class ValueCounter:
    """Counts the values of JSON text as it arrives, by the punctuation outside of strings. A key is a value too.

    The count is approximate: at least one too low, and one too high for each empty array or object.

    Attributes:
        values: the number of values so far.
        depth: the number of arrays and objects that have begun and not ended.
    """

    def __init__(self) -> None:
        self.values: int = 0
        self.depth: int = 0
        self._in_string = False
        self._escaped = False

    def feed(self, data: bytes) -> None:
        """Count the next bytes, which may begin and end anywhere."""
        if self._escaped and data:
            data, self._escaped = data[1:], False
        if b"\\" in data:
            # Without pairs of backslashes, each one that is left escapes what follows it. This order matters.
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
            self._escaped = data.endswith(b"\\")
        parts = data.split(b'"')  # in turns outside and inside of strings; several times faster than a regex
        bare = b"".join(parts[1 if self._in_string else 0 :: 2])
        begun = bare.count(b"[") + bare.count(b"{")
        self.values += begun + bare.count(b",") + bare.count(b":")
        self.depth += begun - bare.count(b"]") - bare.count(b"}")
        self._in_string ^= len(parts) % 2 == 0
