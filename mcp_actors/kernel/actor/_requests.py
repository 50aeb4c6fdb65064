"""The requests of one incarnation: a task for each message in ``handle``, and the slots they run in.

Theory of operation
-------------------
A request must be cancellable by itself, and must run in its sender's context variables, so each gets a task of its own.
What it does not get is a cancel scope of its own, which would cost half as much again as all the rest of a call.
Instead every *slot* is a nursery, kept open by a task that sleeps; requests run in it one after the other, each as its
only child. To cancel a request is to cancel its slot: both end together, and the next request opens a new slot. As
nearly all requests end by themselves, an actor opens as many slots as it ever had requests at the same time.

*Handed over* means: the request task has made its first step and found neither that its caller has gone nor that the
incarnation ends. Until then an envelope can go back to the mailbox.
"""

from __future__ import annotations

import contextvars
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import outcome
import trio

from ..._collapse import collapse
from ..._errors import ActorError
from .. import _events as events
from .._circles import serving
from ..mailbox import error
from ._actor import NotSent, StopActor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._circles import Sender
    from ..mailbox import Envelope, Message
    from ._actor import Actor, Life

logger = logging.getLogger("mcp_actors.kernel")

NOT_SENT_PATIENCE: Final = 1.0
"""Seconds from a `NotSent` until the end of the incarnation must be decided. The task that reads from a connection
notices its loss within milliseconds of the handler that writes to it."""


