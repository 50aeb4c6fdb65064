"""The child table of a supervisor, and functions on its records.

`Run` is an incarnation of a child, `Group` the children that are started again together, and `Child` a row, with a
drawing of its states. No task runs here. ``_children`` starts and stops the children, and writes the table. The file
calls the factories of the user, closes mailboxes, and so emits `Stopped` and dead letters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Protocol

import trio
from attrs import define, field

from ._actor import Actor
from ._incarnation import Incarnation
from ._mailbox import Mailbox
from ._record import ChildInfo, ChildrenCount, Record
from ._restart import Row, restarts_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._record import End, EndReason
    from ._restart import ChildSpec


# --- The child table: only data, no task runs here --------------------------------------------------------------------

# A *group* here is a failed child and the children that are restarted with it.
#
# The state of a child has two independent parts::
#
#     Child.run      which incarnation it has
#                             begin                  ask                    finish
#                    None ──────────────► live ──────────────► stopping ──────────────► None
#                      ▲                    │ it has ended by itself
#                      └────────────────────┘
#
#     Child.group    the group that will start it, or None
#                             hold
#                    None ──────────────► due
#                      ▲                    │ begin (it starts), or leave (it was stopped, or is given up)
#                      └────────────────────┘
#
# Every combination of the two is possible. A member of a group is first *live and due*. Asked to stop, it is *stopping
# and due*; stopped, it is only *due*; and when the group starts, it is *live*. Without an incarnation and without a
# group, a child is *idle*.
#
# A child is in one group at most. If another child fails meanwhile, ``hold`` moves it to the new group. The start of a
# group starts the members that still refer to it, so a group that has lost all its members does nothing.


Fate = Literal["closed", "open", "restarted", "removed"]
"""The state of a child after its stop: its mailbox is closed; its mailbox stays open for a ``restart_child``; it is
restarted with its group or its supervisor; or its row is removed."""


class Keeper(Protocol):
    """The supervisor, as the incarnations of its children see it."""

    def bound_end(self, run: Run) -> None:
        """Bound the clean-up of a child that ends by itself."""

    def note_over(self, run: Run) -> None:
        """Handle the end of an incarnation: at once if it was asked to stop, else when it is its turn."""


@define(eq=False, repr=False)
class Run(Incarnation):
    """One incarnation of a child.

    Attributes:
        child: the child.
        fate: what becomes of the child when it has stopped; None while it is live.
        ended_at: the Trio time at which it decided to end by itself; infinite before that.
    """

    child: Child
    _keeper: Keeper
    fate: Fate | None = field(default=None, init=False)
    ended_at: float = field(default=math.inf, init=False)

    @property
    def served(self) -> float:
        """The seconds for which it serves or has served; its clean-up does not count."""
        return min(trio.current_time(), self.ended_at) - self.started_at if self.started else 0.0

    def make(self) -> Actor:
        """Call the factory."""
        spec = self.child.spec
        actor = spec.factory(*spec.args, **spec.kwargs)
        if isinstance(actor, Actor):  # else the incarnation raises an error
            self.child.kind = actor.kind
        return actor

    def restarts_after(self, reason: EndReason) -> bool:
        """Decide by its restart type."""
        return restarts_after(self.child.spec.restart, reason)

    def ends_by_itself(self) -> None:
        """Leave it to the supervisor."""
        self.ended_at = trio.current_time()
        self._keeper.bound_end(self)

    def is_over(self, _: End) -> None:
        """Notify the supervisor, unless a task waits for the outcome of its start."""
        if self.started or self.overdue or self.fate is not None:
            self._keeper.note_over(self)

    @property
    def between(self) -> bool:
        """True while it starts or ends."""
        return not self.started or self.ending


@define(eq=False)
class Group:
    """Children that are started again together.

    Attributes:
        cause: the child that failed.
        members: in child-table order. A child is a member only while this is its `Child.group`.
        delay: the cancel scope around the back-off of the cause.
    """

    cause: Child
    members: Sequence[Child]
    delay: trio.CancelScope = field(factory=trio.CancelScope, init=False)

    @property
    def due(self) -> list[Child]:
        """The members that are due with it."""
        return [child for child in self.members if child.group is self]


@define(eq=False)
class Child:
    """One row of the child table. See the drawing above.

    Attributes:
        spec: how to run it.
        record: the part that outlives its incarnations.
        number: greater than those of the rows before it.
        run: its incarnation; None between two of them.
        group: the group that it is due to start again with.
        failures: restart attempts since the last reset, which the back-off grows with.
        alone: True from a failed first start until it has started. Meanwhile its failures affect no other child.
        probation: set from the time it is parked until it has run for ``reset_after`` or ``restart_child`` starts it:
            meanwhile any failure parks it again, whatever the budget. Cancelled, it is not tried again by itself.
        kind: known once its factory has been called.
    """

    spec: ChildSpec
    record: Record
    number: int = 0
    run: Run | None = None
    group: Group | None = None
    failures: int = 0
    alone: bool = False
    probation: trio.CancelScope | None = None
    kind: Literal["worker", "supervisor"] = "worker"

    @property
    def idle(self) -> bool:
        """True if it is not running and not about to start."""
        return self.run is None and self.group is None

    @property
    def in_between(self) -> bool:
        """True while it starts, ends, or waits for its next start."""
        return self.group is not None if self.run is None else self.run.between

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

    def close(self, why: str) -> None:
        """Answer the messages to it and to all actors below it, none of which are restarted. A first reason is kept.

        The actors below a child that serves are left to that child. They may still be cleaning up.
        """
        if not self.record.mailbox.closed or self.record.mailbox.queued:
            self.record.close(why)
        if self.record.children and (self.run is None or self.run.ending):
            below = close_below(self.record, why)
            if self.run is None or self.run.final is not None:
                note_ended(below)


def close_below(record: Record, why: str) -> list[Record]:
    """Answer the messages to all actors below one that does not serve, and return their records, parents first."""
    found = [record]
    for each in found:  # which grows: a tree may have more levels than Python allows calls
        below = [child for child in (each.children or {}).values() if not has_ended(child)]
        for child in below:
            child.close(why)
        found += below
    return found[1:]


def note_ended(records: Sequence[Record]) -> None:
    """Set the final states of actors that were expected to come back, children first."""
    for each in reversed(records):
        has_run = each.state == "backoff"
        each.become("failed" if each.gave_up else "stopped")
        if has_run and not each.gave_up:
            each.note_stopped()


def has_ended(record: Record) -> bool:
    """Return True if an actor was closed after its end, and all actors below it with it.

    A tree stops from its leaves upward. Without this check, each level would close all levels below it again.
    """
    return record.mailbox.closed and record.state in ("stopped", "failed")


def make_record(spec: ChildSpec, parent: Record) -> Record:
    """Return the record of a new child."""
    return Record(spec.id, Mailbox(spec.id, size=spec.mailbox_size, policy=spec.overflow), parent.hub, parent)


def record_of(spec: ChildSpec, parent: Record, known: Mapping[str, Record]) -> Record:
    """Return the record of a child: the one that it had in an earlier incarnation of its supervisor, or a new one."""
    record = known.get(spec.id)
    if record is not None and type(record.mailbox) is not Mailbox and not parent.is_pool:
        # It was a member of a pool, and shares the messages of that.
        record.forget(f"{parent.name!r} was started again as another kind of actor")
        record = None
    if record is None:
        return make_record(spec, parent)
    record.mailbox.set_limits(spec.mailbox_size, spec.overflow)  # the factory may have given it other limits this time
    return record


def count_children(children: Iterable[Child]) -> ChildrenCount:
    """Return the answer to ``count_children``."""
    rows = list(children)
    supervisors = sum(child.kind == "supervisor" for child in rows)
    return ChildrenCount(
        specs=len(rows),
        active=sum(child.record.state == "running" for child in rows),
        workers=len(rows) - supervisors,
        supervisors=supervisors,
    )
