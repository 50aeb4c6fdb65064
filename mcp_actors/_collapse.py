"""One failure, one exception: out of the groups that nurseries wrap around it, the first of several, with its cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import trio

__all__ = ["EXITS", "caused_by", "collapse", "exit_in", "first_of", "is_failure", "leaves", "without_cancelled"]

E = TypeVar("E", bound=BaseException)

EXITS: Final = (KeyboardInterrupt, SystemExit)
"""The exceptions that end the whole program. Any other that is not an `Exception` (asyncio's ``CancelledError``, a
``GeneratorExit``) concerns only the task that raised it, and counts as a failure there."""


def leaves(exc: BaseException | None) -> list[BaseException]:
    """The exceptions in a group of groups, left to right, without groups."""
    if not isinstance(exc, BaseExceptionGroup):
        return [] if exc is None else [exc]
    return [leaf for inner in exc.exceptions for leaf in leaves(inner)]


def exit_in(exc: BaseException | None) -> BaseException | None:
    """The `KeyboardInterrupt` or `SystemExit` that a group holds, or is."""
    return next((leaf for leaf in leaves(exc) if isinstance(leaf, EXITS)), None)


def is_failure(exc: BaseException) -> bool:
    """Return True if an exception is not a cancellation or exit and contains none."""
    return not any(isinstance(leaf, (trio.Cancelled, *EXITS)) for leaf in leaves(exc))


def without_cancelled(exc: BaseException | None) -> BaseException | None:
    """What is left of a group, or of a plain exception, without the cancellations in it."""
    if not any(isinstance(leaf, trio.Cancelled) for leaf in leaves(exc)):
        return exc
    return exc.split(trio.Cancelled)[1] if isinstance(exc, BaseExceptionGroup) else None


def collapse(exc: BaseException) -> BaseException:
    """The single exception that a group holds, or the group.

    `trio.Cancelled` beside something else is only the echo of that and does not count; a group of nothing but
    cancellations is one of them. A `KeyboardInterrupt` or `SystemExit` outranks everything.
    """
    failure = without_cancelled(exc)
    if failure is None:
        return leaves(exc)[0]
    bare = exit_in(failure)
    while bare is None and isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure if bare is None else bare


def first_of(failures: Iterable[E]) -> E:
    """The first of several failures, of which there must be one; the others become its notes."""
    first, *others = failures
    for other in others:
        first.add_note(f"also: {other}")
    return first


def caused_by(error: E, cause: BaseException | None) -> E:
    """Give an error its cause, as ``raise error from cause`` does, where it is not raised yet."""
    error.__cause__ = cause
    return error
