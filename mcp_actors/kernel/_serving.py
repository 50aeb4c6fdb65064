"""Decide how each message ends, and serve messages that need no task.

Every message must be answered exactly once, even if the caller, the handler and the incarnation end in the same step.
`MessagesInFlight` decides what an exception means. `TakenMessages` serves messages without a task: those accepted by
`Actor.take`, and those whose handler has returned a `Later`. A `Slot` is a task of ``_requests`` that runs handlers.

Owns: messages in flight; free slots.
Writes: answers to senders; messages put back into the mailbox; the end of the incarnation; scheduled checks for delayed
messages; events; tasks of handlers; the log.
Calls: _actor, _circles, _envelope, _events, _later.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import Context
from logging import ERROR, WARNING
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import ref

import outcome
import trio

from .._collapse import collapse, is_a
from .._errors import ActorError
from .._foreign import shown
from .._misuse import note_loop
from . import _events as events
from ._actor import Actor, NotSent, Postpone, StopActor
from ._circles import serving
from ._envelope import Call, Holder
from ._later import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._actor import Life
    from ._circles import Sender
    from ._envelope import Envelope, Message


# --- The tasks of handlers --------------------------------------------------------------------------------------------


class Slot:
    """A task that runs handler after handler, and the cancel scope around it.

    Attributes:
        left_open: True if a handler has left a cancel scope open, as an unexhausted asynchronous generator does. The
            next handler would run in that scope, so the task ends.
    """

    __slots__ = ("_context", "_next", "_status", "_waits", "cancelled", "left_open", "scope", "task")

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.scope = trio.CancelScope()
        self.cancelled = self.left_open = self._waits = False
        self._context = Context()
        self._next: Envelope | None = None

    def begin(self) -> None:
        self.task = trio.lowlevel.current_task()
        self._status = self.task._cancel_status  # private; nothing public shows which scope a task is in

    def cancel(self, why: str) -> None:
        self.cancelled = True
        self.scope.cancel(why)

    def is_usable(self) -> bool:
        assert self.task is not None
        self.left_open = self.task._cancel_status is not self._status
        return not (self.cancelled or self.left_open)

    def give(self, envelope: Envelope, name: str) -> None:
        task = self.task
        assert task is not None
        self._next = envelope
        task.name = name
        task.context = envelope.context.copy()  # Trio enters it for every step of the task
        if self._waits:
            self._waits = False
            trio.lowlevel.reschedule(task)

    async def wait(self, leave: Callable[[trio.lowlevel.RaiseCancelT], trio.lowlevel.Abort]) -> Envelope:
        """Return the next message, in a new step, which runs in the message's context."""
        if self._next is None:
            assert self.task is not None
            self.task.context = self._context  # keeps the last sender's context alive no longer
            self._waits = True
            await trio.lowlevel.wait_task_rescheduled(leave)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        envelope, self._next = self._next, None
        assert envelope is not None
        return envelope


# --- Decide how each message ends -------------------------------------------------------------------------------------

# Only here do exceptions become answers: a `trio.Cancelled` must not leave its task, and an exit must not end the
# caller.


NOT_SENT_PATIENCE: Final = 1.0
"""Seconds from a `NotSent` until the incarnation must have ended. After a failed write of a handler, a reading task
notices the lost connection within milliseconds."""


