"""Restart failed children, within the budget and after a back-off.

Every failure is a job of the manager (see ``_children``), in three steps. (A failed first start that is not an error is
the exception: it is decided at once and stops no other child; see `start_first`.)

1. *Decide*: is the child restarted, is there an attempt left, how long is the delay, which children are restarted with
   it. These are pure functions in ``_restart`` and `Backoff`; this file passes them the child table and the clock.
2. *Stop the group*, newest first. Its members are due again with the child that failed (`Child.group`).
3. *Start the due children*, in child-table order, after the delay. A start that fails is a failure like any other, of
   the child that did not start: it becomes a job behind the waiting ones, and the rest is due with that child.
"""

from __future__ import annotations

import math
import random
from functools import partial
from heapq import heappop, heappush
from itertools import count
from logging import ERROR
from typing import TYPE_CHECKING

import trio

from ..._checks import is_number
from ..._collapse import caused_by, is_exit
from ..._errors import RestartLimitReached
from ..._foreign import shown
from ..._suspend import sleep_through_suspend
from .. import _events as events
from ..ref import CUT_SHORT, failure_text
from ._children import Children, Job
from ._errors import start_failed
from ._restart import RestartBudget, affected, plan_restart, restarts_after, shuts_down
from ._table import Group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..actor import Incarnation
    from ..ref import End
    from ._options import SupervisorPolicy
    from ._table import Child, Fate, Run


