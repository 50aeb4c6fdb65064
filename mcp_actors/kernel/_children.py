"""Start and stop the children of a supervisor, in order.

A request, a failure and a start may overlap, but changes of the child table must not. So one task, the manager, takes
jobs from a queue. `Recovery` in ``_supervisor`` decides about failures.

Owns: the child table; the job queue; the manager; owner tasks of children; tasks of starts and stops.
Writes: the supervisor's own record; the list of children whose start or end is awaited; records and mailboxes of actors
below; answers to requests.
Calls: _actor, _circles, _incarnation, _record, _ref, _table.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import trio

from .._collapse import is_exit
from .._errors import ActorError, ActorStartError, ChildError
from ._actor import Actor, IgnoreStart
from ._circles import Node, expect, explain, find_circle
from ._incarnation import Incarnation, stop_within
from ._record import CUT_SHORT, Change, Record
from ._ref import ref_to
from ._table import Child, Group, Run, close_below, has_ended, make_record, note_ended, record_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .._errors import ChildProblem
    from ._circles import Sender
    from ._later import Later
    from ._record import End
    from ._restart import ChildSpec, SupervisorPolicy
    from ._table import Fate


# --- Start and stop children ------------------------------------------------------------------------------------------

# Tasks in the supervisor's nursery:
#
# - an *owner* per running child (`Run.run`), from start to end;
# - an *alarm* per group (of children restarted together) in back-off, and per parked child with a retry: it sleeps,
#   then queues the start;
# - a task per group that an overdue member delays: it waits for the member, then queues the start;
# - in an inner nursery, which ends first: the *manager* (`manage`);
# - with ``start_order="parallel"``, a task per start and per waiting change (`carry_out`), in the manager's nursery.
#
# A child is *overdue* if a shield in the child outlasts the kill. The manager then goes on, and the remaining work
# follows when the child ends.


T = TypeVar("T")

Job = Callable[[], Awaitable[None]]
"""A piece of work for the manager.

