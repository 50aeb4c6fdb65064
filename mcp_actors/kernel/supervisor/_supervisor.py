"""The supervisor: an actor whose resource is other actors.

Its owner task starts the children, sleeps while they are managed (see ``_children``), and stops them at its end: first
the manager, then the children, newest first, inside a shield that each child's own ``shutdown`` bounds.

Queries only read the child table, and are answered at once. The manager makes the changes, and begins them in the order
in which they were requested. The stop of a child that does not serve is made at once: it ends a start or a back-off.
The ``start_order`` decides if a change is complete before the next one begins.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

import outcome
import trio

from ..._collapse import first_of
from ..._errors import ActorStartError
from ..._foreign import shown, words_of
from .._circles import expect, find_circle, serving
from ..actor import Actor
from ..mailbox import Envelope, M_contra, Reply
from ..ref import (
    CUT_SHORT,
    ChildChange,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    StopChild,
    WhichChildren,
    ref_to,
)
from ._errors import change_deadlocks, change_refused, start_cut_short, stopping_itself, wait_deadlocks
from ._options import SupervisorPolicy, shows_options
from ._recovery import Recovery
from ._restart import check_specs
from ._table import count_children

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from .._circles import Sender
    from ..actor import Incarnation
    from ..ref import ActorRef
    from ._options import SupervisorOptions
    from ._restart import ChildSpec
    from ._table import Child, Fate, Run


T = TypeVar("T")


class Supervisor(Actor[M_contra]):
    """An actor that starts actors, restarts those that fail and stops all of them when it ends.

    `open_supervisor` makes one and runs it. Make one yourself to nest it in another's child table:
    ``ChildSpec("x", lambda: Supervisor(...))``.

    Args:
        specs: the children, in the order in which they start. They stop in reverse order.
        strategy: the children that are restarted when a child fails: ``"one_for_one"`` only that child,
            ``"rest_for_one"`` that child and those after it in the table, ``"one_for_all"`` all. The others are
            stopped first, newest first; then all are started in order, except for temporary ones.
        max_restarts: the restart attempts allowed within ``window``; 0 disables restarts.
        window: seconds; `math.inf` never forgets an attempt.
        reset_after: after this many seconds of running, the failures of a child no longer count, for its back-off and
            for the budget. None: as in OTP, attempts only age out of the window.
        backoff: the delay before each attempt; none by default. If the `Backoff.delay` of a derived class raises, or
            returns anything but a number of at least 0, the supervisor crashes with that error.
        on_limit: the reaction when a child needs more restarts than the budget allows, or says that they cannot help.
            ``"end"`` stops everything and ends with `RestartLimitReached`; ``"park"`` leaves that child in state
            ``failed``, where ``restart_child`` starts it with a new budget and the same mailbox.
        park_retry: with ``on_limit="park"``, a function from the last failure of a parked child to the seconds until
            one more attempt, or None for no attempt. The attempt does not renew the budget: unless the child then runs
            for ``reset_after`` seconds, its next failure parks it again. Time in which the machine is suspended counts.
        auto_shutdown: ends the supervisor when a ``significant`` child has ended by itself and is not restarted:
            ``"never"``, ``"any_significant"``, or ``"all_significant"`` (with the last of them).
        start_order: ``"sequential"``, as in OTP, waits for each start, restart and change before the next one, so a
            child whose start hangs delays the others unless it has a ``start_timeout``. With ``"parallel"`` starts and
            changes of different children run concurrently.
        stop_order: ``"sequential"`` (each child has stopped before the next is asked) or ``"concurrent"`` (all are
            asked in one step, in reverse order).
        strict: True makes a failed first start an error that undoes this start, also in ``start_child`` and
            ``restart_child``. False records the failure and retries the start, like a crash.
        await_start: False starts the supervisor without waiting for its children, whose failed starts are retried. It
            needs ``strict=False``. True waits for the outcome of each first start.

    Raises:
        ValueError: an argument or a child is invalid; the message names it.
    """

    default_shutdown: float | Literal["infinity"] = "infinity"
    kind: Literal["worker", "supervisor"] = "supervisor"
    _budget_per_child = False

    @shows_options
    def __init__(self, *specs: ChildSpec, **options: Unpack[SupervisorOptions]) -> None:
        self._policy = SupervisorPolicy(**options)
        check_specs(specs, self._policy.auto_shutdown)
        self._specs = specs

    # --- the owner task ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def running(self) -> AsyncIterator[None]:
        """Start the children, run their manager, and stop them."""
        async with trio.open_nursery() as nursery:
            per_child = self._budget_per_child
            self._children = Recovery(self._life, self._policy, nursery, budget_per_child=per_child)
            try:
                children = self._children.add_all(self._specs)
                async with trio.open_nursery() as managing:
                    # In parallel, a first start that hangs must not delay the restart of a child that has started.
                    if self._policy.start_order == "parallel":
                        self._manage_in(managing)
                    await self._start(children)
                    if self._policy.start_order == "sequential":
                        self._manage_in(managing)
                    self._life.pass_on_stop = self._begin_to_stop
                    yield
                    managing.cancel_scope.cancel("the supervisor stops")
            finally:
                await self._stop_children()
                nursery.cancel_scope.cancel("all children have stopped")

    @property
    def _life(self) -> Incarnation:
        return cast("Incarnation", self._current)

    def _manage_in(self, managing: trio.Nursery) -> None:
        managing.start_soon(self._children.manage, name=f"{self._life.record.name}:manager")

    async def _start(self, children: list[Child]) -> None:
        """Make the first starts, or leave them to the manager if they are not awaited."""
        if not self._policy.await_start:
            for child in children:
                self._children.hold(child, [child])  # so that it can be stopped before its turn
            self._children.put_job(partial(self._start_unawaited, children))
            return
        failures: dict[Child, ActorStartError] = {}
        async with trio.open_nursery() as attempts:
            for child in children:
                if self._policy.start_order == "parallel":
                    attempts.start_soon(self._start_awaited, child, failures, name=f"{child.spec.id}:start")
                elif not failures:
                    await self._start_awaited(child, failures)
        if failures:
            failure = first_of(failures[child] for child in children if child in failures)
            self._life.end("crashed", failure)  # at once, so that callers need not wait for the clean-up
            raise failure

    async def _start_unawaited(self, children: list[Child]) -> None:
        for child in children:
            if child.group is not None:  # else it was stopped
                await self._children.carry_out(self._children.start_first, self._children.begin(child))

    @trio.lowlevel.enable_ki_protection
    async def _start_awaited(self, child: Child, failures: dict[Child, ActorStartError]) -> None:
        """Make one first start. If it fails and the supervisor is strict, stop later ones that are under way."""
        try:
            await self._children.start(child)
        except ActorStartError as exc:
            failures[child] = exc
            rows = list(self._children.table.values())
            for later in rows[rows.index(child) + 1 :]:
                if later.run is not None and later.run.fate is None and not later.run.started:
                    self._children.ask(later, "closed")

    def _stops(self) -> list[tuple[Child, Fate]]:
        """Return the children, newest first, and what becomes of each when the supervisor stops."""
        return [
            (child, "restarted" if self._children.comes_back(child) else "closed")
            for child in reversed(self._children.table.values())
        ]

    def _begin_to_stop(self) -> None:
        """Ask the first children that are to stop, in the step in which this supervisor is asked.

        The owners of several supervisors that are asked in one step wake up in any order. So their children are asked,
        and seen to stop, in the order of the supervisors.
        """
        self._children.ask_first(self._stops())

    async def _stop_children(self) -> None:
        """Stop all running children, newest first, each within its own bound. Only a kill shortens that.

        A supervisor that is cancelled while it starts is not killed: its children are asked to stop.
        """
        plan = self._stops()
        # Shielded, because a cancelled supervisor must still ask its children to stop. The bound is that of each child;
        # a kill of the supervisor is passed on by a task, as nothing else can reach in here.
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on_a_kill, plan, name=f"{self._life.record.name}:kill")
                await self._children.stop_all(plan)
                overdue = [child.run for child, _ in plan if child.run is not None]
                if overdue:
                    self._life.let_go()  # they have been reported
                for run in overdue:
                    await self._children.wait_finished(run)
                nursery.cancel_scope.cancel("all children have stopped")

    @trio.lowlevel.enable_ki_protection
    async def _pass_on_a_kill(self, plan: list[tuple[Child, Fate]]) -> None:
        """Kill all running children once the supervisor is killed."""
        await self._life.wait_killed()
        for child, fate in plan:
            if child.run is not None:
                self._children.ask(child, fate)
                child.run.kill("its supervisor was killed")

    # --- messages ---------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def handle(self, message: WhichChildren | CountChildren | ChildChange) -> Any:
        """Answer a query at once; pass a change to the manager and wait for its result."""
        match message:
            case WhichChildren():
                return tuple(child.info() for child in self._children.table.values())
            case CountChildren():
                return count_children(self._children.table.values())
            case StartChild(spec):
                start = partial(self._start_child, cast("ChildSpec", spec))
                return await self._in_turn(start, partial(self._wait_started, self._undo_start))
            case StopChild(id, keep_mailbox):
                return await self._stop_child(id, "open" if keep_mailbox else "closed")
            case RestartChild(id):
                restart = partial(self._restart_child, id)
                return await self._in_turn(restart, partial(self._wait_started, self._undo_restart))
            case DeleteChild(id):
                return await self._in_turn(partial(self._delete_child, id), self._children.wait_finished)
        raise TypeError(
            f"supervisor {self._life.record.name!r}: does not understand {shown(message)}; use SupervisorRef's methods"
        )

    async def _in_turn(self, begin: Callable[[], Run | None], rest: Callable[[Run], Awaitable[T]]) -> T | None:
        """Let the manager make a change after its current jobs. If the caller leaves before that, it is not made.

        Args:
            begin: begins the change, in one synchronous step. Returns the incarnation to wait for; None if there is
                none, so the change is done.
            rest: waits for it, and returns the result.
        """
        request = serving.get()
        assert request is not None
        circle = find_circle(request, self._children)
        if circle:
            raise change_deadlocks(self._life.record.name, circle)
        reply: Reply[T | None] = Reply()

        @trio.lowlevel.enable_ki_protection
        async def conclude(run: Run) -> None:
            try:
                result = await rest(run)
            except Exception as exc:
                reply.settle(outcome.Error(exc))
            else:
                reply.settle(outcome.Value(result))

        async def job() -> None:
            if not reply.open:
                return
            run = None
            try:
                run = begin()
                if run is not None:
                    self._expect(request, run)
            except Exception as exc:
                reply.settle(outcome.Error(exc))
            if run is None:
                reply.settle(outcome.Value(None))  # unless it was refused
            else:
                await self._children.carry_out(conclude, run)

        self._children.put_job(job)
        return await reply.wait()

    def _expect(self, request: Sender, run: Run) -> None:
        """Record that a change waits for an incarnation, unless that waits for the caller of the change."""
        circle = find_circle(request, run)
        if circle:
            raise wait_deadlocks(self._life.record.name, run.child.spec.id, circle)
        expect(request, run)

    def _find(self, id: str) -> Child:
        child = self._children.table.get(id)
        if child is None:
            raise change_refused(self._life.record.name, id, "not_found")
        return child

    def _find_idle(self, id: str) -> Child:
        child = self._find(id)
        if child.group is not None:
            raise change_refused(self._life.record.name, id, "restarting")
        if child.run is not None:
            raise change_refused(self._life.record.name, id, "running")
        return child

    def _start_child(self, spec: ChildSpec) -> Run:
        check_specs((spec,), self._policy.auto_shutdown)
        known = self._children.table.get(spec.id)
        if known is not None:
            runs = known.run is not None and (known.group is None or known.run.fate is None)
            raise change_refused(self._life.record.name, spec.id, "already_started" if runs else "already_present")
        return self._children.begin(self._children.add(spec))

    def _restart_child(self, id: str) -> Run:
        child = self._find_idle(id)
        self._children.revive(child)
        return self._children.begin(child)

    def _delete_child(self, id: str) -> None:
        self._children.remove(self._find_idle(id))

    async def _wait_started(self, undo: Callable[[Child, ActorStartError], None], run: Run) -> ActorRef:
        try:
            end = await self._children.start_first(run)
        except ActorStartError as exc:
            undo(run.child, exc)
            raise
        if end is CUT_SHORT:
            raise start_cut_short(self._life.record.name, run.child)
        return ref_to(run.child.record)

    def _undo_start(self, child: Child, exc: ActorStartError) -> None:
        self._children.remove(child, words_of(exc))

    def _undo_restart(self, child: Child, exc: ActorStartError) -> None:
        self._children.give_up(child, exc.__cause__, words_of(exc))

    async def _stop_child(self, id: str, fate: Fate) -> None:
        child = self._children.table.get(id)
        if child is not None and self._asks(child):
            raise stopping_itself(self._life.record.name, id)
        if child is not None and child.in_between:
            run = self._children.ask(child, fate)
            if run is not None:
                self._expect(cast("Sender", serving.get()), run)
        else:
            run = await self._in_turn(lambda: self._children.ask(self._find(id), fate), self._children.wait_stopped)
        if run is not None:
            await self._children.wait_finished(run)  # for an overdue child this caller waits, the manager does not

    @staticmethod
    def _asks(child: Child) -> bool:
        """Return True if the running change was requested by this child."""
        request = serving.get()
        assert isinstance(request, Envelope)
        sender = request.context.get(serving)
        return sender is not None and (sender in child.record.in_flight or sender is child.run)
