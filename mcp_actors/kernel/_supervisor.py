"""Supervisors: restart failed children, and change the child table on request.

One child table is changed by failures, by requests, and by the supervisor's end. The hard parts are failures of several
children at once, and an end that must reach every child although the supervisor may be cancelled or killed.

Owns: the restart budget; the nursery of the children; tasks that start children.
Writes: the child table; records and mailboxes of children; answers to requests; events; the log. Ends the supervisor.
Calls: _actor, _children, _circles, _envelope, _events, _record, _ref, _restart, _table.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import count
from logging import ERROR
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

import trio

from .._backoff import sleep_through_suspend
from .._collapse import caused_by, first_of, is_exit
from .._errors import ActorError, ActorStartError, RestartLimitReached
from .._foreign import shown, words_of
from .._misuse import explained, is_number
from . import _events as events
from ._actor import Actor
from ._children import Children, Job, change_refused
from ._circles import serving
from ._envelope import M_contra
from ._record import CUT_SHORT, failure_text
from ._ref import ChildChange, CountChildren, DeleteChild, RestartChild, StartChild, StopChild, WhichChildren, ref_to
from ._restart import (
    ChildSpec,
    RestartBudget,
    SupervisorOptions,
    SupervisorPolicy,
    affected,
    check_specs,
    plan_restart,
    restarts_after,
    shows_options,
    shuts_down,
)
from ._table import Child, Group, Run, count_children

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ._children import Conclusion
    from ._circles import Sender
    from ._envelope import Call
    from ._incarnation import Incarnation
    from ._later import Later
    from ._record import End
    from ._ref import ActorRef
    from ._table import Fate


# --- Restart failed children ------------------------------------------------------------------------------------------

# Every failure is a job of the manager (see ``_children``), in three steps, except a failed first start that is not an
# error (`start_first`).
#
# 1. *Decide*: is the child restarted, with which others, after how long. Pure functions in ``_restart`` and `Backoff`.
# 2. *Stop the group*, newest first. Its members are due again with the failed child (`Child.group`).
# 3. *Start the due children*, in child-table order, after the delay. A failed start becomes a job behind the waiting
#    jobs, and the rest of the group is due with the child that did not start.


class Recovery(Children):
    """Brings failed children back, as long as the budget lasts."""

    def __init__(
        self, life: Incarnation, policy: SupervisorPolicy, nursery: trio.Nursery, *, budget_per_child: bool
    ) -> None:
        super().__init__(life, policy, nursery)
        self._parks = policy.on_limit == "park"
        self._budget = RestartBudget(policy.max_restarts, policy.window, budget_per_child)
        self._undecided: list[tuple[int, int, Group, End]] = []  # a heap
        self._failures = count()

    def forgive(self, *children: Child) -> None:
        for child in children:
            child.failures = 0
            child.probation = None
        self._budget.forget({child.spec.id for child in children})

    def revive(self, child: Child) -> None:
        if self._parks and (child.record.state == "failed" or child.probation):
            self._budget.renew(child.spec.id)
        self.cancel_start(child)
        child.failures = 0
        child.probation = None

    def begin_stop(self, child: Child, fate: Fate, *, drain: bool = False) -> Run | None:
        """Begin a stop. Forget failures of a child that has run for ``reset_after``: a start may follow."""
        if child.run is not None and self._lasted(child.run):
            self.forgive(child)
        return super().begin_stop(child, fate, drain=drain)

    # --- failures ---------------------------------------------------------------------------------------------------

    async def ended(self, run: Run) -> None:
        child, end = run.child, run.final
        run.forget_error()
        if child.run is not run:
            return
        assert end is not None
        child.run = None
        if self.pass_on_exit(end):
            return
        if not restarts_after(child.spec.restart, end.reason):
            self.retire(child, f"it ended: {end.reason}")
            self._auto_shutdown(child)
            return
        if self._lasted(run):
            self.forgive(child)
        await self._recover(child, end)

    def _auto_shutdown(self, child: Child) -> None:
        significant = (other.idle for other in self.table.values() if other.spec.significant)
        if not child.spec.significant or not shuts_down(self._policy.auto_shutdown, significant):
            return
        if self._life.started:
            self._life.end("shutdown")
        else:
            self._nursery.start_soon(self._end_once_started, name=f"{self._life.record.name}:auto_shutdown")

    @trio.lowlevel.enable_ki_protection
    async def _end_once_started(self) -> None:
        """An early end of a child must not fail the start."""
        await self._life.change.until(self._life.has_outcome)
        self._life.end("shutdown")

    async def _recover(self, child: Child, end: End) -> None:
        delay = self._decide(child, end)
        if delay is None:
            return
        ids = [child.spec.id] if child.alone else affected(self._policy.strategy, self.table, child.spec.id)
        plan = plan_restart([self.table[id].row(parks=self._parks) for id in ids], child.spec.id)
        group = self.make_due(child, [self.table[id] for id in plan.starts])
        if delay > 0:
            self._set_alarm(group, delay)
        stops = [self.table[id] for id in plan.stops]
        await self.stop_all([(other, "restarted" if other.group is group else "closed") for other in stops])
        if delay == 0:
            await self.start_due(group)

    def _decide(self, child: Child, end: End) -> float | None:
        """Return the delay of the next attempt in seconds; None if no attempt follows."""
        if end.hopeless or child.probation or not self._spend(child):
            self._end_of_attempts(child, end)
            return None
        child.failures += 1
        try:
            delay = self._delay(child.failures)
        except BaseException as exc:
            self._life.end("crashed", exc)
            comes_back = self.comes_back(child)
            self.give_up(child, end.error, f"{self._name} crashed, because its back-off failed", comes_back=comes_back)
            return None
        child.record.become("backoff")
        child.record.note(events.Restarting, attempt=child.failures, delay=delay)
        return delay

    def _delay(self, attempt: int) -> float:
        """Return the delay before an attempt, checked: a program may subclass `Backoff`."""
        backoff = self._policy.backoff
        delay: object = backoff.delay(attempt, random=random.random)
        if not (is_number(delay) and delay >= 0):  # nor NaN
            kind = type(backoff).__name__
            raise ValueError(f"{self._name}: {kind}.delay() returned {shown(delay)}; return seconds, 0 or more")
        return delay

    @property
    def _name(self) -> str:
        return f"supervisor {self._life.record.name!r}"

    def _spend(self, child: Child) -> bool:
        """Take an attempt from the budget. If spent, first forget failures of children that have run long enough."""
        now = trio.current_time()
        if self._budget.spend(now, child.spec.id):
            return True
        spenders = [self.table[id] for id in self._budget.spenders() if id in self.table]
        self.forgive(*(other for other in spenders if other.run and self._lasted(other.run)))
        return self._budget.spend(now, child.spec.id)

    def _lasted(self, run: Run) -> bool:
        return self._policy.reset_after is not None and run.served >= self._policy.reset_after

    # --- groups -----------------------------------------------------------------------------------------------------

    @staticmethod
    def make_due(cause: Child, members: Sequence[Child]) -> Group:
        """Make children due together, instead of with earlier groups."""
        group = Group(cause, members)
        for member in members:
            if member.group is not None and member.group.cause is member:
                member.group.delay.cancel("it is started with another group")
            member.group = group
        return group

    def _set_alarm(self, group: Group, delay: float) -> None:
        name, job = f"{group.cause.spec.id}:backoff", partial(self.start_due, group)
        self._nursery.start_soon(self._alarm, group.delay, partial(trio.sleep, delay), job, name=name)

    @trio.lowlevel.enable_ki_protection
    async def _alarm(self, scope: trio.CancelScope, sleep: Callable[[], Awaitable[object]], job: Job) -> None:
        with scope:
            await sleep()
            self.put_job(job)

    async def start_due(self, group: Group) -> None:
        # An overdue member, inside a foreign shield, still runs, and a group started now would meet an old incarnation.
        # So the start waits, in a task of its own, because the manager must go on.
        overdue = next((child.run for child in group.due if child.run and child.run.final is None), None)
        if overdue is not None:
            self._nursery.start_soon(self._start_after, overdue, group, name=f"{overdue.child.spec.id}:overdue")
            return
        for child in group.due:
            await trio.lowlevel.checkpoint_if_cancelled()
            if child.group is group and not self._life.ending:
                await self.carry_out(self._attempt, self.begin(child), group)

    @trio.lowlevel.enable_ki_protection
    async def _start_after(self, overdue: Run, group: Group) -> None:
        await overdue.change.until(overdue.is_ended)
        self.put_job(partial(self.start_due, group))

    # --- start attempts ---------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _attempt(self, run: Run, group: Group) -> None:
        """Make a restart attempt. After a failure, the members still due are due with the failed child."""
        child, end = run.child, await self.outcome(run)
        if end is None or self._is_settled(child, end):
            return
        self.drop(child, "restarted", noted=True)
        due = self.make_due(child, [child] if child.alone else [child, *group.due])
        by_place = self._policy.start_order == "parallel" and self._policy.strategy != "one_for_one"
        heappush(self._undecided, (child.number if by_place else 0, next(self._failures), due, end))
        self.put_job(self._recover_next)

    async def _recover_next(self) -> None:
        """Handle a failed restart attempt, unless the child was stopped or restarted meanwhile.

        Of several failed members of a group, the first in the table comes first. The restart includes the rest of the
        group, and counts as a single attempt.
        """
        *_, group, end = heappop(self._undecided)
        if group.cause.group is group:
            await self._recover(group.cause, end)

    async def start(self, child: Child) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        run = self.begin(child)
        with self._awaiting(run):
            await self.start_first(run)

    @trio.lowlevel.enable_ki_protection
    async def start_first(self, run: Run) -> End | None:
        """Make a start attempt that is not a restart. Return the `outcome`.

        Raises:
            ActorStartError: the start failed and the supervisor is strict.
        """
        child, end = run.child, await self.outcome(run)
        if end is None or self._is_settled(child, end):
            return end
        if self._policy.strict:
            what = f"{self._name}: child {child.spec.id!r} did not start: {failure_text(end.error)}"
            raise caused_by(ActorStartError(what, actor=child.spec.id), end.error)
        if child.spec.restart == "temporary":
            self.retire(child, f"it did not start: {failure_text(end.error)}")
            return end
        self.drop(child, "restarted", noted=True)
        child.alone = True
        delay = self._decide(child, end)
        if delay is not None:
            self._set_alarm(self.make_due(child, [child]), delay)
        return end

    def _is_settled(self, child: Child, end: End) -> bool:
        """Handle an attempt ended by a stop, an exit, another child's failure or no error. Return False otherwise."""
        if end is CUT_SHORT or self.pass_on_exit(end):
            return True
        if child.group is not None:  # another child has failed, and restarts this child with its group
            self.drop(child, "restarted", noted=True)
        elif end.error is None:
            self.retire(child, "it had nothing to run", keep_mailbox=end.keeps_mailbox)
        return child.group is not None or end.error is None

    # --- the end of attempts ----------------------------------------------------------------------------------------

    def give_up(self, child: Child, error: BaseException | None, why: str, *, comes_back: bool = False) -> None:
        """Stop restarting a child, until `restart_child` or the supervisor's next incarnation.

        Args:
            child: the child.
            error: the last failure.
            why: the reason, for callers.
            comes_back: True if supervisor and child are both restarted, so that messages keep waiting.
        """
        self.cancel_start(child)
        retry_in = self._retry_in(child, error)
        child.record.note(events.GaveUp, error=error, retry_in=retry_in)
        child.record.gave_up = True
        child.record.become("backoff" if comes_back else "failed")
        if not comes_back:
            child.close(why)
        self.drop(child, "restarted" if comes_back else "closed", noted=False)
        if retry_in is not None:
            child.probation = trio.CancelScope()
            sleep, job = partial(sleep_through_suspend, retry_in), partial(self._try_once_more, child, child.probation)
            self._nursery.start_soon(self._alarm, child.probation, sleep, job, name=f"{child.spec.id}:parked")

    def _retry_in(self, child: Child, error: BaseException | None) -> float | None:
        park_retry = self._policy.park_retry
        try:
            seconds = None if park_retry is None else park_retry(error)
            if seconds is not None and not (is_number(seconds) and 0 <= seconds < math.inf):
                raise ValueError(f"park_retry returned {shown(seconds)}; return seconds, 0 or more, or None")
        except BaseException as exc:
            if is_exit(exc):
                self._life.record.hub.exit_with(exc)
            text = "supervisor %r: park_retry raised for child %r, which counts as None"
            self._life.record.hub.log(ERROR, text, self._life.record.name, child.spec.id, error=exc)
            return None
        return seconds

    async def _try_once_more(self, child: Child, probation: trio.CancelScope) -> None:
        if not probation.cancel_called:
            await self.start_due(self.make_due(child, [child]))

    def _end_of_attempts(self, child: Child, end: End) -> None:
        why = "restarting cannot help" if end.hopeless else _spent(self._policy)
        what = f"last failure: {failure_text(end.error)}" if end.error is not None else f"last end: {end.reason}"
        if not self._parks:
            message = f"{self._name}: gave up on child {child.spec.id!r}: {why}; {what}"
            self._life.end("shutdown", caused_by(RestartLimitReached(message, actor=self._life.record.name), end.error))
        comes_back = not self._parks and self.comes_back(child)
        self.give_up(child, end.error, f"{self._name} gave up on it: {why}; {what}", comes_back=comes_back)


