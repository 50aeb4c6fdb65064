"""What a supervisor does about a child that has failed: how often, how soon, and what goes along with it.

Every failure is answered in three steps, by the manager (see ``_children``):

1. *decide*: is it restarted, is there an attempt left, how long is the delay. These are pure functions in ``_restart``
   and `Backoff`; here they are only given the clock.
2. *stop the group*: what the strategy says has to go along is stopped, newest first, and is due again with the child
   that failed (`Child.due_with`).
3. *start what is due*, in child-table order, after the delay. A start that fails is a failure like any other, of the
   child that did not start; what was due is then due with that one.
"""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING

import trio

from .._errors import RestartLimitReached
from . import _events as events
from ._restart import RestartBudget, affected, restarts_after, shuts_down

if TYPE_CHECKING:
    from ._child_table import After, Child
    from ._children import Children
    from ._incarnation import End, Incarnation
    from ._restart import SupervisorPolicy


class Recovery:
    """Brings failed children back, as long as the budget lasts. See the top of the file."""

    def __init__(self, children: Children, life: Incarnation, policy: SupervisorPolicy, nursery: trio.Nursery) -> None:
        self._children = children
        self._life = life
        self._policy = policy
        self._nursery = nursery
        self._budget = RestartBudget(policy.max_restarts, policy.window)

    def forgive(self, child: Child) -> None:
        """Its failures count no more, neither for its back-off nor for the budget."""
        if child.failures:
            child.failures = 0
            self._budget.forget(child.spec.id)

    def revive(self, child: Child) -> None:
        """Somebody starts it by hand: its back-off begins anew, and so does the budget if that had been spent."""
        child.failures = 0
        if child.record.state == "failed" and self._policy.on_limit == "park":
            self._budget.clear()

    async def ended(self, child: Child, incarnation: Incarnation) -> None:
        """An incarnation that had started is over."""
        if child.incarnation is not incarnation:
            return
        if child.asked_at is not None:
            self._children.finish(child)
            return
        end = incarnation.final
        assert end is not None
        child.incarnation = None
        if self._children.note_exit(end):
            return
        if not restarts_after(child.spec.restart, end.reason):
            self._children.retire(child, f"it ended: {end.reason}")
            self._auto_shutdown(child)
            return
        if self._lasted(incarnation):
            self.forgive(child)
        delay = self._decide(child, end)
        timer = child.timer
        if delay is None:
            return
        await self._stop_group(child)
        if delay == 0:
            await self._restart(child, timer)
        else:
            self._wait(child, timer, delay)

    def _auto_shutdown(self, child: Child) -> None:
        """A child has ended by itself for good, which may be the end of the supervisor."""
        significant = [other.idle for other in self._children.table.values() if other.spec.significant]
        if child.spec.significant and shuts_down(self._policy.auto_shutdown, significant):
            self._life.end("shutdown")

    def retry(self, child: Child, end: End) -> None:
        """A first start failed: make another attempt in the background, if the budget has one."""
        child.alone = True
        delay = self._decide(child, end)
        if delay is not None:
            self._wait(child, child.timer, delay)

    def _decide(self, child: Child, end: End) -> float | None:
        """Decide on another attempt after a failure. Returns its delay in seconds, None if there is none."""
        child.incarnation = None
        if child.spec.restart == "temporary":
            self._children.retire(child, f"it did not start: {end.error!r}")
            return None
        if end.hopeless or not self._spend(child):
            self._end_of_attempts(child, end)
            return None
        child.failures += 1
        child.timer = trio.CancelScope()
        child.due_with = child
        delay = self._policy.backoff.delay(child.failures, random=random.random)
        child.record.become("backoff")
        child.record.note(events.Restarting, attempt=child.failures, delay=delay)
        return delay

    def _spend(self, child: Child) -> bool:
        """Account for an attempt. Only if there seems to be none left, look who has earned forgiveness meanwhile."""
        now = trio.current_time()
        if self._budget.spend(now, child.spec.id):
            return True
        for other in self._children.table.values():
            if other.incarnation is not None and self._lasted(other.incarnation):
                self.forgive(other)
        return self._budget.spend(now, child.spec.id)

    def _lasted(self, incarnation: Incarnation) -> bool:
        if self._policy.reset_after is None or not incarnation.started:
            return False
        return trio.current_time() - incarnation.started_at >= self._policy.reset_after

    def _wait(self, child: Child, timer: trio.CancelScope | None, delay: float) -> None:
        """Make the attempt that was decided on, after its delay and after the jobs that wait then."""
        if timer is None or child.timer is not timer:
            return
        if delay > 0:
            self._nursery.start_soon(self._alarm, child, timer, delay, name=f"{child.spec.id}:backoff")
        else:
            self._children.put_job(partial(self._restart, child, timer))

    async def _alarm(self, child: Child, timer: trio.CancelScope, delay: float) -> None:
        """The task of one back-off."""
        with timer:
            await trio.sleep(delay)
            self._children.put_job(partial(self._restart, child, timer))

    # --- groups -----------------------------------------------------------------------------------------------------

    def _group_of(self, child: Child) -> list[Child]:
        """What is restarted when this child fails, in child-table order."""
        if child.alone:
            return [child]
        return [
            self._children.table[id] for id in affected(self._policy.strategy, [*self._children.table], child.spec.id)
        ]

    async def _stop_group(self, child: Child) -> None:
        """Stop what has to go with a child that failed, newest first; it is due again when the child is."""
        plan: list[tuple[Child, After]] = []
        for member in reversed(self._group_of(child)):
            temporary = member.spec.restart == "temporary"
            if not temporary and member.record.state != "failed":  # which waits for restart_child
                member.due_with = child
            if member is not child and (member.incarnation is not None or member.timer is not None):
                plan.append((member, "closed" if temporary else "restarted"))
        await self._children.end_all(plan)

    async def _restart(self, child: Child, timer: trio.CancelScope | None) -> None:
        """The back-off is over: try again, unless something else was decided meanwhile."""
        if timer is not None and child.timer is timer:
            await self._start_due(child)

    async def _start_due(self, cause: Child) -> None:
        """Start all that waits for the failure of one child to be over."""
        due = [child for child in self._children.table.values() if child.due_with is cause]
        if self._policy.start_order == "parallel":
            ends: dict[Child, End | None] = {}
            async with trio.open_nursery() as attempts:
                for child in due:
                    attempts.start_soon(self._start_into, child, ends, name=f"{child.spec.id}:start")
            for child in due:
                if child in ends and await self._failed_again(child, ends[child]):
                    return
            return
        for child in due:
            if child.due_with is cause and await self._failed_again(child, await self._start_again(child)):
                return

    async def _start_into(self, child: Child, ends: dict[Child, End | None]) -> None:
        ends[child] = await self._start_again(child)

    async def _start_again(self, child: Child) -> End | None:
        if child.incarnation is not None:  # overdue, and reported
            await child.incarnation.wait_over()
            self._children.finish(child)
        return await self._children.start(child)

    async def _failed_again(self, child: Child, end: End | None) -> bool:
        """See what a restart attempt has led to. Returns True if the rest of its group has to wait for it."""
        if end is None or child.asked_at is not None:
            return False
        if self._children.note_exit(end):
            return True
        if end.error is None:
            self._children.retire(child, "it had nothing to run")
            return False
        delay = self._decide(child, end)
        timer = child.timer
        if delay is None:
            return self._life.ending
        await self._stop_group(child)
        self._wait(child, timer, delay)
        return True

    def release(self, child: Child) -> None:
        """A child that failed will not be started after all; what waits for it is, without it."""
        child.due_with = None
        if any(other.due_with is child for other in self._children.table.values()):
            self._children.put_job(partial(self._start_due, child))

    # --- the end of attempts ----------------------------------------------------------------------------------------

    def give_up(self, child: Child, error: BaseException | None, why: str) -> None:
        """Nobody tries to start it any more; `restart_child` may."""
        child.incarnation = None
        self.release(child)
        child.record.note(events.GaveUp, error=error)
        child.record.become("failed")
        child.close(why)

    def _end_of_attempts(self, child: Child, end: End) -> None:
        """No more attempts are to be made."""
        supervisor = f"supervisor {self._life.record.name!r}"
        why = "trying again cannot help" if end.hopeless else _spent(self._policy)
        what = f"its last failure: {end.error!r}" if end.error is not None else f"it ended: {end.reason}"
        self.give_up(child, end.error, f"{supervisor} gave up on it: {why}; {what}")
        if self._policy.on_limit == "park":
            return
        exc = RestartLimitReached(
            f"{supervisor}: gave up on child {child.spec.id!r}: {why}; {what}", actor=self._life.record.name
        )
        exc.__cause__ = end.error
        self._life.end("shutdown", exc)


def _spent(policy: SupervisorPolicy) -> str:
    times = "1 restart is" if policy.max_restarts == 1 else f"{policy.max_restarts} restarts are"
    span = "" if policy.window == math.inf else f" within {policy.window:g} s"
    return f"no more than {times} allowed{span}"
