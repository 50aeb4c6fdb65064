"""The child table of a supervisor, and functions on the children's records.

A row outlives the incarnations of its child, and names the running one. While a restart is due, the row also names the
*group* (a failed child and the children restarted with it). Incarnation and group vary independently, because a start,
a failure and a stop may overlap.

Owns: rows of the child table; restart groups; incarnations of children.
Writes: final states of actors; errors to senders; limits of mailboxes; events.
Calls: _actor, _incarnation, _mailbox, _record, _restart.
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


# --- The child table --------------------------------------------------------------------------------------------------

# The state of a child has two independent parts::
#
#     Child.run      the incarnation of the child, or None
#                             begin                  ask                    finish
#                    None ──────────────► live ──────────────► stopping ──────────────► None
#                      ▲                    │ it has ended by itself
#                      └────────────────────┘
#
#     Child.group    the group with which the child will restart, or None
#                           make_due
#                    None ──────────────► due
#                      ▲                    │ begin (it starts), or cancel_start (it was stopped, or is given up)
#                      └────────────────────┘
#
# Every combination is possible: a restarted member of a group is *live and due*, *stopping and due*, only *due*, then
# *live*. With neither, a child is *idle*.
#
# A child is in one group at most: if another child fails, ``make_due`` may move members to the new group. A group
# starts the members that still refer to it, so a group that has lost all members does nothing.


Fate = Literal["closed", "open", "restarted", "removed"]
"""A child after its stop: ``closed`` with the mailbox closed, ``open`` with the mailbox open for a ``restart_child``,
``restarted`` with the group or supervisor, or ``removed`` from the table."""


class Keeper(Protocol):
    """The supervisor (`Children`), as seen by its children."""

    def note_over(self, run: Run) -> None:
        """Handle the end of an incarnation: at once after a request to stop, else in turn."""


@define(eq=False, repr=False)
class Run(Incarnation):
    """An incarnation of a child.

    Attributes:
        fate: the state of the child after its stop; None while live.
        ended_at: the Trio time of an end by itself; infinite before.
    """

    child: Child
    _keeper: Keeper
    fate: Fate | None = field(default=None, init=False)
    ended_at: float = field(default=math.inf, init=False)

    @property
    def served(self) -> float:
        """The seconds of serving so far, without clean-up."""
        return min(trio.current_time(), self.ended_at) - self.started_at if self.started else 0.0

    def make(self) -> Actor:
        spec = self.child.spec
        actor = spec.factory(*spec.args, **spec.kwargs)
        if isinstance(actor, Actor):  # the incarnation raises an error otherwise
            self.child.kind = actor.kind
        return actor

    def restarts_after(self, reason: EndReason) -> bool:
        return restarts_after(self.child.spec.restart, reason)

    def ends_by_itself(self) -> None:
        self.ended_at = trio.current_time()
        # "brutal_kill" is for requested stops; a child that ends by itself may clean up.
        shutdown = None if self.child.spec.shutdown == "brutal_kill" else self.child.spec.shutdown
        self.bound(shutdown, asked_at=self.ended_at)

    def on_end(self, _: End) -> None:
        """Notify the supervisor, unless a task waits for the outcome of the start."""
        if self.started or self.overdue or self.fate is not None:
            self._keeper.note_over(self)


@define(eq=False)
class Group:
    """Children that are started again together. A child is a member only while `Child.group` is this group.

    Attributes:
        cause: the failed child.
        delay: the cancel scope around the back-off of the cause.
    """

    cause: Child
    members: Sequence[Child]
    delay: trio.CancelScope = field(factory=trio.CancelScope, init=False)

    @property
    def due(self) -> list[Child]:
        return [child for child in self.members if child.group is self]


@define(eq=False)
class Child:
    """A row of the child table. See the drawing above.

    Attributes:
        number: rises with each row added.
        run: the incarnation; None between two.
        group: the group that will start the child again.
        failures: restart attempts since the last reset; the back-off grows with them.
        alone: True from a failed first start until a start succeeds. Meanwhile failures affect no other child.
        probation: set when parked with a retry, until the child has run for ``reset_after`` or ``restart_child`` starts
            it. Meanwhile any failure parks the child again, whatever the budget. Cancelling prevents the retry.
        kind: the actor's, once the factory has been called.
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
        """True if neither running nor about to start."""
        return self.run is None and self.group is None

    @property
    def in_between(self) -> bool:
        """True while starting, ending, or waiting for the next start."""
        return self.group is not None if self.run is None else not self.run.started or self.run.ending

    def row(self, *, parks: bool) -> Row:
        """Return the data for `plan_restart`. ``parks``: whether the supervisor parks failed children."""
        return Row(self.spec.id, self.spec.restart, up=not self.idle, parked=parks and self.record.state == "failed")

    def info(self) -> ChildInfo:
        return ChildInfo(
            id=self.spec.id,
            state=self.record.state,
            incarnation=self.record.incarnation,
            restart=self.spec.restart,
            kind=self.kind,
        )

    def close(self, why: str) -> None:
        """Answer messages to the child and all actors below, none of which are restarted. The first reason counts.

        A serving child itself closes the actors below, which may still be cleaning up.
        """
        if not self.record.mailbox.closed or self.record.mailbox.queued:
            self.record.close(why)
        if self.record.children and (self.run is None or self.run.ending):
            below = close_below(self.record, why)
            if self.run is None or self.run.final is not None:
                note_ended(below)


def close_below(record: Record, why: str) -> list[Record]:
    """Answer the messages to all actors below one that does not serve. Return their records, parents first."""
    found = [record]
    for each in found:  # grows: a tree may have more levels than Python allows calls
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
    """Return True if an actor, and all actors below, were closed after the end.

    Without this check, each level of a stopping tree would close all levels below again.
    """
    return record.mailbox.closed and record.state in ("stopped", "failed")


def make_record(spec: ChildSpec, parent: Record) -> Record:
    return Record(spec.id, Mailbox(spec.id, size=spec.mailbox_size, policy=spec.overflow), parent.hub, parent)


def record_of(spec: ChildSpec, parent: Record, known: Mapping[str, Record]) -> Record:
    """Return the record of a child in an earlier incarnation of its supervisor, or a new record."""
    record = known.get(spec.id)
    if record is not None and type(record.mailbox) is not Mailbox and not parent.is_pool:
        # A former member of a pool shares the pool's messages.
        record.forget(f"{parent.name!r} was started again as another kind of actor")
        record = None
    if record is None:
        return make_record(spec, parent)
    record.mailbox.set_limits(spec.mailbox_size, spec.overflow)  # the new spec may have other limits
    return record


def count_children(children: Iterable[Child]) -> ChildrenCount:
    rows = list(children)
    supervisors = sum(child.kind == "supervisor" for child in rows)
    return ChildrenCount(
        specs=len(rows),
        active=sum(child.record.state == "running" for child in rows),
        workers=len(rows) - supervisors,
        supervisors=supervisors,
    )
