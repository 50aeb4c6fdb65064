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
    from ._actor import Actor


def check_known(actor: Actor, message: Message) -> None:
    """Refuse a message that was answered with None and cannot be.

    Raises:
        TypeError: ``handle`` has no case for it.
    """
    cls, kind = type(actor), type(message)
    if "_silent" not in vars(cls):
        cls._silent = {}
    if kind not in cls._silent:
        cls._silent[kind] = _may_be_none(kind) and _takes(cls, kind)
    if not cls._silent[kind]:
        raise unknown(actor, message)


def unknown(actor: Actor, message: object) -> TypeError:
    """The refusal of a message that an actor does not handle."""
    name, cls, kind = actor.ref.name, type(actor).__name__, type(message).__name__
    return TypeError(
        f"actor {name!r}: {cls}.handle() has no case for {kind}; add one. If it has one that returns None, let "
        f"{kind}'s reply type and the annotation of handle() say so"
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


def _takes(actor: type[Actor], kind: type[Message]) -> bool:
    """Whether ``handle`` takes messages of this class, by its annotation."""
    try:
        hints = get_type_hints(actor.handle)
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
