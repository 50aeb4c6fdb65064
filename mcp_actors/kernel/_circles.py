"""Detect calls that would deadlock, and note for whom a task acts.

A circle of calls would hang forever, silently; the call that closes the circle raises an error instead. The check must
be cheap, and never refuse a call that would return. One exception: a handler that races two calls counts as stuck if
one of them is.

The wait-for graph is not stored, but walked when a node is about to wait::

    node                       waits for
    handler (`Envelope`)       calls made by the handler; children, if the message changes a child table
    `Incarnation`              while starting or ending: handlers; calls of its own code; children that start or end
    `Mailbox`                  messages in the actor's slots, or an incarnation that starts or ends
    `ControlLane`              handlers of control messages, or an incarnation that starts or ends
    manager (`Children`)       children that start or end

Owns: two context variables: for whom a task acts, and the deadline of that handler when the task joined it.
Writes: lists of awaited calls.
Calls: nothing.
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
"""The length of a list of awaited calls at which answered calls are first dropped."""


class Node:
    """A node of the wait-for graph.

    Attributes:
        needs_all: True if a node is stuck only when all its blockers are. Otherwise one stuck blocker suffices, even in
            a handler that races two calls.
    """

    __slots__ = ()

    needs_all: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The name and activity of an actor, for an error; empty for a node that only leads to others."""
        return ""

    def blockers(self) -> Sequence[Node]:
        """Return the nodes waited for now; empty if there are none."""
        return ()


class AwaitedCalls(list["Sender"]):
    """The calls, starts and ends awaited by a sender. Finished entries are dropped once there are many."""

    prune_at = PRUNE_AT


class Sender(Node, ABC):
    """The handling of a message, or the start or end of an incarnation: makes calls, and is waited for."""

    __slots__ = ()

    calls: AwaitedCalls | None

    @property
    @abstractmethod
    def open(self) -> bool:
        """True until answered or ended."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """True while another node may wait for the sender."""

    @property
    def outer_deadline(self) -> float:
        """The effective deadline when the sender's code began."""
        return math.inf

    @abstractmethod
    def is_run_by(self, task: trio.lowlevel.Task) -> bool:
        """Return True for the task at the top of the sender's code."""

    def place(self) -> Node:
        """Return itself, or the mailbox where the sender waits."""
        return self


serving: ContextVar[Sender | None] = ContextVar("mcp_actors.kernel.serving", default=None)
"""The sender that the current task acts for, or has only inherited; see `current_sender`."""

_joined: ContextVar[tuple[Sender | None, float]] = ContextVar("mcp_actors.kernel.joined", default=(None, 0.0))
"""The sender that a task elsewhere has joined, and the task's effective deadline at that time."""


def effective_deadline() -> float:
    """Return the effective deadline of the running task; infinity below a thousand starting supervisors.

    Trio asks the scopes in nested calls, up to the recursion limit.
    """
    try:
        return trio.current_effective_deadline()
    except RecursionError:
        return math.inf


def act_for(sender: Sender) -> None:
    """Count everything done by the current task from now on, and by tasks started here, as done by a sender."""
    serving.set(sender)
    _joined.set((sender, effective_deadline()))


def act_for_caller() -> None:
    """Act for the caller whose context the task runs in, without being below the caller's task."""
    caller = serving.get()
    if caller is not None:
        act_for(caller)


def current_sender() -> Sender | None:
    """Return the sender that the running code acts for; None if no handler, start or end waits for the code.

    A task in a nursery within a handler acts for the handler, as does a task that has joined the handler (`act_for`). A
    task in a nursery outside the handler only inherits context variables.
    """
    sender = serving.get()
    if sender is None:
        return None
    task = trio.lowlevel.current_task()
    if sender.is_run_by(task) or _acts_for(sender, task):
        return sender
    # Forget for good: a task never moves to another nursery.
    serving.set(None)
    return None


def _acts_for(sender: Sender, task: trio.lowlevel.Task) -> bool:
    if _joined.get()[0] is sender or task.context.get(serving) is not sender:
        return True  # second case: code in a copy of the sender's context, as in the bridge to asyncio
    top = task
    while not sender.is_run_by(task):
        if task.parent_nursery is None:
            # A system task of Trio has a sender's context only if a thread that the sender waits for calls back.
            return top.context.get(serving) is sender
        top, task = task, task.parent_nursery.parent_task
    return True


def is_bounded(sender: Sender) -> bool:
    """Return True if the running code, which acts for a sender, has set a deadline of its own.

    A call under the deadline ends by itself, and is left out of the graph.
    """
    deadline = effective_deadline()
    if deadline == math.inf:
        return False
    joined, outer_deadline = _joined.get()
    if joined is not sender:
        if trio.lowlevel.current_task().context.get(serving) is not sender:
            return False  # a deadline of asyncio's cannot be seen from here
        outer_deadline = sender.outer_deadline
    return deadline < outer_deadline


def expect(sender: Sender, call: Sender) -> None:
    """Note that a sender waits for a call, a start or an end."""
    calls = sender.calls
    if calls is None:
        sender.calls = calls = AwaitedCalls()  # type: ignore[misc]  # each subclass has a slot for it
    elif len(calls) >= calls.prune_at:
        calls[:] = [each for each in calls if each.open]
        calls.prune_at = 2 * len(calls) + PRUNE_AT
    calls.append(call)


def places(calls: AwaitedCalls | None) -> list[Node]:
    return [call.place() for call in calls or () if call.open]


def labels(calls: AwaitedCalls | None) -> list[str]:
    return [call.label for call in calls or () if call.open]


def find_circle(caller: Node, first: Node) -> list[str]:
    """Return the circle that a caller would close by waiting for the first node; empty if the wait would end.

    The labels go from the caller back to the caller. At first all nodes count as stuck. Nodes that wait for nothing are
    removed, then nodes that are no longer stuck without the removed ones, until nothing changes. If ``first`` remains,
    the wait would never end, whether the calls belong to one request (p → q → p) or to two that have crossed.
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
    # Count down the stuck blockers of each node, so that each edge is followed once. Searching all nodes in each round
    # would take quadratic time.
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
    return ", ".join(f"{waits} waits for {blocker}" for waits, blocker in pairwise(circle))
