"""One failure, one exception: take it out of the groups that nurseries wrap around it."""

from __future__ import annotations

import trio

__all__ = ["collapse", "leaves"]


def leaves(exc: BaseException) -> list[BaseException]:
    """The exceptions in a group of groups, left to right, without groups."""
    if not isinstance(exc, BaseExceptionGroup):
        return [exc]
    return [leaf for inner in exc.exceptions for leaf in leaves(inner)]


def collapse(exc: BaseException) -> BaseException:
    """The single exception that a group holds, or the group.

    `trio.Cancelled` beside something else is only the echo of that and does not count; a group of nothing but
    cancellations is one of them.
    """
    if not isinstance(exc, BaseExceptionGroup):
        return exc
    inside = leaves(exc)
    telling = [leaf for leaf in inside if not isinstance(leaf, trio.Cancelled)]
    if len(telling) == 1:
        return telling[0]
    if not telling:
        return inside[0]
    return exc
