"""Detect calls that would deadlock, and note for whom a task works.

Envelopes, mailboxes, incarnations and the managers of supervisors derive from `Node` or `Sender`; this file imports
none of them. References and supervisors ask it before a sender waits (`find_circle`), and they and ``_open`` note a
wait (`expect`). The file writes the calls of a sender and two context variables, which say for whom a task works
(`act_for`, `act_for_caller`, `current_sender`); incarnations and what serves their messages set the first of them,
`serving`, too. It reads Trio's tasks, their nurseries, contexts and deadlines, starts no task and does not wait. The
caller raises the error, with the text of `explain`.

Theory of operation
-------------------
The nodes of a wait-for graph are

- the handling of a message (its `Envelope`), which waits for the calls that it has made;
- an `Incarnation` that starts or ends, which waits for the calls that its own code has made then, for its handlers and,
  if it is a supervisor, for children that start or end;
- a `Mailbox`, in which calls wait for one of the actor's slots; or, if the actor does not serve, for the incarnation
  that is starting, or that has to be over before the next;
- the manager of a supervisor (`Children`), which waits for children that start or end. So does a change of the child
  table that it has begun: it is the handling of a message, and the incarnation counts among its calls;
- what has taken a message and not begun to handle it (`Answers` in ``_serving``), which waits for nothing.

A mailbox is stuck if all of its slots are; any other node is stuck if one of its blockers is. The graph is not stored:
each node knows its blockers, and the graph is walked when a node is about to wait. `find_circle` assumes that all nodes
are stuck, removes those that are not, and then those that waited only for these, until nothing changes. If the place
where the call would wait remains, the wait would not end by itself. So the last call of a circle is refused, whether
its calls belong to one request (p → q → p) or to two that have crossed.

A handler waits for the tasks below its slot, so their calls are its calls (`current_sender`), as are those of a task
that has joined it (`act_for`). A task that it has started in a nursery outside the actor inherits its context variables
and nothing more. Calls under a deadline that the caller itself has set are left out as well (`is_bounded`): they end by
themselves.

A node that waits for several calls counts as stuck if one of them is. It might race them against each other; but a
program that relies on that contains a deadlock.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


PRUNE_AT: Final = 8
"""Calls of a handler that are remembered before the answered ones are dropped; later twice the unanswered ones more."""


class Node:
    """A node of the wait-for graph.

    Attributes:
        needs_all: True if it is stuck only when all of its blockers are; otherwise one is enough.
    """

    __slots__ = ()

    needs_all: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The name and the activity of an actor, for an error; empty for a node that only leads to others."""
        return ""

    def blockers(self) -> Sequence[Node]:
        """Return the nodes that it waits for now; empty if it waits for none."""
        return ()


class Calls(list["Sender"]):
    """The calls, starts and ends that a sender waits for. Those that are over are dropped when there are many."""

    prune_at = PRUNE_AT


class Sender(Node, ABC):
    """The handling of a message, or the start or end of an incarnation. It makes calls, and calls wait for it.

    Attributes:
        calls: the calls that its code has made; None if it has made none.
    """

    __slots__ = ()

    calls: Calls | None

    @property
    @abstractmethod
    def open(self) -> bool:
        """True while it has not been answered or ended."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """True while another node may wait for it."""

    @property
    def outer_deadline(self) -> float:
        """The effective deadline of its task before its code has set one of its own."""
        return math.inf

    @abstractmethod
    def is_run_by(self, task: trio.lowlevel.Task) -> bool:
        """Return True for the task at the top of its code."""

    def place(self) -> Node:
        """Return the node where it is: itself, or a mailbox."""
        return self


serving: ContextVar[Sender | None] = ContextVar("mcp_actors.kernel.serving", default=None)
"""The sender that the current task acts for, or inherited from the task that started it; see `current_sender`."""

_joined: ContextVar[tuple[Sender | None, float]] = ContextVar("mcp_actors.kernel.joined", default=(None, 0.0))
"""The sender that a task elsewhere has joined explicitly, and the deadline around that task then."""


def effective_deadline() -> float:
    """Return the effective deadline of the running task, also below a thousand supervisors that are starting.

    Trio asks each scope in turn, in one nested call per scope, unless the innermost one knows that it is cancelled.
    """
    try:
        return trio.current_effective_deadline()
    except RecursionError:
        return math.inf


def act_for(sender: Sender) -> None:
    """Count what the current task does from now on, and the tasks it starts, as done by a sender that waits for it."""
    serving.set(sender)
    _joined.set((sender, effective_deadline()))


def act_for_caller() -> None:
    """The same for a task that runs in the context of a caller who waits for it, but not below the caller's task."""
    caller = serving.get()
    if caller is not None:
        act_for(caller)


