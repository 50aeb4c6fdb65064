"""The mailbox: where messages wait, across restarts, until an incarnation of their actor takes them.

Theory of operation
-------------------
Three lanes, each in the order of arrival:

- *control*: unbounded; overtakes, and needs no in-flight slot;
- *queue*: at most ``size`` envelopes; what incarnations take from;
- *entrance*: envelopes for which the queue had no room. They move up as it empties. A ``call`` waits here exactly as
  it waits in the queue, since its caller waits for the answer anyway; a ``tell`` waits for being let in.

Nothing here waits, and there is no task that carries envelopes about: whoever changes something (a sender, a finished
request, a starting incarnation) moves on, in one synchronous step, what that change allows. So an envelope goes from
the sender's step straight into a request task of the actor whenever a slot is free. A Ctrl-C waits for the end of such
a step, so that it cannot lose an envelope between two lanes.
"""

from __future__ import annotations

import contextvars
import math
from collections import OrderedDict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import trio

from ..._checks import is_whole
from ..._errors import ActorError, MailboxFull
from .._circles import Node, places
from ._messages import Message
from ._reply import Reply, error, value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._circles import Awaited, Sender

OverflowPolicy = Literal["wait", "fail"]

MAILBOX_SIZE: Final = 256
"""Default number of queued envelopes: a burst of that many costs well under a megabyte and a few milliseconds."""


class Envelope(Reply[Any]):
    """A message on its way, which is its sender's reply slot too.

    For a ``call`` the slot is settled with the answer, for a ``tell`` that waits in the entrance by being let in.

    Attributes:
        message: what is sent.
        is_call: True for a ``call``, whose sender wants an answer; False for a ``tell``.
        holder: who has it now: the mailbox, or the incarnation that has taken it.
        number: its place in the order of arrival.
        context: the sender's `contextvars` context when it sent the message.
        scope: the cancel scope around its handler, once there is one.
        calls: what its handler has sent and may wait for; see ``_circles``.
        prune_at: how many of them there may be before those that are answered are forgotten.
    """

    __slots__ = ("calls", "context", "holder", "is_call", "message", "number", "prune_at", "scope")

    needs_all: Final = False

    message: Message
    is_call: bool
    holder: Holder
    number: int
    context: contextvars.Context
    prune_at: int

    def __init__(self, message: Message, *, is_call: bool) -> None:
        # Every request makes one of these, so it sets only what is read before somebody else has set it.
        self.open = True
        self._waiter = None
        self.message = message
        self.is_call = is_call
        self.scope: trio.CancelScope | None = None
        self.calls: list[Awaited] | None = None

    @property
    def handed_over(self) -> bool:
        """True while the actor handles it."""
        return self.scope is not None

    @property
    def busy(self) -> bool:
        """True while it has a handler, for which somebody may wait."""
        return self.scope is not None

    @property
    def label(self) -> str:
        """Who handles it."""
        return f"{cast('Taker', self.holder).name!r} (handling {type(self.message).__name__})"

    outer_deadline: Final = math.inf  # the slots are inside the shield of their incarnation

    def is_run_by(self, task: trio.lowlevel.Task) -> bool:
        """Return True for the task of its handler."""
        slot = task.parent_nursery
        return slot is not None and slot.cancel_scope is self.scope

    def blockers(self) -> list[Node]:
        """What its handler waits for."""
        return places(self.calls)

    def place(self) -> Node:
        """Itself while it is handled, else who has it."""
        return self if self.handed_over else self.holder

    def abandoned(self) -> None:
        """The sender has left."""
        self.holder.forget(self)

    @trio.lowlevel.enable_ki_protection
    def expire(self, exc: BaseException) -> bool:
        """Answer in the actor's place; see `PendingCall`."""
        if not self.settle(error(exc)):
            return False
        self.holder.forget(self)
        return True


class Holder(Node, Protocol):
    """Whoever has an envelope."""

    def forget(self, envelope: Envelope) -> None:
        """Nobody waits for it any more. Called from an ``abort_fn``: mark that, wake somebody, nothing more."""


class Taker(Holder, Protocol):
    """What a mailbox knows about an incarnation that takes from it."""

    free: int
    """In-flight slots that are free."""

    @property
    def name(self) -> str:
        """The name of its actor."""

    def take(self, envelope: Envelope) -> None:
        """Become its holder and start a request task for it, in the context that it was sent in."""

    def works(self, sender: Sender) -> bool:
        """Whether a handler that has a slot, other than the sender, has called nobody."""

    def slots(self) -> Sequence[Node]:
        """Who has the in-flight slots; empty if one is free, or its envelope is not handed over yet."""


