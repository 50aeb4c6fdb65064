"""Reduce the exception groups of nurseries to one exception, and classify exceptions.

Users should see the failure, not the groups around the failure. Groups may be nested deeper than Python's stack, so no
function recurses.

Owns: nothing.
Writes: notes, causes and tracebacks of exceptions.
Calls: nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from operator import is_
from typing import Any, Final, TypeGuard, TypeVar

import trio

E = TypeVar("E", bound=BaseException)

_members: Final = vars(BaseExceptionGroup)["exceptions"].__get__
"""Returns a group's members, even if the class has its own attribute ``exceptions``."""

_message: Final = vars(BaseExceptionGroup)["message"].__get__


def is_a(exc: object, kind: type[E] | tuple[type[E], ...]) -> TypeGuard[E]:
    """Check an exception's class by `type`: ``__class__`` may be a property."""
    return issubclass(type(exc), kind)


def leaves(exc: BaseException | None) -> list[BaseException]:
    """List the exceptions in nested groups, left to right, but not the groups."""
    found: list[BaseException] = []
    waiting = [] if exc is None else [exc]
    while waiting:
        each = waiting.pop()
        if is_a(each, BaseExceptionGroup):
            waiting.extend(reversed(_members(each)))
        else:
            found.append(each)
    return found


def is_exit(exc: BaseException | None) -> bool:
    """Return True for an exception that ends the program or the test, and is raised unchanged after the clean-up.

    These are `KeyboardInterrupt`, `SystemExit`, and everything that is neither an `Exception` nor a cancellation, for
    example from ``pytest.fail()``. `trio.Cancelled`, asyncio's ``CancelledError`` and `GeneratorExit` end only a piece
    of code.
    """
    if exc is None or is_a(exc, (Exception, BaseExceptionGroup, trio.Cancelled, GeneratorExit)):
        return False
    # Importing asyncio takes longer than importing the kernel. Until asyncio is loaded, no exception is from asyncio.
    asyncio: Any = sys.modules.get("asyncio.exceptions")
    return asyncio is None or not is_a(exc, asyncio.CancelledError)


def exit_in(exc: BaseException | None) -> BaseException | None:
    """Return the exception that ends the program (`is_exit`), which may be in a group."""
    if is_a(exc, Exception):  # and so not a group of exits
        return None
    found = [leaf for leaf in leaves(exc) if is_exit(leaf)]
    first = found[0] if found else None
    # These two outrank all others.
    return next((each for each in found if is_a(each, (KeyboardInterrupt, SystemExit))), first)


def is_failure(exc: BaseException) -> bool:
    """Return True if an exception is neither a cancellation nor an exit, and contains none."""
    return not any(is_a(leaf, trio.Cancelled) or is_exit(leaf) for leaf in leaves(exc))


def forget_cancelled(exc: BaseException | None, *, instead: BaseException | None) -> None:
    """Drop the frames of cancellations thrown into a block, if another exception (`instead`) leaves the block.

    Since Python 3.12 a cycle would wait for the garbage collector: the traceback, the frame of the generator that
    raised the other exception, the frame of `contextlib` that threw the cancellation, and the cancellation. Another
    cycle is anyio's: a task group keeps the cancellation of a task that it starts, and the task's frame the group.
    """
    for each in leaves(exc) if exc is not instead else ():
        if is_a(each, trio.Cancelled):
            each.__traceback__ = None


def without_cancelled(exc: BaseException | None) -> BaseException | None:
    """Return an exception or group without cancellations; None if nothing is left."""
    if not is_a(exc, BaseExceptionGroup):
        return None if is_a(exc, trio.Cancelled) else exc
    if not any(is_a(leaf, trio.Cancelled) for leaf in leaves(exc)):
        return exc
    groups: list[BaseExceptionGroup[Any]] = [exc]
    for each in groups:  # which grows; the method ``split`` would recurse
        groups.extend(member for member in _members(each) if is_a(member, BaseExceptionGroup))
    kept: dict[int, BaseException | None] = {}
    for each in reversed(groups):  # the inner ones first
        found = [kept[id(member)] if is_a(member, BaseExceptionGroup) else member for member in _members(each)]
        members = [member for member in found if member is not None and not is_a(member, trio.Cancelled)]
        same = len(members) == len(found) and all(map(is_, members, _members(each)))
        kept[id(each)] = each if same else _plain_group_from(each, members) if members else None
    return kept[id(exc)]


def flattened(exc: BaseException) -> BaseException:
    """Return one group of all leaves if groups are nested too deep to be shown; else the exception."""
    level, depth = [exc], 0
    while level and depth <= 10:  # as many levels as a traceback shows (`traceback.TracebackException`)
        level = [member for each in level if is_a(each, BaseExceptionGroup) for member in _members(each)]
        depth += 1
    return _plain_group_from(exc, leaves(exc)) if level and is_a(exc, BaseExceptionGroup) else exc


def _plain_group_from(group: BaseExceptionGroup[Any], members: list[BaseException]) -> BaseExceptionGroup[Any]:
    # Not by the method ``derive``, which a user's class may override.
    made: BaseExceptionGroup[Any] = BaseExceptionGroup(_message(group), members)
    with suppress(Exception):  # a class may override any of these
        made.__traceback__, made.__cause__, made.__context__ = group.__traceback__, group.__cause__, group.__context__
        made.__suppress_context__ = group.__suppress_context__
        made.__notes__ = [*group.__notes__]
    return made


def collapse(exc: BaseException) -> BaseException:
    """Return the only exception in a group, or the group if there are several.

    A `trio.Cancelled` next to another exception is only a consequence and is ignored; a group of cancellations becomes
    one cancellation. An exception that ends the program (`is_exit`) outranks all others.
    """
    failure = without_cancelled(exc)
    if failure is None:
        return leaves(exc)[0]
    bare = exit_in(failure)
    while bare is None and is_a(failure, BaseExceptionGroup) and len(_members(failure)) == 1:
        failure = _members(failure)[0]
    return failure if bare is None else bare


def blame(error: BaseException, cause: BaseException) -> None:
    """Make an exception the cause of another without a cause."""
    with suppress(Exception):  # a class may override the attribute
        if error.__cause__ is None and error is not cause:
            error.__cause__ = cause


def first_of(failures: Iterable[E]) -> E:
    """Return the first failure, with the rest as notes."""
    first, *others = failures
    for other in others:
        first.add_note(f"also: {other}")
    return first


def caused_by(error: E, cause: BaseException | None) -> E:
    """Set the cause of an error that is not raised yet."""
    error.__cause__ = cause
    return error
