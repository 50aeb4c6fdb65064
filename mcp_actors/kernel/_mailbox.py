"""The mailbox: a queue of messages that survives restarts of its actor.

A `Mailbox` queues envelopes (``_envelope``) in lanes, also between two incarnations, and `check_mailbox` checks its
options.

References and ``_timers`` put envelopes into a mailbox, a pool hands them on to the mailboxes of its members, and an
incarnation returns those that it has not begun. An incarnation or a pool takes them out, and is known here as its
`Taker`. The mailbox calls it in the step of the sender, of the task that frees a slot, or of an incarnation that begins
to serve; it may run a handler there. Closing a mailbox answers all that wait, and refuses later messages until it is
reopened. This file itself starts no task and runs no handler. It calls the functions that others set (`accepts`,
`route`, `on_wait`), reads Trio's clock, copies the context variables of the sender, and logs if a function of the
sender raises. Of the kernel, it imports the detection of deadlocks (``_circles``).
"""

from __future__ import annotations

import contextvars
from collections import OrderedDict
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import outcome
import trio
from attrs import define, field

from .._errors import ActorError, MailboxFull
from .._foreign import shown
from .._misuse import check_option, is_whole
from ._circles import Node
from ._envelope import Envelope, Home, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._circles import Sender


# --- The mailbox: a queue of messages that survives restarts of its actor ---------------------------------------------

# Theory of operation
# -------------------
# Three lanes, each in the order of arrival:
#
# - *control*: overtakes the others, and needs no in-flight slot;
# - *queue*: the envelopes that incarnations take;
# - *postponed*: those that a handler has postponed. They return to the queue, each to its old place, when the actor
#   resumes and when the next incarnation begins to serve.
#
# Each holds at most ``size`` envelopes. Those for which the queue had no room are in its *entrance*, and move up as it
# empties. A ``call`` waits here exactly as it waits in the queue, because its caller waits for the answer anyway; a
# ``tell`` waits until it moves up. If the control lane has more, the sender of a ``tell`` waits until it is taken.
#
# The mailbox has no task of its own. Each change (a sender, a finished request, a starting incarnation) moves all
# envelopes that can move, in one synchronous step. So an envelope goes from the sender's step straight into a request
# task of the actor whenever a slot is free. A Ctrl-C waits for the end of such a step, so that it cannot lose an
# envelope between two lanes.


OverflowPolicy = Literal["wait", "fail", "drop_oldest"]

Accepts = Callable[[str, type[Message]], object]
"""Raises a `TypeError`, with the name of the actor, for a class of messages that the actor does not handle."""


class Taker(Protocol):
    """An incarnation, or the members of a pool, as a mailbox sees it."""

    @property
    def name(self) -> str:
        """The name of its actor."""

    @property
    def free(self) -> int:
        """The number of free in-flight slots; for a pool, of the member that has the most."""

    def take(self, envelope: Envelope) -> None:
        """Become its holder and begin to serve it in the context that it was sent in; or put it back.

        Called if a slot is free, or for a control message.
        """

    def works(self, sender: Sender) -> bool:
        """Return True if a handler with a slot, other than the sender, has made no calls."""

    def slots(self) -> Sequence[Node]:
        """Return the handlers with the in-flight slots; empty if a slot is free or its envelope not handed over."""


class Owner(Taker, Protocol):
    """An incarnation, which takes the control messages too."""

    @property
    def free_control(self) -> float:
        """The number of control messages that it may begin to handle."""

    @property
    def idle(self) -> bool:
        """True if no slot is taken and no control message is handled."""

    def controls(self) -> Sequence[Node]:
        """Return the handlers of control messages, for which those that are queued wait."""


class ControlLane(Node):
    """The control lane of a mailbox, as a node of the wait-for graph."""

    needs_all = True

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def blockers(self) -> Sequence[Node]:
        """Return the handlers of control messages, or an incarnation that starts or has to end first."""
        owner, life = self._mailbox.owner, self._mailbox.life
        return owner.controls() if owner is not None else [] if life is None else [life]