class Mailbox:
    """Lanes of envelopes, and the incarnations that take from them. See the top of the file."""

    __slots__ = (
        "_control",
        "_entrance",
        "_last_number",
        "_queue",
        "_refusal",
        "_takers",
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
        self._control: OrderedDict[Envelope, None] = OrderedDict()
        self._queue: OrderedDict[Envelope, None] = OrderedDict()
        self._entrance: OrderedDict[Envelope, None] = OrderedDict()
        self._takers: tuple[Taker, ...] = ()
        self._last_number = 0
        self._refusal: Callable[[], ActorError] | None = None
        self.life: Node | None = None

    @property
    def queued(self) -> int:
        """How many envelopes wait, in all lanes."""
        return len(self._control) + len(self._queue) + len(self._entrance)

    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing: a cheap first check."""
        return any(taker.works(sender) for taker in self._takers)

    def blockers(self) -> Sequence[Node]:
        """Return the nodes that its envelopes wait for: slots, or an incarnation that starts or has to end first."""
        if not self._takers:
            return [] if self.life is None else [self.life]
        slots = [taker.slots() for taker in self._takers]
        return list(chain(*slots)) if all(slots) else []

    # --- senders ----------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def put(self, envelope: Envelope, *, wait: bool = True) -> bool:
        """Hand an envelope in: to an incarnation with a free slot, else to a lane.

        Args:
            envelope: a fresh one.
            wait: False refuses an envelope that finds the queue full, whatever the policy.

        Returns:
            True if it was accepted, False if it waits in the entrance.

        Raises:
            ActorStopped: the mailbox is closed.
            MailboxFull: the queue is full and nobody may wait.
            TypeError: this is no message.
        """
        self.check_open()
        if not isinstance(envelope.message, Message):
            raise TypeError(_no_message(self.name, envelope.message))
        self._last_number = envelope.number = self._last_number + 1
        envelope.context = contextvars.copy_context()
        if envelope.message.control:
            self._put_control(envelope)
            return True
        if not self._queue:
            for taker in self._takers:
                if taker.free > 0:
                    taker.take(envelope)
                    return True
        full = len(self._queue) >= self.size
        if full and (self.policy == "fail" or not wait):
            raise self.full()
        envelope.holder = self
        (self._entrance if full else self._queue)[envelope] = None
        return not full

    def full(self) -> MailboxFull:
        """Return the error of a sender that finds no room and may not wait."""
        return MailboxFull(
            f"actor {self.name!r}: its mailbox holds {len(self._queue)} messages, which is its limit; "
            "send less at a time, raise mailbox_size, or use overflow='wait'",
            actor=self.name,
        )

    def _put_control(self, envelope: Envelope) -> None:
        if self._takers:
            self._takers[0].take(envelope)
        else:
            envelope.holder = self
            self._control[envelope] = None

    @trio.lowlevel.enable_ki_protection
    def forget(self, envelope: Envelope) -> None:
        """Nobody waits any more for an envelope that waits here: it will not be served."""
        for lane in (self._control, self._queue, self._entrance):
            lane.pop(envelope, None)
        self._move_up()

    # --- incarnations -----------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def attach(self, taker: Taker) -> None:
        """An incarnation begins to serve: it gets what waits."""
        self._takers = (*self._takers, taker)
        while self._control:
            envelope, _ = self._control.popitem(last=False)
            _take_in_context(taker, envelope)
        self.feed(taker)

    def detach(self, taker: Taker) -> None:
        """An incarnation takes nothing any more."""
        self._takers = tuple(other for other in self._takers if other is not taker)

    @trio.lowlevel.enable_ki_protection
    def feed(self, taker: Taker) -> None:
        """Fill the free slots of an attached incarnation from the queue."""
        while taker.free > 0 and self._queue:
            envelope, _ = self._queue.popitem(last=False)
            self._move_up()
            _take_in_context(taker, envelope)

    @trio.lowlevel.enable_ki_protection
    def put_back(self, envelope: Envelope) -> bool:
        """Return an envelope whose handling has not begun to its old place in the order of arrival.

        Returns False if it was refused instead, because the mailbox is closed.
        """
        envelope.holder = self
        if self._refusal is not None:
            envelope.settle(error(self._refusal()))
            return False
        lane = self._control if envelope.message.control else self._queue
        lane[envelope] = None
        in_order = sorted(lane, key=_arrival)
        lane.clear()
        lane.update(dict.fromkeys(in_order))
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def close(self, refusal: Callable[[], ActorError]) -> list[Envelope]:
        """Drain, answer every envelope, close: one synchronous step. Later senders get the same refusal.

        Args:
            refusal: makes a fresh exception for each sender.

        Returns:
            The dropped envelopes for whose answer nobody waited.
        """
        self._refusal = refusal
        drained = [*self._control, *self._queue, *self._entrance]
        for lane in (self._control, self._queue, self._entrance):
            lane.clear()
        return [envelope for envelope in drained if not (envelope.settle(error(refusal())) and envelope.awaited)]

    @property
    def closed(self) -> bool:
        """True while nothing is accepted."""
        return self._refusal is not None

    def check_open(self) -> None:
        """Raise `ActorStopped` if nothing is accepted."""
        if self._refusal is not None:
            raise self._refusal()

    def reopen(self) -> None:
        """Accept messages again."""
        self._refusal = None

    def _move_up(self) -> None:
        while self._entrance and len(self._queue) < self.size:
            envelope, _ = self._entrance.popitem(last=False)
            self._queue[envelope] = None
            if not envelope.is_call:
                envelope.settle(value(None))


def check_mailbox(owner: str, size: object, policy: object) -> None:
    """Refuse a mailbox that cannot work, with a `ValueError` that says whose it is."""
    if not is_whole(size, 1):
        raise ValueError(f"{owner}: mailbox_size must be an int of at least 1, not {size!r}")
    if policy not in ("wait", "fail"):
        raise ValueError(f"{owner}: overflow must be 'wait' or 'fail', not {policy!r}")


def _no_message(name: str, given: object) -> str:
    remedy = "make an object of it" if isinstance(given, type) else "derive its class from Message or Call[...]"
    return f"actor {name!r}: {given!r} is no message; {remedy}"


def _arrival(envelope: Envelope) -> int:
    return envelope.number


def _take_in_context(taker: Taker, envelope: Envelope) -> None:
    envelope.context.run(taker.take, envelope)
