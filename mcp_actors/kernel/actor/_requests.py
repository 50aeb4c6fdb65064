"""Run the handlers of one incarnation in a limited number of slots.

Theory of operation
-------------------
A request must be cancellable by itself, and must run in its sender's context variables, so each gets its own task. It
gets no cancel scope of its own, because that would add half of the cost of a call. Instead every *slot* is a nursery,
kept open by a task that sleeps; requests run in it one after the other, each as its only child. Cancelling a request
cancels its slot: both end together, and the next request opens a new slot. As nearly all requests end by themselves, an
actor opens as many slots as it ever had requests at the same time.

*Handed over* means that the request task has made its first step, and that neither its caller has left nor the
incarnation ends by then. Until that step an envelope can go back to the mailbox.
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
"""Seconds from a `NotSent` until the end of the incarnation must be decided. A task that reads from a connection
notices its loss within milliseconds of the handler that writes to it."""


class Requests:
    """Takes envelopes from the mailbox (it is a `Taker`) and serves them. See the top of the file.

    Attributes:
        free: the number of free in-flight slots.
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
            # A slot outlives its first request, so its task must not keep that sender's context alive.
            slot_name = f"{self._record.name}:slot"
            open_slot = partial(self._nursery.start_soon, self._open_slot, envelope, name, name=slot_name)
            contextvars.Context().run(open_slot)
        # Only now: if start_soon raises (a closed nursery, another thread), no task would ever free the slot again.
        if not envelope.message.control:
            self.free -= 1

    def forget(self, envelope: Envelope) -> None:
        """Wake the owner, which cancels the request of a caller that has left; see `Reply.abandoned`."""
        self._left.append(envelope)
        self._incarnation.wake()

    @property
    def name(self) -> str:
        """The name of its actor."""
        return self._record.name

    def works(self, sender: Sender) -> bool:
        """Return True if a handler with a slot, other than the sender, has made no calls."""
        for envelope in self._in_flight:
            if envelope.calls is None and envelope is not sender and envelope.holder is self:
                return not envelope.message.control
        return False

    def slots(self) -> list[Envelope]:
        """Return the handlers with the in-flight slots; empty if a slot is free or its envelope not handed over."""
        held = [envelope for envelope in self.in_flight if not envelope.message.control]
        return held if len(held) == self._size else []

    @property
    def in_flight(self) -> list[Envelope]:
        """The envelopes that are being handled."""
        return [envelope for envelope in self._in_flight if envelope.holder is self]

    def blockers(self) -> tuple[()]:
        """Return no nodes: it is about to hand an envelope over, and waits for none."""
        return ()

    def cancel_left(self) -> None:
        """Cancel the requests whose callers have left."""
        while self._left:
            envelope = self._left.pop()
            if envelope.scope is not None:
                envelope.scope.cancel("its caller has left")

    def close(self, interruption: Callable[[Envelope], ActorError]) -> None:
        """Take no more messages, answer all that are in flight, and cancel their handlers, in one synchronous step.

        Args:
            interruption: returns a new exception for each caller.
        """
        self._interruption = interruption
        self._record.mailbox.detach()
        # A handler that decides the end itself is about to answer by itself, for example with `NotSent` after
        # `self.fail(...)`. If it does not, `_was_cancelled` answers. An answer from here would be the first and only.
        own_slot = trio.lowlevel.current_task().parent_nursery
        for envelope in tuple(self._in_flight):
            assert envelope.scope is not None
            if own_slot is None or envelope.scope is not own_slot.cancel_scope:
                self._interrupt(envelope)
            envelope.scope.cancel("the incarnation that handles it ends")

    # --- a request task ---------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _open_slot(self, envelope: Envelope, name: str) -> None:
        """Keep a slot open for later requests, and serve the first one in it."""
        async with trio.open_nursery() as slot:
            envelope.context.run(partial(slot.start_soon, self._serve, slot, envelope, name=name))
            del envelope
            await trio.sleep_forever()

    @trio.lowlevel.enable_ki_protection
    async def _serve(self, slot: trio.Nursery, envelope: Envelope) -> None:
        """Hand an envelope over, unless its caller has left or the incarnation ends; then free the slot."""
        try:
            if self._interruption is not None:
                self._return(envelope)
            elif envelope.open or not envelope.withdrawn:
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
            # A cancellation stops here too. It is that of the slot, whose own task raises it as well.
            self._in_flight.discard(envelope)
            await self._raised(envelope, exc)
        finally:
            self._in_flight.discard(envelope)
            envelope.scope = envelope.calls = None
            if envelope.holder is self:
                # Messages that its handler has sent refer to this envelope by their context. With its own context it
                # would keep the one before alive, and so on: a chain of all messages, back to the first.
                del envelope.context
            # In this order: `feed` may take the next envelope in this very step, and then uses the slot freed here.
            if not slot.cancel_scope.cancel_called:
                self._idle_slots.append(slot)
            if not envelope.message.control:
                self.free += 1
            if self._interruption is None:
                self._record.mailbox.feed()

    async def _handle_observed(self, message: Message) -> object:
        """Run the handler, with an event before and after."""
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
        """Decide what an exception from ``handle`` means."""
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
            # KeyboardInterrupt or SystemExit leaves the outermost block of the tree, after clean-up. Any other
            # BaseException (such as asyncio's CancelledError) must not be raised in the caller's task and end that.
            self._incarnation.end("crashed", verdict)
            self._interrupt(envelope)

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
        name, message = self._record.name, type(envelope.message).__name__
        endless = ActorError(
            f"actor {name!r}: handling {message} raised NotSent, but the actor keeps running and would handle it again "
            "forever; end this incarnation with self.fail(exception) or self.stop() before raising NotSent",
            actor=name,
        )
        self._failed(envelope, endless)

    def _failed(self, envelope: Envelope, exc: Exception) -> None:
        """Answer with an exception, and end the incarnation if it is fatal."""
        if not (envelope.is_call and envelope.settle(error(exc))):
            self._unhandled(envelope, exc)
        try:
            if self._actor.is_fatal(exc):
                self._incarnation.end("crashed", exc)
        except BaseException as broken:
            self._incarnation.end("crashed", broken)

    def _was_cancelled(self, envelope: Envelope) -> None:
        """Answer for a cancelled handler. A `trio.Cancelled` from another task is an error, and stops here."""
        assert envelope.scope is not None
        if envelope.scope.cancel_called:
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
            envelope.settle(error(self._interruption(envelope)))

    def _return(self, envelope: Envelope) -> None:
        """Return an envelope that was taken and not handled to the mailbox."""
        if envelope.withdrawn:
            return
        if not envelope.home.put_back(envelope) and not envelope.is_call:
            self._record.note(events.DeadLetter, message=type(envelope.message).__name__)

    def _unhandled(self, envelope: Envelope, exc: Exception) -> None:
        message = type(envelope.message).__name__
        if self._interruption is None:
            logger.error(
                "actor %r: handling %s failed, and no caller gets the error", self._record.name, message, exc_info=exc
            )
        self._record.note(events.Unhandled, message=message, error=exc)


@trio.lowlevel.disable_ki_protection
async def interruptible(handle: Callable[[Message], Awaitable[object]], message: Message) -> object:
    """Run a handler. Unlike the kernel around it, a Ctrl-C may interrupt it anywhere."""
    return await handle(message)