class Requests:
    """Takes envelopes from the mailbox (it is a `Taker`) and serves them. See the top of the file.

    Attributes:
        free: in-flight slots that are free.
    """

    __slots__ = (
        "_actor",
        "_handle",
        "_idle_slots",
        "_in_flight",
        "_incarnation",
        "_interruption",
        "_left",
        "_nursery",
        "_record",
        "_size",
        "free",
    )

    needs_all: Final = False
    label: Final = ""

    def __init__(self, incarnation: Life, actor: Actor, nursery: trio.Nursery) -> None:
        self.free = self._size = actor.max_in_flight
        self._incarnation = incarnation
        self._record = incarnation.record
        self._record.reentrant = actor.reentrant
        self._in_flight = incarnation.record.in_flight
        self._actor = actor
        self._handle = actor.handle
        self._nursery = nursery
        self._idle_slots: list[trio.Nursery] = []
        self._left: list[Envelope] = []
        self._interruption: Callable[[Envelope], ActorError] | None = None

    # --- for the mailbox and the owner ------------------------------------------------------------------------------

    def take(self, envelope: Envelope) -> None:
        """Start a request task. Called in the envelope's context, which the task inherits."""
        envelope.holder = self
        name = f"{self._record.name}:{type(envelope.message).__name__}"
        if self._idle_slots:
            slot = self._idle_slots.pop()
            slot.start_soon(self._serve, slot, envelope, name=name)
        else:
            # A slot outlives the request it was opened for, so it must not hold on to that sender's context.
            slot_name = f"{self._record.name}:slot"
            open_slot = partial(self._nursery.start_soon, self._open_slot, envelope, name, name=slot_name)
            contextvars.Context().run(open_slot)
        if not envelope.message.control:  # not before there is a task that frees the slot again
            self.free -= 1

    def forget(self, envelope: Envelope) -> None:
        """Nobody waits for it: the owner is woken and cancels the request (see `Reply.abandoned` for why not here)."""
        self._left.append(envelope)
        self._incarnation.wake()

    @property
    def name(self) -> str:
        """The name of its actor."""
        return self._record.name

    def works(self, sender: Sender) -> bool:
        """Whether a handler that has a slot, other than the sender, has called nobody."""
        for envelope in self._in_flight:
            if envelope.calls is None and envelope is not sender and envelope.holder is self:
                return not envelope.message.control
        return False

    def slots(self) -> list[Envelope]:
        """Who has the in-flight slots; empty if one is free, or its envelope is not handed over yet."""
        held = [envelope for envelope in self.in_flight if not envelope.message.control]
        return held if len(held) == self._size else []

    @property
    def in_flight(self) -> list[Envelope]:
        """What is being handled."""
        return [envelope for envelope in self._in_flight if envelope.holder is self]

    def blockers(self) -> tuple[()]:
        """It holds up nobody: it is about to hand an envelope over."""
        return ()

    def cancel_left(self) -> None:
        """Cancel the requests for which nobody waits any more."""
        while self._left:
            envelope = self._left.pop()
            if envelope.scope is not None:
                envelope.scope.cancel("nobody waits for its answer any more")

    def close(self, interruption: Callable[[Envelope], ActorError]) -> None:
        """Take nothing any more, answer everything in flight and cancel it: one synchronous step.

        A handler in whose own step this happens is about to answer for itself (with ``self.fail(...)`` and then
        `NotSent`, for example); if it does not, its cancellation does.

        Args:
            interruption: makes a fresh exception for each caller.
        """
        self._interruption = interruption
        self._record.mailbox.detach(self)
        own_slot = trio.lowlevel.current_task().parent_nursery
        for envelope in tuple(self._in_flight):
            assert envelope.scope is not None
            if own_slot is None or envelope.scope is not own_slot.cancel_scope:
                self._interrupt(envelope)
            envelope.scope.cancel("the incarnation that handles it ends")

    # --- a request task ---------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _open_slot(self, envelope: Envelope, name: str) -> None:
        """The task of a slot."""
        async with trio.open_nursery() as slot:
            envelope.context.run(partial(slot.start_soon, self._serve, slot, envelope, name=name))
            del envelope
            await trio.sleep_forever()

    @trio.lowlevel.enable_ki_protection
    async def _serve(self, slot: trio.Nursery, envelope: Envelope) -> None:
        """Hand an envelope over, unless its caller or the incarnation has gone; then free the slot."""
        try:
            if self._interruption is not None:
                self._return(envelope)
            elif envelope.open or not envelope.is_call:
                envelope.scope = slot.cancel_scope
                self._in_flight.add(envelope)
                serving.set(envelope)
                handle = self._handle_observed if self._record.hub.wants_requests else self._handle
                result = await interruptible(handle, envelope.message)
                if result is None:
                    self._actor._check_handled(envelope.message)
                if envelope.is_call:
                    envelope.settle(outcome.Value(result))
        except BaseException as exc:
            # A cancellation ends here too: it is the slot's, whose own task passes it on.
            self._in_flight.discard(envelope)
            await self._raised(envelope, exc)
        finally:
            self._in_flight.discard(envelope)
            envelope.scope = envelope.calls = None
            if envelope.holder is self:
                # What it led to was sent in a context that refers to it; with its own, each would keep all before it.
                del envelope.context
            if not slot.cancel_scope.cancel_called:
                self._idle_slots.append(slot)
            if not envelope.message.control:
                self.free += 1
            if self._interruption is None:
                self._record.mailbox.feed(self)

    async def _handle_observed(self, message: Message) -> object:
        """The handler, with an event before and after."""
        kind, began = type(message).__name__, trio.current_time()
        self._record.note(events.RequestStarted, message=kind)
        failure: BaseException | None = None
        try:
            result = await self._handle(message)
            if result is None:
                self._actor._check_handled(message)
            return result
        except BaseException as exc:
            failure = exc
            raise
        finally:
            seconds = trio.current_time() - began
            self._record.note(events.RequestFinished, message=kind, seconds=seconds, error=failure)

    async def _raised(self, envelope: Envelope, exc: BaseException) -> None:
        """What an exception out of ``handle`` means."""
        verdict = collapse(exc)
        if isinstance(verdict, StopActor):
            self._incarnation.end(verdict.reason)
            self._interrupt(envelope)
        elif isinstance(verdict, NotSent):
            await self._not_sent(envelope)
        elif isinstance(exc, Exception):
            self._failed(envelope, exc)
        elif isinstance(verdict, Exception):  # raised while it was cancelled
            self._failed(envelope, verdict)
        elif isinstance(verdict, trio.Cancelled):
            self._was_cancelled(envelope)
        else:
            # KeyboardInterrupt or SystemExit leaves the tree at its door, after clean-up. Anything else that is no
            # Exception (asyncio's CancelledError, say) must not be raised in the caller's task, which it would end.
            self._incarnation.end("crashed", verdict)
            self._interrupt(envelope)

    async def _not_sent(self, envelope: Envelope) -> None:
        """Return an envelope to the mailbox for the next incarnation; fail it if this incarnation goes on."""
        if self._interruption is None:
            # Of several handlers that find the same connection gone, the last may be the one that decides the end, or
            # a task that reads. The slot is kept meanwhile, so that nobody is handed this envelope once more.
            with trio.move_on_after(NOT_SENT_PATIENCE):
                await self._incarnation.wait_ending()
        if self._interruption is not None:
            self._return(envelope)
            return
        name, message = self._record.name, type(envelope.message).__name__
        endless = ActorError(
            f"actor {name!r}: handling {message} raised NotSent, but the actor goes on, and would handle it again for "
            "ever; end this incarnation with self.fail(exception) or self.stop() before raising NotSent",
            actor=name,
        )
        self._failed(envelope, endless)

    def _failed(self, envelope: Envelope, exc: Exception) -> None:
        """Answer with an exception, and see whether it is the end."""
        if not (envelope.is_call and envelope.settle(error(exc))):
            self._unhandled(envelope, exc)
        try:
            if self._actor.is_fatal(exc):
                self._incarnation.end("crashed", exc)
        except BaseException as broken:
            self._incarnation.end("crashed", broken)

    def _was_cancelled(self, envelope: Envelope) -> None:
        """By us, or by a `trio.Cancelled` that escaped from another task and must not go any further."""
        assert envelope.scope is not None
        if envelope.scope.cancel_called:
            self._interrupt(envelope)
            return
        name = self._record.name
        stray = ActorError(
            f"actor {name!r}: handling {type(envelope.message).__name__} raised trio.Cancelled, but nobody had "
            "cancelled it; look for a Cancelled that was caught in one task and raised in another",
            actor=name,
        )
        self._failed(envelope, stray)

    def _interrupt(self, envelope: Envelope) -> None:
        if self._interruption is not None and envelope.is_call and envelope.open:
            envelope.settle(error(self._interruption(envelope)))

    def _return(self, envelope: Envelope) -> None:
        """Put an envelope back that was taken and not handled."""
        if envelope.is_call and not envelope.open:
            return
        if not self._record.mailbox.put_back(envelope) and not envelope.is_call:
            self._record.note(events.DeadLetter, message=type(envelope.message).__name__)

    def _unhandled(self, envelope: Envelope, exc: Exception) -> None:
        message = type(envelope.message).__name__
        if self._interruption is None:
            logger.error(
                "actor %r: handling %s failed and nobody waits for it", self._record.name, message, exc_info=exc
            )
        self._record.note(events.Unhandled, message=message, error=exc)


@trio.lowlevel.disable_ki_protection
async def interruptible(handle: Callable[[Message], Awaitable[object]], message: Message) -> object:
    """Run a handler, which a Ctrl-C may interrupt anywhere, unlike the kernel around it."""
    return await handle(message)
