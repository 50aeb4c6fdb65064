"""The mailbox: a queue of messages that survives restarts of its actor.

Any task may change a mailbox. If the change makes room, messages that wait for room move in at once; if it frees a slot
of the incarnation, the next message moves on to the incarnation at once. A restart, a Ctrl-C, or a handler that puts a
message back must neither lose nor repeat a message, nor change the order.

Owns: lanes of envelopes; the error of a closed mailbox.
Writes: places of envelopes; replies to senders; handovers to incarnations.
Calls: _circles, _envelope.
"""

from __future__ import annotations

import contextvars
from collections import OrderedDict
from collections.abc import Callable
from itertools import chain
from operator import attrgetter
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


# --- The mailbox ------------------------------------------------------------------------------------------------------

# Theory of operation
# -------------------
# Three lanes, each in the order of arrival, with room for ``size`` envelopes (a returning one always fits):
#
# - *control*: overtakes the others, and needs no in-flight slot;
# - *queue*: the envelopes that incarnations take;
# - *postponed*: set aside by a handler. The envelopes return to their old places at `Actor.resume`, and when the next
#   incarnation begins to serve.
#
# While the queue is full, envelopes wait in the *entrance*. The sender of a ``call`` waits for the answer, as in the
# queue; the sender of a ``tell`` waits until the envelope moves up. The control lane has no entrance. A full control
# lane takes more envelopes, and the sender of a ``tell`` then waits until the envelope is taken.
#
# Each change (a sender, a finished request, a starting incarnation) moves envelopes straight to a handler whenever a
# slot is free. A Ctrl-C waits for the end of the step, or it could lose an envelope between two lanes.


OverflowPolicy = Literal["wait", "fail", "drop_oldest"]

Accepts = Callable[[str, type[Message]], object]
"""Raises a `TypeError`, with the name of the actor, for a class of messages without a handler."""


class Taker(Protocol):
    """An incarnation (`Requests`), or the members of a pool, as a mailbox sees it."""

    @property
    def name(self) -> str:
        """The actor's name."""

    @property
    def free(self) -> int:
        """The free in-flight slots; for a pool, of the member with the most."""

    def take(self, envelope: Envelope) -> None:
        """Begin to serve an envelope, in the sender's context, or put the envelope back.

        Called if a slot is free, or for a control message.
        """

    def makes_progress(self, sender: Sender) -> bool:
        """Return True if a handler with a slot, other than the sender, has made no calls."""

    def holders_if_full(self) -> Sequence[Node]:
        """Return the handlers with slots; empty if a slot is free, or has a message not handed over."""


class Owner(Taker, Protocol):
    """An incarnation, which takes control messages too."""

    @property
    def free_control(self) -> float:
        """The control messages that may begin."""

    @property
    def idle(self) -> bool:
        """True if nothing is being handled."""

    def controls(self) -> Sequence[Node]:
        """Return the handlers of control messages, for which queued control messages wait."""


class ControlLane(Node):
    """The control lane of a mailbox, as a node of the wait-for graph."""

    needs_all = True

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def blockers(self) -> Sequence[Node]:
        owner, life = self._mailbox.owner, self._mailbox.life
        return owner.controls() if owner is not None else [] if life is None else [life]


