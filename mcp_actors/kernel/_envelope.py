"""Messages, reply slots and envelopes.

`Message` and `Call` are the bases of what users send, and a `PendingCall` is an answer to wait for later. `Receives`,
`CallFor` and `CallWith` are for type checkers. An `Envelope` is a message on its way. It is a `Reply` too: a slot whose
answer wakes the task that waits, or calls a function of the sender. A `Holder` is what has an envelope, and its `Home`
is the mailbox that it returns to.

References and ``_timers`` make envelopes; mailboxes, incarnations and pools hold them. This file starts no task and
runs no handler. It logs if a function of the sender raises. Of the kernel, it imports the detection of deadlocks
(``_circles``).
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
    from ._circles import Calls
else:
    from typing import TypeVar


# --- Reply slots ------------------------------------------------------------------------------------------------------


T = TypeVar("T")

_log: Final = Log("mcp_actors.kernel")


@define(eq=False, repr=False)
class Reply(Handle, Generic[T]):
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
        droppable: False if a full mailbox that drops its oldest messages keeps this one.
        message: the message.
        is_call: True for a ``call``, False for a ``tell``.
        holder: the mailbox, or the incarnation that has taken it.
        home: the mailbox that it was sent to, and returns to if its handling has not begun.
        number: its position in the order of arrival.
        since: the Trio time at which its handling began; not set by a plain handler that answers in its step.
        context: the sender's `contextvars` context when it sent the message.
        scope: the slot of its handler, once there is one; its `later` if no handler runs for it.
        later: the `Later` that settles it; None if its handler does.
        calls: the calls that its handler has made; see ``_circles``.
    """

    droppable: ClassVar[bool] = True

    message: Message
    is_call: bool
    scope: object | None
    later: object | None
    calls: Calls | None
    holder: Holder
    home: Home
    number: int
    since: float
    context: contextvars.Context

    def __init__(self, message: Message, *, is_call: bool) -> None:
        # Every request creates one, so only the attributes that are read before they are set elsewhere are set here.
        self.open = True
        self._waiter = None
        self.message = message
        self.is_call = is_call
        self.scope = self.later = self.calls = None

    def __repr__(self) -> str:
        return f"<PendingCall {self.label}>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(PendingCall) if not name.startswith("_")]  # programs see no more of it

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
        """The name of the actor that has it, and the message."""
        doing = "handling" if self.handed_over else "to handle"
        return f"{self.holder.name!r} ({doing} {type(self.message).__name__})"

    def is_run_by(self, task: trio.lowlevel.Task) -> bool:
        """Return True for the task of its handler."""
        return getattr(self.scope, "task", None) is task

    def blockers(self) -> list[Node]:
        """Return the nodes that its handler waits for."""
        return places(self.calls)

    def place(self) -> Node:
        """Return the lane in which it waits, or itself once an incarnation has taken it."""
        return self.home.lane_of(self) if self.holder is self.home else self

    @property
    def waits_for(self) -> tuple[str, ...]:
        """What its handler waits for, as text: actors that it calls without a deadline, and its `Later`."""
        later = ["its Later"] if self.later is not None and self.scope is self.later else []
        return (*later, *labels(self.calls))

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
    @abstractmethod
    def ending(self) -> bool:
        """True once it serves no messages any more, and has answered those that it had. A mailbox never ends."""

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
    def lane_of(self, envelope: Envelope) -> Node:
        """Return the node of the wait-for graph at which an envelope waits."""

    @abstractmethod
    def put_back(self, envelope: Envelope) -> bool:
        """Return an envelope whose handling has not begun to its old place; return False if it was refused instead."""

    @abstractmethod
    def postpone(self, envelope: Envelope) -> MailboxFull | None:
        """Keep an envelope aside until its actor resumes; return the error if no more may wait so."""

    @abstractmethod
    def is_worked_off(self, sender: Sender) -> bool:
        """Return True if a handler other than the sender has a slot and waits for nothing."""

    @abstractmethod
    def full(self, text: str) -> MailboxFull:
        """Return the error of a message for which there is no room."""


# --- Base classes of messages, typed by their answers and their receivers ---------------------------------------------

# Nothing here does anything at run time. For type checkers, a reference is an `ActorRef[Add | Get]`: it receives these
# messages, so one that receives more is accepted in its place (it is contravariant). A `Call` says what it answers to
# whom: ``Add`` gives an ``int`` to whatever receives ``Add``. So for ``ref.call(message)`` one protocol says if the
# message may be sent there, and what the answer is.


class Message:
    """Base of all messages to actors. Make subclasses frozen attrs classes.

    Attributes:
        control: True puts messages of this class on the control lane. They overtake all queued messages and need no
            in-flight slot, so a busy or full actor still answers them. Their handlers run between two ``await`` of
            another handler, but one at a time. As many as the ``mailbox_size`` may wait. Meant for questions about the
            actor itself (health, statistics), not for its work.
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

        def _answer(self) -> Callable[[T_co], T_co]: ...


class CallFor(Protocol[R_contra, T_co]):
    """A `Call` that may be sent to these receivers, and its answer."""

    def _to(self, ref: R_contra, /) -> T_co: ...


class CallWith(Protocol[T]):
    """A `Call` with exactly this answer; each is a ``Call[object]`` too, to which any value would be an answer."""

    def _answer(self) -> Callable[[T], T]: ...


class PendingCall(Protocol[T_co]):
    """A message that was sent with `ActorRef.send_request`; its sender waits for the answer."""

    @property
    def handed_over(self) -> bool:
        """True while the actor handles the message; False while it waits in the mailbox, and once it was handled."""

    @property
    def actor(self) -> str:
        """The name of the actor that has the message, or has handled it: of a pool, the member that has taken it."""

    async def wait(self) -> T_co:
        """Wait for the answer, as `ActorRef.call` does. Exactly one task may, once; else it is a `RuntimeError`.

        **Cancellation**: as for `ActorRef.call`.
        """

    def on_answer(self, fn: Callable[[outcome.Value[Any] | outcome.Error], object]) -> None:
        """Call a function with the answer, in the step in which it is given, instead of waiting for it.

        For callers outside any Trio task. The function must not raise: what it raises is only logged. It is called at
        once if there is an answer.
        """

    def withdraw(self) -> None:
        """Leave without the answer, like a task that is cancelled while it waits. The function is not called then."""

    def expire(self, exc: BaseException) -> bool:
        """Answer in the actor's place: the waiting caller gets this exception at once.

        If the message is still queued it is not served; if it was handed over its handler is cancelled. Any task may
        call this, in any state. Return False, and do nothing, if there is an answer or the caller has left.
        """
