"""Run the handlers of one incarnation in a limited number of slots.

A handler is foreign code, and may raise anything, leave a cancel scope open, end the incarnation, or start an endless
exchange of messages. The mailbox calls `Requests.take` in steps of other actors, so ``take`` must not raise.
A Ctrl-C may interrupt a handler, but not the kernel around it.

Owns: slots of the incarnation; the queue for ``def`` handlers; sweeps of idle slots; tasks of handlers.
Writes: answers to messages; the end of the incarnation; the actor's record and mailbox; the log.
Calls: _actor, _circles, _later, _record, _serving.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import count
from logging import WARNING
from operator import attrgetter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from .._errors import ActorError
from ._actor import Actor
from ._circles import serving
from ._later import Later
from ._record import Change
from ._serving import IN_STEP, Slot, TakenMessages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._actor import Life
    from ._envelope import Envelope, Message


# --- Run plain ``def`` handlers in the delivering step ----------------------------------------------------------------

# Theory of operation
# -------------------
# A plain handler runs in a step of the sender, or of a task that frees a slot. So any exception of the handler becomes
# the answer, a log line, or the end of the incarnation, whose own task then leaves ``running()``.
#
# Messages that a plain handler sends to plain handlers would nest in its step, and two actors that answer each other
# would exceed Python's recursion limit. So one plain handler runs at a time in a Trio run. Meanwhile other messages
# take their slots and are *due*: handled afterwards, in the order taken, in the same step. After `MESSAGES_A_STEP`
# messages Trio runs other tasks. Otherwise two actors that answer each other would block the event loop.
#
# With several slots, a plain handler may begin before the task of an earlier message; waiting for that would take a
# step per message.
#
# A due message is not handed over yet. If its incarnation ends, it returns to the mailbox; if its caller leaves, it is
# dropped.


Handler: TypeAlias = "Callable[[Message], Any]"

MESSAGES_A_STEP: Final = 64
"""Messages handled in one step before Trio runs other tasks. Each takes microseconds."""


class Steps:
    """The plain handlers of a Trio run.

    Attributes:
        due: the incarnations that have taken due messages, once per message.
    """

    __slots__ = ("_later", "_token", "busy", "due")

    def __init__(self) -> None:
        self.busy = False
        self.due: deque[PlainHandlers] = deque()
        self._later = False
        self._token = trio.lowlevel.current_trio_token()

    def go_on(self) -> None:
        if self._later:
            return
        for _ in range(MESSAGES_A_STEP):
            if not self.due:
                return
            self.due.popleft().handle_due()
        if self.due:
            self._later = True
            self._token.run_sync_soon(self._resume)

    def _resume(self) -> None:
        self._later = False
        self.busy = True
        try:
            self.go_on()
        finally:
            self.busy = False


_steps: Final = trio.lowlevel.RunVar[Steps]("mcp_actors.kernel.steps")


def steps_of_run() -> Steps:
    try:
        return _steps.get()
    except LookupError:
        _steps.set(steps := Steps())
        return steps


class PlainHandlers(TakenMessages):
    __slots__ = ("_due", "_nursery", "_running", "_steps")

    def __init__(self, incarnation: Life, actor: Actor, nursery: trio.Nursery) -> None:
        super().__init__(incarnation, actor)
        self._nursery = nursery
        self._steps = steps_of_run() if type(actor)._plain else None
        self._due: deque[tuple[Envelope, Handler]] | None = None
        self._running: Envelope | None = None

    def _run_in_step(self, envelope: Envelope, handler: Handler, steps: Steps) -> None:
        """Handle a message now, or after the messages that are due."""
        if envelope.message.control:
            self.free_control -= 1
        else:
            self.free -= 1
        if steps.busy or self._due:
            if self._due is None:
                self._due = deque()
            self._due.append((envelope, handler))
            steps.due.append(self)
            return
        steps.busy = True
        try:
            self._run(envelope, handler)
            if steps.due:
                steps.go_on()
        finally:
            steps.busy = False

    def handle_due(self) -> None:
        """Handle the oldest due message, if still there."""
        if self._due:
            self._run(*self._due.popleft())

    def _run(self, envelope: Envelope, handler: Handler) -> None:
        """Call a plain handler, and answer. Never raises."""
        held = False
        try:
            # The message before, or `take`, may have decided the end.
            if self._interruption is not None:
                self._return(envelope)
            elif envelope.open or not envelope.withdrawn:
                envelope.scope = IN_STEP
                self._in_flight.add(envelope)
                self._running = envelope
                envelope.context.run(serving.set, envelope)
                call = self._call_noted if self._observed else _call
                self._answer(envelope, envelope.context.run(call, handler, envelope.message))
        except BaseException as exc:
            self._in_flight.discard(envelope)
            # Observers and log handlers see the sender's variables, as with a task.
            if envelope.context.run(self._raised, envelope, exc):
                self._clear_context(envelope)
                held = self._interruption is None
                if not held:
                    self._return(envelope)
        finally:
            self._running = None
            if held:
                envelope.scope = slot = Slot()
                self._nursery.start_soon(self._hold, envelope, slot, name=f"{self.name}:not sent")
            else:
                self._handler_ended(envelope)

    def _call_noted(self, handler: Handler, message: Message) -> object:
        with self._noted(message) as note:
            return note(_call(handler, message))

    async def _hold(self, envelope: Envelope, slot: Slot) -> None:
        """Keep the slot after `NotSent` until the end of the incarnation is decided."""
        try:
            with slot.scope:
                await self._not_sent(envelope)
        finally:
            self._handler_ended(envelope)


@trio.lowlevel.disable_ki_protection
def _call(handler: Handler, message: Message) -> object:
    """Call a plain handler, which a Ctrl-C may interrupt."""
    result: object = handler(message)
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError(
            f"{getattr(handler, '__qualname__', handler)}(): returned a coroutine for {type(message).__name__}; define "
            "it with `async def`"
        )
    return result


# --- Run ``async def`` handlers in slots ------------------------------------------------------------------------------

# An ``async def`` handler needs a task and a cancel scope: a request must be cancellable alone, and run in the sender's
# context variables. Making both for each request would double the cost of a call. A *slot* therefore has both, and
# serves request after request. Cancelling a request cancels the slot, and the next request may open a new one. Nearly
# all requests end by themselves, so few slots are opened again.


SWEEP_PERIOD: Final = 30.0
"""Seconds between sweeps; one or two sweeps close an idle slot. A slot is half of an actor's memory; opening a slot
again costs half a call."""

SWEEP_STEP: Final = 100
"""Actors whose slots are closed in one step: half a millisecond."""


class Requests(PlainHandlers):
    """Takes envelopes from the mailbox (a `Taker`) and serves them.

    A request is *handed over* when the handler or `Actor.take` is called. Neither is called if the caller has left or
    the incarnation ends. Once handed over, an envelope returns to the mailbox only by `NotSent` or `Postpone`, or if
    `Actor.take` leaves the envelope to a handler, and the incarnation ends before the handler begins.
    """

    __slots__ = ("_handle", "_idle_slots", "_swept", "_used")

    def __init__(self, incarnation: Life, actor: Actor, nursery: trio.Nursery) -> None:
        super().__init__(incarnation, actor, nursery)
        self._record.reentrant = actor.reentrant
        # Calling the handler directly saves a coroutine.
        self._handle = actor._dispatch if type(actor).handle is Actor.handle else actor.handle
        self._idle_slots: list[Slot] = []
        self._swept = self._used = False

    # --- for the mailbox and the owner ------------------------------------------------------------------------------

    def take(self, envelope: Envelope) -> None:
        """Offer a message to the actor, run the plain handler, or give the message to a slot."""
        envelope.holder = self
        needs_slot = not envelope.message.control
        if self._take is not None and needs_slot and self._offer(envelope, self._take):
            return
        if self._steps is not None and (handler := self._actor._find_plain(type(envelope.message))) is not None:
            self._run_in_step(envelope, handler, self._steps)
            return
        self._used = True
        name = f"{self._record.name}:{type(envelope.message).__name__}"
        if self._idle_slots:
            self._idle_slots.pop().give(envelope, name)
        else:
            envelope.context.run(partial(self._nursery.start_soon, self._open_slot, envelope, name=name))
        # Only now: if start_soon raises (a closed nursery, another thread), no task would ever free the slot.
        if needs_slot:
            self.free -= 1
        else:
            self.free_control -= 1

    def release(self) -> None:
        super().release()
        del self._handle, self._nursery

    def cancel_unneeded(self) -> None:
        """Cancel the requests whose answers no caller awaits any more."""
        while self._unneeded:
            unneeded, self._unneeded = self._unneeded, []
            for envelope in unneeded:
                if isinstance(envelope.scope, Later):
                    self._cancel_later(envelope, envelope.scope)
                elif isinstance(envelope.scope, Slot):
                    envelope.scope.cancel("its caller has left")

    def close(self, interruption: Callable[[Envelope], ActorError]) -> None:
        """Take no more messages, answer all in flight, and cancel their handlers, in one synchronous step.

        Args:
            interruption: returns a new exception for each caller.
        """
        self._interruption = interruption
        for check in (self._sweep, self._check_slow, self._check_deferred):
            self._record.sweeps.discard(check)
        self._record.mailbox.detach()
        try:
            self._actor.ending()
        except BaseException as exc:
            self._record.hub.log(WARNING, "actor %r: ending() raised", self.name, error=exc)
            self._incarnation.end("crashed", exc)
        # A handler that decides the end answers by itself, for example with `NotSent` after `self.fail(...)`. An answer
        # from here would come first, and be the only one. If the handler does not answer, `_was_cancelled` does.
        running = trio.lowlevel.current_task()
        for envelope in sorted(self.in_flight, key=attrgetter("number")):
            scope = envelope.scope
            if isinstance(scope, Slot):
                if scope.task is not running:
                    self._interrupt(envelope)
                scope.cancel("the incarnation that handles it ends")
            # As above, for `take` and plain handlers.
            elif envelope is not self._running and envelope.later is not self._offered:
                self._interrupt_deferred(envelope)
        while self._due:
            envelope, _ = self._due.pop()  # last first, so that each becomes the first of the queue
            self._return(envelope)
            self._finish(envelope)

    def _sweep(self) -> float | None:
        """Close idle slots: all but one after recent requests. Return when to sweep again."""
        keep, self._used = int(self._used), False
        while len(self._idle_slots) > keep:
            self._idle_slots.pop().cancel("the slot is not needed any more")
        self._swept = bool(self._idle_slots)
        return SWEEP_PERIOD if self._swept else None

    # --- the task of a slot -----------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _open_slot(self, envelope: Envelope) -> None:
        slot = Slot()

        def leave(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            if not slot.cancelled:  # the nursery around all slots was cancelled
                self._idle_slots.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            with slot.scope:
                slot.begin()
                while await self._serve(slot, envelope):
                    del envelope
                    envelope = await slot.wait(leave)
        except RuntimeError:
            if not slot.left_open:
                raise

    @trio.lowlevel.enable_ki_protection
    async def _serve(self, slot: Slot, envelope: Envelope) -> bool:
        """Hand an envelope over, unless the caller has left or the incarnation ends. Return False if the slot ends."""
        try:
            if self._interruption is not None:
                self._return(envelope)
            elif envelope.open or not envelope.withdrawn:
                envelope.scope = slot
                envelope.since = self._now()
                self._in_flight.add(envelope)
                if not self._watched:
                    self._watch_slow()
                serving.set(envelope)
                handle = self._handle_observed if self._observed else self._handle
                self._answer(envelope, await interruptible(handle, envelope.message))
        except BaseException as exc:
            # A cancellation of the slot stops here too: its scope is left next.
            self._in_flight.discard(envelope)
            if self._raised(envelope, exc):
                await self._not_sent(envelope)
        finally:
            # First the slot, then `_handler_ended`: its `feed` may take the next envelope in this very step, and must
            # find the slot freed here, or each message of a busy actor would open a new one. A slot must not be offered
            # again if it was cancelled, or if the handler has left a cancel scope open.
            usable = slot.is_usable()
            if usable:
                self._idle_slots.append(slot)
                if not self._swept and self._interruption is None:
                    self._swept = True
                    self._record.sweeps.add(self._sweep, SWEEP_PERIOD)
            self._handler_ended(envelope)
        return usable

    async def _handle_observed(self, message: Message) -> object:
        with self._noted(message) as note:
            return note(await self._handle(message))


class Sweeper:
    """Calls functions of all actors of a tree after some time, in one task."""

    def __init__(self) -> None:
        # The heap refers to no function, which would keep an ended incarnation alive.
        self._heap: list[tuple[float, int]] = []
        self._sweeps: dict[int, Callable[[], float | None]] = {}
        self._ids: dict[Callable[[], float | None], int] = {}
        self._numbers = count()
        self._news = Change()
        # Shielded, so that a cancellation of the block raises nothing out of this task.
        self._scope = trio.CancelScope(shield=True)

    def add(self, sweep: Callable[[], float | None], after: float) -> None:
        id = next(self._numbers)
        self._ids[sweep], self._sweeps[id] = id, sweep
        entry = (trio.current_time() + after, id)
        if len(self._heap) > 2 * len(self._sweeps) + SWEEP_STEP:  # most are of ended actors
            self._heap = sorted(each for each in self._heap if each[1] in self._sweeps)
        heappush(self._heap, entry)
        if self._heap[0] is entry:
            self._news()

    def discard(self, sweep: Callable[[], float | None]) -> None:
        self._sweeps.pop(self._ids.pop(sweep, -1), None)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Sweep until stopped. With nothing to do, no deadline wakes this task."""
        with self._scope:
            while True:
                while self._heap and self._heap[0][1] not in self._sweeps:
                    heappop(self._heap)
                with trio.move_on_at(self._heap[0][0] if self._heap else math.inf):
                    await self._news.wait()
                await self._sweep_due()

    async def _sweep_due(self) -> None:
        now = trio.current_time()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[1])
        for number, id in enumerate(due):
            sweep = self._sweeps.pop(id, None)
            if sweep is not None:
                del self._ids[sweep]
                again = sweep()
                if again is not None:
                    self.add(sweep, again)
            if number % SWEEP_STEP == 0:
                await trio.lowlevel.checkpoint()

    def stop(self) -> None:
        self._scope.cancel("the tree of actors has ended")


@trio.lowlevel.disable_ki_protection
async def interruptible(handle: Callable[[Message], Awaitable[object]], message: Message) -> object:
    """Run a handler, which a Ctrl-C may interrupt."""
    return await handle(message)
