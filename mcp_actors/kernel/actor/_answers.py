"""Decide how each message ends that was taken from the mailbox.

A message is answered exactly once, whatever its handler raises, and even if its caller leaves at the same time. Only
this file makes answers of exceptions: a `trio.Cancelled` must not leave its task, and an exit must not end the caller.
"""

from __future__ import annotations

from logging import ERROR
from typing import TYPE_CHECKING, Final

import outcome
import trio

from ..._collapse import collapse, is_a
from ..._errors import ActorError
from .. import _events as events
from ..mailbox import Holder
from ._actor import NotSent, StopActor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..mailbox import Envelope
    from ._actor import Actor, Life

NOT_SENT_PATIENCE: Final = 1.0
"""Seconds from a `NotSent` until the end of the incarnation must be decided. A task that reads from a connection
notices its loss within milliseconds of the handler that writes to it."""


class Answers(Holder):
    """The messages that one incarnation has taken from its mailbox. See the top of the file."""

    __slots__ = ("_actor", "_in_flight", "_incarnation", "_interruption", "_left", "_record")

    def __init__(self, incarnation: Life, actor: Actor) -> None:
        self._incarnation = incarnation
        self._record = incarnation.record
        self._in_flight = incarnation.record.in_flight
        self._actor = actor
        self._left: list[Envelope] = []
        self._interruption: Callable[[Envelope], ActorError] | None = None

    def forget(self, envelope: Envelope) -> None:
        """Wake the owner, which cancels the request of a caller that has left; see `Reply.abandoned`."""
        self._left.append(envelope)
        self._incarnation.wake()

    @property
    def name(self) -> str:
        """The name of its actor."""
        return self._record.name

    @property
    def ending(self) -> bool:
        """True once its incarnation ends."""
        return self._interruption is not None

    def _raised(self, envelope: Envelope, exc: BaseException) -> bool:
        """Decide what an exception from the actor's code means. Return True for `NotSent`, of which nothing is done."""
        verdict = collapse(exc)
        if is_a(verdict, NotSent):
            return True
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
            # One that ends the program leaves the outermost block of the tree, after clean-up. No other one (such as
            # asyncio's CancelledError) must be raised in the caller's task and end that.
            self._incarnation.end("crashed", verdict)
            self._interrupt(envelope)
        return False

    async def _not_sent(self, envelope: Envelope) -> None:
        """Return an envelope to the mailbox for the next incarnation; fail it if this incarnation goes on."""
        if self._interruption is None:
            # If several handlers find the same connection lost, the last of them may be the one that decides the end,
            # or a task that reads. This handler keeps its slot meanwhile: a free slot would take the envelope again.
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
        """Answer with an exception, and end the incarnation if it is fatal."""
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
        if scope.cancel_called if isinstance(scope, trio.CancelScope) else not envelope.open:
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

    def _return(self, envelope: Envelope) -> None:
        """Return an envelope that was taken and not handled to the mailbox."""
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
