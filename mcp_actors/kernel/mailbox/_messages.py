"""Base classes of the messages to actors, typed by their answers."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Message:
    """Base of all messages to actors. Make subclasses frozen attrs classes.

    Attributes:
        control: True puts messages of this class on the control lane. They overtake all queued messages and need no
            in-flight slot, so a busy or full actor still answers them. Meant for questions about the actor itself
            (health, statistics), not for its work.
    """

    __slots__ = ()

    control: ClassVar[bool] = False


class Call(Message, Generic[T_co]):
    """A message that has an answer. ``class Add(Call[int])`` makes ``await ref.call(Add(1))`` an ``int``."""

    __slots__ = ()
