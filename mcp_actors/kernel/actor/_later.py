"""Answer a message after its handler has returned, or without a handler."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..._foreign import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..mailbox import Envelope, Message


T = TypeVar("T")


class Settles(Protocol):
    """The requests of an incarnation, as a `Later` sees them."""

    def reply(self, later: Later[T], value: T) -> bool:
        """Answer with a value."""

    def fail(self, later: Later[T], exc: BaseException) -> bool:
        """Do what the exception would do if a handler raised it."""


class Later(Generic[T]):
    """The answer to a message, which any task or step of the actor's tree gives later.

    `Actor.defer` makes one in a handler, `Actor.take` gets one without a handler. It is used once. The message counts
    as in flight, and keeps its slot, until then. If the incarnation ends first, the caller gets the same error as for a
    handler that was interrupted.

    Attributes:
        on_cancel: called with this object, once, if the caller leaves, its deadline expires, or the incarnation ends.
            It runs in a step of the owner, in the sender's context variables, before ``running()`` is left. With None,
            the default, the slot is free at once. If it is set, and the incarnation goes on, the slot is free when
            `reply` or `fail` is called; the answer is dropped then. An exception from it is a crash.
        keep_slot: False if the slot is free as soon as the handler has returned.
    """

    __slots__ = ("_began", "_envelope", "_settles", "keep_slot", "on_cancel")

    def __init__(self, envelope: Envelope, settles: Settles, keep_slot: bool = True) -> None:
        self._envelope = envelope
        self._settles = settles
        self.keep_slot: bool = keep_slot
        self.on_cancel: Callable[[Later[T]], object] | None = None
        self._began: float | None = None

    def __repr__(self) -> str:
        return f"<Later {'open' if self.open else 'closed'}: {shown(self.message)}>"

    @property
    def message(self) -> Message:
        """The message."""
        return self._envelope.message

    @property
    def context(self) -> Context:
        """The context variables of the sender, for a task that goes on with the message; empty once that is over.

        So a task that comes too late, because the caller has left, may use it without a check.
        """
        context: Context | None = getattr(self._envelope, "context", None)
        return Context() if context is None else context

    @property
    def open(self) -> bool:
        """True until the message is answered or put back, its caller has left, or the incarnation ends."""
        envelope = self._envelope
        return envelope.later is self and not envelope.caller_left

    def reply(self, value: T) -> bool:
        """Answer with a value, and free the slot. Return False if no caller gets the answer.

        Raises:
            RuntimeError: the caller is in another thread, an asyncio program, or another Trio run.
        """
        return self._settles.reply(self, value)

    def fail(self, exc: BaseException) -> bool:
        """Answer with an exception, as if a handler raised it, and free the slot. Return False if no caller gets it.

        Each caller needs an exception object of its own. `NotSent` returns the message to its old place in the mailbox,
        and the actor takes no more messages until it calls `Actor.take_again`, or its next incarnation starts.

        Raises:
            RuntimeError: as for `reply`.
        """
        return self._settles.fail(self, exc)
