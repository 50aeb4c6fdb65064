"""Messages, reply slots and envelopes.

A message is sent in an `Envelope`. The envelope is also the reply slot of the sender and a node of the wait-for graph
(``_circles``): one object is cheaper than three. If an answer and the caller's cancellation come in the same step, the
earlier event counts.

Owns: envelopes; reply slots.
Writes: answers to senders; withdrawals to mailboxes and incarnations; the log.
Calls: _circles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol

import outcome
import trio
from attrs import define, field

from .._foreign import Log, shown
from .._pickling import Handle
from ._circles import Node, Sender, labels, places

if TYPE_CHECKING:
    import contextvars
    from typing import Self

    from typing_extensions import TypeVar

    from .._errors import MailboxFull
    from ._circles import AwaitedCalls
else:
    from typing import TypeVar


# --- Reply slots ------------------------------------------------------------------------------------------------------


T = TypeVar("T")

_log: Final = Log("mcp_actors.kernel")


@define(eq=False, repr=False)
class Reply(Handle, Generic[T]):
    """A slot for one answer: any task may settle it, and one task awaits it.

    Unlike a `trio.Event` and a field, a reply wakes the waiting task directly with the result, and a cancelled waiter
    runs a hook (`abandoned`) before leaving.

    Attributes:
        open: True until there is an answer or the waiting task has left.
    """

    open: bool = field(default=True, init=False)
    _waiter: trio.lowlevel.Task | Callable[[Any], object] | None = field(default=None, init=False)
    _answer: outcome.Value[T] | outcome.Error = field(init=False)

    @property
    def awaited(self) -> bool:
        """True once a task has begun to wait for the answer, or `on_answer` was called."""
        return self._waiter is not None

    def settle(self, answer: outcome.Value[T] | outcome.Error) -> bool:
        """Give the answer. Return False, and do nothing, if there is an answer or the waiter has left."""
        if not self.open:
            return False
        self.open = False
        waiter = self._waiter
        if waiter is None:
            self._answer = answer
        elif type(waiter) is trio.lowlevel.Task:  # `isinstance` is slow: the metaclass is ABCMeta
            trio.lowlevel.reschedule(waiter, answer)
        else:
            _call(waiter, answer)
        return True

    def on_answer(self, fn: Callable[[outcome.Value[T] | outcome.Error], object]) -> None:
        """Call a function with the answer in the step that gives it, instead of waiting; at once if there is one.

        Raises:
            RuntimeError: a task waits, or has waited, for the answer already.
        """
        if self._waiter is not None:
            raise _awaited_already()
        if self.open:
            self._waiter = fn
        else:
            _call(fn, self._taken())

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C halfway would leave a handler running without a caller
    def withdraw(self) -> None:
        if self.open:
            self.open = False
            self.abandoned()

    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> T:
        """Wait for the answer.

        **Cancellation**: the waiter leaves at once, and the slot accepts no answer from then on.

        Raises:
            RuntimeError: as for `on_answer`.
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
        self._waiter = _nothing  # only one task gets the answer
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

        Runs inside the canceller's own step, and may only leave a mark and wake a task. Cancelling another scope from
        here would recurse through chains of waiting actors.
        """


def _nothing(_: object) -> None:
    """Do nothing: the answer was taken."""


def _awaited_already() -> RuntimeError:
    return RuntimeError("this answer is awaited already, and only one task gets it; send a request for each task")


def _call(fn: Callable[[Any], object], answer: object) -> None:
    try:
        fn(answer)
    except BaseException:
        with suppress(BaseException):  # no tree is known here that an exit of a log handler could leave
            _log.exception("the function %s that on_answer() got raised; the actor is not affected", shown(fn))


# --- Envelopes, and their holders -------------------------------------------------------------------------------------


@define(eq=False, repr=False, init=False)
class Envelope(Reply[Any], Sender):
    """A sent message, and the reply slot of the sender.

    The slot of a ``call`` is settled with the answer, and that of a ``tell`` that waits for room once there is room.

    Attributes:
        droppable: False if a full mailbox with ``"drop_oldest"`` keeps the message.
        holder: the mailbox, or the incarnation that has taken the message.
        home: the mailbox of the receiver, where the message returns if no handling has begun.
        number: the position in the order of arrival.
        since: the Trio time at which the handling began; not set for a plain handler that answers at once.
        scope: the slot of the handler (``IN_STEP`` for a plain handler); the `later` if no handler runs; else None.
        later: the `Later` that settles the envelope, if any.
    """

    droppable: ClassVar[bool] = True

    message: Message
    is_call: bool
    scope: object | None
    later: object | None
    calls: AwaitedCalls | None
    holder: Holder
    home: Home
    number: int
    since: float
    context: contextvars.Context

    def __init__(self, message: Message, *, is_call: bool) -> None:
        # Made for every message: set only attributes that are read before other code sets them.
        self.open = True
        self._waiter = None
        self.message = message
        self.is_call = is_call
        self.scope = self.later = self.calls = None

    def __repr__(self) -> str:
        return f"<PendingCall {self.label}>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(PendingCall) if not name.startswith("_")]  # all that programs see

    @property
    def handed_over(self) -> bool:
        return self.scope is not None

    busy = handed_over

    @property
    def actor(self) -> str:
        return self.holder.name

    @property
    def caller_left(self) -> bool:
        """True if the caller has left, or has an answer. The sender of a ``tell`` never leaves."""
        return self.is_call and not self.open

    withdrawn = caller_left

    @property
    def interrupted(self) -> bool:
        """True if no handler is needed any more, because the incarnation ends."""
        return self.caller_left and self.holder.ending

    @property
    def label(self) -> str:
        doing = "handling" if self.handed_over else "to handle"
        return f"{self.holder.name!r} ({doing} {type(self.message).__name__})"

    def is_run_by(self, task: trio.lowlevel.Task) -> bool:
        return getattr(self.scope, "task", None) is task

    def blockers(self) -> list[Node]:
        return places(self.calls)

    def place(self) -> Node:
        """Return the lane in which an envelope waits, or itself once an incarnation has taken it."""
        return self.home.lane_of(self) if self.holder is self.home else self

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The actors that the handler calls without a deadline, and its `Later`, as text."""
        later = ["its Later"] if self.later is not None and self.scope is self.later else []
        return (*later, *labels(self.calls))

    def abandoned(self) -> None:
        self.holder.forget(self)

    @trio.lowlevel.enable_ki_protection
    def expire(self, exc: BaseException) -> bool:
        if not self.settle(outcome.Error(exc)):
            return False
        self.holder.forget(self)
        return True


