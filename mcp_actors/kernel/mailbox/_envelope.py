"""A message on its way, and the reply slot of its sender."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import outcome
import trio
from attrs import define

from .._circles import Node, Sender, places
from ._reply import Reply

if TYPE_CHECKING:
    import contextvars

    from ..._errors import MailboxFull
    from .._circles import Calls
    from ._messages import Message


@define(eq=False, repr=False, init=False)
class Envelope(Reply[Any], Sender):
    """A message on its way, and the reply slot of its sender.

    For a ``call`` the slot is settled with the answer; for a ``tell`` in the entrance, by moving up to the queue.

    Attributes:
        message: the message.
        is_call: True for a ``call``, False for a ``tell``.
        holder: the mailbox, or the incarnation that has taken it.
        home: the mailbox that it was sent to, and returns to if its handling has not begun.
        number: its position in the order of arrival.
        context: the sender's `contextvars` context when it sent the message.
        scope: the cancel scope around its handler, once there is one; its `later` if no handler runs for it.
        later: the `Later` that settles it; None if its handler does.
        calls: the calls that its handler has made; see ``_circles``.
    """

    message: Message
    is_call: bool
    scope: object | None
    later: object | None
    calls: Calls | None
    holder: Holder
    home: Home
    number: int
    context: contextvars.Context

    def __init__(self, message: Message, *, is_call: bool) -> None:
        # Every request creates one, so only the attributes that are read before they are set elsewhere are set here.
        self.open = True
        self._waiter = None
        self.message = message
        self.is_call = is_call
        self.scope = self.later = self.calls = None

    @property
    def handed_over(self) -> bool:
        """True while the actor handles it."""
        return self.scope is not None

    busy = handed_over

    @property
    def actor(self) -> str:
        """The name of the actor that has it, or has handled it: of a pool, the member that has taken it."""
        return self.holder.name

    @property
    def caller_left(self) -> bool:
        """True if its caller has left, or has an answer. The sender of a ``tell`` never leaves."""
        return self.is_call and not self.open

    withdrawn = caller_left
    """True if it is not to be handled, because its caller has left."""

    @property
    def interrupted(self) -> bool:
        """True if it needs no handler any more, because the incarnation that has it ends."""
        return self.caller_left and self.holder.ending

    @property
    def label(self) -> str:
        """The name of the actor that handles it, and the message."""
        return f"{self.holder.name!r} (handling {type(self.message).__name__})"

    def is_run_by(self, task: trio.lowlevel.Task) -> bool:
        """Return True for the task of its handler."""
        slot = task.parent_nursery
        return slot is not None and slot.cancel_scope is self.scope

    def blockers(self) -> list[Node]:
        """Return the nodes that its handler waits for."""
        return places(self.calls)

    def place(self) -> Node:
        """Return itself while it is handled, else its holder."""
        return self if self.handed_over else self.holder

    def abandoned(self) -> None:
        """Tell the holder that the sender has left."""
        self.holder.forget(self)

    @trio.lowlevel.enable_ki_protection
    def expire(self, exc: BaseException) -> bool:
        """Answer in the actor's place; see `PendingCall`."""
        if not self.settle(outcome.Error(exc)):
            return False
        self.holder.forget(self)
        return True


class Holder(Node, ABC):
    """The mailbox or incarnation that has an envelope."""

    __slots__ = ()

    @property
    def ending(self) -> bool:
        """True once it serves no messages any more, and has answered those that it had."""
        return False

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of its actor."""

    @abstractmethod
    def forget(self, envelope: Envelope) -> None:
        """Drop an envelope whose sender has left. It is called from an ``abort_fn``; see `Reply.abandoned`."""


class Home(Holder):
    """The mailbox that an envelope was sent to."""

    __slots__ = ()

    @abstractmethod
    def put_back(self, envelope: Envelope) -> bool:
        """Return an envelope whose handling has not begun to its old place; return False if it was refused instead."""

    @abstractmethod
    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing."""

    @abstractmethod
    def full(self) -> MailboxFull:
        """Return the error of a sender that finds the mailbox full and may not wait."""
