"""The mailbox: a queue of messages that survives restarts of its actor.

Theory of operation
-------------------
Three lanes, each in the order of arrival:

- *control*: unbounded; overtakes the others, and needs no in-flight slot;
- *queue*: at most ``size`` envelopes, which incarnations take;
- *entrance*: envelopes for which the queue had no room. They move up as it empties. A ``call`` waits here exactly as
  it waits in the queue, because its caller waits for the answer anyway; a ``tell`` waits until it moves up.

The mailbox has no task of its own. Each change (a sender, a finished request, a starting incarnation) moves all
envelopes that can move, in one synchronous step. So an envelope goes from the sender's step straight into a request
task of the actor whenever a slot is free. A Ctrl-C waits for the end of such a step, so that it cannot lose an envelope
between two lanes.
"""

from __future__ import annotations

import contextvars
import math
from collections import OrderedDict
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import trio

from ..._checks import is_whole
from ..._errors import ActorError, MailboxFull
from .._circles import Node, places
from ._messages import Message
from ._reply import Reply, error, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._circles import Awaited, Sender

OverflowPolicy = Literal["wait", "fail"]

Accepts = Callable[[str, type[Message]], object]
"""Raises a `TypeError`, with the name of the actor, for a class of messages that the actor does not handle."""

MAILBOX_SIZE: Final = 256
"""Default number of queued envelopes: a burst of that many costs well under a megabyte and a few milliseconds."""


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
    home: Mailbox
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
        return f"{cast('Taker', self.holder).name!r} (handling {type(self.message).__name__})"

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

    def forget(self, envelope: Envelope) -> None:
        """Drop an envelope whose sender has left. It is called from an ``abort_fn``; see `Reply.abandoned`."""


class Taker(Holder, Protocol):
    """An incarnation, as its mailbox sees it."""

    free: int
    """The number of free in-flight slots."""

    @property
    def name(self) -> str:
        """The name of its actor."""

    def take(self, envelope: Envelope, *, here: bool = False) -> None:
        """Become its holder and begin to serve it in the context that it was sent in; or put it back.

        Args:
            envelope: the envelope.
            here: True if that is the running context.
        """

    def works(self, sender: Sender) -> bool:
        """Return True if a handler with a slot, other than the sender, has made no calls."""

    def slots(self) -> Sequence[Node]:
        """Return the handlers with the in-flight slots; empty if a slot is free or its envelope not handed over."""


