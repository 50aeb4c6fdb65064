"""The children of a running supervisor: the table, the tasks that belong to it, and the one that may change it.

These tasks live in the supervisor's nursery:

- one *owner* per running child (`_own`), which is that child's incarnation from the first line to the last. It never
  decides anything; how it ended is put into the job queue;
- one task per stop that nobody may have to wait for, which bounds it;
- one *alarm* per child in back-off, which sleeps and then puts "restart it" into the job queue;
- one task per group that is due while something of it is overdue, which waits for that and then does the same;
- in a nursery inside that one, so that it ends first: one *manager* (`manage`), which takes job after job. So changes
  never interleave, and a crash, a restart and a ``stop_child`` happen in the order in which they were noticed. The one
  thing that does not wait for it is the stop of a child that does not serve: one that starts, ends, or waits for its
  next start;
- with ``start_order="parallel"``, one task per start attempt and per ``stop_child`` (`beside`), in a nursery of the
  manager's.

The manager never waits for what is out of bounds: a start or a stop that sits in somebody's shield is reported as
overdue, and what depends on its end becomes a job when that has come.

With ``start_order="parallel"`` a job is one synchronous step: it decides, and begins what it has decided. The manager
waits only for the stops of a group that is restarted, each within its child's ``shutdown``. The result of a start is
handled by the task that waits for it. So a child may be stopped, or restarted because another has failed, while it is
starting: the task that waits for its start must check its state again.

What to do about a failure is the matter of ``_recovery``.

A child that was asked to stop has `Child.asked_at` set until `finish` has put the row in order. Whoever finds it set
after a wait leaves the child alone: the stop that is under way does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ..._collapse import EXITS
from ..actor import CUT_SHORT, Actor, Incarnation, stop_within
from ._restart import restarts_after
from ._table import Child, make_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..actor import End, Record
    from ._restart import ChildSpec, SupervisorPolicy
    from ._table import After

Job = Callable[[], Awaitable[None]]
"""What the manager does next."""


class Judge(Protocol):
    """Decides about children that have ended; see `Recovery`."""

    async def ended(self, child: Child, incarnation: Incarnation) -> None:
        """Answer the end of an incarnation that had started."""

    def release(self, child: Child) -> None:
        """Start what waits for a child that failed without it: that is not started after all."""


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
        self._static: frozenset[str] = frozenset()
        self.recovery: Judge
        self._put_job, self._jobs = trio.open_memory_channel[Job](math.inf)
        self._beside: trio.Nursery
        self._records: dict[str, Record] = {}

    # --- rows -------------------------------------------------------------------------------------------------------

    def add_all(self, specs: tuple[ChildSpec, ...]) -> list[Child]:
        """Make the first rows. A child that an earlier incarnation of the supervisor had keeps its record.

        So its refs stay valid and its messages wait. What was added to that incarnation later is not in `specs`.
        """
        known = self._life.record.children or {}
        self._life.record.children = self._records
        self._static = frozenset(spec.id for spec in specs)
        return [self.add(spec, known.get(spec.id)) for spec in specs]

    def add(self, spec: ChildSpec, record: Record | None = None) -> Child:
        """Append a row, with a fresh record unless there is one already."""
        record = record or make_record(spec, self._life.record.hub)
        self._records[spec.id] = record
        child = self.table[spec.id] = Child(spec, record)
        return child

    def comes_back(self, child: Child) -> bool:
        """Whether this child will be there again after the end of the supervisor. To be asked once that was decided."""
        return self._life.comes_back and child.spec.id in self._static

    def remove(self, child: Child, why: str = "it is no longer in the child table") -> None:
        """Take a row out, as soon as nothing of it is left, and answer what waits for it."""
        child.close(why)
        child.clear_timer()
        if self.table.get(child.spec.id) is child and self.drop(child, "removed"):
            if child.record.state != "failed":
                child.record.become("stopped")
            child.due_with = None  # its group goes on without it
            del self.table[child.spec.id]
            del self._records[child.spec.id]

    def retire(self, child: Child, why: str, *, keep_mailbox: bool = False) -> None:
        """A child has ended and is not restarted."""
        if not keep_mailbox:
            child.close(why)
        if not self.drop(child, "closed"):
            return
        child.record.become("stopped")
        child.record.note_stopped()
        if child.spec.restart == "temporary":
            self.remove(child)

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self, child: Child) -> End | None:
        """Make one start attempt, and wait for what comes of it; see `outcome`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        incarnation = self.begin(child)
        with self._awaiting(child):
            return await self.outcome(child, incarnation)

    def begin(self, child: Child) -> Incarnation:
        """Begin a start attempt. The caller must see to it that a task waits for its `outcome`."""
        child.clear_timer()
        child.due_with = None
        child.record.gave_up = False
        child.record.mailbox.reopen()
        child.incarnation = incarnation = Incarnation(
            child.record,
            restarts_after=partial(restarts_after, child.spec.restart),
            on_end=partial(self._bound, child),
        )
        # What a supervisor goes by whose start is interrupted, when it stops what it had started: nobody has decided
        # such an end.
        incarnation.comes_back = restarts_after(child.spec.restart, "crashed")
        self._nursery.start_soon(self._own, child, incarnation, name=child.spec.id)
        return incarnation

    async def outcome(self, child: Child, incarnation: Incarnation) -> End | None:
        """Wait for what comes of a start attempt. Returns None if the child has started, else how that ended, or will.

        That is `CUT_SHORT` if the child was asked to stop meanwhile: whoever did that does the rest. It is None, too,
        if another child has failed meanwhile that takes this one along: it is started again with that.
        """
        await self._wait_started(incarnation, child.spec)
        if incarnation.started:
            child.alone = False
            return None
        if child.asked_at is not None or child.incarnation is not incarnation:
            return None if child.after == "restarted" else CUT_SHORT
        return incarnation.verdict

    @staticmethod
    async def _wait_started(incarnation: Incarnation, spec: ChildSpec) -> None:
        """Wait until an attempt has led to something: at worst, to the report that it is overdue."""
        with trio.move_on_after(math.inf if spec.start_timeout is None else spec.start_timeout) as patience:
            await incarnation.wait_started()
        if patience.cancelled_caught and not incarnation.started:
            incarnation.time_out()
            await stop_within(incarnation, spec.shutdown, asked_at=patience.deadline)

    @trio.lowlevel.enable_ki_protection
    async def _own(self, child: Child, incarnation: Incarnation) -> None:
        """An owner task: one incarnation of a child, from its first line to its last."""
        try:
            await incarnation.run(partial(self._make, child))
        finally:
            if incarnation.started or incarnation.overdue:  # else somebody waits for the attempt
                self.put_job(partial(self.recovery.ended, child, incarnation))

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
        """The synchronous half of a stop: no alarm, no more messages, nothing in flight.

        Of two stops that overlap the later says what becomes of the child. But its row goes if that was decided, and a
        group that is about to stop it for a restart finds that it has been stopped for good.
        """
        child.clear_timer()
        released = after == "restarted" and child.due_with is None
        if child.asked_at is None or not (released or child.after == "removed"):
            child.after = after
        if after != "restarted":
            self.recovery.release(child)
        if child.asked_at is None:
            child.asked_at = trio.current_time()
        if after in ("closed", "removed"):
            if not child.record.mailbox.closed:  # else that gave a better reason
                child.record.close("it was stopped")
            if child.incarnation is None or child.incarnation.ending:  # else what is below it may still be served
                child.close_below("its supervisor was stopped")
        if child.incarnation is not None:
            child.incarnation.end("shutdown", comes_back=after in ("open", "restarted"))

    def cut_short(self, child: Child, after: After) -> None:
        """Stop a child that does not serve. That needs no turn, and is bounded whoever waits for it."""
        self.ask(child, after)
        if child.incarnation is None:
            self.finish(child)
        else:
            self._nursery.start_soon(self.wait_stopped, child, name=f"{child.spec.id}:stop")

    @trio.lowlevel.enable_ki_protection
    async def wait_stopped(self, child: Child) -> None:
        """The asynchronous half of a stop: within the child's own bound; if it outlives that, `finish` is still due.

        Two may wait for the same one.
        """
        if child.incarnation is not None and child.asked_at is not None:
            await stop_within(child.incarnation, child.spec.shutdown, asked_at=child.asked_at)
        self.finish(child)

    async def wait_finished(self, child: Child) -> None:
        """Wait, alone, until nothing is left of a child that was asked to stop."""
        if child.asked_at is not None and child.incarnation is not None:
            await child.incarnation.wait_over()
            self.finish(child)

    def drop(self, child: Child, after: After) -> bool:
        """Forget an incarnation that has ended. Returns False if it is overdue: then it is a stop, and `finish` is due.

        Args:
            child: whose it is.
            after: what becomes of the child then, if it is overdue.
        """
        if child.incarnation is not None and child.incarnation.final is None:
            self.ask(child, after)
            return False
        child.incarnation = None
        return True

    async def end_all(self, plan: list[tuple[Child, After]]) -> None:
        """Stop several children, in this order or, once they were asked in this order, side by side."""
        if self._policy.stop_order == "sequential" or len(plan) < 2:
            for child, after in plan:
                self.ask(child, after)
                with self._awaiting(child):
                    await self.wait_stopped(child)
            return
        for child, after in plan:
            self.ask(child, after)
        with self._awaiting(*(child for child, _ in plan)):
            async with trio.open_nursery() as stops:
                for child, _ in plan:
                    stops.start_soon(self.wait_stopped, child, name=f"{child.spec.id}:stop")

    def finish(self, child: Child) -> None:
        """Put in order the row of a child that was asked to stop, if nothing of it is left."""
        if child.asked_at is None:  # somebody else was there first
            return
        end = child.incarnation.final if child.incarnation is not None else None
        if child.incarnation is not None and end is None:  # overdue, and reported
            return
        did_something = end is not None or child.record.state == "backoff"
        if end is not None:
            self.pass_on_exit(end)
        child.incarnation = child.asked_at = None
        if child.after == "restarted":
            if did_something:
                child.record.become("backoff")
            return
        if child.record.state != "failed":
            if child.after != "open":
                child.close("it was stopped")
            child.record.become("stopped")
        if did_something:
            child.record.note_stopped()
        if child.spec.restart == "temporary" or child.after == "removed":
            self.remove(child)

    def kill(self, child: Child, after: After) -> None:
        """Kill a child with its supervisor, whatever its own bound is. `end_all` is still due."""
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
        async with trio.open_nursery() as self._beside:
            async for job in self._jobs:
                if self._life.ending:
                    return
                await trio.lowlevel.checkpoint_if_cancelled()
                await job()
                del job  # it keeps an incarnation alive that may have ended, and the next job may be hours away

    async def beside(self, fn: Callable[..., Awaitable[object]], child: Child, *args: object) -> None:
        """Wait for a child as a part of a job. With parallel starts the manager goes on meanwhile."""
        if self._policy.start_order == "parallel":
            self._beside.start_soon(fn, child, *args, name=f"{child.spec.id}:change")
        else:
            with self._awaiting(child):
                await fn(child, *args)

    @contextmanager
    def _awaiting(self, *children: Child) -> Iterator[None]:
        """Record, for the detection of deadlocks, that the supervisor waits for these children inside the block."""
        incarnations = {child.incarnation for child in children if child.incarnation is not None}
        self._life.awaits |= incarnations
        try:
            yield
        finally:
            self._life.awaits -= incarnations

    needs_all: Final = False
    label: Final = ""

    def blockers(self) -> list[Incarnation]:
        """Return the nodes that a change waits for before the manager takes it; see ``_circles``."""
        return list(self._life.awaits)

    def pass_on_exit(self, end: End) -> bool:
        """Let a KeyboardInterrupt or SystemExit end the supervisor, and go on upwards. Returns whether it was one."""
        if not isinstance(end.error, EXITS):
            return False
        self._life.end("crashed", end.error)
        return True
