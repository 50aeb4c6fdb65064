"""Leave out items of a list that are too large or invalid.

The items are unchecked, so they are measured by a walk that does not recurse and that ends early (``_json_walk``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from ..._errors import LimitExceeded
from ..._text import UnreadableItem, bytes_in, measured, plain_text
from ...config import Limits

_MEASURE_FACTOR: Final = 2
"""A value is measured up to this many times its limit, so that the error can say by how much it is too large."""


@attrs.define(eq=False)
class ListMeter:
    """Measures one list, item by item, as it arrives.

    Attributes:
        left_out: one error for each item that exceeds a limit, with the limit and a remedy.
        invalid: one phrase for each item that is not valid.

    Args:
        server: the configured name of the server.
        what: the kind of items, in the plural: ``"tools"``.
        limits: the limits of the server.
    """

    server: str
    what: str
    limits: Limits
    left_out: list[LimitExceeded] = attrs.field(factory=list, init=False)
    invalid: list[str] = attrs.field(factory=list, init=False)
    _number: int = attrs.field(default=0, init=False)
    _size: int = attrs.field(default=0, init=False)

    def announce(self, number: int) -> None:
        """Count items that have arrived and are about to be measured.

        Raises:
            LimitExceeded: the server lists more tools than it may.
        """
        self._number += number
        if self.what == "tools" and self._number > self.limits.max_tools:
            excess = _over(f"it lists {self._number} tools or more", self.limits.max_tools, "max_tools")
            raise self._refused(excess)

    def admits(self, item: Any) -> bool:
        """Measure one item; return whether it is within the limits, and add an error to `left_out` if it is not.

        Args:
            item: a model of the SDK, such as ``mcp.types.Tool``.

        Raises:
            LimitExceeded: the list as a whole is too large.
        """
        members = dict(item)  # not model_dump(), which recurses
        excess = next(self._excesses(members), None)
        if self._size > (limit := self.limits.max_list_bytes):
            found = f"its list of {self.what} takes {self._size} bytes or more"
            raise self._refused(_over(found, limit, "max_list_bytes"))
        if excess is None:
            return True
        self.left_out.append(self._refused(f"{self._left_out(members.get('name'))}: {excess}"))
        return False

    def refuse(self, item: object, reason: str) -> None:
        """Add an item that is not valid to `invalid`."""
        name = item.name if isinstance(item, UnreadableItem) else item.get("name") if isinstance(item, dict) else None
        self.invalid.append(f"{self._left_out(name if isinstance(name, str) else None)}: {reason}; fix the server")

    def _left_out(self, name: str | None) -> str:
        shown = "without a name" if name is None else repr(plain_text(name, limit=80))
        return f"{self.what[:-1]} {shown} is left out"

    def follow(self, cursor: str) -> None:
        """Check the cursor to the next page.

        Raises:
            LimitExceeded: it is too long to be sent back.
        """
        if len(cursor) > (limit := self.limits.max_text_chars):
            found = f"the cursor to the next page of its {self.what} has {len(cursor)} characters"
            raise self._refused(_over(found, limit, "max_text_chars"))

    def _refused(self, excess: str) -> LimitExceeded:
        return LimitExceeded(f"server {self.server!r}: {excess}, if you trust the server", server=self.server)

    def _excesses(self, members: Mapping[str, Any]) -> Iterator[str]:
        """Yield a phrase for each part of an item that exceeds a limit, and add the item to the size of the list."""
        limits = self.limits
        for member, value in members.items():
            what = member.replace("_", " ")
            if isinstance(value, str):
                self._size += bytes_in(value)
                if len(value) > limits.max_text_chars:
                    yield _over(f"its {what} has {len(value)} characters", limits.max_text_chars, "max_text_chars")
            elif value is not None:
                enough = _MEASURE_FACTOR * limits.max_schema_bytes
                size, depth, complete = measured(value, enough)
                self._size += min(size, enough)
                more = "" if complete else "more than "
                if depth > limits.max_schema_depth:
                    found = f"the JSON of its {what} is nested {more}{depth} levels deep"
                    yield _over(found, limits.max_schema_depth, "max_schema_depth")
                if size > limits.max_schema_bytes:
                    found = f"the JSON of its {what} takes {more or 'about '}{size} bytes"
                    yield _over(found, limits.max_schema_bytes, "max_schema_bytes")


def _over(excess: str, limit: int, setting: str) -> str:
    return f"{excess}, and the limit is {limit}; set limits=Limits({setting}=…) to allow more"
