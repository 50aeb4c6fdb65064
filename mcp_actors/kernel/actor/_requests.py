"""Run the handlers of one incarnation in a limited number of slots.

Theory of operation
-------------------
A request must be cancellable by itself, and must run in its sender's context variables, so each gets its own task,
unless its handler is a plain ``def`` (see ``_plain``). It gets no cancel scope of its own, because that would add half
of the cost of a call. Instead every *slot* is a nursery, kept open by a task that sleeps; requests run in it one after
the other, each as its only child. Cancelling a request cancels its slot: both end together, and the next request opens
a new slot. As nearly all requests end by themselves, an actor opens as many slots as it ever had requests at the same
time.

*Handed over* means that the request task has made its first step, and that neither its caller has left nor the
incarnation ends by then. Until that step an envelope can go back to the mailbox.

One task per tree, the `Sweeper`, closes slots that are not needed any more. After a burst of requests an actor keeps
one idle slot, and after a minute without requests none, because a slot is half of the memory of an actor.

``_taken`` and ``_plain`` serve messages without a task, and ``_answers`` decides how each message ends.
"""

from __future__ import annotations

import contextvars
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import trio

from ..._errors import ActorError
from .._circles import serving
from ..ref import Change
from ._actor import Actor
from ._later import Later
from ._plain import Plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..mailbox import Envelope, Message
    from ..ref import Sweeps
    from ._actor import Life

SWEEP_PERIOD: Final = 30.0
"""Seconds between two sweeps. A slot that is idle is closed after one or two. To open it again costs half a call."""

SWEEP_STEP: Final = 100
"""Actors whose slots are closed in one step: half a millisecond."""