@define(eq=False, repr=False)
class Mailbox(Home):
    """Lanes of envelopes, and the incarnation that takes from them. See the comment above.

    Attributes:
        name: the name of the actor.
        size: the maximum number of envelopes in the queue.
        policy: what becomes of an envelope that finds the queue full.
        taker: takes from the queue: the attached incarnation; for a pool, its members. None: what is queued waits.
        life: the incarnation that starts, runs or ends; None between two incarnations.
        accepts: the check of the class of a message, once the class of the actor is known.
        route: for a pool with a key, returns the mailbox for a message that is sent to this one, or raises an error.
        on_wait: called when a message has to wait, if it is not None.
        on_fed: called after a slot was freed and nothing more can be taken, if it is not None.
        owner: the attached incarnation. It differs from the taker for a pool.
        dropped: how many messages were dropped for newer ones.
    """

    name: str
    size: int = field(default=256, kw_only=True)  # well under a megabyte, and a few milliseconds
    policy: OverflowPolicy = field(default="wait", kw_only=True)
    taker: Taker | None = field(default=None, init=False)
    life: Sender | None = field(default=None, init=False)
    accepts: Accepts | None = field(default=None, init=False)
    route: Callable[[Message], Mailbox] | None = field(default=None, init=False)
    on_wait: Callable[[], None] | None = field(default=None, init=False)
    on_fed: Callable[[], object] | None = field(default=None, init=False)
    owner: Owner | None = field(default=None, init=False)
    dropped: int = field(default=0, init=False)
    # Each with the Trio time since which it waits. An envelope that finds a free slot needs no look at the clock.
    _control: OrderedDict[Envelope, float] = field(factory=OrderedDict, init=False)
    _queue: OrderedDict[Envelope, float] = field(factory=OrderedDict, init=False)
    _entrance: OrderedDict[Envelope, float] = field(factory=OrderedDict, init=False)
    _postponed: dict[Envelope, float] = field(factory=dict, init=False)
    _in_order: bool = field(default=True, init=False)
    _last_number: int = field(default=0, init=False)
    _refusal: Callable[[], ActorError] | None = field(default=None, init=False)
    _serves_rest: bool = field(default=False, init=False)

    ending = False
    needs_all = True

    @property
    def queued(self) -> int:
        """The number of envelopes in all lanes."""
        return len(self._control) + len(self._queue) + len(self._entrance) + len(self._postponed)

    @property
    def queued_since(self) -> float | None:
        """The Trio time since which the longest waiting envelope waits; None if none does."""
        # An envelope in the entrance came later than the whole queue.
        return min(chain(self._control.values(), self._queue.values(), self._postponed.values()), default=None)

    @property
    def backlog(self) -> Mailbox:
        """The mailbox in which messages wait for the slots of the actor."""
        return self

    @property
    def label(self) -> str:
        """The name of a pool, where a call waits for any member; empty for all others."""
        is_pool = self.taker is not None and self.taker is not self.owner
        return f"{self.name!r} (no member is free)" if is_pool else ""

    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing: a cheap first check."""
        return self.taker is not None and self.taker.works(sender)

    def blockers(self) -> Sequence[Node]:
        """Return the nodes that its envelopes wait for: slots, or an incarnation that starts or has to end first."""
        if self.taker is not None:
            return self.taker.slots()
        return [] if self.life is None else [self.life]

    def lane_of(self, envelope: Envelope) -> Node:
        """Return the node at which an envelope waits: itself, or its control lane."""
        return ControlLane(self) if envelope.message.control else self

    # --- senders ----------------------------------------------------------------------------------------------------

    def check(self, message: object) -> None:
        """Raise a `TypeError` if this is not a message, or not one that the actor handles, as far as that is known."""
        if not isinstance(message, Message):
            of_class = isinstance(message, type)
            remedy = "send an instance of it" if of_class else "derive its class from Message or Call[...]"
            raise TypeError(f"actor {self.name!r}: {shown(message)} is not a message; {remedy}")
        if self.accepts is not None:
            self.accepts(self.name, type(message))

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
        if self._refusal is not None:
            raise self._refusal()
        self.check(envelope.message)
        if self.route is not None and not envelope.message.control:
            return self.route(envelope.message).put(envelope, wait=wait)
        envelope.home = self
        self._last_number = envelope.number = self._last_number + 1
        envelope.context = contextvars.copy_context()
        if envelope.message.control:
            return self._put_control(envelope, wait)
        taker = self.taker
        if taker is not None and taker.free > 0 and not self._queue:
            taker.take(envelope)
            if self._queue:  # the actor has refused it, or has sent messages while it took this one
                self.feed()
            return True
        if len(self._queue) >= self.size:
            self._make_room(self._queue, wait)
        if self.on_wait is not None:
            self.on_wait()
        return self._append(envelope)

    def _put_control(self, envelope: Envelope, wait: bool | None) -> bool:
        if self.owner is not None and self.owner.free_control > 0 and not self._control:
            self.owner.take(envelope)
            return True
        if len(self._control) >= self.size:
            self._make_room(self._control, wait)
        envelope.holder = self
        self._control[envelope] = trio.current_time()
        return len(self._control) <= self.size

    def _make_room(self, lane: OrderedDict[Envelope, float], wait: bool | None) -> None:
        """Drop the oldest envelope of a full lane, or let the new one wait, as the policy says; else raise an error."""
        if self.policy == "drop_oldest" and wait is not True:
            self._restore_order()
            # Several, if some have returned to a full lane, or wait in the entrance: those are older than the new one.
            while len(lane) >= self.size:
                # The messages of an incarnation to itself are few, and a `Down` comes only once.
                oldest = next((each for each in lane if each.droppable), None)
                if oldest is None:
                    break
                del lane[oldest]
                self.dropped += 1
                self._move_up()
                text = f"{type(oldest.message).__name__} was dropped for a newer message (overflow='drop_oldest')"
                oldest.settle(outcome.Error(self.full(f"{text}; send fewer messages at a time, or raise mailbox_size")))
            else:
                return
        if self.policy == "fail" if wait is None else not wait:
            remedy = "or use overflow='wait'" if self.policy == "fail" else "or wait for room with tell() or call()"
            what = f"mailbox full ({len(lane)} messages); send fewer messages at a time, raise mailbox_size"
            raise self.full(f"{what}, {remedy}")

    def _append(self, envelope: Envelope) -> bool:
        """Append an envelope to the queue, or to the entrance if the queue is full. Return True for the queue."""
        full = len(self._queue) >= self.size
        envelope.holder = self
        (self._entrance if full else self._queue)[envelope] = trio.current_time()
        return not full

    def full(self, text: str) -> MailboxFull:
        """Return the error of a message for which there is no room."""
        return MailboxFull(f"actor {self.name!r}: {text}", actor=self.name)

    @trio.lowlevel.enable_ki_protection
    def forget(self, envelope: Envelope) -> None:
        """Drop a queued envelope whose sender has left: it is never served."""
        for lane in (self._control, self._queue, self._entrance, self._postponed):
            lane.pop(envelope, None)
        self._move_up()

    # --- incarnations -----------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def attach(self, owner: Owner) -> None:
        """Give the waiting envelopes to an incarnation that begins to serve, and later ones as it has free slots."""
        self.owner = owner
        self.taker = self.taker or owner
        self.resume()

    def detach(self) -> None:
        """Give the incarnation, whose end was decided, no more envelopes."""
        if self.taker is self.owner:
            self.taker = None
        self.owner = None

    @trio.lowlevel.enable_ki_protection
    def feed(self) -> None:
        """Give the incarnation what it may begin to handle."""
        while self._control and self.owner is not None and self.owner.free_control > 0:
            if not self._in_order:
                self._restore_order()
            envelope, _ = self._control.popitem(last=False)
            if not envelope.is_call:
                envelope.settle(outcome.Value(None))  # its sender may wait for room
            self.owner.take(envelope)
        while self._queue and self.taker is not None and self.taker.free > 0:
            if not self._in_order:
                self._restore_order()
            envelope, _ = self._queue.popitem(last=False)
            self._move_up()
            self.taker.take(envelope)
        if self.on_fed is not None:
            self.on_fed()

    def postpone(self, envelope: Envelope) -> MailboxFull | None:
        """Keep an envelope aside until `resume`; return the error if as many as the mailbox holds wait so."""
        if len(self._postponed) >= self.size:
            what = f"{type(envelope.message).__name__} cannot be postponed ({self.size} messages wait so already)"
            return self.full(f"{what}; call self.resume() when the actor can handle them, or raise mailbox_size")
        envelope.holder = self
        self._postponed[envelope] = trio.current_time()
        return None

    @trio.lowlevel.enable_ki_protection
    def resume(self) -> None:
        """Return what was postponed to its old place, and fill the free slots."""
        postponed, self._postponed = self._postponed, {}
        for envelope in postponed:
            self._restore(envelope)  # also if later messages are refused: these are to be handled before the end
        self.feed()

    @trio.lowlevel.enable_ki_protection
    def put_back(self, envelope: Envelope) -> bool:
        """Return an envelope whose handling has not begun to its old place in the order of arrival.

        Return False if it was refused instead, because the mailbox is closed.
        """
        envelope.holder = self
        if self._refusal is not None:
            envelope.settle(outcome.Error(self._refusal()))
            return False
        self._restore(envelope)
        return True

    def _restore(self, envelope: Envelope) -> None:
        if self.on_wait is not None:
            self.on_wait()
        # Usually it is the oldest. Of several that return, any may be the first: they were taken in order, but their
        # tasks ran in any order. Those are sorted when the next one is taken, and not one by one, because the time for
        # that would grow with the square of their number.
        lane = self._control if envelope.message.control else self._queue
        oldest = next(iter(lane), envelope)
        lane[envelope] = trio.current_time()
        if lane is self._queue and self._in_order and envelope.number <= oldest.number:
            self._queue.move_to_end(envelope, last=False)
        else:
            self._in_order = False

    def _restore_order(self) -> None:
        """Sort the envelopes by the order of their arrival, if some have returned in another order."""
        # A sort for each incarnation would make a crash loop take a time that grows with the square of the queue.
        if self._in_order:
            return
        self._in_order = True
        for lane in (self._control, self._queue):
            for envelope in sorted(lane, key=_number):
                lane.move_to_end(envelope)

    def adopt(self, envelope: Envelope) -> None:
        """Append an envelope that has waited elsewhere; no incarnation serves yet."""
        envelope.home = self
        self._last_number = envelope.number = self._last_number + 1
        if self._append(envelope) and not envelope.is_call:
            envelope.settle(outcome.Value(None))

    # --- the end ----------------------------------------------------------------------------------------------------

    def drain(self) -> list[Envelope]:
        """Empty the lanes but that of control messages, and return their envelopes in order."""
        lanes = (self._postponed, self._queue, self._entrance)
        drained = sorted(chain(*lanes), key=_number)
        for lane in lanes:
            lane.clear()
        return drained

    @trio.lowlevel.enable_ki_protection
    def close(self, refusal: Callable[[], ActorError]) -> list[Envelope]:
        """Drain, answer every envelope, and close, in one synchronous step. Later senders get the same refusal.

        Return the dropped envelopes without a waiting sender. ``refusal`` returns a new exception for each sender.
        """
        self._refusal, self._serves_rest = refusal, False
        drained = [*self._control, *self.drain()]
        self._control.clear()
        dropped = [each for each in drained if not (each.settle(outcome.Error(refusal())) and each.awaited)]
        if self.on_fed is not None:
            self.on_fed()  # what others wait to see finished will not be
        return dropped

    def refuse(self, refusal: Callable[[], ActorError]) -> None:
        """Refuse later senders like `close`, and let those that wait be served."""
        self._refusal, self._serves_rest = refusal, True

    @property
    def idle(self) -> bool:
        """True if nothing waits that an incarnation would take, and no slot is taken."""
        waits = self._control or self._queue or self._entrance
        return not waits and (self.owner is None or self.owner.idle)

    @property
    def refuses(self) -> bool:
        """True while messages are refused."""
        return self._refusal is not None

    @property
    def closed(self) -> bool:
        """True while messages are refused and none of those before are to be served."""
        return self._refusal is not None and not self._serves_rest

    def check_open(self) -> None:
        """Raise `ActorStopped` if messages are refused."""
        if self._refusal is not None:
            raise self._refusal()

    def reopen(self) -> None:
        """Accept messages again."""
        self._refusal = None

    def set_limits(self, size: int, policy: OverflowPolicy) -> None:
        """Change the limits for later messages. Queued messages stay, even if there are more than the new size."""
        self.size, self.policy = size, policy
        self._move_up()

    def _move_up(self) -> None:
        while self._entrance and len(self._queue) < self.size:
            envelope, since = self._entrance.popitem(last=False)
            self._queue[envelope] = since
            if not envelope.is_call:
                envelope.settle(outcome.Value(None))


def check_mailbox(owner: str, size: object, policy: object) -> None:
    """Raise a `ValueError` if a mailbox cannot have this size or policy."""
    check_option(owner, "mailbox_size", size, "an int of at least 1", valid=is_whole(size, 1))
    known = get_args(OverflowPolicy)
    check_option(owner, "overflow", policy, f"one of {', '.join(map(repr, known))}", valid=policy in known)


def _number(envelope: Envelope) -> int:
    return envelope.number
