"""The children of a running supervisor: the table, the tasks that belong to it, and the one that may change it.

Three kinds of task live in the supervisor's nursery:

- one *owner* per running child (`_own`), which is that child's incarnation from the first line to the last. It never
  decides anything; how it ended is put into the job queue;
- one *alarm* per child in back-off, which sleeps and then puts "restart it" into the job queue;
- one *manager* (`manage`), which takes job after job and is the only one that changes the table. So changes never
  interleave, and a crash, a restart and a ``stop_child`` happen in the order in which they were noticed.

What to do about a failure (is it restarted, is the budget spent, how long is the delay) is decided by pure functions in
``_restart`` and by `Backoff`.
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
from ._child_table import Child, make_record
from ._incarnation import Incarnation
from ._reply import Reply, value
from ._restart import RestartBudget, restarts_after
from ._stop import stop

if TYPE_CHECKING:
    from ._incarnation import End
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
        self._managing = trio.CancelScope()
        if life.record.children is None:
            life.record.children = {}
        self._records = life.record.children

    # --- one child --------------------------------------------------------------------------------------------------

    def add(self, spec: ChildSpec) -> Child:
        record = self._records.get(spec.id)
        if record is None:
            record = self._records[spec.id] = make_record(spec, self._life.record.hub)
        child = self.table[spec.id] = Child(spec, record)
        return child

    def remove(self, child: Child) -> None:
        del self.table[child.spec.id]
        del self._records[child.spec.id]

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
        )
        self._nursery.start_soon(self._own, child, incarnation, attempt, name=child.spec.id)
        return await attempt.wait()

    async def _own(self, child: Child, incarnation: Incarnation, attempt: Reply[End | None]) -> None:
        """An owner task: one incarnation of a child, from its first line to its last."""
        try:
            await incarnation.run(child.spec.factory, start_timeout=child.spec.start_timeout)
        finally:
            if incarnation.actor is not None:
                child.kind = incarnation.actor.kind
            if incarnation.started:
                self.put_job(partial(self._ended, child, incarnation))
            else:
                attempt.settle(value(incarnation.final))

    def ask(self, child: Child, *, keep_mailbox: bool) -> None:
        """The synchronous half of a stop: no more messages, nothing in flight, no alarm."""
        child.clear_timer()
        if not keep_mailbox:
            child.close("it was stopped")
        if child.incarnation is not None and child.spec.shutdown != "brutal_kill":
            child.incarnation.end("shutdown", comes_back=keep_mailbox)

    async def end_child(self, child: Child, *, keep_mailbox: bool) -> None:
        """Stop a child, whatever it does, within its own bound."""
        self.ask(child, keep_mailbox=keep_mailbox)
        did_something = child.incarnation is not None or child.record.state == "backoff"
        if child.incarnation is not None:
            await stop(child.incarnation, child.spec.shutdown, comes_back=keep_mailbox)
            child.incarnation = None
        if child.record.state != "failed":
            child.record.become("stopped")
        if did_something:
            child.record.note(events.Stopped)

    def retire(self, child: Child, why: str) -> None:
        """A child has ended and is not restarted."""
        child.incarnation = None
        child.close(why)
        child.record.become("stopped")
        child.record.note(events.Stopped)
        if child.spec.restart == "temporary":
            self.remove(child)

    # --- the manager ------------------------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Let the manager do something, after what is waiting."""
        self._put_job.send_nowait(job)

    def stop_managing(self) -> None:
        """No more jobs are taken, and the one that is on is cancelled."""
        self._managing.cancel("the supervisor stops")

    async def manage(self) -> None:
        """Take job after job. The only task that changes the table once the supervisor has started."""
        with self._managing:
            async for job in self._jobs:
                await job()

    async def _ended(self, child: Child, incarnation: Incarnation) -> None:
        """An incarnation that had started is over."""
        end = incarnation.final
        if child.incarnation is not incarnation or end is None:
            return
        child.incarnation = None
        if self._is_exit(end):
            return
        if not restarts_after(child.spec.restart, end.reason):
            self.retire(child, f"it ended: {end.reason}")
            return
        if (
            self._policy.reset_after is not None
            and trio.current_time() - incarnation.started_at >= self._policy.reset_after
        ):
            self.forgive(child)
        delay = self.failed(child, end)
        if delay == 0:
            await self._restart(child, child.timer)
        elif delay is not None:
            self.retry(child, delay)

    def failed(self, child: Child, end: End) -> float | None:
        """Decide on another attempt after a failure: returns its delay in seconds, None if there is none."""
        child.incarnation = None
        if child.spec.restart == "temporary":
            self.retire(child, f"it did not start: {end.error}")
            return None
        budget = None if end.hopeless else self._budget.spend(trio.current_time())
        if budget is None:
            self._give_up(child, end)
            return None
        self._budget = budget
        child.failures += 1
        child.timer = trio.CancelScope()
        delay = self._policy.backoff.delay(child.failures, random=random.random)
        child.record.become("backoff")
        child.record.note(events.Restarting, attempt=child.failures, delay=delay)
        return delay

    def retry(self, child: Child, delay: float) -> None:
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
        if timer is None or child.timer is not timer:
            return
        end = await self.start(child)
        if end is None or self._is_exit(end):
            return
        child.incarnation = None
        if end.failed:
            delay = self.failed(child, end)
            if delay is not None:
                self.retry(child, delay)
        elif end.reason != "shutdown":
            self.retire(child, "it had nothing to run")

    def _give_up(self, child: Child, end: End) -> None:
        """No more attempts."""
        name = self._life.record.name
        why = "trying again cannot help" if end.hopeless else f"{self._budget.max_restarts} restarts did not help"
        child.record.note(events.GaveUp, error=end.error)
        child.record.become("failed")
        child.close(f"{why}: {end.error}")
        if self._policy.on_limit == "park":
            return
        exc = RestartLimitReached(
            f"supervisor {name!r}: gave up on child {child.spec.id!r}, because {why}; its last failure: {end.error!r}",
            actor=name,
        )
        exc.__cause__ = end.error
        self._life.end("shutdown", exc)

    def forgive(self, child: Child) -> None:
        child.failures = 0
        self._budget = self._budget.reset()

    def _is_exit(self, end: End) -> bool:
        """Pass a KeyboardInterrupt or SystemExit that a child ran into on to whoever opened the tree."""
        if end.error is None or isinstance(end.error, Exception):
            return False
        self._life.end("crashed", end.error)
        return True
