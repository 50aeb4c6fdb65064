"""Which tools of a listing are within the limits of their server.

What is looked at here has not been looked at by anybody: it may be nested a hundred thousand times, or hold itself. So
nothing here recurses, and a walk through a value ends soon after it is known to be too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs

from .._errors import LimitExceeded
from .._plain_text import plain_text
from ._limits import Limits

__all__ = ["LimitedListing", "check_number_of_tools", "within_limits"]

_PATIENCE: Final = 4
"""A value is measured until it has so many times the bytes it may have, to say by how much it is too large."""

_NUMBER: Final = 8
"""Bytes that a number counts for, whatever it is. Only its order of magnitude is of interest."""


class ListedTool(Protocol):
    """The part of ``mcp.types.Tool`` that is measured."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str | None: ...

    @property
    def description(self) -> str | None: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...

    @property
    def output_schema(self) -> Mapping[str, Any] | None: ...

    @property
    def annotations(self) -> Any: ...

    @property
    def meta(self) -> Mapping[str, Any] | None: ...


T = TypeVar("T", bound=ListedTool)


@attrs.frozen
class LimitedListing(Generic[T]):
    """What is left of a listing.

    Attributes:
        tools: the tools that are within the limits, in listed order.
        left_out: for each of the others an error that says which limit it exceeds, and what to do.
    """

    tools: tuple[T, ...]
    left_out: tuple[LimitExceeded, ...]


def within_limits(server: str, tools: Sequence[T], limits: Limits) -> LimitedListing[T]:
    """Return the tools of a listing that are within the limits, and why the others are not.

    Args:
        server: the configured name of the server.
        tools: what it listed.
        limits: how much it may list.

    Raises:
        LimitExceeded: it listed too many tools.
    """
    check_number_of_tools(server, len(tools), limits)
    kept: list[T] = []
    left_out: list[LimitExceeded] = []
    for tool in tools:
        excess = next(_excesses(tool, limits), None)
        if excess is None:
            kept.append(tool)
        else:
            name = plain_text(tool.name, limit=80)
            message = f"server {server!r}: tool {name!r} is left out: {excess}, if you trust the server"
            left_out.append(LimitExceeded(message, server=server))
    return LimitedListing(tuple(kept), tuple(left_out))


def check_number_of_tools(server: str, number: int, limits: Limits) -> None:
    """Refuse a listing of too many tools; it may be asked after each page.

    Raises:
        LimitExceeded: there are more than the server may list.
    """
    if number > limits.max_tools:
        raise LimitExceeded(
            f"server {server!r}: it lists {number} tools or more, and the limit is {limits.max_tools}; "
            "set limits=Limits(max_tools=…) to allow more, if you trust the server",
            server=server,
        )


def _excesses(tool: ListedTool, limits: Limits) -> Iterator[str]:
    """Say what of a tool is too much: the figure, the limit, and the setting."""
    texts = {"name": tool.name, "title": tool.title, "description": tool.description}
    for what, text in texts.items():
        if text is not None and len(text) > limits.max_text_chars:
            yield _told(f"its {what} has {len(text)} characters", limits.max_text_chars, "max_text_chars")
    values = {
        "input schema": tool.input_schema,
        "output schema": tool.output_schema,
        "annotations": _members(tool.annotations),
        "meta": tool.meta,
    }
    for what, value in values.items():
        size, depth, complete = _measured(value, _PATIENCE * limits.max_schema_bytes)
        more = "" if complete else "more than "
        if depth > limits.max_schema_depth:
            yield _told(
                f"the JSON of its {what} is nested {more}{depth} deep", limits.max_schema_depth, "max_schema_depth"
            )
        if size > limits.max_schema_bytes:
            yield _told(
                f"the JSON of its {what} takes {more or 'about '}{size} bytes",
                limits.max_schema_bytes,
                "max_schema_bytes",
            )


def _told(excess: str, limit: int, setting: str) -> str:
    return f"{excess}, and the limit is {limit}; set limits=Limits({setting}=…) to allow more"


def _members(annotations: Any) -> Any:
    """Return annotations as a mapping, also if they are a pydantic model; its extra fields may hold anything."""
    if annotations is None or isinstance(annotations, Mapping):
        return annotations
    return dict(annotations)  # not dumped: that would recurse


def _measured(value: Any, patience: int) -> tuple[int, int, bool]:
    """Return about how many bytes a JSON-like value takes, how deep it is, and whether all of it was looked at.

    Once it is known to take more than ``patience`` bytes, it is looked at no further.
    """
    size = deepest = 0
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        each, depth = pending.pop()
        inner: Iterable[Any] = ()
        if isinstance(each, str):
            size += _bytes_in(each)
        elif isinstance(each, Mapping):
            size += 2 + 2 * len(each) + sum(_bytes_in(str(key)) for key in each)
            deepest, inner = max(deepest, depth), each.values()
        elif isinstance(each, (list, tuple)):
            size += 2 + len(each)
            deepest, inner = max(deepest, depth), each
        else:
            size += _NUMBER
        if size > patience:
            return size, deepest, False
        pending += [(item, depth + 1) for item in inner]
    return size, deepest, True


def _bytes_in(text: str) -> int:
    """Return how many bytes a string takes, with its quotes; characters that JSON escapes count as themselves."""
    return 2 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))
