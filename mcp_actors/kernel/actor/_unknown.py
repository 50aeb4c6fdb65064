"""Detect messages that no case of ``handle`` matched.

A function that falls through a ``match`` returns None, like one that has handled the message. So a result of None is
checked: the class of the message may exclude it (``Call[int]``), and the annotation of ``handle`` may exclude the
message. A type that cannot be checked at run time excludes nothing. Other results are not checked, so a call that
returns a value pays nothing.
"""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from ..mailbox import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..mailbox import Message


def may_answer_none(handle: Callable[..., Any], kind: type[Message]) -> bool:
    """Return True if a message of this class, handled by this method, may be answered with None."""
    return _may_be_none(kind) and _takes(handle, kind)


def unknown(actor: str, cls: type, message: object) -> TypeError:
    """Return the error for a message that an actor has no case for."""
    kind = type(message).__name__
    return TypeError(
        f"actor {actor!r}: {cls.__name__}.handle() has no case for {kind}; add one. If there is one that returns None, "
        f"allow None in the reply type of {kind}, and {kind} in the annotation of handle()"
    )


def _may_be_none(kind: type[Message]) -> bool:
    """Return True if None is a possible answer to messages of this class. It is for all but a `Call`."""
    replies = [
        get_args(base)[0]
        for each in kind.__mro__
        for base in vars(each).get("__orig_bases__", ())
        if get_origin(base) is Call
    ]
    return all(_admits(reply, lambda cls: isinstance(None, cls)) for reply in replies)


def _takes(handle: Callable[..., Any], kind: type[Message]) -> bool:
    """Return True if the annotation of ``handle`` admits messages of this class."""
    try:
        hints = get_type_hints(handle)
    except Exception:
        return True  # a name that is imported for type checkers only
    return all(
        _admits(hint, lambda cls: issubclass(kind, cls))
        for name, hint in hints.items()
        if name not in ("self", "return")
    )


def _admits(hint: Any, test: Callable[[type], bool]) -> bool:
    """Return True if a class in a type hint passes a test, or cannot be tested."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_admits(each, test) for each in get_args(hint))
    cls = origin or hint
    if cls is Any or not isinstance(cls, type):
        return True
    try:
        return test(cls)
    except TypeError:
        return True  # a protocol
