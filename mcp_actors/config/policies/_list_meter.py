"""How much of a list a server may send: what of its tools, resources or prompts is too much, and when all of it is.

What is looked at here has not been looked at by anybody: it may be nested a hundred thousand times, or hold itself. So
nothing here recurses, and a walk through a value ends soon after it is known to be too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from ..._errors import LimitExceeded
from ..._plain_text import plain_text
from ._limits import Limits

__all__ = ["ListMeter", "measured"]

_PATIENCE: Final = 2
"""A value is measured until it has so many times the bytes it may have, to say by how much it is too large."""

_LEAST: Final = 8
"""Bytes that a value counts for at least. What a list costs grows with the number of its values: a million times ``1``
takes longer to handle than a million letters."""


@attrs.define(eq=False)
class ListMeter:
    """Measures one list, item by item, as it comes.

    Attributes:
        left_out: for each item that is over a limit an error that says which limit that is, and what to do.

    Args:
        server: the configured name of the server.
        what: what is listed, in the plural: ``"tools"``.
        limits: how much it may list.
    """

    server: str
    what: str
    limits: Limits
    left_out: list[LimitExceeded] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)
    _size: int = attrs.field(default=0, init=False)

    def announce(self, number: int) -> None:
        """So many more have come, and are to be measured.

        Raises:
            LimitExceeded: there are more tools than the server may list.
        """
        self._number += number
        if self.what == "tools" and self._number > self.limits.max_tools:
            excess = _told(f"it lists {self._number} tools or more", self.limits.max_tools, "max_tools")
            raise self._refused(excess)

    def admits(self, item: Any) -> bool:
        """Measure one item; return whether it is within the limits. If not, that is told in `left_out`.

        Args:
            item: a model of the SDK, such as ``mcp.types.Tool``.

        Raises:
            LimitExceeded: all that was measured so far is more than a list may have.
        """
        members = dict(item)  # not dumped: that would recurse
        excess = next(self._excesses(members), None)
        if self._size > (limit := self.limits.max_list_bytes):
            found = f"its list of {self.what} takes {self._size} bytes or more"
            raise self._refused(_told(found, limit, "max_list_bytes"))
        if excess is None:
            return True
        name = plain_text(str(members.get("name")), limit=80)
        self.left_out.append(self._refused(f"{self.what[:-1]} {name!r} is left out: {excess}"))
        return False

    def follow(self, cursor: str) -> None:
        """There is another page, to be asked for by this.

        Raises:
            LimitExceeded: it is too long to be sent back.
        """
        if len(cursor) > (limit := self.limits.max_text_chars):
            found = f"the cursor to the next page of its {self.what} has {len(cursor)} characters"
            raise self._refused(_told(found, limit, "max_text_chars"))

    def _refused(self, excess: str) -> LimitExceeded:
        return LimitExceeded(f"server {self.server!r}: {excess}, if you trust the server", server=self.server)

    def _excesses(self, members: Mapping[str, Any]) -> Iterator[str]:
        """Say what of an item is too much: the figure, the limit, and the setting. Count what was looked at."""
        limits = self.limits
        for member, value in members.items():
            what = member.replace("_", " ")
            if isinstance(value, str):
                self._size += _bytes_in(value)
                if len(value) > limits.max_text_chars:
                    yield _told(f"its {what} has {len(value)} characters", limits.max_text_chars, "max_text_chars")
            elif value is not None:
                patience = _PATIENCE * limits.max_schema_bytes
                size, depth, complete = measured(value, patience)
                self._size += min(size, patience)
                more = "" if complete else "more than "
                if depth > limits.max_schema_depth:
                    found = f"the JSON of its {what} is nested {more}{depth} deep"
                    yield _told(found, limits.max_schema_depth, "max_schema_depth")
                if size > limits.max_schema_bytes:
                    found = f"the JSON of its {what} takes {more or 'about '}{size} bytes"
                    yield _told(found, limits.max_schema_bytes, "max_schema_bytes")


def _told(excess: str, limit: int, setting: str) -> str:
    return f"{excess}, and the limit is {limit}; set limits=Limits({setting}=…) to allow more"


def measured(value: Any, patience: int) -> tuple[int, int, bool]:
    """Return about how many bytes a JSON-like value takes, how deep it is, and whether all of it was looked at.

    Once it is known to take more than ``patience`` bytes, it is looked at no further. Models of the SDK are JSON-like.
    """
    size = deepest = 0
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        each, depth = pending.pop()
        inner: Iterable[Any] = ()
        if isinstance(each, str):
            size += _bytes_in(each)
        elif (members := _members(each)) is not None:
            own = 2 + 2 * len(members)
            if own <= patience:  # else to read the keys may take long
                own += sum(_bytes_in(str(key), least=2) for key in members)
            size += max(_LEAST, own)
            deepest, inner = max(deepest, depth), members.values()
        elif isinstance(each, (list, tuple)):
            size += max(_LEAST, 2 + len(each))
            deepest, inner = max(deepest, depth), each
        else:
            size += _LEAST
        if size > patience:
            return size, deepest, False
        pending += [(item, depth + 1) for item in inner]
    return size, deepest, True


def _members(value: Any) -> Mapping[str, Any] | None:
    """Return the members of an object; also of a pydantic model, whose extra fields may hold anything."""
    if isinstance(value, Mapping):
        return value
    return dict(value) if hasattr(value, "model_fields_set") else None


def _bytes_in(text: str, *, least: int = _LEAST) -> int:
    """Return how many bytes a string takes, with its quotes; characters that JSON escapes count as themselves."""
    return max(least, 2 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))))
