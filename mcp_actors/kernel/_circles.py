"""Detect a call that would deadlock, because everything that could answer it waits for the caller.

Theory of operation
-------------------
The nodes of a wait-for graph are

- the handling of a message (its `Envelope`), which waits for the calls that it has made;
- an `Incarnation` that starts or ends, which waits for the calls that its own code has made then, for its handlers
  and, if it is a supervisor, for children that start or end;
- a `Mailbox`, in which calls wait for one of the actor's slots; or, if the actor does not serve, for the incarnation
  that is starting, or that has to be over before the next;
- the manager of a supervisor (`Children`), which waits for children that start or end.

A mailbox is stuck if all of its slots are; any other node is stuck if one of its blockers is. The graph is not stored:
each node knows its blockers, and the graph is walked when a node is about to wait. `find_circle` assumes that all nodes
are stuck, removes those that are not, and then those that waited only for these, until nothing changes. If the place
where the call would wait remains, only a cancellation could end the wait. So the last call of a circle is refused,
whether its calls belong to one request (p → q → p) or to two that have crossed.

A node that waits for several calls counts as stuck if one of them is. It might race them against each other, or against
a deadline; but a program that relies on that contains a deadlock.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ._end import End
    from ._incarnation import Incarnation
    from ._record import Record
    from ._requests import Requests

PRUNE_AT: Final = 8
"""Calls of a handler that are remembered before the answered ones are dropped; later twice the unanswered ones more."""


class Node(Protocol):
    """A node of the wait-for graph."""

    @property
    def needs_all(self) -> bool:
        """Whether it is stuck only if all of its blockers are; otherwise one is enough."""

    @property
    def label(self) -> str:
        """The name and the activity of an actor, for an error; empty for a mailbox or a manager."""

    def blockers(self) -> Sequence[Node]:
        """Return the nodes that it waits for now; empty if it waits for none."""


class Awaited(Protocol):
    """A call, start or end that a sender waits for."""

    @property
    def open(self) -> bool:
        """Whether it still has to be waited for."""

    def place(self) -> Node:
        """Return the node where it is: its handler or a mailbox."""


class Sender(Node, Protocol):
    """The origin of a call: the handler of an envelope, or the own code of an incarnation."""

    calls: list[Awaited] | None
    prune_at: int

    @property
    def busy(self) -> bool:
        """Whether another node may wait for it."""

    @property
    def record(self) -> Record:
        """The actor whose code this is."""


def expect(sender: Sender, call: Awaited) -> None:
    """Remember that a sender waits for something."""
    calls = sender.calls
    if calls is None:
        sender.calls = [call]
        sender.prune_at = PRUNE_AT
        return
    if len(calls) >= sender.prune_at:
        calls[:] = [each for each in calls if each.open]
        sender.prune_at = 2 * len(calls) + PRUNE_AT
    calls.append(call)


def places(calls: Iterable[Awaited] | None) -> list[Node]:
    """Return the nodes where the unanswered calls are."""
    return [call.place() for call in calls or () if call.open]


class Transition:
    """An incarnation as a node: other nodes wait for it while it starts or ends."""

    __slots__ = ()

    needs_all: Final = False

    if TYPE_CHECKING:
        record: Record
        started: bool
        final: End | None
        awaits: set[Incarnation]
        calls: list[Awaited] | None
        _requests: Requests | None

        @property
        def ending(self) -> bool:
            """True once the end was decided."""

    @property
    def busy(self) -> bool:
        """True while it starts or ends."""
        return self.final is None and (not self.started or self.ending)

    open = busy

    @property
    def label(self) -> str:
        """The name of the actor, and whether it starts or stops."""
        return f"{self.record.name!r} ({'stopping' if self.ending else 'starting'})"

    def place(self) -> Node:
        """Itself."""
        return self

    def blockers(self) -> list[Node]:
        """Return the nodes that its start or end waits for."""
        if not self.busy:
            return []
        handlers = self._requests.in_flight if self._requests is not None else []
        return [*self.awaits, *handlers, *places(self.calls)]


def find_circle(caller: Node, first: Node) -> list[str]:
    """Return the circle that a caller would close by waiting, or an empty list if it would not wait for ever.

    Args:
        caller: the node that is about to wait.
        first: the node that it would wait for.

    Returns:
        The labels along the circle, from the caller back to the caller.
    """
    waits: dict[Node, Sequence[Node]] = {}
    reached = [first]
    for node in reached:
        if node not in waits:
            waits[node] = () if node is caller else node.blockers()
            reached.extend(waits[node])
    stuck = set(waits)
    while moving := [node for node in stuck if node is not caller and not _stuck(node, waits[node], stuck)]:
        stuck.difference_update(moving)
    return _way(caller, first, waits, stuck) if first in stuck else []


def _stuck(node: Node, blockers: Sequence[Node], stuck: Collection[Node]) -> bool:
    found = [blocker in stuck for blocker in blockers]
    return bool(found) and (all(found) if node.needs_all else any(found))


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
