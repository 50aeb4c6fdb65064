"""Children of a supervisor, as plain data for callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal

from attrs import frozen

from ..mailbox import M_contra

if TYPE_CHECKING:
    from ._record import ActorState


RestartType = Literal["permanent", "transient", "temporary"]


class Spec(Generic[M_contra]):
    """Base of `ChildSpec`, the only subclass.

    A spec makes actors, an actor knows its supervisor, and the reference to a supervisor takes specs. This class keeps
    the modules of the three from importing each other in a circle.
    """

    __slots__ = ()


@frozen(kw_only=True)
class ChildInfo:
    """One row of ``which_children``.

    Attributes:
        id: the child's id.
        state: its state.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
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
        active: running children.
        workers: children that are not supervisors.
        supervisors: children that are supervisors.
    """

    specs: int
    active: int
    workers: int
    supervisors: int
