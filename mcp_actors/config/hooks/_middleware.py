"""Compose middleware around the tool calls of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs
from mcp.types import CallToolResult

from ..._foreign import answer_of
from .. import _validators as check


@attrs.frozen(kw_only=True)
class ToolRequest:
    """A tool call on its way to the server. ``attrs.evolve(request, meta={...})`` makes a modified copy.

    Attributes:
        server: the server's configured name.
        name: the tool's name as the server lists it.
        arguments: the arguments, or None.
        meta: the request's ``_meta``, or None.
    """

    server: str
    name: str
    arguments: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


CallNext: TypeAlias = Callable[[ToolRequest], Awaitable[CallToolResult]]
"""The function that a middleware calls to pass a request on; it returns the result."""

Middleware: TypeAlias = Callable[[ToolRequest, CallNext], Awaitable[CallToolResult] | CallToolResult]
"""``async def middleware(request, call_next)``: return a result, its own or that of ``await call_next(request)``.

A plain function returns a result of its own, or ``call_next(request)``.
"""


def to_middleware(value: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """Return middleware as a tuple, for `check_middleware`."""
    return check.as_tuple(value)


check_middleware: Final = check.tuple_of(callable, "give a tuple of functions (request, call_next)")


def wrapped(call: CallNext, middleware: Iterable[Middleware]) -> CallNext:
    """Wrap a call in middleware; the first one is outermost."""
    for each in reversed(tuple(middleware)):
        call = _around(each, call)
    return call


def _around(middleware: Middleware, call_next: CallNext) -> CallNext:
    async def call(request: ToolRequest) -> CallToolResult:
        return await answer_of(middleware(request, call_next))

    return call