@define(eq=False, repr=False)
class Mailbox(Home):
    """Lanes of envelopes, and the incarnation that takes from them.

    Attributes:
        size: the maximum number of envelopes per lane.
        policy: what happens to an envelope that finds the queue full.
        taker: takes from the queue: the owner; for a pool, the members. None: the queue waits.
        life: the incarnation that starts, runs or ends; None between incarnations.
        accepts: checks the class of a message; None before the actor's class is known.
        route: for a pool with a key, returns the mailbox for a message, or raises an error.
        on_wait: called when a message has to wait.
        on_fed: called after a slot was freed and nothing more can be taken.
        owner: the attached incarnation.
    """

    name: str
    size: int = field(default=256, kw_only=True)  # well under a megabyte
    policy: OverflowPolicy = field(default="wait", kw_only=True)
    taker: Taker | None = field(default=None, init=False)
    life: Sender | None = field(default=None, init=False)
    accepts: Accepts | None = field(default=None, init=False)
    route: Callable[[Message], Mailbox] | None = field(default=None, init=False)
    on_wait: Callable[[], None] | None = field(default=None, init=False)
    on_fed: Callable[[], object] | None = field(default=None, init=False)
    owner: Owner | None = field(default=None, init=False)
    dropped: int = field(default=0, init=False)
    # Lanes: envelope → the Trio time since which it waits. Only envelopes that wait read the clock.
    _now: Callable[[], float] = field(factory=lambda: trio.lowlevel.current_clock().current_time, init=False)
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
        return len(self._control) + len(self._queue) + len(self._entrance) + len(self._postponed)

    @property
    def queued_since(self) -> float | None:
        """The Trio time since which the longest waiting envelope waits; None without envelopes."""
        # An envelope in the entrance came later than the whole queue.
        return min(chain(self._control.values(), self._queue.values(), self._postponed.values()), default=None)

    @property
    def backlog(self) -> Mailbox:
        """The mailbox where messages wait for the actor's slots."""
        return self

    @property
    def label(self) -> str:
        """The name of a pool, where calls wait for any member; otherwise empty."""
        is_pool = self.taker is not None and self.taker is not self.owner
        return f"{self.name!r} (no member is free)" if is_pool else ""

    def is_worked_off(self, sender: Sender) -> bool:
        return self.taker is not None and self.taker.makes_progress(sender)

    def blockers(self) -> Sequence[Node]:
        """Return the nodes that queued envelopes wait for."""
        if self.taker is not None:
            return self.taker.holders_if_full()
        return [] if self.life is None else [self.life]

    def lane_of(self, envelope: Envelope) -> Node:
        return ControlLane(self) if envelope.message.control else self

    # --- senders ----------------------------------------------------------------------------------------------------

    def check(self, message: object) -> None:
        if not isinstance(message, Message):
            remedy = "derive its class from Message or Call[...]"
            if callable(message):
                is_class = isinstance(message, type)
                remedy = (
                    "send an instance of it"
                    if is_class
                    else "send a message object, and write @handles above its handler"
                )
            raise TypeError(f"actor {self.name!r}: {shown(message)} is not a message; {remedy}")
        if self.accepts is not None:
            self.accepts(self.name, type(message))

    def check_class(self, kind: type[Message]) -> None:
        if self.accepts is not None:
            self.accepts(self.name, kind)

    @trio.lowlevel.enable_ki_protection
    def put(self, envelope: Envelope, *, wait: bool | None = None) -> bool:
        """Give an envelope to an incarnation with a free slot, else put it into a lane.

        ``wait`` decides for a full queue: True waits, False does not, and None follows the policy.

        Returns:
            True if accepted, False if the sender of a ``tell`` has to wait.

        Raises:
            ActorStopped: the mailbox is closed.
            MailboxFull: the queue is full, and ``wait`` or the policy does not allow waiting.
            TypeError: the message is not a `Message`, or the actor has no handler for it.
        """
        if self._refusal is not None:
            raise self._refusal()
        message = envelope.message
        if self.accepts is not None or not isinstance(message, Message):
            self.check(message)
        if self.route is not None and not message.control:
            return self.route(message).put(envelope, wait=wait)
        envelope.home = self
        self._last_number = envelope.number = self._last_number + 1
        envelope.context = contextvars.copy_context()
        if message.control:
            return self._put_control(envelope, wait)
        taker = self.taker
        if taker is not None and taker.free > 0 and not self._queue:
            taker.take(envelope)
            if self._queue:  # refused, or the actor has sent messages meanwhile
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
        self._control[envelope] = self._now()
        return len(self._control) <= self.size

    def _make_room(self, lane: OrderedDict[Envelope, float], wait: bool | None) -> None:
        """Drop the oldest envelope of a full lane, let the new one wait, or raise an error, as the policy says."""
        if self.policy == "drop_oldest" and wait is not True:
            self._restore_order()
            # Drop several if some have returned or wait in the entrance: all are older than the new one.
            while len(lane) >= self.size:
                # Messages of the actor to itself stay: they are few, and a `Down` comes only once.
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
        """Append to the queue, or to the entrance of a full queue. Return True for the queue."""
        full = len(self._queue) >= self.size
        envelope.holder = self
        (self._entrance if full else self._queue)[envelope] = self._now()
        return not full

    def full(self, text: str) -> MailboxFull:
        return MailboxFull(f"actor {self.name!r}: {text}", actor=self.name)

    @trio.lowlevel.enable_ki_protection
    def forget(self, envelope: Envelope) -> None:
        for lane in (self._control, self._queue, self._entrance, self._postponed):
            lane.pop(envelope, None)
        self._move_up()

    # --- incarnations -----------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def attach(self, owner: Owner) -> None:
        """Give envelopes to an incarnation that begins to serve, now and as slots get free."""
        self.owner = owner
        self.taker = self.taker or owner
        self.resume()

    def detach(self) -> None:
        if self.taker is self.owner:
            self.taker = None
        self.owner = None

    @trio.lowlevel.enable_ki_protection
    def feed(self) -> None:
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
        if len(self._postponed) >= self.size:
            what = f"{type(envelope.message).__name__} cannot be postponed ({self.size} messages wait so already)"
            return self.full(f"{what}; call self.resume() when the actor can handle them, or raise mailbox_size")
        envelope.holder = self
        self._postponed[envelope] = self._now()
        return None

    @trio.lowlevel.enable_ki_protection
    def resume(self) -> None:
        postponed, self._postponed = self._postponed, {}
        for envelope in postponed:
            self._restore(envelope)  # also if later messages are refused
        self.feed()

    @trio.lowlevel.enable_ki_protection
    def put_back(self, envelope: Envelope) -> bool:
        envelope.holder = self
        if self._refusal is not None:
            envelope.settle(outcome.Error(self._refusal()))
            return False
        self._restore(envelope)
        return True

    def _restore(self, envelope: Envelope) -> None:
        if self.on_wait is not None:
            self.on_wait()
        # Usually the envelope is the oldest. Several return in the order in which their tasks run, and are sorted
        # together when the next is taken: finding a place for each would take quadratic time.
        lane = self._control if envelope.message.control else self._queue
        oldest = next(iter(lane), envelope)
        lane[envelope] = self._now()
        if lane is self._queue and self._in_order and envelope.number <= oldest.number:
            self._queue.move_to_end(envelope, last=False)
        else:
            self._in_order = False

    def _restore_order(self) -> None:
        """Sort the envelopes by arrival."""
        # Only if needed: a sort per incarnation would make crash loops quadratic.
        if self._in_order:
            return
        self._in_order = True
        for lane in (self._control, self._queue):
            for envelope in sorted(lane, key=attrgetter("number")):
                lane.move_to_end(envelope)

    def adopt(self, envelope: Envelope) -> None:
        """Append an envelope that has waited elsewhere; no incarnation serves yet."""
        envelope.home = self
        self._last_number = envelope.number = self._last_number + 1
        if self._append(envelope) and not envelope.is_call:
            envelope.settle(outcome.Value(None))

    # --- the end ----------------------------------------------------------------------------------------------------

    def drain(self) -> list[Envelope]:
        """Empty all lanes but the control lane, and return the envelopes in order."""
        lanes = (self._postponed, self._queue, self._entrance)
        drained = sorted(chain(*lanes), key=attrgetter("number"))
        for lane in lanes:
            lane.clear()
        return drained

    @trio.lowlevel.enable_ki_protection
    def close(self, refusal: Callable[[], ActorError]) -> list[Envelope]:
        """Answer every envelope and close, in one synchronous step. Later senders get the same refusal.

        Return the dropped envelopes without a waiting sender. ``refusal`` returns a new exception for each sender.
        """
        self._refusal, self._serves_rest = refusal, False
        drained = [*self._control, *self.drain()]
        self._control.clear()
        dropped = [each for each in drained if not (each.settle(outcome.Error(refusal())) and each.awaited)]
        if self.on_fed is not None:
            self.on_fed()  # nothing is left to finish
        return dropped

    def refuse(self, refusal: Callable[[], ActorError]) -> None:
        """Refuse later senders like `close`, but let waiting messages be served."""
        self._refusal, self._serves_rest = refusal, True

    @property
    def idle(self) -> bool:
        """True if nothing waits to be taken, and nothing is being handled."""
        waits = self._control or self._queue or self._entrance
        return not waits and (self.owner is None or self.owner.idle)

    @property
    def refuses(self) -> bool:
        return self._refusal is not None

    @property
    def closed(self) -> bool:
        """True while messages are refused and none are left to be served."""
        return self._refusal is not None and not self._serves_rest

    def check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    def reopen(self) -> None:
        self._refusal = None

    def set_limits(self, size: int, policy: OverflowPolicy) -> None:
        """Change the limits for later messages. Queued messages stay, even above the new size."""
        self.size, self.policy = size, policy
        self._move_up()

    def _move_up(self) -> None:
        while self._entrance and len(self._queue) < self.size:
            envelope, since = self._entrance.popitem(last=False)
            self._queue[envelope] = since
            if not envelope.is_call:
                envelope.settle(outcome.Value(None))


def check_mailbox(owner: str, size: object, policy: object) -> None:
    check_option(owner, "mailbox_size", size, "an int of at least 1", valid=is_whole(size, 1))
    known = get_args(OverflowPolicy)
    check_option(owner, "overflow", policy, f"one of {', '.join(map(repr, known))}", valid=policy in known)