Not jobs: awaited first starts, stops of children that start, end or wait for a start, changes of a pool's size, and the
stops at the supervisor's end.
"""

Conclusion: TypeAlias = "Callable[[Later[Any], Run], Awaitable[None]]"
"""Waits for an incarnation, and answers the request."""


class Children(Node, ABC):
    """The children of one incarnation of a supervisor. ``table`` has id → row, in child-table order."""

    def __init__(self, life: Incarnation, policy: SupervisorPolicy, nursery: trio.Nursery) -> None:
        self.table: dict[str, Child] = {}
        self._life = life
        self._policy = policy
        self._nursery = nursery
        self._static: frozenset[str] = frozenset()
        self._context = copy_context()
        self._jobs: deque[Job] = deque()
        self._change = Change()
        self._under_way: Run | None = None
        self._changes: trio.Nursery
        self._records: dict[str, Record] = {}
        self._numbers = count(1)

    def release(self) -> None:
        self._jobs.clear()  # may refer to ended children
        self.table.clear()
        for name in ("_changes", "_life", "_nursery"):
            vars(self).pop(name, None)

    @abstractmethod
    async def ended(self, run: Run) -> None:
        """Handle the end of an incarnation that has started, or was overdue."""

    @abstractmethod
    async def start_due(self, group: Group) -> None:
        """Start the due members of a group."""

    # --- rows -------------------------------------------------------------------------------------------------------

    def add_all(self, specs: tuple[ChildSpec, ...]) -> list[Child]:
        """Make the first rows. A child of an earlier incarnation of the supervisor keeps its record.

        Refs thus stay valid and messages wait. Children missing from `specs`, for example added by `start_child`, have
        ended for good.
        """
        own = self._life.record
        known = own.children or {}
        own.children = self._records
        self._static = frozenset(spec.id for spec in specs)
        children = [self.add(spec, record_of(spec, own, known)) for spec in specs]
        for record in known.values():
            if record.name not in self.table and not has_ended(record):
                record.close(why := f"supervisor {own.name!r} was started again without it")
                note_ended([record, *close_below(record, why)])
            if record.name not in self.table:
                record.note_gone()
        return children

    def add(self, spec: ChildSpec, record: Record | None = None) -> Child:
        record = record or make_record(spec, self._life.record)
        self._records[spec.id] = record
        child = self.table[spec.id] = Child(spec, record, next(self._numbers))
        return child

    def comes_back(self, child: Child) -> bool:
        return self._life.comes_back and child.spec.id in self._static

    def remove(self, child: Child, why: str = "it is no longer in the child table") -> None:
        child.record.close(why)
        self.drop(child, "removed", noted=False)

    def retire(self, child: Child, why: str, *, keep_mailbox: bool = False) -> None:
        if not keep_mailbox:
            child.record.close(why)
        self.drop(child, "open" if keep_mailbox else "closed", noted=True)

    def drop(self, child: Child, fate: Fate, *, noted: bool) -> None:
        """Apply a fate to a child: now if the incarnation has ended, else (overdue) at the end."""
        if child.run is not None and child.run.final is None:
            self.begin_stop(child, fate)
        else:
            child.run = None
            self._stopped(child, fate, noted=noted)

    def cancel_start(self, child: Child) -> None:
        """Let nothing start a child again. If the child was the cause of a group, the others start at once."""
        if child.probation is not None:
            child.probation.cancel("it was stopped or started meanwhile")
        group, child.group = child.group, None
        if group is not None and group.cause is child:
            group.delay.cancel("the child that failed is not started again")
            self.put_job(partial(self.start_due, group))

    # --- start ------------------------------------------------------------------------------------------------------

    def begin(self, child: Child) -> Run:
        """Begin a start attempt. The caller must ensure that a task waits for the `outcome`."""
        # Only a failed first start can be an error, instead of being retried.
        retried = child.group is not None or not self._policy.strict
        if child.group is not None and child.record.incarnation:
            child.record.restarts += 1
        child.group = None
        child.record.gave_up = False
        child.record.mailbox.reopen()
        child.run = run = Run(child.record, child, self)
        # An interrupted start of a child supervisor stops the grandchildren before an end is decided; `comes_back`
        # decides their fate.
        run.comes_back = run.restarts_after("crashed")
        run.retried = retried
        self._nursery.start_soon(run.run, name=child.spec.id)
        return run

    async def outcome(self, run: Run) -> End | None:
        """Wait for the outcome of a start attempt.

        Returns:
            None: the child has started, or is restarted with a group because another child has failed.
            `CUT_SHORT`: the child was asked to stop; the caller of the stop does the rest.
            Otherwise the end of the attempt, which may still be cleaning up.
        """
        spec = run.child.spec
        with trio.move_on_after(math.inf if spec.start_timeout is None else spec.start_timeout) as patience:
            await run.change.until(run.has_outcome)
        if patience.cancelled_caught and not run.started:
            text = "start timed out (start_timeout); raise it, or find out what running() waits for"
            run.end("crashed", ActorStartError(f"actor {spec.id!r}: {text}", actor=spec.id))
            await stop_within(run, spec.shutdown, asked_at=patience.deadline)
        if run.started:
            run.child.alone = False
            return None
        if run.fate is not None:
            return None if run.fate == "restarted" else CUT_SHORT
        end = run.verdict
        run.forget_error()
        return end

    def note_over(self, run: Run) -> None:
        if run.fate is None:
            self.put_job(partial(self.ended, run))
        else:
            self.finish(run)
            run.forget_error()

    # --- stop -------------------------------------------------------------------------------------------------------

    def begin_stop(self, child: Child, fate: Fate, *, drain: bool = False) -> Run | None:
        """Begin a stop in one synchronous step: leave the group, answer messages in flight, take no more.

        Of two overlapping stops the later decides the fate, but a decision to remove the row stays, and a restart of
        the group does not revive a child that was stopped for good. ``drain`` lets a serving child handle queued
        messages first. Return the incarnation to wait for; None if the stop is done.
        """
        if fate != "restarted":
            self.cancel_start(child)
        run = child.run
        if run is None:
            self._stopped(child, fate, noted=child.record.state == "backoff")
            return None
        if run.fate == fate and run.ending:
            return run  # to go on would close all mailboxes below a second time
        first = run.fate is None
        if first or not (run.fate == "removed" or (fate == "restarted" and child.group is None)):
            run.fate = fate
        if drain and run.started and not run.ending:
            child.record.refuse("it was stopped")
        elif fate in ("closed", "removed") and not run.draining:
            child.close("it was stopped")
        comes_back = fate in ("open", "restarted")
        if child.spec.shutdown == "brutal_kill":
            run.end("shutdown", comes_back=comes_back)
        else:
            run.ask(comes_back=comes_back, drain=drain)
        if first:
            run.bound(child.spec.shutdown, asked_at=trio.current_time())
        if run.final is None:
            return run
        self.finish(run)
        return None

    def ask_first(self, plan: Sequence[tuple[Child, Fate]]) -> None:
        """Begin the first step of `stop_all`, except for children that start or are being restarted with a group."""
        step = next(iter(self._stop_steps(plan)), [])
        for child, fate in step:
            if child.run is not None and child.run.started and child.group is None:
                run = self.begin_stop(child, fate)
                if run is not None:
                    # Noted now: the child may wake up, and make calls, before this supervisor's owner does.
                    self._life.awaits.add(run)

    def _stop_steps(self, plan: Sequence[tuple[Child, Fate]]) -> list[Sequence[tuple[Child, Fate]]]:
        return [plan] if self._policy.stop_order == "concurrent" else [[each] for each in plan]

    async def stop_all(self, plan: Sequence[tuple[Child, Fate]]) -> None:
        """Stop several children in order: one after another, or all asked in one step."""
        for step in self._stop_steps(plan):
            runs = [run for run in [self.begin_stop(child, fate) for child, fate in step] if run is not None]
            with self._awaiting(*runs):
                for run in runs:
                    await run.change.until(run.is_bounded)

    def finish(self, run: Run) -> None:
        assert run.final is not None
        assert run.fate is not None
        self.pass_on_exit(run.final)
        run.child.run = None
        self._stopped(run.child, run.fate, noted=True)

    def _stopped(self, child: Child, fate: Fate, *, noted: bool) -> None:
        """Update the row of a child without an incarnation. ``noted`` is False if the stop has changed nothing."""
        if fate == "restarted":
            if noted:
                child.record.become("backoff")
            return
        if fate != "open":
            child.close("it was stopped")
        if child.record.state != "failed":
            child.record.become("stopped")
        if noted:
            child.record.note_stopped()
        if child.spec.restart == "temporary" or fate == "removed":
            self.cancel_start(child)  # a failed child may have taken an overdue one into its group
            child.record.close(why := "it is no longer in the child table")
            child.close(why)  # its children have waited for its restart
            if self.table.get(child.spec.id) is child:
                del self.table[child.spec.id], self._records[child.spec.id]
            child.record.note_gone()

    # --- the manager ------------------------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        self._jobs.append(job)
        self._change()

    @trio.lowlevel.enable_ki_protection
    async def manage(self) -> None:
        """Run job after job, until the supervisor's end is decided."""
        async with trio.open_nursery() as self._changes:
            while True:
                if self._has_job():
                    await trio.lowlevel.checkpoint()
                await self._change.until(self._has_job)
                # Woken by a job, this task may have been cancelled in the same step, so a checkpoint before the job
                # raises the cancellation; `ending` covers a stop that has not cancelled yet. Otherwise a job could
                # start a child that the stop, already under way, has passed over.
                await trio.lowlevel.checkpoint()
                if self._life.ending:
                    return
                await self._jobs.popleft()()

    def _has_job(self) -> bool:
        return bool(self._jobs) and self._under_way is None

    def in_context(self, fn: Callable[[], T]) -> T:
        """Call a function in the supervisor's context variables, inherited by the tasks it starts."""
        return self._context.copy().run(fn)

    async def carry_out(self, fn: Callable[..., Awaitable[object]], run: Run, *args: object) -> None:
        """Run a function that waits for an incarnation; with parallel starts, in a task of its own.

        With parallel starts, jobs thus wait for the stops of a restarting group, but for no start. After the wait, `fn`
        checks the child again: a stop, or a restart of the group, may have come first.
        """
        if self._policy.start_order == "parallel":
            self._changes.start_soon(fn, run, *args, name=f"{run.child.spec.id}:change")
        else:
            with self._awaiting(run):
                await fn(run, *args)

    @contextmanager
    def _awaiting(self, *runs: Run) -> Iterator[None]:
        """Note in the wait-for graph that the supervisor waits for incarnations during the block."""
        self._life.awaits.update(runs)
        try:
            yield
        finally:
            self._life.awaits.difference_update(runs)

    def blockers(self) -> list[Incarnation]:
        return list(self._life.awaits)

    def pass_on_exit(self, end: End) -> bool:
        """Return True after ending the supervisor, if a child ended with an exception that ends the program."""
        if not is_exit(end.error):
            return False
        self._life.end("crashed", end.error)
        return True

    # --- requested changes ------------------------------------------------------------------------------------------

    def change(
        self, request: Sender, defer: Callable[[], Later[Any]], begin: Callable[[], Run | None], rest: Conclusion
    ) -> Later[Any] | None:
        """Make a change after the manager's current jobs, or now if there are none, unless the caller leaves first.

        ``begin`` begins the change in one synchronous step, and returns the incarnation to wait for, or None. ``rest``
        waits for the incarnation, and answers.
        """
        if self._change.awaited and self._under_way is None:
            run = self.in_context(begin)
            if run is None:
                return None
            later = defer()
            self._follow(run, later, rest)
            self.expect(request, run)
            return later
        circle = find_circle(request, self)
        if circle:
            name = self._life.record.name
            raise ActorError(
                f"supervisor {name!r}: this change would deadlock ({explain(circle)}, and the supervisor waits for "
                "that before it makes another change); request it later, from handle() or from a task that running() "
                "has started, or use start_order='parallel'",
                actor=name,
            )
        later = defer()
        self.put_job(partial(self._make_change, request, later, begin, rest))
        return later

    def expect(self, request: Sender, run: Run) -> None:
        """Note that a change waits for an incarnation. Raise an error if the incarnation waits for the caller."""
        circle = find_circle(request, run)
        if circle:
            name, child = self._life.record.name, run.child.spec.id
            raise ActorError(
                f"supervisor {name!r}: waiting for the end of child {child!r} would deadlock ({explain(circle)}); the "
                "child was asked to stop, so continue without waiting for it",
                actor=name,
            )
        expect(request, run)

    async def _make_change(
        self, request: Sender, later: Later[Any], begin: Callable[[], Run | None], rest: Conclusion
    ) -> None:
        if not later.open:
            return
        run = None
        try:
            run = begin()
            if run is not None:
                self.expect(request, run)
        except Exception as exc:
            later.fail(exc)
        if run is None:
            later.reply(None)  # does nothing after `fail`
        else:
            await self.carry_out(self._conclude, run, later, rest)

    def _follow(self, run: Run, later: Later[Any], rest: Conclusion) -> None:
        """Conclude a change begun in the step of the request. With sequential starts, jobs wait until then.

        The change concludes in the step in which the child serves or has ended. If the start fails or has a
        ``start_timeout``, the rest of the change is the next job.
        """
        waits = self._policy.start_order == "sequential"
        if waits:
            self._life.awaits.add(run)
        if run.fate is None and run.child.spec.start_timeout is not None:
            self._continue(run, later, rest)
            return
        if waits:
            self._under_way = run
        if run.fate is None:
            run.when(run.has_outcome, partial(self._has_outcome, run, later, rest))
        else:
            run.when(run.is_ended, partial(later.reply, None))
            run.when(run.is_bounded, partial(self._followed, run))

    def _has_outcome(self, run: Run, later: Later[Any], rest: Conclusion) -> None:
        if run.started:
            run.child.alone = False
            later.reply(ref_to(run.child.record))
            self._followed(run)
            return
        if self._under_way is run:
            self._under_way = None
        self._continue(run, later, rest)

    def _followed(self, run: Run) -> None:
        self._life.awaits.discard(run)
        if self._under_way is run:
            self._under_way = None
        if self._jobs:
            self._change()

    def _continue(self, run: Run, later: Later[Any], rest: Conclusion) -> None:
        self._jobs.appendleft(partial(self.carry_out, self._conclude, run, later, rest))
        self._change()

    @trio.lowlevel.enable_ki_protection
    async def _conclude(self, run: Run, later: Later[Any], rest: Conclusion) -> None:
        try:
            await rest(later, run)
        except Exception as exc:
            later.fail(exc)


