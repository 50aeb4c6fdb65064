"""What is sent to actors: frozen messages, typed by what they are answered with."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

__all__ = ["Call", "Message"]

T_co = TypeVar("T_co", covariant=True)


class Message:
    """Base of everything that can be sent to an actor. Make subclasses frozen attrs classes.

    Attributes:
        control: a class whose messages take the control lane sets this to True. Such a message overtakes everything
            that is queued and needs no in-flight slot, so a busy or full actor still answers it. Meant for questions
            about the actor itself (health, statistics), not for its work.
    """

    __slots__ = ()

    control: ClassVar[bool] = False


class Call(Message, Generic[T_co]):
    """A message that is answered. ``class Add(Call[int])`` makes ``await ref.call(Add(1))`` an ``int``."""

    __slots__ = ()
