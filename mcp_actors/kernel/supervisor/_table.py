"""The child table of a supervisor, as plain data without tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import define, field

from ..mailbox import Mailbox
from ..ref import ChildInfo, ChildrenCount, Record
from ._restart import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import trio

    from ..actor import Incarnation
    from ._restart import ChildSpec

After = Literal["closed", "open", "restarted", "removed"]
"""The fate of a child after its stop: its mailbox is closed; its mailbox stays open for a ``restart_child``; it is
restarted with its group or its supervisor; or its row is removed."""


@define(eq=False)
class Child:
    """One row of the child table.

    Attributes:
        spec: how to run it.
        record: the part that outlives its incarnations.
        incarnation: the current one, which may be cleaning up; None between two incarnations.
        failures: restart attempts since the last reset, which the back-off grows with.
        timer: the cancel scope of its back-off, while it waits for its next start after a failure of its own. A task
            may start it only while it holds this very object, so a late alarm has no effect.
        on_probation: True from the time it is parked until it has run for ``reset_after`` or ``restart_child`` starts
            it. Meanwhile any failure parks it again, whatever the budget.
        asked_at: the time of the request to stop; None unless it is stopping.
        after: its fate after the stop.
        due_with: the failed child with which it is started again; itself if it is the one that failed.
        group: the children that are started again with it, in child-table order.
        alone: True while a failed first start is retried, which does not affect its group.
        kind: known once its factory has been called.
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
        """True if it is not running and not about to start."""
        return self.incarnation is None and self.due_with is None

    @property
    def waiting(self) -> bool:
        """True while it is about to be started and does not serve; an overdue incarnation may still run."""
        return self.due_with is not None and (self.incarnation is None or self.asked_at is not None)

    @property
    def starting(self) -> bool:
        """True during a start attempt."""
        return self.incarnation is not None and not self.incarnation.started

    @property
    def in_between(self) -> bool:
        """True while it starts, ends, or waits for its next start."""
        if self.incarnation is None:
            return self.due_with is not None
        return not self.incarnation.started or self.incarnation.ending

    def row(self, *, parks: bool) -> Row:
        """Return the data that `plan_restart` needs.

        Args:
            parks: True if its supervisor parks failed children instead of ending.
        """
        return Row(self.spec.id, self.spec.restart, up=not self.idle, parked=parks and self.record.state == "failed")

    def info(self) -> ChildInfo:
        """Return the row as frozen data."""
        return ChildInfo(
            id=self.spec.id,
            state=self.record.state,
            incarnation=self.record.incarnation,
            restart=self.spec.restart,
            kind=self.kind,
        )

    def clear_timer(self) -> None:
        """End its back-off; an alarm that has gone off already has no effect then."""
        if self.timer is not None:
            timer, self.timer = self.timer, None
            timer.cancel("the back-off was interrupted")

    def close(self, why: str) -> None:
        """Answer the messages to it and to all actors below it, none of which are restarted."""
        self.record.close(why)
        self.close_below(why)

    def close_below(self, why: str) -> None:
        """Answer the messages to all actors below it, which are not restarted. It may still be cleaning up."""
        found = [self.record]
        for record in found:  # which grows: a tree may have more levels than Python allows calls
            below = [each for each in (record.children or {}).values() if not _ended_for_good(each)]
            for each in below:
                each.close(why)
            found += below
        if self.incarnation is None or self.incarnation.final is not None:
            for each in reversed(found[1:]):
                if each.state == "backoff":
                    each.become("failed" if each.gave_up else "stopped")
                    if not each.gave_up:
                        each.note_stopped()


def _ended_for_good(record: Record) -> bool:
    """Return True if an actor was closed after its end, and all actors below it with it.

    A tree stops from its leaves upward. Without this check, each level would close all levels below it again.
    """
    return record.mailbox.closed and record.state in ("stopped", "failed")


def make_record(spec: ChildSpec, parent: Record) -> Record:
    """Return the record of a new child."""
    return Record(spec.id, Mailbox(spec.id, size=spec.mailbox_size, policy=spec.overflow), parent.hub, parent)


def count(children: Iterable[Child]) -> ChildrenCount:
    """Return the answer to ``count_children``."""
    rows = list(children)
    supervisors = sum(child.kind == "supervisor" for child in rows)
    return ChildrenCount(
        specs=len(rows),
        active=sum(child.record.state == "running" for child in rows),
        workers=len(rows) - supervisors,
        supervisors=supervisors,
    )
