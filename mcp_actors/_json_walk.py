"""Walk through unchecked JSON-like data, and measure it.

Such data may be nested a hundred thousand levels deep, or contain itself. So nothing here recurses, and a caller that
has seen enough stops the walk: what is inside a value is not touched before the next value is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

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