class MessagesInFlight(Holder):
    __slots__ = ("_actor", "_in_flight", "_incarnation", "_interruption", "_record", "_unneeded")

    def __init__(self, incarnation: Life, actor: Actor) -> None:
        self._incarnation = incarnation
        self._record = incarnation.record
        self._in_flight = incarnation.record.in_flight
        self._actor = actor
        self._unneeded: list[Envelope] = []
        self._interruption: Callable[[Envelope], ActorError] | None = None

    def forget(self, envelope: Envelope) -> None:
        """Wake the owner, which cancels the request; see `Reply.abandoned`."""
        self._unneeded.append(envelope)
        self._incarnation.wake()

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def ending(self) -> bool:
        return self._interruption is not None

    def _raised(self, envelope: Envelope, exc: BaseException) -> bool:
        """Act on an exception from the actor's code. Return True for `NotSent`, for which nothing is done."""
        verdict = collapse(exc)
        if is_a(verdict, NotSent):
            return True
        if is_a(verdict, Postpone):
            self._postpone(envelope)
            return False
        if is_a(verdict, StopActor):
            self._incarnation.end(verdict.reason)
            self._interrupt(envelope)
        elif is_a(exc, Exception):
            self._failed(envelope, exc)
        elif is_a(verdict, Exception):  # raised while it was cancelled
            self._failed(envelope, verdict)
        elif is_a(verdict, trio.Cancelled):
            self._was_cancelled(envelope)
        else:
            # An exit leaves the outermost block of the tree, after clean-up. Raised in the caller's task, it would end
            # that task, as would a foreign `BaseException`, such as asyncio's CancelledError.
            self._incarnation.end("crashed", verdict)
            self._interrupt(envelope)
        return False

    async def _not_sent(self, envelope: Envelope) -> None:
        """Return an envelope to the mailbox for the next incarnation, or fail it if no end follows."""
        if self._interruption is None:
            # Wait, because another task may decide the end: a reading task, or the last of several handlers that find a
            # connection lost. Otherwise the caller would get an error although the next incarnation could serve the
            # message. Keep the slot meanwhile: a free one would take the same message again.
            with trio.move_on_after(NOT_SENT_PATIENCE):
                await self._incarnation.wait_ending()
        if self._interruption is not None:
            self._return(envelope)
            return
        self._failed(envelope, self._endless(envelope))

    def _endless(self, envelope: Envelope) -> ActorError:
        name, message = self._record.name, type(envelope.message).__name__
        return ActorError(
            f"actor {name!r}: handling {message} raised NotSent, but the actor keeps running and would handle it again "
            "forever; end this incarnation with self.fail(exception) or self.stop() before raising NotSent",
            actor=name,
        )

    def _failed(self, envelope: Envelope, exc: Exception) -> None:
        note_loop(exc)
        if not (envelope.is_call and envelope.settle(outcome.Error(exc))):
            self._unhandled(envelope, exc)
        try:
            if self._actor.is_fatal(exc):
                self._incarnation.end("crashed", exc)
        except BaseException as broken:
            self._incarnation.end("crashed", broken)

    def _was_cancelled(self, envelope: Envelope) -> None:
        """Answer for a cancelled handler. A `trio.Cancelled` from another task is an error, and stops here."""
        scope = envelope.scope
        if scope.cancelled if isinstance(scope, Slot) else not envelope.open:
            self._interrupt(envelope)
            return
        name = self._record.name
        stray = ActorError(
            f"actor {name!r}: handling {type(envelope.message).__name__} raised trio.Cancelled without having been "
            "cancelled; look for a Cancelled that was caught in one task and raised in another",
            actor=name,
        )
        self._failed(envelope, stray)

    def _interrupt(self, envelope: Envelope) -> None:
        if self._interruption is not None and envelope.is_call and envelope.open:
            envelope.settle(outcome.Error(self._interruption(envelope)))

    def _postpone(self, envelope: Envelope) -> None:
        self._clear_context(envelope)
        # Without an owner, nothing would resume this message.
        if self._interruption is not None or self._record.mailbox.owner is None or envelope.withdrawn:
            self._return(envelope)
            return
        full = envelope.home.postpone(envelope)
        if full is not None and not (envelope.is_call and envelope.settle(outcome.Error(full))):
            self._record.hub.log(WARNING, "%s", full)
            self._record.note(events.DeadLetter, message=type(envelope.message).__name__)

    @staticmethod
    def _clear_context(envelope: Envelope) -> None:
        # Since the offer, the envelope and its context refer to each other: cyclic garbage if never served. Change a
        # copy, because the context may be the running one.
        envelope.context = envelope.context.copy()
        envelope.context.run(serving.set, None)

    def _return(self, envelope: Envelope) -> None:
        if envelope.withdrawn:
            return
        if not envelope.home.put_back(envelope) and not envelope.is_call:
            self._record.note(events.DeadLetter, message=type(envelope.message).__name__)

    def _unhandled(self, envelope: Envelope, exc: Exception) -> None:
        message = type(envelope.message).__name__
        if self._interruption is None:
            text = "actor %r: handling %s failed, and no caller gets the error"
            self._record.hub.log(ERROR, text, self.name, message, error=exc)
        self._record.note(events.Unhandled, message=message, error=exc)

    def _note_finished(self, kind: str, began: float, failure: BaseException | None) -> None:
        seconds = trio.current_time() - began
        self._record.note(events.RequestFinished, message=kind, seconds=seconds, error=failure)

    @property
    def _observed(self) -> bool:
        hub = self._record.hub
        return bool(hub.observers) and hub.wants_requests


