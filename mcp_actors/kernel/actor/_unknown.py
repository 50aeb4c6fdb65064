"""Tell a message that no case of ``handle`` matched from one whose answer is None.

A function that falls through a ``match`` returns None, as one does that is done. So None is looked at twice: the
message's class may say that its answer is never None (``Call[int]``), and ``handle`` may say in its annotation which
messages it takes. What neither says, or what cannot be told at run time, is believed. Nothing is looked at for any
other result, so this costs a call nothing.
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
        f"actor {actor!r}: {cls.__name__}.handle() has no case for {kind}; add one. If it has one that returns None, "
        f"let {kind}'s reply type and the annotation of handle() say so"
    )


def _may_be_none(kind: type[Message]) -> bool:
    """Whether None is an answer to messages of this class: True for what is no call."""
    replies = [
        get_args(base)[0]
        for each in kind.__mro__
        for base in vars(each).get("__orig_bases__", ())
        if get_origin(base) is Call
    ]
    return all(_admits(reply, lambda cls: isinstance(None, cls)) for reply in replies)


def _takes(handle: Callable[..., Any], kind: type[Message]) -> bool:
    """Whether ``handle`` takes messages of this class, by its annotation."""
    try:
        hints = get_type_hints(handle)
    except Exception:
        return True  # a name that is there for type checkers only
    return all(
        _admits(hint, lambda cls: issubclass(kind, cls))
        for name, hint in hints.items()
        if name not in ("self", "return")
    )


def _admits(hint: Any, test: Callable[[type], bool]) -> bool:
    """Whether a class that a type hint names passes a test; one that cannot be tested does."""
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
