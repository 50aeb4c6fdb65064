"""Answers that an actor gives later, outside a handler.

A `Later` may be used too late, twice or never; ``_serving`` decides what happens then.

Owns: queues of `Later` objects.
Writes: answers to messages.
Calls: nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from .._foreign import shown
from .._misuse import explained_names
from .._pickling import Handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._envelope import Envelope, Message

T = TypeVar("T")


class Settles(Protocol):
    """The methods of `Requests` that a `Later` calls."""

    def reply(self, later: Later[T], value: T) -> bool:
        """Answer with a value."""

    def fail(self, later: Later[T], exc: BaseException) -> bool:
        """Act on an exception, as if a handler raised it."""


@explained_names
class Later(Handle, Generic[T]):
    """The answer to a message, given later by any task or handler of the actor.

    `Actor.defer` makes a `Later` in a handler. `Actor.take` gets a `Later` before a handler would run. Until the first
    `reply` or `fail`, the message counts as in flight and keeps the slot. If the incarnation ends first, the caller
    gets the same error as for an interrupted handler.

    Attributes:
        message: the message.
        on_cancel: called once, with this object, if the caller leaves, the deadline expires, or the incarnation ends.
            The owner task calls the function, in the sender's context variables, before ``running()`` is left. None,
            the default, frees the slot. A function leaves the slot taken until `reply` or `fail`, whose answer is
            dropped, or until the incarnation ends. An exception of the function is a crash.
        keep_slot: False if the slot is free as soon as the handler has returned.
    """

    __slots__ = ("__weakref__", "_began", "_envelope", "_settles", "keep_slot", "message", "on_cancel")

    def __init__(self, envelope: Envelope, settles: Settles, keep_slot: bool = True) -> None:
        self._envelope = envelope
        self._settles = settles
        self.message: Message = envelope.message
        self.keep_slot: bool = keep_slot
        self.on_cancel: Callable[[Later[T]], object] | None = None
        self._began: float | None = None

    def __repr__(self) -> str:
        return f"<Later {'open' if self.open else 'closed'}: {shown(self.message)}>"

    @property
    def context(self) -> Context:
        """The sender's context variables, for a task that goes on with the message; empty once the message is over."""
        context: Context | None = getattr(self._envelope, "context", None)
        return Context() if context is None else context

    @property
    def open(self) -> bool:
        """True until the message is answered or put back, the caller has left, or the incarnation ends."""
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

        Each caller needs a new exception object. `NotSent` returns the message to its old place in the mailbox, and the
        actor takes no more messages until `Actor.take_again`, or the start of the next incarnation.

        Raises:
            RuntimeError: as for `reply`.
        """
        return self._settles.fail(self, exc)


class LaterQueue(Generic[T]):
    """Answers still to give, oldest first. An answer whose caller has left is removed automatically.

    ::

        @handles(Next)
        def next(self, message: Next) -> str | Later[str]:
            if self._jobs:
                return self._jobs.popleft()
            return self._waiting.add(self.defer(message, keep_slot=False))

        @handles(Put)
        def put(self, message: Put) -> None:
            if not self._waiting.reply(message.job):
                self._jobs.append(message.job)
    """

    __slots__ = ("_laters",)

    def __init__(self) -> None:
        self._laters: OrderedDict[Later[T], Callable[[Later[T]], object] | None] = OrderedDict()

    def __repr__(self) -> str:
        return f"<LaterQueue {len(self)} waiting>"

    def __len__(self) -> int:
        return len(self._laters)

    def __iter__(self) -> Iterator[Later[T]]:
        return iter(tuple(self._laters))

    def add(self, later: Later[T]) -> Later[T]:
        """Add an answer at the end, and return it. An ``on_cancel`` of the answer is called when the caller leaves.

        A handler must return the answer without an ``await`` after `add`.
        """
        self._laters[later] = later.on_cancel
        later.on_cancel = self._drop
        return later

    def popleft(self) -> Later[T] | None:
        """Remove and return the answer that has waited longest; None if none waits."""
        while self._laters:
            later, on_cancel = self._laters.popitem(last=False)
            later.on_cancel = on_cancel
            if later.open:
                return later
        return None

    def reply(self, value: T) -> bool:
        """Answer the caller that has waited longest. Return False if none waits."""
        while (later := self.popleft()) is not None:
            if later.reply(value):
                return True
        return False

    def _drop(self, later: Later[T]) -> None:
        on_cancel = self._laters.pop(later, None)
        if on_cancel is not None:
            on_cancel(later)
        else:
            later.reply(cast("T", None))  # frees the slot; no caller gets the answer
