"""Restart failed children, within the budget and after a back-off.

Every failure is a job of the manager (see ``_children``), in three steps. (A failed first start that is not an error is
the exception: it is decided at once and stops no other child; see `retry`.)

1. *Decide*: is the child restarted, is there an attempt left, how long is the delay, which children are restarted with
   it. These are pure functions in ``_restart`` and `Backoff`; this file passes them the child table and the clock.
2. *Stop the group*, newest first. Its members are due again with the child that failed (`Child.due_with`).
3. *Start the due children*, in child-table order, after the delay. A start that fails is a failure like any other, of
   the child that did not start: it becomes a job behind the waiting ones, and the rest is due with that child.

While a failed child waits for its next start it has a `Child.timer`. A task may start the child only while it holds
that very object: stopping the child, or restarting it with another group, replaces the timer. A parked child that is
tried again has a timer too, but no `due_with`, so that `restart_child` need not wait for it.
"""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..._collapse import caused_by
from ..._errors import RestartLimitReached
from ..._suspend import sleep_through_suspend
from .. import _events as events
from ..ref import CUT_SHORT, failure_text
from ._restart import RestartBudget, affected, plan_restart, restarts_after, shuts_down

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..actor import Incarnation
    from ..ref import End
    from ._children import Children
    from ._restart import SupervisorPolicy
    from ._table import Child