class Mailbox:
    """Lanes of envelopes, and the incarnation that takes from them. See the top of the file."""

    __slots__ = (
        "_control",
        "_entrance",
        "_last_number",
        "_queue",
        "_refusal",
        "_taker",
        "accepts",
        "life",
        "name",
        "policy",
        "size",
    )

    needs_all: Final = True
    label: Final = ""

    def __init__(self, name: str, *, size: int = MAILBOX_SIZE, policy: OverflowPolicy = "wait") -> None:
        self.name: str = name
        self.size: int = size
        self.policy: OverflowPolicy = policy
        # Each with the Trio time since which it waits. An envelope that finds a free slot needs no look at the clock.
        self._control: OrderedDict[Envelope, float] = OrderedDict()
        self._queue: OrderedDict[Envelope, float] = OrderedDict()
        self._entrance: OrderedDict[Envelope, float] = OrderedDict()
        self._taker: Taker | None = None
        self._last_number = 0
        self._refusal: Callable[[], ActorError] | None = None
        self.life: Sender | None = None
        self.accepts: Accepts | None = None

    @property
    def queued(self) -> int:
        """The number of envelopes in all lanes."""
        return len(self._control) + len(self._queue) + len(self._entrance)

    @property
    def queued_since(self) -> float | None:
        """The Trio time since which the longest waiting envelope waits; None if none does."""
        return min(chain(self._control.values(), self._queue.values(), self._entrance.values()), default=None)

    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing: a cheap first check."""
        return self._taker is not None and self._taker.works(sender)

    def blockers(self) -> Sequence[Node]:
        """Return the nodes that its envelopes wait for: slots, or an incarnation that starts or has to end first."""
        if self._taker is not None:
            return self._taker.slots()
        return [] if self.life is None else [self.life]

    # --- senders ----------------------------------------------------------------------------------------------------

    def check(self, message: object) -> None:
        """Raise a `TypeError` if this is not a message, or not one that the actor handles, as far as that is known."""
        if not isinstance(message, Message):
            raise TypeError(_no_message(self.name, message))
        self.check_class(type(message))

    def check_class(self, kind: type[Message]) -> None:
        """Raise a `TypeError` if the actor does not handle messages of a class, as far as that is known."""
        if self.accepts is not None:
            self.accepts(self.name, kind)

    @trio.lowlevel.enable_ki_protection
    def put(self, envelope: Envelope, *, wait: bool | None = None) -> bool:
        """Give an envelope to an incarnation with a free slot, else put it into a lane.

        Args:
            envelope: a new envelope.
            wait: whether an envelope that finds the queue full waits in the entrance, or is refused. None means that
                the policy decides.

        Returns:
            True if it was accepted, False if it waits in the entrance.

        Raises:
            ActorStopped: the mailbox is closed.
            MailboxFull: the queue is full, and ``wait`` or the policy does not allow waiting.
            TypeError: the message is not a `Message`, or the actor has no handler for it.
        """
        self.check_open()
        self.check(envelope.message)
        envelope.home = self
        self._last_number = envelope.number = self._last_number + 1
        envelope.context = contextvars.copy_context()
        if envelope.message.control:
            self._put_control(envelope)
            return True
        taker = self._taker
        if taker is not None and taker.free > 0 and not self._queue:
            taker.take(envelope, here=True)
            if self._queue:  # the actor has refused it, or has sent messages while it took this one
                self.feed()
            return True
        full = len(self._queue) >= self.size
        if full and not (self.policy == "wait" if wait is None else wait):
            raise self.full()
        envelope.holder = self
        (self._entrance if full else self._queue)[envelope] = trio.current_time()
        return not full

    def full(self) -> MailboxFull:
        """Return the error of a sender that finds the mailbox full and may not wait."""
        return MailboxFull(
            f"actor {self.name!r}: mailbox full ({len(self._queue)} messages); send fewer messages at a time, raise "
            "mailbox_size, or use overflow='wait'",
            actor=self.name,
        )

    def _put_control(self, envelope: Envelope) -> None:
        if self._taker is not None:
            self._taker.take(envelope, here=True)
        else:
            envelope.holder = self
            self._control[envelope] = trio.current_time()

    @trio.lowlevel.enable_ki_protection
    def forget(self, envelope: Envelope) -> None:
        """Drop a queued envelope whose sender has left: it is never served."""
        for lane in (self._control, self._queue, self._entrance):
            lane.pop(envelope, None)
        self._move_up()

    # --- incarnations -----------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def attach(self, taker: Taker) -> None:
        """Give the waiting envelopes to an incarnation that begins to serve, and later ones as it has free slots."""
        self._taker = taker
        while self._control:
            envelope, _ = self._control.popitem(last=False)
            taker.take(envelope)
        self.feed()

    def detach(self) -> None:
        """Give the incarnation, whose end was decided, no more envelopes."""
        self._taker = None

    @trio.lowlevel.enable_ki_protection
    def feed(self) -> None:
        """Fill the free slots from the queue."""
        while self._queue and self._taker is not None and self._taker.free > 0:
            envelope, _ = self._queue.popitem(last=False)
            self._move_up()
            self._taker.take(envelope)

    @trio.lowlevel.enable_ki_protection
    def put_back(self, envelope: Envelope) -> bool:
        """Return an envelope whose handling has not begun to its old place in the order of arrival.

        Return False if it was refused instead, because the mailbox is closed.
        """
        envelope.holder = self
        if self._refusal is not None:
            envelope.settle(error(self._refusal()))
            return False
        # Of several that return, any may be the first: they were taken in order, but their tasks ran in any order.
        lane = self._control if envelope.message.control else self._queue
        lane[envelope] = trio.current_time()
        in_order = sorted(lane.items(), key=_arrival)
        lane.clear()
        lane.update(in_order)
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def close(self, refusal: Callable[[], ActorError]) -> list[Envelope]:
        """Drain, answer every envelope, and close, in one synchronous step. Later senders get the same refusal.

        Args:
            refusal: returns a new exception for each sender.

        Returns:
            The dropped envelopes without a waiting sender.
        """
        self._refusal = refusal
        drained = [*self._control, *self._queue, *self._entrance]
        for lane in (self._control, self._queue, self._entrance):
            lane.clear()
        return [envelope for envelope in drained if not (envelope.settle(error(refusal())) and envelope.awaited)]

    @property
    def closed(self) -> bool:
        """True while messages are refused."""
        return self._refusal is not None

    def check_open(self) -> None:
        """Raise `ActorStopped` if messages are refused."""
        if self._refusal is not None:
            raise self._refusal()

    def reopen(self) -> None:
        """Accept messages again."""
        self._refusal = None

    def _move_up(self) -> None:
        while self._entrance and len(self._queue) < self.size:
            envelope, since = self._entrance.popitem(last=False)
            self._queue[envelope] = since
            if not envelope.is_call:
                envelope.settle(value(None))


def check_mailbox(owner: str, size: object, policy: object) -> None:
    """Raise a `ValueError` if a mailbox cannot have this size or policy."""
    if not is_whole(size, 1):
        raise ValueError(f"{owner}: mailbox_size must be an int of at least 1, not {size!r}")
    if policy not in ("wait", "fail"):
        raise ValueError(f"{owner}: overflow must be 'wait' or 'fail', not {policy!r}")


def _no_message(name: str, given: object) -> str:
    remedy = "send an instance of it" if isinstance(given, type) else "derive its class from Message or Call[...]"
    return f"actor {name!r}: {given!r} is not a message; {remedy}"


def _arrival(queued: tuple[Envelope, float]) -> int:
    return queued[0].number
