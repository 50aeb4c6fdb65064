"""Reduce the exception groups of nurseries to one exception.

Users should see the failure itself, not the groups that nurseries wrap around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import trio

E = TypeVar("E", bound=BaseException)

EXITS: Final = (KeyboardInterrupt, SystemExit)
"""The exceptions that end the whole program. Any other that is not an `Exception` (asyncio's ``CancelledError``, a
``GeneratorExit``) concerns only the task that raised it, and counts as a failure there."""


def leaves(exc: BaseException | None) -> list[BaseException]:
    """List the exceptions in nested groups, left to right, without the groups."""
    if not isinstance(exc, BaseExceptionGroup):
        return [] if exc is None else [exc]
    return [leaf for inner in exc.exceptions for leaf in leaves(inner)]


def exit_in(exc: BaseException | None) -> BaseException | None:
    """Return the `KeyboardInterrupt` or `SystemExit` in a group, or the exception itself if it is one."""
    return next((leaf for leaf in leaves(exc) if isinstance(leaf, EXITS)), None)


def is_failure(exc: BaseException) -> bool:
    """Return True if an exception is not a cancellation or exit and contains none."""
    return not any(isinstance(leaf, (trio.Cancelled, *EXITS)) for leaf in leaves(exc))


def without_cancelled(exc: BaseException | None) -> BaseException | None:
    """Return an exception or group without the cancellations in it; None if it has nothing else."""
    if not any(isinstance(leaf, trio.Cancelled) for leaf in leaves(exc)):
        return exc
    return exc.split(trio.Cancelled)[1] if isinstance(exc, BaseExceptionGroup) else None


def collapse(exc: BaseException) -> BaseException:
    """Return the only exception in a group, or the group if it has several.

    A `trio.Cancelled` next to another exception is only a consequence of that and is ignored; a group of cancellations
    becomes one of them. A `KeyboardInterrupt` or `SystemExit` outranks everything.
    """
    failure = without_cancelled(exc)
    if failure is None:
        return leaves(exc)[0]
    bare = exit_in(failure)
    while bare is None and isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure if bare is None else bare


def first_of(failures: Iterable[E]) -> E:
    """Return the first of one or more failures; the others become its notes."""
    first, *others = failures
    for other in others:
        first.add_note(f"also: {other}")
    return first


def caused_by(error: E, cause: BaseException | None) -> E:
    """Give an error its cause, as ``raise error from cause`` does, where it is not raised yet."""
    error.__cause__ = cause
    return error