class Holder(Node, ABC):
    """The mailbox or incarnation that has an envelope."""

    __slots__ = ()

    @property
    @abstractmethod
    def ending(self) -> bool:
        """True once no messages are served any more, and all have been answered. A mailbox never ends."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The actor's name."""

    @abstractmethod
    def forget(self, envelope: Envelope) -> None:
        """Drop an envelope whose sender has left, or wake the owner to cancel its handler; see `Reply.abandoned`."""


class Home(Holder):
    """The mailbox that an envelope was sent to."""

    __slots__ = ()

    @abstractmethod
    def lane_of(self, envelope: Envelope) -> Node:
        """Return the node of the wait-for graph at which an envelope waits."""

    @abstractmethod
    def put_back(self, envelope: Envelope) -> bool:
        """Return an unhandled envelope to its old place. Return False if the envelope was refused instead."""

    @abstractmethod
    def postpone(self, envelope: Envelope) -> MailboxFull | None:
        """Keep an envelope aside until the actor resumes. Return the error if no more may wait."""

    @abstractmethod
    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing."""

    @abstractmethod
    def full(self, text: str) -> MailboxFull:
        """Return the error for a message that finds no room."""


# --- Base classes of messages -----------------------------------------------------------------------------------------

# The type parameters are for type checkers only. An `ActorRef[Add | Get]` receives these messages, so a reference that
# receives more is accepted in its place (contravariance). ``Call._to`` declares receivers and answer: ``Add`` gives an
# ``int`` to all receivers of ``Add``. The protocol `CallFor` thus checks the message of ``ref.call(message)``, and
# infers the answer.


class Message:
    """Base of all messages to actors. Make subclasses frozen attrs classes.

    Attributes:
        control: True puts messages of the class on the control lane. They overtake all queued messages and need no
            in-flight slot, so a busy or full actor still answers. Their handlers run one at a time, between two
            ``await`` of another handler. ``mailbox_size`` limits this lane separately. Meant for questions about the
            actor itself (health, statistics), not for work.
    """

    __slots__ = ()

    control: ClassVar[bool] = False


T_co = TypeVar("T_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)
M = TypeVar("M", bound=Message)
if TYPE_CHECKING:
    M_contra = TypeVar("M_contra", bound=Message, contravariant=True, default=Any)
else:  # defaults of TypeVars came with Python 3.13; the kernel imports nothing for them
    M_contra = TypeVar("M_contra", bound=Message, contravariant=True)


class Receives(Generic[M_contra]):
    """Base of actors and references."""

    __slots__ = ()


class Call(Message, Generic[T_co]):
    """A message that has an answer. ``class Add(Call[int])`` makes ``await ref.call(Add(1))`` an ``int``."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _to(self, ref: Receives[Self], /) -> T_co: ...

        def _answer(self) -> Callable[[T_co], T_co]: ...


class CallFor(Protocol[R_contra, T_co]):
    """A `Call` that receivers ``R_contra`` accept and answer with ``T_co``."""

    def _to(self, ref: R_contra, /) -> T_co: ...


class CallWith(Protocol[T]):
    """A `Call` with exactly the answer ``T``. A ``Call[T]`` is a ``Call[object]`` too, which any value would answer."""

    def _answer(self) -> Callable[[T], T]: ...


class PendingCall(Protocol[T_co]):
    """A message sent with `ActorRef.send_request`; the sender waits for the answer."""

    @property
    def handed_over(self) -> bool:
        """True while the actor handles the message; False while the message waits in the mailbox, and afterwards."""

    @property
    def actor(self) -> str:
        """The name of the actor that has or has handled the message; for a pool, of the member."""

    async def wait(self) -> T_co:
        """Wait for the answer, as `ActorRef.call` does.

        **Cancellation**: as for `ActorRef.call`.

        Raises:
            RuntimeError: a task waits, or has waited, for the answer already.
        """

    def on_answer(self, fn: Callable[[outcome.Value[Any] | outcome.Error], object]) -> None:
        """Call a function with the answer in the step that gives it, instead of waiting; at once if there is one.

        For callers outside any Trio task. The function must not raise: exceptions are only logged.
        """

    def withdraw(self) -> None:
        """Leave without the answer, like a cancelled waiter. The function of `on_answer` is then not called."""

    def expire(self, exc: BaseException) -> bool:
        """Answer in the actor's place: the waiting caller gets an exception at once.

        A queued message is not served; the handler of a message that was handed over is cancelled. Any task may call
        `expire`, in any state. Return False, and do nothing, if there is an answer or the caller has left.
        """
