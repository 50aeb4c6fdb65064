"""Run the children of a supervisor, and change their table.

These tasks run in the supervisor's nursery:

- one *owner* per running child (`_own`), which runs that child's incarnation from start to end. It decides nothing; it
  puts the end into the job queue;
- one task per stop without a waiting caller, which bounds that stop;
- one *alarm* per child in back-off, which sleeps and then puts the restart into the job queue;
- one task per group that is due while a member is overdue, which waits for that member and then does the same;
- in a nursery inside that one, so that it ends first: one *manager* (`manage`), which takes job after job. So changes
  never interleave, and a crash, a restart and a ``stop_child`` happen in the order in which they were noticed. One
  thing does not wait for the manager: the stop of a child that starts, ends, or waits for its next start;
- with ``start_order="parallel"``, one task per start attempt and per ``stop_child`` (`carry_out`), in the manager's own
  nursery.

The manager never waits without a bound: a start or stop that is held up by a shield is reported as overdue, and the
work that depends on its end becomes a job then.

With ``start_order="parallel"`` a job is one synchronous step: it decides, and begins the starts and stops. The manager
waits only for the stops of a group that is restarted, each within its child's ``shutdown``. The task that waits for a
start handles its result. A child may be stopped, or restarted with its group, while it is starting: after its wait,
that task must check the state of the child again.

``_recovery`` decides about failures.

A child that was asked to stop has `Child.asked_at` set until `finish` has updated its row. A task that finds it set
after a wait leaves the child alone: the stop in progress does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ..._collapse import EXITS
from ..actor import Actor, Incarnation, stop_within
from ..ref import CUT_SHORT
from ._restart import restarts_after
from ._table import Child, make_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..ref import End, Record
    from ._restart import ChildSpec, SupervisorPolicy
    from ._table import After

Job = Callable[[], Awaitable[None]]
"""A step of the manager."""


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
        self._changes: trio.Nursery
        self._records: dict[str, Record] = {}

    # --- rows -------------------------------------------------------------------------------------------------------

    def add_all(self, specs: tuple[ChildSpec, ...]) -> list[Child]:
        """Make the first rows. A child of an earlier incarnation of the supervisor keeps its record.

        So its refs stay valid and its messages wait. Children that `start_child` had added are not in `specs`.
        """
        known = self._life.record.children or {}
        self._life.record.children = self._records
        self._static = frozenset(spec.id for spec in specs)
        return [self.add(spec, known.get(spec.id)) for spec in specs]

    def add(self, spec: ChildSpec, record: Record | None = None) -> Child:
        """Append a row, with a new record unless one is given."""
        record = record or make_record(spec, self._life.record)
        self._records[spec.id] = record
        child = self.table[spec.id] = Child(spec, record)
        return child

    def comes_back(self, child: Child) -> bool:
        """Return True if the next incarnation of the supervisor has this child. Valid once its end is decided."""
        return self._life.comes_back and child.spec.id in self._static

    def remove(self, child: Child, why: str = "it is no longer in the child table") -> None:
        """Remove a row as soon as its incarnation has ended, and answer its messages."""
        child.close(why)
        child.clear_timer()
        if self.table.get(child.spec.id) is child and self.drop(child, "removed"):
            if child.record.state != "failed":
                child.record.become("stopped")
            child.due_with = None  # its group is restarted without it
            del self.table[child.spec.id]
            del self._records[child.spec.id]

    def retire(self, child: Child, why: str, *, keep_mailbox: bool = False) -> None:
        """Close a child that has ended and is not restarted."""
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
        """Make one start attempt, and wait for its outcome; see `outcome`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        incarnation = self.begin(child)
        with self._awaiting(child):
            return await self.outcome(child, incarnation)

    def begin(self, child: Child) -> Incarnation:
        """Begin a start attempt. The caller must ensure that a task waits for its `outcome`."""
        child.clear_timer()
        child.due_with = None
        child.record.gave_up = False
        child.record.mailbox.reopen()
        child.incarnation = incarnation = Incarnation(
            child.record,
            restarts_after=partial(restarts_after, child.spec.restart),
            on_end=partial(self._bound, child),
        )
        # For a child that is a supervisor: if its start is interrupted, its end is not decided by `Incarnation.end`, so
        # this is how it knows, while it stops its own children, that it comes back.
        incarnation.comes_back = restarts_after(child.spec.restart, "crashed")
        self._nursery.start_soon(self._own, child, incarnation, name=child.spec.id)
        return incarnation

    async def outcome(self, child: Child, incarnation: Incarnation) -> End | None:
        """Wait for the outcome of a start attempt.

        Returns:
            None if the child has started, or is restarted with its group because another child has failed meanwhile.
            `CUT_SHORT` if the child was asked to stop meanwhile; the caller of that stop does the rest. Otherwise the
            end of the attempt, which may still be cleaning up.
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
        """Wait until an attempt has started, failed, or been reported as overdue."""
        with trio.move_on_after(math.inf if spec.start_timeout is None else spec.start_timeout) as patience:
            await incarnation.wait_started()
        if patience.cancelled_caught and not incarnation.started:
            incarnation.time_out()
            await stop_within(incarnation, spec.shutdown, asked_at=patience.deadline)

    @trio.lowlevel.enable_ki_protection
    async def _own(self, child: Child, incarnation: Incarnation) -> None:
        """Run one incarnation of a child in this task, its owner."""
        try:
            await incarnation.run(partial(self._make, child))
        finally:
            if incarnation.started or incarnation.overdue:  # else a task waits for its `outcome`
                self.put_job(partial(self.recovery.ended, child, incarnation))

    def _make(self, child: Child) -> Actor:
        actor = child.spec.factory()
        if isinstance(actor, Actor):  # else the incarnation raises an error
            child.kind = actor.kind
        return actor

    def _bound(self, child: Child) -> None:
        """Bound the clean-up of a child that ends by itself; no task waits for it."""
        assert child.incarnation is not None
        # "brutal_kill" applies to a requested stop; a child that ends by itself may clean up.
        shutdown = None if child.spec.shutdown == "brutal_kill" else child.spec.shutdown
        bounded = partial(stop_within, child.incarnation, shutdown, asked_at=trio.current_time())
        self._nursery.start_soon(bounded, name=f"{child.spec.id}:end")

    # --- stop -------------------------------------------------------------------------------------------------------

    def ask(self, child: Child, after: After) -> None:
        """Begin a stop, in one synchronous step: cancel the alarm, answer messages in flight, take no more.

        If two stops overlap, the later one decides what becomes of the child, with two exceptions: a decision to remove
        its row stays, and a restart of its group does not revive a child that was stopped for good.
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
            if not child.record.mailbox.closed:  # else it was closed with a more exact reason
                child.record.close("it was stopped")
            if child.incarnation is None or child.incarnation.ending:  # else its own children may still serve
                child.close_below("its supervisor was stopped")
        if child.incarnation is not None:
            child.incarnation.end("shutdown", comes_back=after in ("open", "restarted"))

    def cut_short(self, child: Child, after: After) -> None:
        """Stop a child that does not serve, without waiting for the manager. A task of its own bounds the stop."""
        self.ask(child, after)
        if child.incarnation is None:
            self.finish(child)
        else:
            self._nursery.start_soon(self.wait_stopped, child, name=f"{child.spec.id}:stop")

    @trio.lowlevel.enable_ki_protection
    async def wait_stopped(self, child: Child) -> None:
        """Wait until a stop is done, or until its child is overdue; `finish` is still due then.

        Several tasks may wait for the same stop.
        """
        if child.incarnation is not None and child.asked_at is not None:
            await stop_within(child.incarnation, child.spec.shutdown, asked_at=child.asked_at)
        self.finish(child)

    async def wait_finished(self, child: Child) -> None:
        """Wait until a child that was asked to stop has ended, however long that takes."""
        if child.asked_at is not None and child.incarnation is not None:
            await child.incarnation.wait_over()
            self.finish(child)

    def drop(self, child: Child, after: After) -> bool:
        """Drop an incarnation that has ended. If it is overdue, ask it to stop and return False; `finish` is due then.

        Args:
            child: the child.
            after: what becomes of an overdue child after its stop.
        """
        if child.incarnation is not None and child.incarnation.final is None:
            self.ask(child, after)
            return False
        child.incarnation = None
        return True

    async def end_all(self, plan: list[tuple[Child, After]]) -> None:
        """Stop several children: one after the other, or all at once after asking them in this order."""
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
        """Update the row of a child that was asked to stop, if its incarnation has ended."""
        if child.asked_at is None:  # another task has done it
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
        if child.record.state == "failed":
            child.close_below("its supervisor was stopped")
        else:
            if child.after != "open":
                child.close("it was stopped")
            child.record.become("stopped")
        if did_something:
            child.record.note_stopped()
        if child.spec.restart == "temporary" or child.after == "removed":
            self.remove(child)

    def kill(self, child: Child, after: After) -> None:
        """Kill a child together with its supervisor, ignoring its own bound. `end_all` is still due."""
        if child.incarnation is not None:
            self.ask(child, after)
            child.incarnation.kill("its supervisor was killed")

    # --- the manager ------------------------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Append a job for the manager."""
        self._put_job.send_nowait(job)

    @trio.lowlevel.enable_ki_protection
    async def manage(self) -> None:
        """Run job after job, until the supervisor's end is decided."""
        async with trio.open_nursery() as self._changes:
            async for job in self._jobs:
                # Since the last job, the channel has yielded once, and this yields again. So the handler of a change
                # has run since its result was settled, and has answered: if this job ends the supervisor, that would
                # answer instead. And the stop of the supervisor cancels this task: a job that begins after that could
                # start a child that the stop, already under way, has passed over.
                await trio.lowlevel.checkpoint()
                if self._life.ending:
                    return
                await job()
                del job  # it refers to an incarnation, and the next job may be hours away

    async def carry_out(self, fn: Callable[..., Awaitable[object]], child: Child, *args: object) -> None:
        """Wait for a child as a part of a job. With parallel starts the manager continues meanwhile."""
        if self._policy.start_order == "parallel":
            self._changes.start_soon(fn, child, *args, name=f"{child.spec.id}:change")
        else:
            with self._awaiting(child):
                await fn(child, *args)

    @contextmanager
    def _awaiting(self, *children: Child) -> Iterator[None]:
        """Record, for the detection of deadlocks, that the supervisor waits for these children in the block."""
        incarnations = {child.incarnation for child in children if child.incarnation is not None}
        self._life.awaits |= incarnations
        try:
            yield
        finally:
            self._life.awaits -= incarnations

    needs_all: Final = False
    label: Final = ""

    def blockers(self) -> list[Incarnation]:
        """Return the nodes that a change waits for before the manager begins it; see ``_circles``."""
        return list(self._life.awaits)

    def pass_on_exit(self, end: End) -> bool:
        """End the supervisor if a child ended with a KeyboardInterrupt or SystemExit. Return True in that case."""
        if not isinstance(end.error, EXITS):
            return False
        self._life.end("crashed", end.error)
        return True