class Recovery(Children):
    """Brings failed children back, as long as the budget lasts. See the top of the file."""

    def __init__(
        self, life: Incarnation, policy: SupervisorPolicy, nursery: trio.Nursery, *, budget_per_child: bool
    ) -> None:
        super().__init__(life, policy, nursery)
        self._parks = policy.on_limit == "park"
        self._budget = RestartBudget(policy.max_restarts, policy.window, budget_per_child)
        self._undecided: list[tuple[int, int, Group, End]] = []  # a heap
        self._failures = count()

    def forgive(self, *children: Child) -> None:
        """Forget the failures of these children, for their back-off and for the budget."""
        for child in children:
            child.failures = 0
            child.probation = None
        self._budget.forget({child.spec.id for child in children})

    def revive(self, child: Child) -> None:
        """Reset the back-off of a child that is started explicitly, and the budget if the child was parked."""
        if self._parks and (child.record.state == "failed" or child.probation):
            self._budget.renew(child.spec.id)
        self.leave(child)
        child.failures = 0
        child.probation = None

    def ask(self, child: Child, fate: Fate) -> Run | None:
        """Begin a stop, and forget the failures of a child that has run for long: it may be started again."""
        if child.run is not None and self._lasted(child.run):
            self.forgive(child)
        return super().ask(child, fate)

    # --- failures ---------------------------------------------------------------------------------------------------

    async def ended(self, run: Run) -> None:
        """Handle the end of an incarnation that had started, or that was overdue."""
        child, end = run.child, run.final
        self.finish(run)
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
        """End the supervisor if this child, which has ended for good, is significant enough."""
        significant = (other.idle for other in self.table.values() if other.spec.significant)
        if not child.spec.significant or not shuts_down(self._policy.auto_shutdown, significant):
            return
        if self._life.started:
            self._life.end("shutdown")
        else:
            self._nursery.start_soon(self._end_once_started, name=f"{self._life.record.name}:auto_shutdown")

    @trio.lowlevel.enable_ki_protection
    async def _end_once_started(self) -> None:
        """End the supervisor once it has started: its start must not fail because a child has ended early."""
        await self._life.wait_started()
        self._life.end("shutdown")

    async def _recover(self, child: Child, end: End) -> None:
        """Restart a failed child: decide, stop the group, start the due children."""
        delay = self._decide(child, end)
        if delay is None:
            return
        ids = [child.spec.id] if child.alone else affected(self._policy.strategy, self.table, child.spec.id)
        plan = plan_restart([self.table[id].row(parks=self._parks) for id in ids], child.spec.id)
        group = self.hold(child, [self.table[id] for id in plan.starts])
        if delay > 0:
            self._set_alarm(group, delay)
        stops = [self.table[id] for id in plan.stops]
        await self.stop_all([(other, "restarted" if other.group is group else "closed") for other in stops])
        if delay == 0:
            await self.start_due(group)

    def _decide(self, child: Child, end: End) -> float | None:
        """Decide on another attempt. Return its delay in seconds; None means that the child is not restarted."""
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
        """Return the delay before an attempt. A class of the program may be derived from `Backoff`, and be wrong."""
        backoff = self._policy.backoff
        delay: object = backoff.delay(attempt, random=random.random)
        if not (is_number(delay) and delay >= 0):  # NaN is not either
            kind = type(backoff).__name__
            raise ValueError(f"{self._name}: {kind}.delay() returned {shown(delay)}; return seconds, 0 or more")
        return delay

    @property
    def _name(self) -> str:
        return f"supervisor {self._life.record.name!r}"

    def _spend(self, child: Child) -> bool:
        """Take an attempt from the budget. If it is spent, first forget failures of children that run long enough."""
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
    def hold(cause: Child, members: Sequence[Child]) -> Group:
        """Make these children due together, instead of with a group that they were due with before."""
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
        """Wait before a start, in a task of its own, unless the scope is cancelled."""
        with scope:
            await sleep()
            self.put_job(job)

    async def start_due(self, group: Group) -> None:
        """Start all children that are due with a group."""
        # A member inside a foreign shield may still run. Started now, the group would meet an old incarnation of it.
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
        """Start the due children once an overdue one has ended: the whole group must have stopped first."""
        await overdue.wait_over()
        self.put_job(partial(self.start_due, group))

    # --- start attempts ---------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _attempt(self, run: Run, group: Group) -> None:
        """Make a restart attempt. If it fails, the members that are still due are due with the child that failed."""
        child, end = run.child, await self.outcome(run)
        if end is None or self._is_settled(child, end):
            return
        self.drop(child, "restarted", noted=True)
        due = self.hold(child, [child] if child.alone else [child, *group.due])
        by_place = self._policy.start_order == "parallel" and self._policy.strategy != "one_for_one"
        heappush(self._undecided, (child.number if by_place else 0, next(self._failures), due, end))
        self.put_job(self._recover_next)

    async def _recover_next(self) -> None:
        """Handle one failed restart attempt, unless that child was stopped or restarted meanwhile.

        Several concurrent attempts may have failed. The first child in the table comes first: its restart includes the
        others of its group, and counts as one attempt.
        """
        *_, group, end = heappop(self._undecided)
        if group.cause.group is group:
            await self._recover(group.cause, end)

    async def start(self, child: Child) -> None:
        """Make the first start of a child that the supervisor waits for; see `start_first`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        run = self.begin(child)
        with self._awaiting(run):
            await self.start_first(run)

    @trio.lowlevel.enable_ki_protection
    async def start_first(self, run: Run) -> End | None:
        """Make a start attempt that is not a restart. Return its `outcome`.

        Raises:
            ActorStartError: the start failed and the supervisor is strict.
        """
        child, end = run.child, await self.outcome(run)
        if end is None or self._is_settled(child, end):
            return end
        if self._policy.strict:
            raise start_failed(self._life.record.name, child, end)
        if child.spec.restart == "temporary":
            self.retire(child, f"it did not start: {failure_text(end.error)}")
            return end
        self.drop(child, "restarted", noted=True)
        child.alone = True
        delay = self._decide(child, end)
        if delay is not None:
            self._set_alarm(self.hold(child, [child]), delay)
        return end

    def _is_settled(self, child: Child, end: End) -> bool:
        """Handle the outcome of a start attempt that has not started, unless it has failed. Return False then."""
        if end is CUT_SHORT or self.pass_on_exit(end):
            return True
        if child.group is not None:  # another child has failed meanwhile, and restarts this one with it
            self.drop(child, "restarted", noted=True)
        elif end.error is None:
            self.retire(child, "it had nothing to run", keep_mailbox=end.keeps_mailbox)
        return child.group is not None or end.error is None

    # --- the end of attempts ----------------------------------------------------------------------------------------

    def give_up(self, child: Child, error: BaseException | None, why: str, *, comes_back: bool = False) -> None:
        """Stop restarting a child. `restart_child`, or the next incarnation of its supervisor, may start it again.

        Args:
            child: the child.
            error: its last failure.
            why: the reason, for its callers.
            comes_back: True if its supervisor ends too and both are restarted, so that its messages keep waiting.
        """
        self.leave(child)
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
        """Return the seconds until a parked child is tried once more; None if it is not."""
        park_retry = self._policy.park_retry
        try:
            seconds = None if park_retry is None else park_retry(error)
            if seconds is not None and not (is_number(seconds) and 0 <= seconds < math.inf):
                raise ValueError(f"park_retry returned {shown(seconds)}; return seconds, 0 or more, or None")
        except BaseException as exc:
            if is_exit(exc):
                self._life.record.hub.leave(exc)
            text = "supervisor %r: park_retry raised for child %r, which counts as None"
            self._life.record.hub.log(ERROR, text, self._life.record.name, child.spec.id, error=exc)
            return None
        return seconds

    async def _try_once_more(self, child: Child, probation: trio.CancelScope) -> None:
        """Start a parked child, unless it was started, stopped or deleted meanwhile."""
        if not probation.cancel_called:
            await self.start_due(self.hold(child, [child]))

    def _end_of_attempts(self, child: Child, end: End) -> None:
        """Give up on a child: park it, or end the supervisor."""
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