# --- Serve messages without a task ------------------------------------------------------------------------------------

# The task of an ``async def`` handler owns a message from beginning to end. Without a task, these steps share the work:
#
# - The step that *delivers* the message calls `Actor.take` in a copy of the sender's context. The step may be of the
#   sender, of a task that frees a slot or calls `take_again`, or of a beginning incarnation. The message is in flight
#   and has a slot by then, so `Actor.take` may send, answer, or end the incarnation.
# - Any step in the *actor's tree* may settle the message (`reply`, `fail`).
# - A *caller that leaves*, or a deadline, only marks the message and wakes the owner task (`forget`).
# - The step that *ends the incarnation* answers all messages that `Actor.ending` has not put back
#   (`_interrupt_deferred`), except the message whose `take` or plain handler is running.
# - The *owner task* calls `Later.on_cancel` for all marked messages, oldest mark first (`_cancel_later`).
#
# While a handler runs, the `Later` of its message can only answer early; the handler still has the slot.


T = TypeVar("T")

DEFERRED_PATIENCE: Final = 1.0
"""Seconds until a warning that messages wait behind deferred answers. A queued message may be needed to answer."""

IN_STEP: Final = object()
"""The `Envelope.scope` of a message in a plain handler."""


class TakenMessages(MessagesInFlight):
    """Messages in flight, some of them without a task.

    Attributes:
        free: the free in-flight slots; not positive while nothing may be taken.
        free_control: the control messages that may begin; see `Actor._control_slots`.
    """

    __slots__ = (
        *("_deferred", "_now", "_offered", "_refuses", "_reported", "_size", "_take", "_watched"),
        *("free", "free_control"),
    )

    def __init__(self, incarnation: Life, actor: Actor) -> None:
        super().__init__(incarnation, actor)
        self.free = self._size = actor.max_in_flight
        self.free_control = actor._control_slots
        self._now = trio.lowlevel.current_clock().current_time
        self._deferred = False
        self._watched = actor.slow_after is None
        self._reported: set[Envelope] = set()
        self._take = None if type(actor).take is Actor.take else actor.take
        self._offered: Later[Any] | None = None
        self._refuses = False
        object.__setattr__(actor, "_requests", self)  # its class may refuse that any attribute is set

    def release(self) -> None:
        """Drop the actor, which has ended. A `Later` kept by the actor refers to this object."""
        del self._actor, self._take

    def makes_progress(self, sender: Sender) -> bool:
        for envelope in self._in_flight:
            if envelope.calls is None and envelope is not sender and envelope.holder is self and _has_slot(envelope):
                return True
        return False

    def holders_if_full(self) -> list[Envelope]:
        held = [envelope for envelope in self.in_flight if _has_slot(envelope)]
        return held if len(held) == self._size else []

    def controls(self) -> list[Envelope]:
        return [each for each in self.in_flight if each.message.control and not isinstance(each.scope, Later)]

    @property
    def idle(self) -> bool:
        return self.free == self._size and self.free_control == self._actor._control_slots

    @property
    def in_flight(self) -> list[Envelope]:
        return [envelope for envelope in self._in_flight if envelope.holder is self]

    # --- slow messages ----------------------------------------------------------------------------------------------

    def _watch_slow(self) -> None:
        self._watched = True
        assert self._actor.slow_after is not None
        self._record.sweeps.add(self._check_slow, self._actor.slow_after)

    def _check_slow(self) -> float | None:
        """Warn once of each message handled for longer than ``slow_after``. Return when to check again."""
        now, limit = self._now(), self._actor.slow_after
        assert limit is not None
        self._reported.intersection_update(self.in_flight)
        # Compare sums: a rounded difference could ask for the next check at once.
        for envelope in [each for each in self.in_flight if each not in self._reported and each.since + limit <= now]:
            self._fail_dropped(envelope)
            if envelope.scope is None:
                continue
            self._reported.add(envelope)
            waits = " and ".join(envelope.waits_for) or "no actor"
            remedy = "call its reply() or fail()" if isinstance(envelope.scope, Later) else "set a deadline there"
            text = "actor %r: %s has been handled for %g s (it waits for %s); %s, or raise slow_after"
            facts = type(envelope.message).__name__, now - envelope.since, waits, remedy
            self._record.hub.log(WARNING, text, self.name, *facts)
        others = [each for each in self.in_flight if each not in self._reported]
        self._watched = bool(others)
        return min(each.since for each in others) + limit - now if others else None

    def _check_deferred(self) -> float | None:
        """Warn, once, if messages are queued and all slots wait for deferred answers. Return when to check again."""
        held = [envelope for envelope in self.in_flight if _has_slot(envelope)]
        if len(held) < self._size or not all(isinstance(each.scope, Later) for each in held):
            self._deferred = False
            return None
        mailbox = self._record.mailbox.backlog
        now = self._now()
        due = (now if mailbox.queued_since is None else mailbox.queued_since) + DEFERRED_PATIENCE
        if now < due:
            return due - now
        kinds = ", ".join(sorted({type(each.message).__name__ for each in held}))
        text = (
            "actor %r: all slots wait for deferred answers while messages are queued (deferred: %d of %s; queued: %d); "
            "answer them, raise max_in_flight, or use defer(message, keep_slot=False)"
        )
        self._record.hub.log(WARNING, text, self.name, len(held), kinds, mailbox.queued)
        return None

    # --- messages without a task ------------------------------------------------------------------------------------

    def _offer(self, envelope: Envelope, take: Callable[[Later[Any]], bool]) -> bool:
        """Offer a message to the actor. Return False if ``handle`` is to serve the message."""
        later: Later[Any] = Later(envelope, self)
        envelope.scope = envelope.later = self._offered = later
        envelope.since = self._now()
        self._in_flight.add(envelope)
        # All slots count as taken while `take` runs, which may answer and so free a slot. Otherwise a younger message
        # would be offered meanwhile, and overtake this one if `take` refuses.
        self.free -= 1 + self._size
        taken: object = True
        try:
            envelope.context.run(serving.set, envelope)
            taken = envelope.context.run(take, later)
            if taken is not True and taken is not False:
                raise TypeError(
                    f"actor {self._record.name!r}: take() returned {shown(taken)}; return True if it has taken the "
                    "message, False for handle()"
                )
        except BaseException as exc:
            if not self._fails(later, exc):
                self._raised(envelope, exc)  # only logged: the actor has answered already
        self._offered = None
        self.free += self._size
        if envelope.later is not later:
            return True
        if taken:
            if self._interruption is not None:
                self._interrupt_deferred(envelope)
                return True
            if not self._watched:
                self._watch_slow()
            hub = self._record.hub
            if hub.observers and hub.wants_requests:  # `_observed`, without a call per message
                self._note_started(later)
            return True
        envelope.scope = envelope.later = None
        self._in_flight.discard(envelope)
        self.free += 1
        return False

    def defer(self, message: Message, *, keep_slot: bool) -> Later[Any]:
        if not isinstance(message, Call):
            kind = type(message).__name__
            what = f"actor {self.name!r}: defer() of {kind}, which has no answer"
            raise TypeError(f"{what}; derive {kind} from Call[...], or do the work in a task of the actor")
        envelope = cast("Envelope", serving.get())
        if envelope not in self._in_flight or envelope.holder is not self or envelope.message is not message:
            raise RuntimeError(f"actor {self.name!r}: call defer(message) in the handler of that message")
        if envelope.later is not None:
            raise RuntimeError(f"actor {self.name!r}: {type(message).__name__} has a Later already; use that")
        later: Later[Any] = Later(envelope, self, keep_slot)
        envelope.later = later
        return later

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C halfway would leave the actor without a slot
    def take_again(self) -> None:
        if self._refuses:
            self._refuses = False
            self.free += self._size
            self._record.mailbox.feed()

    @trio.lowlevel.enable_ki_protection
    def reply(self, later: Later[Any], value: object) -> bool:
        if get_ident() != self._record.thread:  # `lives_here`, without a call per answer
            raise RuntimeError(_elsewhere(self.name))
        envelope = later._envelope
        if envelope.later is not later:
            return False
        envelope.later = None
        if envelope.scope is not later:  # its handler still runs, and frees the slot
            return envelope.is_call and envelope.settle(outcome.Value(value))
        if later._began is not None or later is self._offered:
            self._note_settled(later, None)
        heard = envelope.is_call and envelope.settle(outcome.Value(value))
        self._finish(envelope)
        return heard

    @trio.lowlevel.enable_ki_protection
    def fail(self, later: Later[Any], exc: BaseException) -> bool:
        if not self._record.lives_here:
            raise RuntimeError(_elsewhere(self.name))
        if not isinstance(exc, BaseException):
            raise TypeError(f"fail() takes an exception object, not {exc!r}")
        heard = later.open and later._envelope.is_call
        return self._fails(later, exc) and heard and not later._envelope.open

    def _fails(self, later: Later[Any], exc: BaseException) -> bool:
        """Act on an exception. Return False if the `Later` is no longer valid."""
        envelope = later._envelope
        if envelope.later is not later:
            return False
        envelope.later = None
        if envelope.scope is not later:  # its handler still runs, and frees the slot
            if self._raised(envelope, exc):
                self._failed(envelope, self._endless(envelope))
            return True
        self._note_settled(later, exc)
        self._in_flight.discard(envelope)
        if self._raised(envelope, exc):
            self._refuse(envelope)
        self._finish(envelope)
        return True

    def _refuse(self, envelope: Envelope) -> None:
        """Put a message back, and take nothing until `take_again`.

        With a free slot, the mailbox would offer the message, or a younger one, again and again.
        """
        if envelope.message.control:  # needs no slot, so it would be handled again at once
            self._failed(envelope, self._endless(envelope))
            return
        if not self._refuses:
            self._refuses = True
            self.free -= self._size
        self._clear_context(envelope)
        self._return(envelope)

    def _interrupt_deferred(self, envelope: Envelope) -> None:
        """Answer a message without a task because the incarnation ends."""
        self._interrupt(envelope)
        envelope.later = None
        self._in_flight.discard(envelope)
        self._unneeded.append(envelope)

    def _cancel_later(self, envelope: Envelope, later: Later[Any]) -> None:
        """Call `on_cancel`, and free the slot unless the actor does."""
        on_cancel, later.on_cancel = later.on_cancel, None
        if on_cancel is not None:
            try:
                envelope.context.run(serving.set, envelope)
                envelope.context.run(on_cancel, later)
            except BaseException as exc:
                if self._interruption is not None:
                    text = "actor %r: on_cancel() raised while stopping"
                    self._record.hub.log(WARNING, text, self.name, error=exc)
                self._incarnation.end("crashed", exc)
            if self._interruption is None:
                return
        if envelope.scope is later:
            self._note_settled(later, None)
            self._finish(envelope)

    def _answer(self, envelope: Envelope, result: object) -> None:
        if result is None:
            if envelope.later is not None:
                kind = type(envelope.message).__name__
                what = f"actor {self.name!r}: handling {kind} called defer() and returned None"
                raise TypeError(f"{what}; return the Later that defer() returned")
            self._actor._check_handled(envelope.message)
        if isinstance(result, Later):
            self._keep(envelope, result)
        elif envelope.is_call:
            envelope.settle(outcome.Value(result))

    def _keep(self, envelope: Envelope, later: Later[Any]) -> None:
        if later._envelope is not envelope:
            name, message = self._record.name, type(envelope.message).__name__
            raise TypeError(f"actor {name!r}: handling {message} returned the Later of another message")
        # If the caller has left and the owner has not cancelled the handler yet, the owner finds the `Later` instead.
        goes_on = self._interruption is None and (later.open or envelope in self._unneeded)
        if envelope.later is later and goes_on:
            if envelope.scope is IN_STEP:
                envelope.since = self._now()
                if not self._watched:
                    self._watch_slow()
            envelope.scope = later
        else:
            self._interrupt(envelope)
            self._note_settled(later, None)

    def _handler_ended(self, envelope: Envelope) -> None:
        """Free the slot after a handler, unless the returned `Later` keeps it."""
        if not isinstance(envelope.scope, Later):
            self._finish(envelope)
            return
        if not envelope.message.control and envelope.scope.keep_slot:
            if self.free <= 0 and not self._deferred and self._take is None:
                self._deferred = True
                self._record.sweeps.add(self._check_deferred, DEFERRED_PATIENCE)
        else:
            if envelope.message.control:
                self.free_control += 1
            else:
                self.free += 1
            self._record.mailbox.feed()
        self._fail_dropped(envelope)

    def _fail_dropped(self, envelope: Envelope) -> None:
        """Answer with an error if nothing but the envelope refers to the `Later` that is to answer."""
        later = envelope.scope
        if not isinstance(later, Later) or not later.open or later.on_cancel is not None:
            return
        # Without our references, the weak one returns None unless the actor has kept the `Later`.
        began, keep_slot, kept = later._began, later.keep_slot, ref(later)
        envelope.scope = envelope.later = later = None
        envelope.scope = envelope.later = later = kept()
        if later is None:
            envelope.scope = envelope.later = later = Later(envelope, self, keep_slot)
            later._began = began
            what = f"actor {self.name!r}: the Later of {type(envelope.message).__name__} was dropped without an answer"
            self._fails(later, TypeError(f"{what}; keep it until you call its reply() or fail(), as in a LaterQueue"))

    def _finish(self, envelope: Envelope) -> None:
        """Free the slot of a finished message, and take the next."""
        if envelope.is_call and envelope.open and envelope.holder is self:
            # The caller must not wait forever.
            envelope.settle(outcome.Error(_unanswered(self.name, envelope)))
        scope = envelope.scope
        if envelope.message.control:
            self.free_control += scope.__class__ is not Later
        elif scope.__class__ is not Later or scope.keep_slot:
            self.free += 1
        self._in_flight.discard(envelope)
        envelope.scope = envelope.later = envelope.calls = None
        if envelope.holder is self:
            # The contexts of messages sent by the handler refer to this envelope. Its own context may refer to the
            # sender's envelope, and so would keep a chain alive, back to the first.
            del envelope.context
        self._record.mailbox.feed()

    @contextmanager
    def _noted(self, message: Message) -> Iterator[Callable[[T], T]]:
        kind, began = type(message).__name__, trio.current_time()
        self._record.note(events.RequestStarted, message=kind)
        failure: BaseException | None = None
        result: object = None

        def note(given: T) -> T:
            nonlocal result
            if given is None:
                self._actor._check_handled(message)
            result = given
            return given

        try:
            yield note
        except BaseException as exc:
            failure = exc
            raise
        finally:
            if isinstance(result, Later) and result.open:
                result._began = began  # finishes when settled
            else:
                self._note_finished(kind, began, failure)
            del failure  # whose traceback refers to this frame

    def _note_started(self, later: Later[Any]) -> None:
        later._began = trio.current_time()
        self._record.note(events.RequestStarted, message=type(later.message).__name__)

    def _note_settled(self, later: Later[Any], failure: BaseException | None) -> None:
        if later is self._offered and self._observed:
            self._note_started(later)
        if later._began is None:
            return
        name, kind, envelope = self._record.name, type(later.message).__name__, later._envelope
        if self._interruption is not None:
            failure = failure or self._interruption(envelope)
        elif envelope.caller_left:
            failure = failure or ActorError(f"actor {name!r}: the caller of {kind} has left", actor=name)
        self._note_finished(kind, later._began, failure)


def _has_slot(envelope: Envelope) -> bool:
    scope = envelope.scope
    return not envelope.message.control and (not isinstance(scope, Later) or scope.keep_slot)


def _elsewhere(name: str) -> str:
    call = "trio.from_thread.run_sync(later.reply, value)"
    return f"actor {name!r}: a Later was settled outside its Trio run; in a thread call {call}"


def _unanswered(name: str, envelope: Envelope) -> ActorError:
    kind = type(envelope.message).__name__
    what = f"actor {name!r}: handling {kind} ended without an answer, and its effect is unknown"
    return ActorError(f"{what}; report this as a defect of mcp_actors", actor=name)
