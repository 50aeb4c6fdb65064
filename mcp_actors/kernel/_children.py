"""The children of a running supervisor: the table, the tasks that belong to it, and the one that may change it.

Three kinds of task live in the supervisor's nursery:

- one *owner* per running child (`_own`), which is that child's incarnation from the first line to the last. It never
  decides anything; how it ended is put into the job queue;
- one *alarm* per child in back-off, which sleeps and then puts "restart it" into the job queue;
- one *manager* (`manage`), which takes job after job. So changes never interleave, and a crash, a restart and a
  ``stop_child`` happen in the order in which they were noticed. The one thing that does not wait for it is ending a
  back-off, or a start that the manager itself waits for.

What to do about a failure (is it restarted, is the budget spent, how long is the delay) is decided by pure functions in
``_restart`` and by `Backoff`.

A child that was asked to stop has `Child.asked_at` set until `finish` has put the row in order. Whoever finds it set
after a wait leaves the child alone: the stop that is under way does the rest.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from .._errors import RestartLimitReached
from . import _events as events
from ._actor import Actor
from ._child_table import Child, make_record
from ._incarnation import Incarnation
from ._reply import Reply, value
from ._restart import RestartBudget, restarts_after
from ._stop import stop_within

if TYPE_CHECKING:
    from ._child_table import After
    from ._incarnation import End
    from ._record import Record
    from ._restart import ChildSpec, SupervisorPolicy

Job = Callable[[], Awaitable[None]]
"""What the manager does next."""


class Children:
    """The children of one incarnation of a supervisor. See the top of the file.

    Attributes:
        table: the rows, in child-table order.
    """

    def __init__(self, life: Incarnation, policy: SupervisorPolicy, nursery: trio.Nursery) -> None:
        self.table: dict[str, Child] = {}
        self._life = life
        self._policy = policy
        self._nursery = nursery
        self._budget = RestartBudget(policy.max_restarts, policy.window)
        self._put_job, self._jobs = trio.open_memory_channel[Job](math.inf)
        self._records: dict[str, Record] = {}

    # --- rows -------------------------------------------------------------------------------------------------------

    def add_all(self, specs: tuple[ChildSpec, ...]) -> list[Child]:
        """Make the first rows. A child that an earlier incarnation of the supervisor had keeps its record.

        So its refs stay valid and its messages wait. What was added to that incarnation later is not in `specs`.
        """
        known = self._life.record.children or {}
        self._life.record.children = self._records
        return [self.add(spec, known.get(spec.id)) for spec in specs]

    def add(self, spec: ChildSpec, record: Record | None = None) -> Child:
        """Append a row, with a fresh record unless there is one already."""
        record = record or make_record(spec, self._life.record.hub)
        self._records[spec.id] = record
        child = self.table[spec.id] = Child(spec, record)
        return child

    def remove(self, child: Child) -> None:
        """Take a row out, and answer what waits for it."""
        child.close("it is no longer in the child table")
        del self.table[child.spec.id]
        del self._records[child.spec.id]

    def retire(self, child: Child, why: str) -> None:
        """A child has ended and is not restarted."""
        child.incarnation = None
        child.close(why)
        child.record.become("stopped")
        child.record.note(events.Stopped)
        if child.spec.restart == "temporary":
            self.remove(child)

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

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self, child: Child) -> End | None:
        """Make one start attempt. Returns None as soon as the child serves, else how it ended."""
        await trio.lowlevel.checkpoint_if_cancelled()
        child.clear_timer()
        child.record.mailbox.reopen()
        attempt: Reply[End | None] = Reply()
        child.incarnation = incarnation = Incarnation(
            child.record,
            restarts_after=partial(restarts_after, child.spec.restart),
            on_started=partial(attempt.settle, value(None)),
            on_end=partial(self._bound, child),
        )
        # What a supervisor that fails to start goes by, when it stops what it had started: nobody decides such an end.
        incarnation.comes_back = restarts_after(child.spec.restart, "crashed")
        self._nursery.start_soon(self._own, child, incarnation, attempt, name=child.spec.id)
        return await attempt.wait()

    async def _own(self, child: Child, incarnation: Incarnation, attempt: Reply[End | None]) -> None:
        """An owner task: one incarnation of a child, from its first line to its last."""
        try:
            await incarnation.run(partial(self._make, child), start_timeout=child.spec.start_timeout)
        finally:
            if incarnation.started:
                self.put_job(partial(self._ended, child, incarnation))
            else:
                attempt.settle(value(incarnation.final))

    def _make(self, child: Child) -> Actor:
        actor = child.spec.factory()
        if isinstance(actor, Actor):  # if not, the incarnation complains
            child.kind = actor.kind
        return actor

    def _bound(self, child: Child) -> None:
        """A child has decided its end by itself. Nobody waits for its clean-up, but that is bounded all the same."""
        assert child.incarnation is not None
        # "brutal_kill" is about being asked to stop; who ends by himself may clean up.
        shutdown = None if child.spec.shutdown == "brutal_kill" else child.spec.shutdown
        bounded = partial(stop_within, child.incarnation, shutdown, asked_at=trio.current_time())
        self._nursery.start_soon(bounded, name=f"{child.spec.id}:end")

    # --- stop -------------------------------------------------------------------------------------------------------

    def ask(self, child: Child, after: After) -> None:
        """The synchronous half of a stop: no alarm, no more messages, nothing in flight."""
        child.clear_timer()
        child.after = after
        if child.asked_at is None:
            child.asked_at = trio.current_time()
        if after == "closed" and child.record.state != "failed":  # which closed it and said why
            child.record.close("it was stopped")
        if child.incarnation is not None:
            child.incarnation.end("shutdown", comes_back=after != "closed")

    async def end_child(self, child: Child, after: After) -> None:
        """Stop a child, whatever it does, within its own bound. If it outlives that, `finish` is still due."""
        self.ask(child, after)
        assert child.asked_at is not None
        if child.incarnation is None or await stop_within(
            child.incarnation, child.spec.shutdown, asked_at=child.asked_at
        ):
            self.finish(child)

    def finish(self, child: Child) -> None:
        """Nothing of a child that was asked to stop is left."""
        did_something = child.incarnation is not None or child.record.state == "backoff"
        if child.incarnation is not None and child.incarnation.final is not None:
            self.note_exit(child.incarnation.final)
        child.incarnation = child.asked_at = None
        if child.after == "restarted":
            if did_something:
                child.record.become("backoff")
            return
        if child.record.state != "failed":
            if child.after == "closed":
                child.close("it was stopped")
            child.record.become("stopped")
        if did_something:
            child.record.note(events.Stopped)
        if child.spec.restart == "temporary":
            self.remove(child)

    def kill(self, child: Child, after: After) -> None:
        """Kill a child with its supervisor, whatever its own bound is. `end_child` is still due."""
        if child.incarnation is not None:
            self.ask(child, after)
            child.incarnation.kill("its supervisor was killed")

    # --- the manager ------------------------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Let the manager do something, after what is waiting."""
        self._put_job.send_nowait(job)

    async def manage(self) -> None:
        """Take job after job, until the supervisor's end is decided."""
        async for job in self._jobs:
            if self._life.ending:
                return
            await job()

    async def _ended(self, child: Child, incarnation: Incarnation) -> None:
        """An incarnation that had started is over."""
        if child.incarnation is not incarnation:
            return
        if child.asked_at is not None:
            self.finish(child)
            return
        end = incarnation.final
        assert end is not None
        child.incarnation = None
        if self.note_exit(end):
            return
        if not restarts_after(child.spec.restart, end.reason):
            self.retire(child, f"it ended: {end.reason}")
            return
        if self._lasted(incarnation):
            self.forgive(child)
        delay = self._decide(child, end)
        if delay == 0:
            await self._restart(child, child.timer)
        elif delay is not None:
            self._wait(child, delay)

    def retry(self, child: Child, end: End) -> None:
        """A start attempt failed: make another one in the background, if the budget has one."""
        delay = self._decide(child, end)
        if delay is not None:
            self._wait(child, delay)

    def _decide(self, child: Child, end: End) -> float | None:
        """Decide on another attempt after a failure. Returns its delay in seconds, None if there is none."""
        child.incarnation = None
        if child.spec.restart == "temporary":
            self.retire(child, f"it did not start: {end.error!r}")
            return None
        if end.hopeless or not self._spend(child):
            self._end_of_attempts(child, end)
            return None
        child.failures += 1
        child.timer = trio.CancelScope()
        delay = self._policy.backoff.delay(child.failures, random=random.random)
        child.record.become("backoff")
        child.record.note(events.Restarting, attempt=child.failures, delay=delay)
        return delay

    def _spend(self, child: Child) -> bool:
        """Account for an attempt. Only if there seems to be none left, look who has earned forgiveness meanwhile."""
        now = trio.current_time()
        if self._budget.spend(now, child.spec.id):
            return True
        for other in self.table.values():
            if other.incarnation is not None and self._lasted(other.incarnation):
                self.forgive(other)
        return self._budget.spend(now, child.spec.id)

    def _lasted(self, incarnation: Incarnation) -> bool:
        if self._policy.reset_after is None or not incarnation.started:
            return False
        return trio.current_time() - incarnation.started_at >= self._policy.reset_after

    def _wait(self, child: Child, delay: float) -> None:
        """Make the attempt that was decided on, after its delay and after the jobs that wait then."""
        assert child.timer is not None
        if delay > 0:
            self._nursery.start_soon(self._alarm, child, child.timer, delay, name=f"{child.spec.id}:backoff")
        else:
            self.put_job(partial(self._restart, child, child.timer))

    async def _alarm(self, child: Child, timer: trio.CancelScope, delay: float) -> None:
        """The task of one back-off."""
        with timer:
            await trio.sleep(delay)
            self.put_job(partial(self._restart, child, timer))

    async def _restart(self, child: Child, timer: trio.CancelScope | None) -> None:
        """The back-off is over: try again, unless something else was decided meanwhile."""
        if child.timer is not timer:
            return
        end = await self.start(child)
        if end is None or child.asked_at is not None or self.note_exit(end):
            return
        if end.error is None:
            self.retire(child, "it had nothing to run")
        else:
            self.retry(child, end)

    def give_up(self, child: Child, error: BaseException | None, why: str) -> None:
        """Nobody tries to start it any more; `restart_child` may."""
        child.incarnation = None
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

    def note_exit(self, end: End) -> bool:
        """Whether this was a KeyboardInterrupt or SystemExit, which then ends the supervisor and goes on upwards."""
        if end.error is None or isinstance(end.error, Exception):
            return False
        self._life.end("crashed", end.error)
        return True


def _spent(policy: SupervisorPolicy) -> str:
    times = "1 restart is" if policy.max_restarts == 1 else f"{policy.max_restarts} restarts are"
    span = "" if policy.window == math.inf else f" within {policy.window:g} s"
    return f"no more than {times} allowed{span}"
