"""Messages, reply slots, envelopes and mailboxes.

`Message` and `Call` are the bases of what users send; `Receives` and `CallFor` are for type checkers. An `Envelope` is
a message on its way. It is a `Reply` too: a slot whose answer wakes the task that waits, or calls a function of the
sender. A `Mailbox` queues envelopes in three lanes, also between two incarnations, and `check_mailbox` checks its
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
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Protocol

import outcome
import trio
from attrs import define, field

from .._errors import ActorError, MailboxFull
from .._foreign import Log, shown
from .._misuse import check_option, is_whole
from ._circles import Node, Sender, places

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from typing_extensions import TypeVar

    from ._circles import Calls
else:
    from typing import TypeVar


# --- Reply slots ------------------------------------------------------------------------------------------------------


T = TypeVar("T")

_log: Final = Log("mcp_actors.kernel")


@define(eq=False, repr=False)
class Reply(Generic[T]):
    """A slot that any task may settle, at most once, and exactly one task awaits.

    A `trio.Event` and a field would do the same. Waking the waiting task directly with its result saves an object and a
    hop, and gives a cancelled waiter a hook (`abandoned`) that runs before it leaves.

    Attributes:
        open: True until there is an answer or the waiting task has left.
    """

    open: bool = field(default=True, init=False)
    _waiter: trio.lowlevel.Task | Callable[[Any], object] | None = field(default=None, init=False)
    _answer: outcome.Value[T] | outcome.Error = field(init=False)

    @property
    def awaited(self) -> bool:
        """True once a task waits, or has waited, for the answer, or `on_answer` was called."""
        return self._waiter is not None

    def settle(self, answer: outcome.Value[T] | outcome.Error) -> bool:
        """Give the answer. Return False, and do nothing, if there is one already or the waiter has left."""
        if not self.open:
            return False
        self.open = False
        waiter = self._waiter
        if waiter is None:
            self._answer = answer
        elif type(waiter) is trio.lowlevel.Task:  # `isinstance` asks an abstract class, for each function
            trio.lowlevel.reschedule(waiter, answer)
        else:
            _call(waiter, answer)
        return True

    def on_answer(self, fn: Callable[[outcome.Value[T] | outcome.Error], object]) -> None:
        """Call a function with the answer, in the step in which it is given, instead of waiting for it.

        The function must not raise: what it raises is only logged. It is called at once if there is an answer.

        Raises:
            RuntimeError: a task waits, or has waited, for the answer already.
        """
        if self._waiter is not None:
            raise _awaited_already()
        if self.open:
            self._waiter = fn
        else:
            _call(fn, self._taken())

    @trio.lowlevel.enable_ki_protection  # half of it would leave a handler running for a caller that has left
    def withdraw(self) -> None:
        """Leave without the answer; the slot accepts none from now on."""
        if self.open:
            self.open = False
            self.abandoned()

    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> T:
        """Wait for the answer.

        **Cancellation**: the waiter leaves at once, and the slot accepts no answer from then on.

        Raises:
            RuntimeError: a task waits, or has waited, for the answer already.
        """
        if self._waiter is not None:
            raise _awaited_already()
        if not self.open:
            answer = self._taken()
            await trio.lowlevel.cancel_shielded_checkpoint()
            try:
                return answer.unwrap()
            finally:
                del answer  # whose exception has this frame in its traceback
        self._waiter = trio.lowlevel.current_task()
        result: T = await trio.lowlevel.wait_task_rescheduled(self._abort)
        return result

    def _taken(self) -> outcome.Value[T] | outcome.Error:
        """Return the answer that was given before a task has waited for it."""
        self._waiter = _nothing  # it is given once
        answer: outcome.Value[T] | outcome.Error | None = getattr(self, "_answer", None)
        if answer is None:
            raise RuntimeError("this request was withdrawn and has no answer; send it again")
        del self._answer
        return answer

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self.withdraw()
        return trio.lowlevel.Abort.SUCCEEDED

    def abandoned(self) -> None:
        """React to the waiter having left. A hook for subclasses.

        It runs inside the canceller's own step, so it may only leave a mark and wake a task. Cancelling another scope
        from here would recurse through chains of waiting actors.
        """


def _nothing(_: object) -> None:
    """Do nothing: the answer was taken."""


def _awaited_already() -> RuntimeError:
    return RuntimeError("this answer is awaited already, and only one task gets it; send a request for each task")


def _call(fn: Callable[[Any], object], answer: object) -> None:
    """Call a function of a user in the step of an actor that answers, which must be completed."""
    try:
        fn(answer)
    except BaseException:
        with suppress(BaseException):  # there is no tree here that an exit out of a log handler could leave
            _log.exception("the function %s that on_answer() got raised; the actor is not affected", shown(fn))


# --- Envelopes, and their holders -------------------------------------------------------------------------------------


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


# --- Base classes of messages, typed by their answers and their receivers ---------------------------------------------

# Nothing here does anything at run time. For type checkers, a reference is an `ActorRef[Add | Get]`: it receives these
# messages, so one that receives more is accepted in its place (it is contravariant). A `Call` says what it answers to
# whom: ``Add`` gives an ``int`` to whatever receives ``Add``. So for ``ref.call(message)`` one protocol says if the
# message may be sent there, and what the answer is.


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


# --- The mailbox: a queue of messages that survives restarts of its actor ---------------------------------------------

# Theory of operation
# -------------------
# Three lanes, each in the order of arrival:
#
# - *control*: unbounded; overtakes the others, and needs no in-flight slot;
# - *queue*: at most ``size`` envelopes, which incarnations take;
# - *entrance*: envelopes for which the queue had no room. They move up as it empties. A ``call`` waits here exactly as
#   it waits in the queue, because its caller waits for the answer anyway; a ``tell`` waits until it moves up.
#
# The mailbox has no task of its own. Each change (a sender, a finished request, a starting incarnation) moves all
# envelopes that can move, in one synchronous step. So an envelope goes from the sender's step straight into a request
# task of the actor whenever a slot is free. A Ctrl-C waits for the end of such a step, so that it cannot lose an
# envelope between two lanes.


OverflowPolicy = Literal["wait", "fail"]

Accepts = Callable[[str, type[Message]], object]
"""Raises a `TypeError`, with the name of the actor, for a class of messages that the actor does not handle."""

MAILBOX_SIZE: Final = 256
"""Default number of queued envelopes: a burst of that many costs well under a megabyte and a few milliseconds."""


class Taker(Protocol):
    """An incarnation, or the members of a pool, as a mailbox sees it."""

    @property
    def name(self) -> str:
        """The name of its actor."""

    @property
    def free(self) -> int:
        """The number of free in-flight slots; for a pool, of the member that has the most."""

    def take(self, envelope: Envelope, *, here: bool = False) -> None:
        """Become its holder and begin to serve it in the context that it was sent in; or put it back.

        Called if a slot is free, or for a control message. ``here`` means that its context is the running one.
        """

    def works(self, sender: Sender) -> bool:
        """Return True if a handler with a slot, other than the sender, has made no calls."""

    def slots(self) -> Sequence[Node]:
        """Return the handlers with the in-flight slots; empty if a slot is free or its envelope not handed over."""


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
    """

    name: str
    size: int = field(default=MAILBOX_SIZE, kw_only=True)
    policy: OverflowPolicy = field(default="wait", kw_only=True)
    taker: Taker | None = field(default=None, init=False)
    life: Sender | None = field(default=None, init=False)
    accepts: Accepts | None = field(default=None, init=False)
    route: Callable[[Message], Mailbox] | None = field(default=None, init=False)
    on_wait: Callable[[], None] | None = field(default=None, init=False)
    # Each with the Trio time since which it waits. An envelope that finds a free slot needs no look at the clock.
    _control: dict[Envelope, float] = field(factory=dict, init=False)
    _queue: OrderedDict[Envelope, float] = field(factory=OrderedDict, init=False)
    _entrance: OrderedDict[Envelope, float] = field(factory=OrderedDict, init=False)
    _owner: Taker | None = field(default=None, init=False)
    _in_order: bool = field(default=True, init=False)
    _last_number: int = field(default=0, init=False)
    _refusal: Callable[[], ActorError] | None = field(default=None, init=False)

    needs_all = True

    @property
    def queued(self) -> int:
        """The number of envelopes in all lanes."""
        return len(self._control) + len(self._queue) + len(self._entrance)

    @property
    def queued_since(self) -> float | None:
        """The Trio time since which the longest waiting envelope waits; None if none does."""
        # An envelope in the entrance came later than the whole queue.
        return min(chain(self._control.values(), self._queue.values()), default=None)

    @property
    def label(self) -> str:
        """The name of a pool, where a call waits for any member; empty for all others."""
        is_pool = self.taker is not None and self.taker is not self._owner
        return f"{self.name!r} (no member is free)" if is_pool else ""

    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing: a cheap first check."""
        return self.taker is not None and self.taker.works(sender)

    def blockers(self) -> Sequence[Node]:
        """Return the nodes that its envelopes wait for: slots, or an incarnation that starts or has to end first."""
        if self.taker is not None:
            return self.taker.slots()
        return [] if self.life is None else [self.life]

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
            if self._owner is not None:
                self._owner.take(envelope, here=True)
            else:
                envelope.holder = self
                self._control[envelope] = trio.current_time()
            return True
        taker = self.taker
        if taker is not None and taker.free > 0 and not self._queue:
            taker.take(envelope, here=True)
            if self._queue:  # the actor has refused it, or has sent messages while it took this one
                self.feed()
            return True
        if len(self._queue) >= self.size and not (self.policy == "wait" if wait is None else wait):
            raise self.full()
        if self.on_wait is not None:
            self.on_wait()
        return self._append(envelope)

    def _append(self, envelope: Envelope) -> bool:
        """Append an envelope to the queue, or to the entrance if the queue is full. Return True for the queue."""
        full = len(self._queue) >= self.size
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
        self._owner = taker
        self.taker = self.taker or taker
        self._restore_order()
        waiting, self._control = self._control, {}
        for envelope in waiting:
            taker.take(envelope)
        self.feed()

    def detach(self) -> None:
        """Give the incarnation, whose end was decided, no more envelopes."""
        if self.taker is self._owner:
            self.taker = None
        self._owner = None

    @trio.lowlevel.enable_ki_protection
    def feed(self) -> None:
        """Fill the free slots from the queue."""
        while self._queue and self.taker is not None and self.taker.free > 0:
            if not self._in_order:
                self._restore_order()
            envelope, _ = self._queue.popitem(last=False)
            self._move_up()
            self.taker.take(envelope)

    @trio.lowlevel.enable_ki_protection
    def put_back(self, envelope: Envelope) -> bool:
        """Return an envelope whose handling has not begun to its old place in the order of arrival.

        Return False if it was refused instead, because the mailbox is closed.
        """
        envelope.holder = self
        if self._refusal is not None:
            envelope.settle(outcome.Error(self._refusal()))
            return False
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
        return True

    def _restore_order(self) -> None:
        """Sort the envelopes by the order of their arrival, if some have returned in another order."""
        # A sort for each incarnation would make a crash loop take a time that grows with the square of the queue.
        if self._in_order:
            return
        self._in_order = True
        for lane in (self._control, self._queue):
            in_order = sorted(lane.items(), key=_arrival)
            lane.clear()
            lane.update(in_order)

    def adopt(self, envelope: Envelope) -> None:
        """Append an envelope that has waited elsewhere; no incarnation serves yet."""
        envelope.home = self
        self._last_number = envelope.number = self._last_number + 1
        if self._append(envelope) and not envelope.is_call:
            envelope.settle(outcome.Value(None))

    # --- the end ----------------------------------------------------------------------------------------------------

    def drain(self) -> list[Envelope]:
        """Empty the queue and the entrance, and return their envelopes in order."""
        self._restore_order()
        drained = [*self._queue, *self._entrance]
        self._queue.clear()
        self._entrance.clear()
        return drained

    @trio.lowlevel.enable_ki_protection
    def close(self, refusal: Callable[[], ActorError]) -> list[Envelope]:
        """Drain, answer every envelope, and close, in one synchronous step. Later senders get the same refusal.

        Return the dropped envelopes without a waiting sender. ``refusal`` returns a new exception for each sender.
        """
        self._refusal = refusal
        drained = [*self._control, *self.drain()]
        self._control.clear()
        return [
            envelope for envelope in drained if not (envelope.settle(outcome.Error(refusal())) and envelope.awaited)
        ]

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
    check_option(owner, "overflow", policy, "'wait' or 'fail'", valid=policy in ("wait", "fail"))


def _arrival(queued: tuple[Envelope, float]) -> int:
    return queued[0].number