def _spent(policy: SupervisorPolicy) -> str:
    restarts = "1 restart" if policy.max_restarts == 1 else f"{policy.max_restarts} restarts"
    span = "" if policy.window == math.inf else f" within {policy.window:g} s"
    return f"restart limit reached ({restarts}{span})"


# --- The supervisor ---------------------------------------------------------------------------------------------------

# The owner task starts the children, and sleeps while the manager (see ``_children``) works. At the end it stops the
# manager, then the children, newest first, in a shield bounded by each child's ``shutdown``.


T = TypeVar("T")


@explained
class Supervisor(Actor[M_contra]):
    """An actor that starts actors, restarts failed ones, and stops all of them at its end.

    `open_supervisor` makes and runs a supervisor. To nest supervisors: ``ChildSpec("x", lambda: Supervisor(...))``.

    Args:
        specs: the children, in start order. They stop in reverse order.
        strategy: the children restarted after a failure: ``"one_for_one"`` only the failed child, ``"rest_for_one"``
            also all later children in the table, ``"one_for_all"`` all. Running children among them are stopped first,
            newest first; then all are started in order, except for temporary children.
        max_restarts: the restart attempts allowed within ``window``; 0 disables restarts.
        window: seconds; `math.inf` never forgets an attempt.
        reset_after: seconds of running after which the failures of a child no longer count, for back-off and budget.
            None: as in OTP, attempts only age out of the window.
        backoff: the delay before each attempt; none by default. If the `Backoff.delay` of a derived class raises, or
            returns anything but a number of at least 0, the supervisor crashes with the error.
        on_limit: the reaction when the budget is spent, or `Actor.is_hopeless` returns True. ``"end"`` stops everything
            and ends with `RestartLimitReached`; ``"park"`` leaves the child in state ``failed``, where
            ``restart_child`` gives a new budget and keeps the mailbox.
        park_retry: with ``on_limit="park"``, a function from the last failure of a parked child to the seconds until
            another attempt, or None for no attempt. The attempt does not renew the budget: unless the child then runs
            for ``reset_after`` seconds, the next failure parks it again. Time in which the machine is suspended counts.
        auto_shutdown: ends the supervisor when a ``significant`` child has ended by itself and is not restarted:
            ``"never"``, ``"any_significant"``, or, after the last significant child, ``"all_significant"``.
        start_order: ``"sequential"``, as in OTP, waits for each start, restart and change before the next, and a
            hanging start without a ``start_timeout`` delays all other children. With ``"parallel"``, starts and changes
            of different children run concurrently.
        stop_order: ``"sequential"`` (each child has stopped before the next is asked) or ``"concurrent"`` (all are
            asked in one step, in reverse order).
        strict: True makes a failed first start an error that undoes the start, also in ``start_child`` and
            ``restart_child``. False records the failure and retries the start, like a crash.
        await_start: True waits for the outcome of each first start. False waits for none, retries failed starts, and
            needs ``strict=False``.

    Raises:
        ValueError: an argument or a child is invalid; the message names it.
    """

    default_shutdown: float | Literal["infinity"] = "infinity"
    kind: Literal["worker", "supervisor"] = "supervisor"
    slow_after: float | None = None  # a change waits for a child, which has its own limits
    _control_slots = math.inf
    _budget_per_child = False

    @shows_options
    def __init__(self, *specs: ChildSpec, **options: Unpack[SupervisorOptions]) -> None:
        self._policy = SupervisorPolicy(**options)
        self._policy.check_budget(per_child=self._budget_per_child)
        check_specs(specs, self._policy.auto_shutdown)
        self._specs = specs

    # --- the owner task ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def running(self) -> AsyncIterator[None]:
        """Start the children, run their manager, and stop them."""
        try:
            async with trio.open_nursery() as nursery:
                per_child = self._budget_per_child
                self._children = Recovery(self._life, self._policy, nursery, budget_per_child=per_child)
                try:
                    children = self._children.add_all(self._specs)
                    async with trio.open_nursery() as managing:
                        # In parallel, a hanging first start must not delay restarts.
                        if self._policy.start_order == "parallel":
                            self._manage_in(managing)
                        await self._start(children)
                        if self._policy.start_order == "sequential":
                            self._manage_in(managing)
                        # Called in the step in which the supervisor is asked to stop. The owners of several supervisors
                        # wake up in any order, but the children are asked in the order of the supervisors.
                        self._life.pass_on_stop = lambda: self._children.ask_first(self._stops())
                        yield
                        managing.cancel_scope.cancel("the supervisor stops")
                finally:
                    await self._stop_children()
                    nursery.cancel_scope.cancel("all children have stopped")
        finally:
            self._children.release()

    @property
    def _life(self) -> Incarnation:
        return cast("Incarnation", self._current)

    def _manage_in(self, managing: trio.Nursery) -> None:
        managing.start_soon(self._children.manage, name=f"{self._life.record.name}:manager")

    async def _start(self, children: list[Child]) -> None:
        """Make the first starts; the manager makes starts that are not awaited."""
        if not self._policy.await_start:
            for child in children:
                self._children.make_due(child, [child])  # may then be stopped before its turn
                child.record.mailbox.reopen()  # messages wait for its turn
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
            self._life.end("crashed", failure)  # at once: callers must not wait for the clean-up
            raise failure

    async def _start_unawaited(self, children: list[Child]) -> None:
        for child in children:
            if child.group is not None:  # else it was stopped
                await self._children.carry_out(self._children.start_first, self._children.begin(child))

    @trio.lowlevel.enable_ki_protection
    async def _start_awaited(self, child: Child, failures: dict[Child, ActorStartError]) -> None:
        """Make a first start. A failure, if the supervisor is strict, stops later starts under way."""
        try:
            await self._children.start(child)
        except ActorStartError as exc:
            failures[child] = exc
            rows = list(self._children.table.values())
            for later in rows[rows.index(child) + 1 :]:
                if later.run is not None and later.run.fate is None and not later.run.started:
                    self._children.begin_stop(later, "closed")

    def _stops(self) -> list[tuple[Child, Fate]]:
        """Return the children, newest first, each with its fate."""
        return [
            (child, "restarted" if self._children.comes_back(child) else "closed")
            for child in reversed(self._children.table.values())
        ]

    async def _stop_children(self) -> None:
        """Stop all running children, newest first, each within its own bound. Only a kill is faster."""
        plan = self._stops()
        # Shielded: a cancelled supervisor must still ask its children to stop. The children are shielded too, and their
        # nursery would wait forever for a child that nothing has asked. Each child's own time bounds the shield. A kill
        # cannot reach in here either, so a task passes it on.
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on_a_kill, plan, name=f"{self._life.record.name}:kill")
                await self._children.stop_all(plan)
                overdue = [child.run for child, _ in plan if child.run is not None]
                if overdue:
                    self._life.mark_overdue()  # the children have been reported
                for run in overdue:
                    await run.change.until(run.is_ended)
                nursery.cancel_scope.cancel("all children have stopped")

    @trio.lowlevel.enable_ki_protection
    async def _pass_on_a_kill(self, plan: list[tuple[Child, Fate]]) -> None:
        await self._life.change.until(lambda: self._life.killed)
        for child, fate in plan:
            if child.run is not None:
                self._children.begin_stop(child, fate)
                child.run.kill("its supervisor was killed")

    # --- messages ---------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def handle(self, message: WhichChildren | CountChildren | ChildChange) -> Any:
        """Answer a query at once. Make a change, or pass it to the manager, and answer later."""
        match message:
            case WhichChildren():
                return tuple(child.info() for child in self._children.table.values())
            case CountChildren():
                return count_children(self._children.table.values())
            case StartChild(spec):
                start = partial(self._start_child, cast("ChildSpec", spec))
                return self._in_turn(message, start, partial(self._wait_started, self._undo_start))
            case StopChild():
                return self._stop_child(message)
            case RestartChild(id):
                restart = partial(self._restart_child, id)
                return self._in_turn(message, restart, partial(self._wait_started, self._undo_restart))
            case DeleteChild(id):
                return self._in_turn(message, lambda: self._children.remove(self._find_idle(id)), self._wait_stopped)
        raise TypeError(
            f"supervisor {self._life.record.name!r}: does not understand {shown(message)}; use SupervisorRef's methods"
        )

    def _in_turn(self, message: Call[T], begin: Callable[[], Run | None], rest: Conclusion) -> Later[T] | None:
        request = cast("Sender", serving.get())
        return self._children.change(request, partial(self.defer, message, keep_slot=False), begin, rest)

    def _find(self, id: str) -> Child:
        given: object = id
        if not isinstance(given, str):
            problem = f"the id of a child is a str, not {shown(given)}; write {shown(getattr(given, 'name', '…'))}"
            raise TypeError(f"supervisor {self._life.record.name!r}: {problem}")
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

    async def _wait_started(
        self, undo: Callable[[Child, ActorStartError], None], later: Later[ActorRef], run: Run
    ) -> None:
        try:
            end = await self._children.start_first(run)
        except ActorStartError as exc:
            undo(run.child, exc)
            raise
        if end is CUT_SHORT:
            name, id = self._life.record.name, run.child.spec.id
            what = f"supervisor {name!r}: child {id!r} was stopped while starting"
            raise ActorStartError(f"{what}; call restart_child() if it is still in the table", actor=id)
        later.reply(ref_to(run.child.record))

    def _undo_start(self, child: Child, exc: ActorStartError) -> None:
        self._children.remove(child, words_of(exc))

    def _undo_restart(self, child: Child, exc: ActorStartError) -> None:
        self._children.give_up(child, exc.__cause__, words_of(exc))

    def _stop_child(self, message: StopChild) -> Later[None] | None:
        id, name, children = message.id, self._life.record.name, self._children
        fate: Fate = "open" if message.keep_mailbox else "closed"
        child = children.table.get(id)
        if message.drain and child is not None and child.kind == "supervisor" and not child.record.is_pool:
            what = f"supervisor {name!r}: child {id!r} is a supervisor, which cannot be drained"
            raise ActorError(f"{what}; stop its children with drain=True, then it without", actor=name)
        sender = message.sender
        if child is not None and sender is not None and (sender in child.record.in_flight or sender is child.run):
            what = f"supervisor {name!r}: child {id!r} called stop_child() on itself, which would deadlock"
            raise ActorError(f"{what}; call self.stop() instead", actor=name)
        if child is None or not child.in_between:
            stop = partial(children.begin_stop, fate=fate, drain=message.drain)
            return self._in_turn(message, lambda: stop(self._find(id)), self._wait_stopped)
        run = children.in_context(partial(children.begin_stop, child, fate))
        if run is None:
            return None
        children.expect(cast("Sender", serving.get()), run)
        later = self.defer(message, keep_slot=False)
        run.when(run.is_ended, partial(later.reply, None))
        return later

    async def _wait_stopped(self, later: Later[None], run: Run) -> None:
        # For an overdue child, the caller waits, but not the manager.
        run.when(run.is_ended, partial(later.reply, None))
        await run.change.until(run.is_bounded)