# --- A supervisor that sleeps -----------------------------------------------------------------------------------------


class DormantSupervisor(Actor):
    """A supervisor that starts nothing, and is not started itself: the children only get refs.

    As long as no child is needed, return a `DormantSupervisor`, which costs no task, from the factory of a `ChildSpec`.
    Messages to the children wait, as do messages to the supervisor itself, such as changes of the children. To wake the
    supervisor, let the factory return a `Supervisor` of the same children, and call ``restart_child``.

    Args:
        specs: the children.
    """

    kind: Literal["worker", "supervisor"] = "supervisor"
    _accepts = None

    def __init__(self, *specs: ChildSpec) -> None:
        self._specs = specs

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make the records of the children, for their supervisor to take over, and run nothing."""
        own = self._current.record
        known = own.children or {}
        own.children = {spec.id: record_of(spec, own, known) for spec in self._specs}
        for record in own.children.values():
            record.become("stopped")
        for id in known.keys() - own.children.keys():
            known[id].forget(f"{own.name!r} was started again without it")
        raise IgnoreStart(keep_mailbox=True)
        yield  # type: ignore[unreachable]  # makes this a generator, which a context manager is made of


# --- Errors of changes to the child table -----------------------------------------------------------------------------


def change_refused(supervisor: str, child: str, reason: ChildProblem) -> ChildError:
    remedies: dict[ChildProblem, str] = {
        "not_found": "not found; list the children with which_children()",
        "already_present": "already exists and is not running; call restart_child(), or delete_child() first",
        "already_started": "already exists and is running; choose another id",
        "running": "is running; call stop_child() first",
        "restarting": "is about to be restarted; call stop_child() to prevent that",
    }
    return ChildError(f"supervisor {supervisor!r}: child {child!r} {remedies[reason]}", actor=supervisor, reason=reason)
