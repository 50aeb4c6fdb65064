"""A message on its way, and the reply slot of its sender."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from .._circles import Node, places
from ._reply import Reply, error

if TYPE_CHECKING:
    import contextvars

    from ..._errors import MailboxFull
    from .._circles import Awaited, Sender
    from ._messages import Message


class Envelope(Reply[Any]):
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
        prune_at: the number of calls at which the answered ones are dropped.
    """

    __slots__ = ("calls", "context", "holder", "home", "is_call", "later", "message", "number", "prune_at", "scope")

    needs_all: Final = False

    message: Message
    is_call: bool
    holder: Holder
    home: Home
    number: int
    context: contextvars.Context
    prune_at: int

    def __init__(self, message: Message, *, is_call: bool) -> None:
        # Every request creates one, so only the attributes that are read before they are set elsewhere are set here.
        self.open = True
        self._waiter = None
        self.message = message
        self.is_call = is_call
        self.scope: object | None = None
        self.later: object | None = None
        self.calls: list[Awaited] | None = None

    @property
    def handed_over(self) -> bool:
        """True while the actor handles it."""
        return self.scope is not None

    @property
    def withdrawn(self) -> bool:
        """True if it is not to be handled, because its caller has left. The sender of a ``tell`` never does."""
        return self.is_call and not self.open

    @property
    def busy(self) -> bool:
        """True while it has a handler, for which others may wait."""
        return self.scope is not None

    @property
    def label(self) -> str:
        """The name of the actor that handles it, and the message."""
        return f"{self.holder.name!r} (handling {type(self.message).__name__})"

    outer_deadline: Final = math.inf  # the slots are inside the shield of their incarnation

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
        if not self.settle(error(exc)):
            return False
        self.holder.forget(self)
        return True


class Holder(Node, Protocol):
    """The mailbox or incarnation that has an envelope."""

    @property
    def name(self) -> str:
        """The name of its actor."""

    def forget(self, envelope: Envelope) -> None:
        """Drop an envelope whose sender has left. It is called from an ``abort_fn``; see `Reply.abandoned`."""


class Home(Holder, Protocol):
    """The mailbox that an envelope was sent to."""

    def put_back(self, envelope: Envelope) -> bool:
        """Return an envelope whose handling has not begun to its old place; return False if it was refused instead."""

    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing."""

    def full(self) -> MailboxFull:
        """Return the error of a sender that finds the mailbox full and may not wait."""
