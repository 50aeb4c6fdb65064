"""Base classes of messages, typed by their answers and their receivers.

Nothing here does anything at run time. For type checkers, a reference is an `ActorRef[Add | Get]`: it receives these
messages, so one that receives more is accepted in its place (it is contravariant). A `Call` says what it answers to
whom: ``Add`` gives an ``int`` to whatever receives ``Add``. So for ``ref.call(message)`` one protocol says if the
message may be sent there, and what the answer is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar
else:
    from typing import TypeVar


class Message:
    """Base of all messages to actors. Make subclasses frozen attrs classes.

    Attributes:
        control: True puts messages of this class on the control lane. They overtake all queued messages and need no
            in-flight slot, so a busy or full actor still answers them. Meant for questions about the actor itself
            (health, statistics), not for its work.
    """

    __slots__ = ()

    control: ClassVar[bool] = False


T_co = TypeVar("T_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)
M = TypeVar("M", bound=Message)
if TYPE_CHECKING:
    M_contra = TypeVar("M_contra", bound=Message, contravariant=True, default=Any)
else:  # TypeVars have defaults since Python 3.13, and the kernel imports nothing for them
    M_contra = TypeVar("M_contra", bound=Message, contravariant=True)


class Receives(Generic[M_contra]):
    """Base of actors and references to them: what receives these messages."""

    __slots__ = ()


class Call(Message, Generic[T_co]):
    """A message that has an answer. ``class Add(Call[int])`` makes ``await ref.call(Add(1))`` an ``int``."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _to(self, ref: Receives[Self], /) -> T_co: ...


class CallFor(Protocol[R_contra, T_co]):
    """A `Call` that may be sent to these receivers, and its answer."""

    def _to(self, ref: R_contra, /) -> T_co: ...
