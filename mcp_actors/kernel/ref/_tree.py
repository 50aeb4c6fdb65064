"""A picture of a tree of actors, as data and as text.

Nothing here calls itself: a tree may be deeper than Python's stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import trio
from attrs import frozen

from ..._plain_text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._record import ActorState, Record


SHOWN: Final = 100
"""Characters of a last error that a drawing shows: the line of an actor should fit on a screen."""


@frozen(kw_only=True, repr=False)
class TreeNode:
    """One actor of a tree, with those below it; see `SupervisorRef.tree`. ``print(node)`` draws the tree.

    Attributes:
        id: its name, unique in its supervisor.
        path: its name after those of the supervisors above it.
        kind: ``"worker"`` or ``"supervisor"``; a child that has never run counts as a worker.
        state: its state.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
        queued: messages that wait in the mailbox.
        in_flight: messages that are being handled.
        oldest_wait: the seconds that the longest waiting of the queued messages has waited; None if none is queued.
        restarts: how often its supervisor has started it again after a failure, its own or another one of its group.
        last_error: the text of the last failure, shortened; None if there was none.
        children: the children of a supervisor, in the order in which they start.
    """

    id: str
    path: str
    kind: Literal["worker", "supervisor"]
    state: ActorState
    incarnation: int
    queued: int
    in_flight: int
    oldest_wait: float | None
    restarts: int
    last_error: str | None
    children: tuple[TreeNode, ...]

    def __repr__(self) -> str:
        return f"<TreeNode {self.path!r} {self.state}, {len(self.children)} children>"

    def __str__(self) -> str:
        rows = [(f"{branch}{each.id}{'/' if each.kind == 'supervisor' else ''}", each) for branch, each in _rows(self)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {each.state:8}  {each._activity()}".rstrip() for name, each in rows)

    def walk(self) -> Iterator[TreeNode]:
        """Yield this actor and all below it, each before its children."""
        return (node for _, node in _rows(self))

    def _activity(self) -> str:
        """Return the facts about it that are out of the ordinary, as text."""
        facts = [f"{self.in_flight} in flight"] if self.in_flight else []
        if self.oldest_wait is not None:
            facts.append(f"{self.queued} queued for {_duration(self.oldest_wait)}")
        if self.restarts:
            facts.append("1 restart" if self.restarts == 1 else f"{self.restarts} restarts")
        if self.last_error is not None:
            facts.append(f"last error: {plain_text(self.last_error, limit=SHOWN)}")
        return ", ".join(facts)


def _rows(root: TreeNode) -> Iterator[tuple[str, TreeNode]]:
    """Yield the nodes of a tree from top to bottom, each with the branch that leads to it."""
    rows = [("", "", root)]
    while rows:
        branch, below, node = rows.pop()
        yield branch, node
        last = len(node.children) - 1
        rows.extend(
            (f"{below}└─ ", f"{below}   ", child) if number == last else (f"{below}├─ ", f"{below}│  ", child)
            for number, child in reversed(tuple(enumerate(node.children)))
        )


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def tree_of(root: Record) -> TreeNode:
    """Return the tree below a record as it is now."""
    found = [(root, root.path)]
    for record, path in found:
        found.extend((child, f"{path}/{child.name}") for child in (record.children or {}).values())
    nodes: dict[Record, TreeNode] = {}
    for record, path in reversed(found):  # children first
        children = tuple(nodes.pop(child) for child in (record.children or {}).values())
        nodes[record] = _node(record, path, children)
    return nodes[root]


def _node(record: Record, path: str, children: tuple[TreeNode, ...]) -> TreeNode:
    now, since = record.statistics(), record.queued_since
    return TreeNode(
        id=record.name,
        path=path,
        kind="worker" if record.children is None else "supervisor",
        state=now.state,
        incarnation=now.incarnation,
        queued=now.queued,
        in_flight=now.in_flight,
        oldest_wait=None if since is None else trio.current_time() - since,
        restarts=record.restarts,
        last_error=record.last_error,
        children=children,
    )
