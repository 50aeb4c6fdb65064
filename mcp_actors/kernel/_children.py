"""The children of a running supervisor: the table, the tasks that belong to it, and the one that may change it.

Three kinds of task live in the supervisor's nursery:

- one *owner* per running child (`_own`), which is that child's incarnation from the first line to the last. It never
  decides anything; how it ended is put into the job queue;
- one *alarm* per child in back-off, which sleeps and then puts "restart it" into the job queue;
- one *manager* (`manage`), which takes job after job. So changes never interleave, and a crash, a restart and a
  ``stop_child`` happen in the order in which they were noticed. The one thing that does not wait for it is ending a
  back-off, or a start that the manager itself waits for.

What to do about a failure is the matter of ``_recovery``.

A child that was asked to stop has `Child.asked_at` set until `finish` has put the row in order. Whoever finds it set
after a wait leaves the child alone: the stop that is under way does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from . import _events as events
from ._actor import Actor
from ._child_table import Child, make_record
from ._incarnation import Incarnation
from ._recovery import Recovery
from ._reply import Reply, value
from ._restart import restarts_after
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
        recovery: what is done about failures.
    """

    def __init__(self, life: Incarnation, policy: SupervisorPolicy, nursery: trio.Nursery) -> None:
        self.table: dict[str, Child] = {}
        self._life = life
        self._policy = policy
        self._nursery = nursery
        self.recovery = Recovery(self, life, policy, nursery)
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

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self, child: Child) -> End | None:
        """Make one start attempt. Returns None as soon as the child serves, else how it ended."""
        await trio.lowlevel.checkpoint_if_cancelled()
        child.clear_timer()
        child.due_with = None
        child.record.mailbox.reopen()
        attempt: Reply[End | None] = Reply()
        child.incarnation = incarnation = Incarnation(
            child.record,
            restarts_after=partial(restarts_after, child.spec.restart),
            on_started=partial(self._started, child, attempt),
            on_end=partial(self._bound, child),
        )
        # What a supervisor that fails to start goes by, when it stops what it had started: nobody decides such an end.
        incarnation.comes_back = restarts_after(child.spec.restart, "crashed")
        self._nursery.start_soon(self._own, child, incarnation, attempt, name=child.spec.id)
        return await attempt.wait()

    def _started(self, child: Child, attempt: Reply[End | None]) -> None:
        child.alone = False
        attempt.settle(value(None))

    @trio.lowlevel.enable_ki_protection
    async def _own(self, child: Child, incarnation: Incarnation, attempt: Reply[End | None]) -> None:
        """An owner task: one incarnation of a child, from its first line to its last."""
        try:
            await incarnation.run(partial(self._make, child), start_timeout=child.spec.start_timeout)
        finally:
            if incarnation.started:
                self.put_job(partial(self.recovery.ended, child, incarnation))
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
        if after != "restarted":
            self.recovery.release(child)
        if child.asked_at is None:
            child.asked_at = trio.current_time()
        if after == "closed" and child.record.state != "failed":  # which closed it and said why
            child.record.close("it was stopped")
        if child.incarnation is not None:
            child.incarnation.end("shutdown", comes_back=after != "closed")

    @trio.lowlevel.enable_ki_protection
    async def end_child(self, child: Child, after: After) -> None:
        """Stop a child, whatever it does, within its own bound. If it outlives that, `finish` is still due."""
        self.ask(child, after)
        await self._wait_stopped(child)

    async def _wait_stopped(self, child: Child) -> None:
        """The asynchronous half of a stop. Two may wait for the same one."""
        assert child.asked_at is not None
        if child.incarnation is None or await stop_within(
            child.incarnation, child.spec.shutdown, asked_at=child.asked_at
        ):
            self.finish(child)

    async def end_all(self, plan: list[tuple[Child, After]]) -> None:
        """Stop several children, in this order or, once they were asked in this order, side by side."""
        if self._policy.stop_order == "sequential" or len(plan) < 2:
            for child, after in plan:
                await self.end_child(child, after)
            return
        for child, after in plan:
            self.ask(child, after)
        async with trio.open_nursery() as stops:
            for child, _ in plan:
                stops.start_soon(self._wait_stopped, child, name=f"{child.spec.id}:stop")

    def finish(self, child: Child) -> None:
        """Nothing of a child that was asked to stop is left."""
        if child.asked_at is None:  # somebody else was there first
            return
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

    @trio.lowlevel.enable_ki_protection
    async def manage(self) -> None:
        """Take job after job, until the supervisor's end is decided."""
        async for job in self._jobs:
            if self._life.ending:
                return
            await job()

    def note_exit(self, end: End) -> bool:
        """Whether this was a KeyboardInterrupt or SystemExit, which then ends the supervisor and goes on upwards."""
        if end.error is None or isinstance(end.error, Exception):
            return False
        self._life.end("crashed", end.error)
        return True