def current_sender() -> Sender | None:
    """Return the sender that the running code acts for; None if no handler and no start or end waits for it."""
    sender = serving.get()
    if sender is None:
        return None
    task = trio.lowlevel.current_task()
    if sender.is_run_by(task) or _acts_for(sender, task):
        return sender
    # A task never moves to another nursery, so this is for good.
    serving.set(None)
    return None


def _acts_for(sender: Sender, task: trio.lowlevel.Task) -> bool:
    if _joined.get()[0] is sender or task.context.get(serving) is not sender:
        return True  # the latter: it has entered a copy of the sender's context, as the bridge does for asyncio
    top = task
    while not sender.is_run_by(task):
        if task.parent_nursery is None:
            # One of Trio's system tasks has a sender's context only if a thread that the sender waits for calls back.
            return top.context.get(serving) is sender
        top, task = task, task.parent_nursery.parent_task
    return True


def is_bounded(sender: Sender) -> bool:
    """Return True if the running code, which acts for a sender, has set a deadline for what it does now."""
    deadline = effective_deadline()
    if deadline == math.inf:
        return False
    joined, outer_deadline = _joined.get()
    if joined is not sender:
        if trio.lowlevel.current_task().context.get(serving) is not sender:
            return False  # it may have a deadline of asyncio's, which cannot be seen from here
        outer_deadline = sender.outer_deadline
    return deadline < outer_deadline


def expect(sender: Sender, call: Sender) -> None:
    """Remember that a sender waits for a call, a start or an end."""
    calls = sender.calls
    if calls is None:
        sender.calls = calls = Calls()  # type: ignore[misc]  # each subclass has a slot for it
    elif len(calls) >= calls.prune_at:
        calls[:] = [each for each in calls if each.open]
        calls.prune_at = 2 * len(calls) + PRUNE_AT
    calls.append(call)


def places(calls: Calls | None) -> list[Node]:
    """Return the nodes where the unanswered calls are."""
    return [call.place() for call in calls or () if call.open]


def labels(calls: Calls | None) -> list[str]:
    """Return what the unanswered calls wait for, as text."""
    return [call.label for call in calls or () if call.open]


def find_circle(caller: Node, first: Node) -> list[str]:
    """Return the circle that a caller would close by waiting, or an empty list if it would not wait for ever.

    Args:
        caller: the node that is about to wait.
        first: the node that it would wait for.

    Returns:
        The labels along the circle, from the caller back to the caller.
    """
    if first is not caller and not first.blockers():
        return []  # as nearly always
    waits: dict[Node, Sequence[Node]] = {}
    waiters: defaultdict[Node, list[Node]] = defaultdict(list)
    reached = [first]
    for node in reached:
        if node not in waits:
            waits[node] = () if node is caller else node.blockers()
            reached.extend(waits[node])
            for blocker in waits[node]:
                waiters[blocker].append(node)
    # Each edge is followed once. A search through all nodes in each round would take a time that grows with the square
    # of the length of a chain of calls.
    stuck_blockers = {node: len(blockers) for node, blockers in waits.items()}
    moving = [node for node in waits if not waits[node] and node is not caller]
    stuck = set(waits).difference(moving)
    for node in moving:  # which grows
        for waiter in waiters[node]:
            stuck_blockers[waiter] -= 1
            if waiter in stuck and (waiter.needs_all or not stuck_blockers[waiter]):
                stuck.remove(waiter)
                moving.append(waiter)
    return _way(caller, first, waits, stuck) if first in stuck else []


def _way(caller: Node, first: Node, waits: dict[Node, Sequence[Node]], stuck: Collection[Node]) -> list[str]:
    came_from: dict[Node, Node | None] = {first: None}
    reached: list[Node] = [first]
    for each in reached:
        new = [blocker for blocker in waits[each] if blocker in stuck and blocker not in came_from]
        came_from.update(dict.fromkeys(new, each))
        reached.extend(new)
    labels: list[str] = []
    node: Node | None = caller
    while node is not None:
        labels += [node.label] if node.label else []
        node = came_from.get(node)
    return [caller.label, *reversed(labels)]


def explain(circle: Sequence[str]) -> str:
    """Return the circle as text: who waits for whom."""
    return ", ".join(f"{waits} waits for {blocker}" for waits, blocker in pairwise(circle))