class Requests(Plain):
    """Takes envelopes from the mailbox (it is a `Taker`) and serves them. See the top of the file."""

    __slots__ = ("_handle", "_idle_slots", "_swept", "_used")

    free: int

    def __init__(self, incarnation: Life, actor: Actor, nursery: trio.Nursery) -> None:
        super().__init__(incarnation, actor, nursery)
        self._record.reentrant = actor.reentrant
        # Without its own `handle`, the handler is called directly, which saves a coroutine.
        self._handle = actor._dispatch if type(actor).handle is Actor.handle else actor.handle
        self._idle_slots: list[trio.Nursery] = []
        self._swept = self._used = False

    # --- for the mailbox and the owner ------------------------------------------------------------------------------

    def take(self, envelope: Envelope, *, here: bool = False) -> None:
        """Begin to serve a message: offer it to the actor, run its plain handler, or start a request task for it."""
        envelope.holder = self
        needs_slot = not envelope.message.control
        if self._take is not None and needs_slot and self._is_taken(envelope, self._take):
            return
        if self._steps is not None and (handler := self._actor._find_plain(type(envelope.message))) is not None:
            self._run_in_step(envelope, handler, self._steps)
            return
        self._used = True
        name = f"{self._record.name}:{type(envelope.message).__name__}"
        if not self._idle_slots:
            # A slot outlives its first request, so its task must not keep that sender's context alive.
            slot_name = f"{self._record.name}:slot"
            open_slot = partial(self._nursery.start_soon, self._open_slot, envelope, name, name=slot_name)
            contextvars.Context().run(open_slot)
        elif here:
            slot = self._idle_slots.pop()
            slot.start_soon(self._serve, slot, envelope, name=name)
        else:
            slot = self._idle_slots.pop()
            envelope.context.run(partial(slot.start_soon, self._serve, slot, envelope, name=name))
        # Only now: if start_soon raises (a closed nursery, another thread), no task would ever free the slot again.
        if needs_slot:
            self.free -= 1

    def release(self) -> None:
        """Refer to the actor and its nursery no more."""
        super().release()
        del self._handle, self._nursery

    def cancel_left(self) -> None:
        """Cancel the requests whose callers have left. Called by the owner."""
        while self._left:
            left, self._left = self._left, []
            for envelope in left:
                if isinstance(envelope.scope, Later):
                    self._cancel_later(envelope, envelope.scope)
                elif isinstance(envelope.scope, trio.CancelScope):
                    envelope.scope.cancel("its caller has left")

    def close(self, interruption: Callable[[Envelope], ActorError]) -> None:
        """Take no more messages, answer all that are in flight, and cancel their handlers, in one synchronous step.

        Args:
            interruption: returns a new exception for each caller.
        """
        self._interruption = interruption
        self._sweeper.discard(self._sweep)
        self._record.mailbox.detach()
        self._settle_unsent()
        # A handler that decides the end itself is about to answer by itself, for example with `NotSent` after
        # `self.fail(...)`. If it does not, `_was_cancelled` answers. An answer from here would be the first and only.
        own_slot = trio.lowlevel.current_task().parent_nursery
        for envelope in sorted(self.in_flight, key=attrgetter("number")):
            scope = envelope.scope
            if isinstance(scope, trio.CancelScope):
                if own_slot is None or scope is not own_slot.cancel_scope:
                    self._interrupt(envelope)
                scope.cancel("the incarnation that handles it ends")
            # If `take` or a plain handler decides the end, that answers by itself too.
            elif envelope is not self._running and envelope.later is not self._offered:
                self._abandon(envelope)
        self._return_due()

    @property
    def _sweeper(self) -> Sweeps:
        sweeper = self._record.top.sweeper
        assert sweeper is not None  # open_actor() and open_supervisor() set it
        return sweeper

    def _sweep(self) -> bool:
        """Close idle slots: all but one if there was a request since the last sweep. Return False if none is left."""
        keep, self._used = int(self._used), False
        while len(self._idle_slots) > keep:
            self._idle_slots.pop().cancel_scope.cancel("the slot is not needed any more")
        self._swept = bool(self._idle_slots)
        return self._swept

    # --- a request task ---------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _open_slot(self, envelope: Envelope, name: str) -> None:
        """Keep a slot open for later requests, and serve the first one in it."""
        async with trio.open_nursery() as slot:
            envelope.context.run(partial(slot.start_soon, self._serve, slot, envelope, name=name))
            del envelope
            await trio.lowlevel.wait_task_rescheduled(_leave)  # sleep_forever() would be 400 bytes more for each slot

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
                handle = self._handle_observed if self._observed else self._handle
                result = await interruptible(handle, envelope.message)
                self._answer(envelope, result)
        except BaseException as exc:
            # A cancellation stops here too. It is that of the slot, whose own task raises it as well.
            self._in_flight.discard(envelope)
            if self._raised(envelope, exc):
                await self._not_sent(envelope)
        finally:
            # In this order: `feed` may take the next envelope in this very step, and then uses the slot freed here.
            if not slot.cancel_scope.cancel_called:
                self._idle_slots.append(slot)
                if not self._swept and self._interruption is None:
                    self._swept = True
                    self._sweeper.add(self._sweep)
            self._handler_ended(envelope)

    async def _handle_observed(self, message: Message) -> object:
        """Run the handler, with an event before and after."""
        with self._noted(message) as note:
            return note(await self._handle(message))


class Sweeper:
    """Closes slots that are not needed any more, in one task for all actors of a tree."""

    def __init__(self) -> None:
        self._due: dict[Callable[[], bool], None] = {}
        self._news = Change()
        # Shielded, because a cancellation of the block would leave this task as an exception. `stop` always ends it.
        self._scope = trio.CancelScope(shield=True)

    def add(self, sweep: Callable[[], bool]) -> None:
        """Call a function every `SWEEP_PERIOD` until it returns False."""
        self._due[sweep] = None
        self._news()

    def discard(self, sweep: Callable[[], bool]) -> None:
        """Do not call it any more. It would keep an ended incarnation alive, and the failure that has ended it."""
        self._due.pop(sweep, None)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Sweep until it is stopped. While there is nothing to do, no deadline wakes this task."""
        with self._scope:
            while True:
                await self._news.until(lambda: self._due)
                await trio.sleep(SWEEP_PERIOD)
                for number, sweep in enumerate(tuple(self._due)):
                    if not sweep():
                        self.discard(sweep)
                    if number % SWEEP_STEP == 0:
                        await trio.lowlevel.checkpoint()

    def stop(self) -> None:
        """End `run`."""
        self._scope.cancel("the tree of actors has ended")


def _leave(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


@trio.lowlevel.disable_ki_protection
async def interruptible(handle: Callable[[Message], Awaitable[object]], message: Message) -> object:
    """Run a handler. Unlike the kernel around it, a Ctrl-C may interrupt it anywhere."""
    return await handle(message)
