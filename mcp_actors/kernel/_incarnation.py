"""One run of an actor: owner task, start, end and bounded stop.

Any task may end an incarnation at any moment. Each caller gets exactly one answer, before a slow clean-up. The owner
task enters and leaves three nested blocks::

    nursery                the tasks of the handlers and of the timers.
                           Shielded from outside once the incarnation has started.
                           Cancelled by a kill, by a stop while starting, and by the end of ``running()``.
      actor.running()      the resource
        loop               until the end is decided, cancels requests whose callers have left

So the resource is released *before* the handlers are joined.

Owns: the actor object; requests in flight; timers; monitors; the nursery.
Writes: the actor's state, in its record; the actor's mailbox; events; the supervision tree's schedule of kills and
warnings; causes of exceptions; the log.
Calls: _actor, _circles, _events, _record, _requests, _timers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from logging import ERROR, WARNING
from typing import TYPE_CHECKING, Literal

import trio
from attrs import define, evolve, field

from .._collapse import blame, collapse, exit_in, forget_cancelled, is_a, is_exit
from .._errors import ActorError
from . import _events as events
from ._actor import IgnoreStart, check_actor, names_running, resource_of
from ._circles import Sender, effective_deadline, labels, places, serving
from ._record import Change, End, interrupted
from ._requests import Requests
from ._timers import OwnMessages, Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._actor import Actor
    from ._circles import AwaitedCalls, Node
    from ._envelope import Envelope
    from ._record import EndReason, Record


@define(eq=False, repr=False)
class Incarnation(Sender):
    """One run of an actor. Base of `Run` (in ``_table``) and `Root` (in ``_open``).

    Attributes:
        started: True once messages are served.
        started_at: the Trio time at which serving began; until then, at which the actor was made.
        finishing: True from a request to stop until the end, while handlers finish; see `ask`.
        draining: True if queued messages are handled before the end.
        overdue: True once reported as outliving the limit (`bound`), directly or through a child.
        default_shutdown: the actor's `default_shutdown`, read once, because a property may raise.
        killed: True once `kill` was called.
        retried: True if another attempt follows should the start fail.
        comes_back: True if another incarnation follows; until the end is decided, the supervisor's expectation.
        verdict: the decided end; an exception of the clean-up may complete it.
        final: the end; None while the owner task runs.
        awaits: a supervisor's children whose start or end is awaited.
        pass_on_stop: called in the step that decides a stop; asks a supervisor's first child to stop.
    """

    record: Record
    nursery: trio.Nursery | None = field(default=None, init=False)
    actor: Actor | None = field(default=None, init=False)
    started: bool = field(default=False, init=False)
    started_at: float = field(default=0.0, init=False)
    default_shutdown: float | Literal["infinity"] = field(default=0.0, init=False)
    finishing: bool = field(default=False, init=False)
    draining: bool = field(default=False, init=False)
    overdue: bool = field(default=False, init=False)
    killed: bool = field(default=False, init=False)
    comes_back: bool = field(default=False, init=False)
    retried: bool = field(default=False, init=False)
    verdict: End | None = field(default=None, init=False)
    final: End | None = field(default=None, init=False)
    awaits: set[Incarnation] = field(factory=set, init=False)
    calls: AwaitedCalls | None = field(default=None, init=False)
    pass_on_stop: Callable[[], None] | None = field(default=None, init=False)
    _asked: bool = field(default=False, init=False)
    _late: BaseException | None = field(default=None, init=False)
    _own_messages: OwnMessages | None = field(default=None, init=False)
    _requests: Requests | None = field(default=None, init=False)
    _timers: Timers | None = field(default=None, init=False)
    _scope: trio.CancelScope | None = field(default=None, init=False)
    change: Change = field(factory=Change, init=False)
    _owner: trio.lowlevel.Task | None = field(default=None, init=False)
    _outer_deadline: float = field(default=math.inf, init=False)
    _asked_at: float = field(default=math.inf, init=False)
    _patience: float = field(default=math.inf, init=False)

    # --- its supervisor ---------------------------------------------------------------------------------------------

    @abstractmethod
    def make(self) -> Actor:
        """Return a new actor to run."""

    @abstractmethod
    def restarts_after(self, reason: EndReason) -> bool:
        """Return True if another incarnation follows."""

    @abstractmethod
    def ends_by_itself(self) -> None:
        """React to an end that was not requested, in the same step: `bound` the clean-up."""

    @abstractmethod
    def on_end(self, end: End) -> None:
        """React to the end, in the last step of the owner task."""

    # --- the owner task ---------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Run the actor from start to end in the calling task, the owner. Never raises.

        **Cancellation**: ends an actor that has not started yet, as a shutdown. Ignored later.
        """
        late: BaseException | None = None
        serving.set(self)
        self._owner = trio.lowlevel.current_task()
        # No deadline lies between a supervisor and its children; asking Trio would take a step per scope.
        above = self.record.parent and self.record.parent.mailbox.life
        self._outer_deadline = above.outer_deadline if above else effective_deadline()
        self.record.mailbox.life = self
        try:
            self.record.incarnation += 1
            self.record.killed = False
            self.record.become("starting")
            self.record.note(events.Starting)
            if self.verdict is None:  # else the end was decided already
                late = await self._live()
        except BaseException as exc:
            late = exc
        try:
            # A cancellation from outside ends here.
            self.final = self.verdict = self._conclude(None if late is None else collapse(late))
        finally:
            forget_cancelled(late, instead=None)
            del late  # whose traceback refers to this frame
        self._end_own()
        self.record.mailbox.life = None
        self._forget_bound()
        self.record.end_run(self.final, self._late, comes_back=self.comes_back and (self.started or self.retried))
        self._release()
        self.on_end(self.final)
        self.change()

    def _release(self) -> None:
        """Drop all references: the actor and tracebacks refer to this object.

        An actor's connection must not wait for the garbage collector, which a program may have switched off.
        """
        if self._requests is not None:
            self._requests.release()
        if self.actor is not None:
            object.__setattr__(self.actor, "_requests", None)  # its class may refuse attributes
        if self._timers is not None:
            self._timers.release()
        if self._own_messages is not None:
            self._own_messages.nursery = None
        self.actor = self._requests = self._timers = self._own_messages = self._owner = self._scope = self.calls = None
        self.nursery = self.pass_on_stop = self._late = None
        self.awaits.clear()

    def forget_error(self) -> None:
        """Forget a handled failure: the traceback refers to this object."""
        if self.final is not None and self.final.error is not None:
            self.final = self.verdict = evolve(self.final, error=None)

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C between acquiring a resource and its block could leak it
    async def _live(self) -> BaseException | None:
        late: BaseException | None = None
        thrown: BaseException | None = None
        async with trio.open_nursery() as nursery:
            self.nursery, self._scope = nursery, nursery.cancel_scope
            try:
                self.actor = self._adopt(self.make())
                self.started_at = trio.current_time()
                if self.actor.slow_after is not None:
                    self.record.sweeps.add(self._report_slow_start, 15.0)
                async with resource_of(self.actor):
                    try:
                        await trio.lowlevel.checkpoint_if_cancelled()
                        await self._loop(self._start(self.actor, nursery))
                    except BaseException as exc:
                        thrown = exc
                        raise
            except BaseException as exc:
                # Carried past the nursery, not raised through it: Trio calls the `repr` of an exception that leaves the
                # body. If that foreign code raises, the nursery is never closed, and the whole program ends with an
                # internal error.
                late = names_running(self.actor, exc)
            finally:
                self.record.sweeps.discard(self._report_slow_start)
                # Only once the resource was left: the scope is around running(), so an earlier cancellation would cut
                # the clean-up short. Without a cancellation, idle slots would sleep forever, and the nursery would
                # never be joined.
                self._scope.cancel("the incarnation has ended")
        try:
            forget_cancelled(thrown, instead=late)
            return late
        finally:
            del late, thrown  # whose tracebacks refer to this frame

    def _adopt(self, actor: Actor) -> Actor:
        name = self.record.name
        check_actor(f"actor {name!r}", actor)
        if actor._incarnation is not None:
            raise ActorError(
                f"actor {name!r}: this {type(actor).__name__} object has run before; create a new object for each "
                "open_actor(), and give a supervisor a factory that returns a new one each time",
                actor=name,
            )
        object.__setattr__(actor, "_incarnation", self)
        self.default_shutdown = actor.default_shutdown
        self.record.adopt(type(actor), actor._accepts, has_children=actor.kind == "supervisor")
        return actor

    @trio.lowlevel.enable_ki_protection
    def _start(self, actor: Actor, nursery: trio.Nursery) -> Requests:
        # The caller has just checked for a pending cancellation, and no checkpoint lies between the check and this
        # shield. At a checkpoint a deadline could fire, and the incarnation would start, shielded, although its opener
        # has already left.
        nursery.cancel_scope.shield = True
        self.started = True
        self.started_at = trio.current_time()
        self.record.sweeps.discard(self._report_slow_start)
        self._requests = Requests(self, actor, nursery)
        self.record.become("running")
        # Before the first message, which may end the incarnation in this very step.
        self.record.note(events.Started)
        if not self.ending:  # else an observer has ended it, and nothing would detach later
            self.record.mailbox.attach(self._requests)
        self.change()
        return self._requests

    async def _loop(self, requests: Requests) -> None:
        try:
            while self.verdict is None:
                await self.change.wait()
                requests.cancel_unneeded()
        finally:
            # Without a decided end, the resource has died, and its nursery has cancelled this loop. The cause comes out
            # of running() only after the clean-up, and callers must not wait for that: `_conclude` adds the cause.
            self.end("crashed")
            requests.cancel_unneeded()

    def wake(self) -> None:
        self.change()

    # --- its messages to itself, made when first used -----------------------------------------------------------------

    @property
    def own_messages(self) -> OwnMessages:
        if self._own_messages is None:
            self._own_messages = OwnMessages(self.record, self.nursery, partial(self.end, "crashed"), over=self.ending)
        return self._own_messages

    @property
    def timers(self) -> Timers:
        if self._timers is None:
            self._timers = Timers(self.own_messages)
        return self._timers

    def _end_own(self) -> None:
        if self._own_messages is not None:
            self._own_messages.close()

    # --- as a node of the wait-for graph ----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while starting or ending, for which others may wait."""
        return self.final is None and (not self.started or self.ending or self.finishing)

    open = busy

    @property
    def label(self) -> str:
        return f"{self.record.name!r} ({'stopping' if self.started else 'starting'})"

    @property
    def outer_deadline(self) -> float:
        return math.inf if self.started else self._outer_deadline

    def is_run_by(self, task: trio.lowlevel.Task) -> bool:
        return task is self._owner

    def blockers(self) -> list[Node]:
        if not self.busy:
            return []
        handlers = self._requests.in_flight if self._requests is not None else []
        own = places(self.calls) if self.ending or not self.started else []
        return [*self.awaits, *handlers, *own]

    # --- the start, seen from outside -------------------------------------------------------------------------------

    def has_outcome(self) -> bool:
        """Return True once messages are served, or the start has failed or is overdue."""
        return self.started or self.final is not None or self.overdue

    def when(self, check: Callable[[], object], fn: Callable[[], object]) -> None:
        """Call a function in the step in which a check succeeds."""
        if check():
            fn()
        else:
            self.change.call(partial(self.when, check, fn))

    def _report_slow_start(self) -> float | None:
        """Warn of a slow start. Return when to warn again."""
        if self.ending:
            return None
        name, seconds = self.record.name, trio.current_time() - self.started_at
        waits = " and ".join(labels(self.calls)) or "no actor"
        limit = "start_timeout" if self.record.parent else "a deadline around open_actor()"
        text = (
            "actor %r: has been starting for %.0f s, because running() has not reached its yield (it waits for %s); "
            "move endless work into a task, or set %s"
        )
        self.record.hub.log(WARNING, text, name, seconds, waits, limit)
        return seconds

    # --- the end ----------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def ask(self, *, comes_back: bool, drain: bool = False) -> None:
        """Ask for a stop: decide the end, now or once the handlers have finished (`Actor.finish_on_stop`).

        ``drain`` lets the actor handle queued messages first.
        """
        self._asked = comes_back
        actor = self.actor
        if self.finishing:
            return
        if not self.started or self.ending or actor is None or not (drain or actor.finish_on_stop):
            self.end("shutdown", comes_back=comes_back)
            return
        self.finishing, self.draining = True, drain
        self.record.become("stopping")
        for each in self.record.working:
            each.mailbox.on_fed = self._finish
        if not drain:
            self.record.mailbox.detach()
        self._finish()

    def _finish(self) -> None:
        """Decide the end if nothing is left to finish."""
        assert self._requests is not None
        if all(each.mailbox.idle for each in self.record.working) if self.draining else self._requests.idle:
            self.end("shutdown")

    def _as_asked(self, comes_back: bool | None) -> bool | None:
        """Return the `comes_back` of `ask` if handlers were finishing, else the argument."""
        if not self.finishing:
            return comes_back
        for each in self.record.working:
            each.mailbox.on_fed = None
        return self._asked

    @trio.lowlevel.enable_ki_protection
    def end(self, reason: EndReason, exc: BaseException | None = None, *, comes_back: bool | None = None) -> None:
        """Decide the end, in one synchronous step. The first decision counts; only a program exit replaces it.

        No more messages are taken, and messages in flight are answered or put back (`Requests.close`). Then the owner
        wakes up, leaves ``running()`` and joins the handlers. A starting incarnation has no loop to wake, and is
        cancelled.

        Args:
            reason: the reason.
            exc: the failure behind it; see `End`.
            comes_back: True if another incarnation follows. None means an end by itself: `restarts_after` decides,
                queued messages are answered if no incarnation follows, and `ends_by_itself` is called. A caller with
                another value does all three.
        """
        leaves = exit_in(exc)
        if self.verdict is not None:
            if leaves is not None:
                self.verdict = End("crashed", leaves)
            return
        exc = exc if leaves is None else leaves
        comes_back = self._as_asked(comes_back)
        self.verdict = end = End(reason, exc)
        if self._is_hopeless(exc) and self.verdict is end:
            self.verdict = End(reason, exc, hopeless=True)
        # A start that ends with an exception has failed, even for "shutdown".
        fails = not self.started and exc is not None
        self.comes_back = self.restarts_after("crashed" if fails else reason) if comes_back is None else comes_back
        self.retried = self.retried or comes_back is True
        self.record.become("backoff" if self.comes_back else "stopping")
        self._end_own()
        if self._requests is None:
            self._cancel(f"its end was decided ({reason}) while it was starting")
            return
        # Before any event: take no more messages, and answer those in flight. An observer of the events below may send
        # a message, which must go to the next incarnation. If the owner answered after this step instead, callers
        # would wait for the clean-up.
        self._requests.close(self._interruption)
        if comes_back is None and not self.comes_back:
            self.record.close(f"it ended by itself: {reason}")
        self.wake()
        if reason == "crashed":
            self.record.note(events.Crashed, error=exc)
        else:
            self.record.note(events.Stopping, reason=reason)
            if self.pass_on_stop is not None:
                self.record.hub.after_stop(self.pass_on_stop)
        if comes_back is None:
            self.ends_by_itself()

    def kill(self, why: str) -> None:
        """Cancel the owner: every ``await`` of the clean-up raises, synchronous clean-up still runs."""
        self.end("shutdown", comes_back=False)
        self.killed = True
        if self.actor is not None and self.final is None:
            self.record.killed = True
        self.change()
        self._cancel(why)

    def _cancel(self, why: str) -> None:
        if self._scope is not None:  # else not begun
            self._scope.cancel(why)

    def bound(self, shutdown: Shutdown | None, *, asked_at: float) -> None:
        """Schedule a kill, and an `Overdue` if the kill fails. The earliest of several bounds counts.

        Args:
            shutdown: seconds until the kill, ``"brutal_kill"``, ``"infinity"``, or None for the actor's own time.
            asked_at: the Trio time of the first request to stop.
        """
        if shutdown is None:  # without an actor nothing has to be cleaned up
            shutdown = self.default_shutdown if self.actor is not None else 0.0
        seconds = 0.0 if shutdown == "brutal_kill" else math.inf if shutdown == "infinity" else shutdown
        if self.is_bounded() or asked_at + seconds >= self._asked_at + self._patience:
            return
        self._forget_bound()
        self._asked_at, self._patience = asked_at, seconds
        self.record.sweeps.add(self._kill_late, asked_at + seconds - trio.current_time())

    def _forget_bound(self) -> None:
        if self._patience < math.inf:
            self.record.sweeps.discard(self._kill_late)
            self.record.sweeps.discard(self.report_overdue)

    def _kill_late(self) -> None:
        if self._patience and self.actor is not None and not self.killed:
            self.record.hub.log(
                WARNING,
                "actor %r: did not stop within %g s and was killed, so its clean-up may be incomplete; raise its "
                "shutdown time, or find out what running() waits for while stopping",
                self.record.name,
                self._patience,
            )
        self.kill("did not stop within its shutdown time" if self._patience else "brutal_kill")
        # Synchronous clean-up takes milliseconds; longer than a second means a shield.
        self.record.sweeps.add(self.report_overdue, 1.0)

    def report_overdue(self) -> None:
        self.mark_overdue()
        self.record.note(events.Overdue, seconds=trio.current_time() - self._asked_at)

    def mark_overdue(self) -> None:
        """Mark as overdue, which ends the waits."""
        self.overdue = True
        self._forget_bound()
        self.change()

    @property
    def ending(self) -> bool:
        return self.verdict is not None

    async def wait_ending(self) -> None:
        await self.change.until(lambda: self.ending)

    def is_bounded(self) -> bool:
        """Return True once the end is complete, or overdue."""
        return self.final is not None or self.overdue

    def is_ended(self) -> bool:
        return self.final is not None

    def _interruption(self, envelope: Envelope) -> ActorError:
        assert self.verdict is not None
        record, message = self.record, type(envelope.message).__name__
        return interrupted(self.verdict, record.name, record.incarnation, message, comes_back=self.comes_back)

    def _conclude(self, late: BaseException | None) -> End:
        """Return the end as decided, completed by the exception that left ``running()``."""
        end, late = self.verdict, None if is_a(late, trio.Cancelled) else late
        if is_a(late, IgnoreStart):
            end, late = end or End("ignored", keeps_mailbox=late.keep_mailbox), None
        if end is None:  # a start that ended without a call of `end`
            end = End("shutdown" if effective_deadline() == -math.inf else "crashed")
        if end.crashed and end.error is None:
            what = f"actor {self.record.name!r}: running() ended without a reason; call self.stop() or self.fail()"
            failure = ActorError(what, actor=self.record.name) if late is None else late
            end = End("crashed", failure, self._is_hopeless(failure))
        if late is not None and late is not end.error:
            if is_exit(late):
                end = End("crashed", late)
            elif end.error is not None and not self.started:
                blame(end.error, late)
            else:
                self._late = late
                text = "actor %r: running() raised an exception while stopping"
                self.record.hub.log(WARNING, text, self.record.name, error=late)
                self.record.note(events.StopFailed, error=late)
        if end.crashed and not self.started:
            self.record.note(events.StartFailed, error=end.error)
        return end

    def _is_hopeless(self, exc: BaseException | None) -> bool:
        if exc is None or self.actor is None:
            return False
        try:
            return bool(self.actor.is_hopeless(exc))
        except BaseException as broken:
            if is_exit(broken):
                self.record.hub.exit_with(broken)
            else:
                text = "actor %r: is_hopeless() raised, which counts as False"
                self.record.hub.log(ERROR, text, self.record.name, error=broken)
        return False


# --- Stop an incarnation ----------------------------------------------------------------------------------------------


Shutdown = float | Literal["brutal_kill", "infinity"]


async def stop_within(incarnation: Incarnation, shutdown: Shutdown | None, *, asked_at: float) -> None:
    """Ask an incarnation to stop, and wait until it has ended or is overdue; see `Incarnation.bound`.

    **Cancellation**: the stop continues.
    """
    incarnation.ask(comes_back=False)
    incarnation.bound(shutdown, asked_at=asked_at)
    await incarnation.change.until(incarnation.is_bounded)
