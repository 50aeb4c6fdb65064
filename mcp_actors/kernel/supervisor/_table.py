"""The supervisor's child table, and what can be read off it: plain data, no tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import define, field, frozen

from ..actor import Record
from ..mailbox import Mailbox
from ._restart import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import trio

    from .._events import EventHub
    from ..actor import ActorState, Incarnation
    from ._restart import ChildSpec, RestartType

__all__ = ["ChildInfo", "ChildrenCount"]


After = Literal["closed", "open", "restarted", "removed"]
"""What becomes of a child that was stopped: its mailbox is closed; it stays open, for a ``restart_child`` that follows;
it comes back by itself, with its group or with its supervisor; or its row goes."""


@frozen(kw_only=True)
class ChildInfo:
    """One row of ``which_children``.

    Attributes:
        id: the child's id.
        state: its state.
        incarnation: which run of it, from 1; 0 before the first.
        restart: its restart type.
        kind: ``"worker"`` or ``"supervisor"``; a child that has never run counts as a worker.
    """

    id: str
    state: ActorState
    incarnation: int
    restart: RestartType
    kind: Literal["worker", "supervisor"]


@frozen(kw_only=True)
class ChildrenCount:
    """The answer of ``count_children``.

    Attributes:
        specs: rows in the child table.
        active: children that run.
        workers: children that are no supervisors.
        supervisors: children that are supervisors.
    """

    specs: int
    active: int
    workers: int
    supervisors: int


@define(eq=False)
class Child:
    """One row of the child table.

    Attributes:
        spec: how to run it.
        record: what outlives its incarnations.
        incarnation: the run that is on, or is being cleaned up; None between two runs.
        failures: restart attempts since the last reset; what the back-off grows by.
        timer: while it waits for its next start after a failure of its own, the scope of its back-off; its identity is
            the right to start it, so it tells a late alarm from a current one.
        on_probation: True from being parked until it has run for ``reset_after`` or somebody starts it: meanwhile a
            failure parks it, whatever is left of the budget.
        asked_at: when it was asked to stop; None unless a stop is under way.
        after: what becomes of it once it has stopped.
        due_with: whose failure it waits for to be over, to be started then; itself if it is the one that failed.
        group: who was made to wait for its failure to be over, in child-table order.
        alone: True while it is tried again after a failed first start, which concerns nobody else.
        kind: learned when its factory was first called.
    """

    spec: ChildSpec
    record: Record
    incarnation: Incarnation | None = None
    failures: int = 0
    timer: trio.CancelScope | None = None
    on_probation: bool = False
    asked_at: float | None = None
    after: After = "closed"
    due_with: Child | None = None
    group: Sequence[Child] = ()
    alone: bool = False
    kind: Literal["worker", "supervisor"] = field(default="worker")

    @property
    def idle(self) -> bool:
        """True if it neither runs nor is about to."""
        return self.incarnation is None and self.due_with is None

    @property
    def waiting(self) -> bool:
        """True while it does not serve and is about to be started; at most, something overdue of it is left."""
        return self.due_with is not None and (self.incarnation is None or self.asked_at is not None)

    @property
    def starting(self) -> bool:
        """True while a start attempt is on."""
        return self.incarnation is not None and not self.incarnation.started

    @property
    def in_between(self) -> bool:
        """True while it neither serves nor rests: it starts, or ends, or waits for its next start."""
        if self.incarnation is None:
            return self.due_with is not None
        return not self.incarnation.started or self.incarnation.ending

    def row(self, *, parks: bool) -> Row:
        """What a decision has to know about it.

        Args:
            parks: whether its supervisor parks what has failed, instead of ending.
        """
        return Row(self.spec.id, self.spec.restart, up=not self.idle, parked=parks and self.record.state == "failed")

    def info(self) -> ChildInfo:
        """The row as frozen data."""
        return ChildInfo(
            id=self.spec.id,
            state=self.record.state,
            incarnation=self.record.incarnation,
            restart=self.spec.restart,
            kind=self.kind,
        )

    def clear_timer(self) -> None:
        """Take the right to start it from whoever has it; a back-off that is on ends, and its alarm does nothing."""
        if self.timer is not None:
            timer, self.timer = self.timer, None
            timer.cancel("the back-off is over before its time")

    def close_below(self, why: str) -> None:
        """Answer everything that waits for what is below it, which does not come back; it may still be cleaning up."""
        _close_below(self.record, why)

    def close(self, why: str) -> None:
        """Answer everything that waits for it or for what is below it: none of that comes back by itself."""
        _close_tree(self.record, why)


def _close_below(record: Record, why: str) -> None:
    for below in (record.children or {}).values():
        below.close(why)
        _close_below(below, why)


def _close_tree(record: Record, why: str) -> None:
    record.close(why)
    for below in (record.children or {}).values():
        _close_tree(below, why)
        if below.state == "backoff":
            below.become("failed" if below.gave_up else "stopped")
            if not below.gave_up:
                below.note_stopped()


def make_record(spec: ChildSpec, hub: EventHub) -> Record:
    """The record of a child that has never run."""
    return Record(spec.id, Mailbox(spec.id, size=spec.mailbox_size, policy=spec.overflow), hub)


def count(children: Iterable[Child]) -> ChildrenCount:
    """What ``count_children`` answers."""
    rows = list(children)
    supervisors = sum(child.kind == "supervisor" for child in rows)
    return ChildrenCount(
        specs=len(rows),
        active=sum(child.record.state == "running" for child in rows),
        workers=len(rows) - supervisors,
        supervisors=supervisors,
    )