class Recovery:
    """Brings failed children back, as long as the budget lasts. See the top of the file."""

    def __init__(self, children: Children, life: Incarnation, policy: SupervisorPolicy, nursery: trio.Nursery) -> None:
        self._children = children
        self._life = life
        self._policy = policy
        self._nursery = nursery
        self._parks = policy.on_limit == "park"
        self._budget = RestartBudget(policy.max_restarts, policy.window)
        self._failed_again: list[tuple[Child, trio.CancelScope, End]] = []

    def forgive(self, *children: Child) -> None:
        """Forget the failures of these children, for their back-off and for the budget."""
        failed = [child for child in children if child.failures or child.on_probation]
        for child in failed:
            child.failures = 0
            child.on_probation = False
        if failed:
            self._budget.forget({child.spec.id for child in failed})

    def revive(self, child: Child) -> None:
        """Reset the back-off of a child that is started explicitly, and the budget if the child was parked."""
        if self._parks and (child.record.state == "failed" or child.on_probation):
            self._budget.clear()
        child.failures = 0
        child.on_probation = False

    # --- failures ---------------------------------------------------------------------------------------------------

    async def ended(self, child: Child, incarnation: Incarnation) -> None:
        """Handle the end of an incarnation that had started."""
        if child.incarnation is not incarnation:
            return
        if child.asked_at is not None:
            self._children.finish(child)
            return
        end = incarnation.final
        assert end is not None
        child.incarnation = None
        if self._children.pass_on_exit(end):
            return
        if not restarts_after(child.spec.restart, end.reason):
            self._children.retire(child, f"it ended: {end.reason}")
            self._auto_shutdown(child)
            return
        if self._lasted(incarnation):
            self.forgive(child)
        await self._recover(child, end)

    def _auto_shutdown(self, child: Child) -> None:
        """End the supervisor if this child, which has ended for good, is significant enough."""
        if not child.spec.significant:
            return
        significant = (other.idle for other in self._children.table.values() if other.spec.significant)
        if not shuts_down(self._policy.auto_shutdown, significant):
            return
        if self._life.started:
            self._life.end("shutdown")
        else:
            self._nursery.start_soon(self._end_once_started, name=f"{self._life.record.name}:auto_shutdown")

    @trio.lowlevel.enable_ki_protection
    async def _end_once_started(self) -> None:
        """End the supervisor once it has started: its start must not fail because a child has ended early."""
        while not self._life.started:
            await self._life.record.wait_change()
        self._life.end("shutdown")

    def goes_along(self, child: Child) -> bool:
        """Return True if a child that did not start is started again with the group of another failed child."""
        if child.due_with is None:
            return False
        self._children.drop(child, "restarted")
        child.record.become("backoff")
        return True

    def retry(self, child: Child, end: End) -> None:
        """Retry a failed first start in the background, if the budget allows."""
        if child.spec.restart == "temporary":
            self._children.retire(child, f"it did not start: {failure_text(end.error)}")
            return
        self._children.drop(child, "restarted")
        child.alone = True
        delay = self._decide(child, end)
        if delay is not None:
            waiting = [other for other in child.group if other.due_with is child]
            self._hold(child, [child, *waiting])
            self._set_alarm(child, delay)

    async def _recover(self, child: Child, end: End) -> None:
        """Restart a failed child: decide, stop the group, start the due children."""
        delay = self._decide(child, end)
        if delay is None:
            return
        timer = child.timer
        if delay > 0:
            self._set_alarm(child, delay)
        await self._stop_group(child)
        # While the group was stopping, the child may have been stopped, or restarted with another group. Its timer is
        # another one then, and the code that set it starts the group.
        if delay == 0:
            await self._elapsed(child, timer)

    def _decide(self, child: Child, end: End) -> float | None:
        """Decide on another attempt. Return its delay in seconds; None means that the child is not restarted."""
        if end.hopeless or child.on_probation or not self._spend(child):
            self._end_of_attempts(child, end)
            return None
        child.failures += 1
        child.timer = trio.CancelScope()
        delay = self._policy.backoff.delay(child.failures, random=random.random)
        child.record.become("backoff")
        child.record.note(events.Restarting, attempt=child.failures, delay=delay)
        return delay

    def _spend(self, child: Child) -> bool:
        """Take an attempt from the budget. If it is spent, first forget failures of children that run long enough."""
        now = trio.current_time()
        if self._budget.spend(now, child.spec.id):
            return True
        spenders = [self._children.table[id] for id in self._budget.spenders() if id in self._children.table]
        self.forgive(*(other for other in spenders if other.incarnation and self._lasted(other.incarnation)))
        return self._budget.spend(now, child.spec.id)

    def _lasted(self, incarnation: Incarnation) -> bool:
        if self._policy.reset_after is None or not incarnation.started:
            return False
        return trio.current_time() - incarnation.started_at >= self._policy.reset_after

    def _set_alarm(self, child: Child, delay: float) -> None:
        assert child.timer is not None
        self._nursery.start_soon(self._alarm, child, child.timer, delay, name=f"{child.spec.id}:backoff")

    @trio.lowlevel.enable_ki_protection
    async def _alarm(self, child: Child, timer: trio.CancelScope, delay: float) -> None:
        """Wait for one back-off, in a task of its own."""
        with timer:
            await trio.sleep(delay)
            self._children.put_job(partial(self._elapsed, child, timer))

    async def _elapsed(self, child: Child, timer: trio.CancelScope | None) -> None:
        """Start the due children after a wait, unless another failure or change has replaced it."""
        if child.timer is timer:
            await self._start_due(child)

    # --- groups -----------------------------------------------------------------------------------------------------

    async def _stop_group(self, child: Child) -> None:
        """Stop the group of a failed child. Its members become due with the child."""
        table = self._children.table
        group = [child.spec.id] if child.alone else affected(self._policy.strategy, table, child.spec.id)
        plan = plan_restart([table[id].row(parks=self._parks) for id in group], child.spec.id)
        starts = set(plan.starts)
        self._hold(child, [table[id] for id in plan.starts])
        await self._children.end_all([(table[id], "restarted" if id in starts else "closed") for id in plan.stops])

    @staticmethod
    def _hold(child: Child, members: Sequence[Child]) -> None:
        """Make these children due with a failed child."""
        for member in members:
            member.due_with = child
            member.group = ()
        child.group = members

    async def _start_due(self, cause: Child) -> None:
        """Start all children that are due with a failed child."""
        due = [child for child in cause.group if child.due_with is cause]
        # A member inside a foreign shield may still run. Started now, the group would meet an old incarnation of it.
        overdue = next((child.incarnation for child in due if child.incarnation is not None), None)
        if overdue is not None:
            name = f"{cause.spec.id}:overdue"
            self._nursery.start_soon(self._start_after, overdue, cause, cause.timer, name=name)
            return
        cause.group = ()
        if self._policy.start_order == "parallel":
            for child in due if not self._life.ending else ():
                self._children.finish(child)
                await self._children.carry_out(self._await_attempt, child, self._children.begin(child))
            return
        for number, child in enumerate(due):
            self._tried(child, await self._start_again(child, cause))
            if child.timer is not None and not child.alone:
                self._hold(child, [child, *(other for other in due[number + 1 :] if other.due_with is cause)])
                return

    @trio.lowlevel.enable_ki_protection
    async def _start_after(self, overdue: Incarnation, cause: Child, timer: trio.CancelScope | None) -> None:
        """Start the due children once an overdue one has ended: the whole group must have stopped first."""
        await overdue.wait_over()
        # The job checks the timer again: if the failed child has been restarted and has failed again meanwhile, its
        # children are due after its new back-off, and a start now would cut that short.
        self._children.put_job(partial(self._elapsed, cause, timer))

    @trio.lowlevel.enable_ki_protection
    async def _await_attempt(self, child: Child, incarnation: Incarnation) -> None:
        """Wait for one of several concurrent restart attempts."""
        self._tried(child, await self._children.outcome(child, incarnation))

    async def _start_again(self, child: Child, cause: Child) -> End | None:
        """Make a restart attempt, unless the child was stopped meanwhile or the supervisor ends."""
        if child.due_with is not cause or self._life.ending:
            return None
        self._children.finish(child)
        return await self._children.start(child)

    def _tried(self, child: Child, end: End | None) -> None:
        """Handle the outcome of a restart attempt."""
        if end is None or end is CUT_SHORT or self._children.pass_on_exit(end) or self.goes_along(child):
            return
        if end.error is None:
            self._children.retire(child, "it had nothing to run", keep_mailbox=end.keeps_mailbox)
            return
        self._children.drop(child, "restarted")
        child.timer = timer = trio.CancelScope()
        self._hold(child, [child])
        child.record.become("backoff")
        self._failed_again.append((child, timer, end))
        self._children.put_job(self._recover_next)

    async def _recover_next(self) -> None:
        """Handle one failed restart attempt, unless that child was stopped or restarted meanwhile.

        Several concurrent attempts may have failed. The first child in the table comes first: its restart includes the
        others of its group, and counts as one attempt.
        """
        failure = self._failed_again[0]
        if self._policy.start_order == "parallel" and self._policy.strategy != "one_for_one":
            place = {child: number for number, child in enumerate(self._children.table.values())}
            failure = min(self._failed_again, key=lambda failure: place.get(failure[0], -1))
        self._failed_again.remove(failure)
        child, timer, end = failure
        if child.timer is timer:
            await self._recover(child, end)

    def release(self, child: Child) -> None:
        """Start the children that are due with a failed child, which itself is not started after all."""
        child.due_with = None
        if any(other.due_with is child for other in child.group):
            self._children.put_job(partial(self._start_released, child))

    async def _start_released(self, cause: Child) -> None:
        """Start the children that were due with a stopped child, unless it was started again and has failed again."""
        if cause.due_with is not cause:
            await self._start_due(cause)

    # --- the end of attempts ----------------------------------------------------------------------------------------

    def give_up(self, child: Child, error: BaseException | None, why: str, *, comes_back: bool = False) -> None:
        """Stop restarting a child. `restart_child`, or the next incarnation of its supervisor, may start it again.

        Args:
            child: the child.
            error: its last failure.
            why: the reason, for its callers.
            comes_back: True if its supervisor ends too and both are restarted, so that its messages keep waiting.
        """
        child.clear_timer()
        self.release(child)
        retry_in = self._policy.park_retry(error) if self._policy.park_retry is not None else None
        child.record.note(events.GaveUp, error=error, retry_in=retry_in)
        child.record.gave_up = True
        child.record.become("backoff" if comes_back else "failed")
        if not comes_back:
            child.close(why)
        self._children.drop(child, "restarted" if comes_back else "closed")
        if retry_in is not None:
            child.on_probation = True
            child.timer = trio.CancelScope()
            self._nursery.start_soon(self._parked, child, child.timer, retry_in, name=f"{child.spec.id}:parked")

    @trio.lowlevel.enable_ki_protection
    async def _parked(self, child: Child, timer: trio.CancelScope, seconds: float) -> None:
        """Wait until a parked child is tried again, in a task of its own."""
        with timer:
            await sleep_through_suspend(seconds)
            self._children.put_job(partial(self._try_once_more, child, timer))

    async def _try_once_more(self, child: Child, timer: trio.CancelScope) -> None:
        """Start a parked child, unless it was started, stopped or deleted meanwhile."""
        if child.timer is timer:
            self._hold(child, [child])
            await self._start_due(child)

    def _end_of_attempts(self, child: Child, end: End) -> None:
        """Give up on a child: park it, or end the supervisor."""
        supervisor = f"supervisor {self._life.record.name!r}"
        why = "restarting cannot help" if end.hopeless else _spent(self._policy)
        what = f"last failure: {failure_text(end.error)}" if end.error is not None else f"last end: {end.reason}"
        if not self._parks:
            message = f"{supervisor}: gave up on child {child.spec.id!r}: {why}; {what}"
            self._life.end("shutdown", caused_by(RestartLimitReached(message, actor=self._life.record.name), end.error))
        comes_back = not self._parks and self._children.comes_back(child)
        self.give_up(child, end.error, f"{supervisor} gave up on it: {why}; {what}", comes_back=comes_back)


def _spent(policy: SupervisorPolicy) -> str:
    restarts = "1 restart" if policy.max_restarts == 1 else f"{policy.max_restarts} restarts"
    span = "" if policy.window == math.inf else f" within {policy.window:g} s"
    return f"restart limit reached ({restarts}{span})"
