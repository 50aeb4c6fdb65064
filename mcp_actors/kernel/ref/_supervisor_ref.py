"""The messages to a supervisor, and the reference that sends them.

All of them take the control lane, because a supervisor has no other work than its children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar, overload

from attrs import frozen

from ..._errors import ChildError
from .._events import EVENT_BUFFER
from ..mailbox import Call
from ._child_info import ChildInfo, ChildrenCount
from ._record import elsewhere
from ._ref import ActorRef
from ._tree import tree_of

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from .._events import EventStream
    from ._child_info import Spec as ChildSpec  # what it always is
    from ._record import Record
    from ._tree import TreeNode


R = TypeVar("R", bound=ActorRef)


@frozen(eq=False)
class StartChild(Call[ActorRef]):
    """Add a child and start it."""

    control: ClassVar[bool] = True
    spec: ChildSpec


@frozen(eq=False)
class StopChild(Call[None]):
    """Stop a child; it stays in the table."""

    control: ClassVar[bool] = True
    id: str
    keep_mailbox: bool = False


@frozen(eq=False)
class RestartChild(Call[ActorRef]):
    """Start a child that is not running."""

    control: ClassVar[bool] = True
    id: str


@frozen(eq=False)
class DeleteChild(Call[None]):
    """Remove a child that is not running from the table."""

    control: ClassVar[bool] = True
    id: str


class WhichChildren(Call[tuple[ChildInfo, ...]]):
    """List the table."""

    __slots__ = ()

    control: ClassVar[bool] = True


class CountChildren(Call[ChildrenCount]):
    """Count the table."""

    __slots__ = ()

    control: ClassVar[bool] = True


ChildChange = StartChild | StopChild | RestartChild | DeleteChild


class SupervisorRef(ActorRef):
    """A reference to a supervisor: an `ActorRef` with a typed method for each message.

    Queries are answered at once. Changes are made one after the other, in the order in which they were requested; only
    the stop of a child that starts, ends, or waits for its next start is made at once. With ``start_order="parallel"``
    changes begin in that order, and those of different children run concurrently.

    Both raise `ActorStopped` if the supervisor has stopped, or stops meanwhile.
    """

    __slots__ = ()

    @overload
    def child(self, id: str) -> ActorRef: ...
    @overload
    def child(self, id: str, kind: type[R]) -> R: ...
    def child(self, id: str, kind: type[ActorRef] = ActorRef) -> ActorRef:
        """Return the reference to a child. It stays valid across restarts.

        Synchronous; no message is sent. For a child that is a supervisor itself this is a `SupervisorRef`, once the
        child has been started for the first time.

        Args:
            id: the child's id.
            kind: `SupervisorRef` for a child that must be a supervisor: its methods are known to a type checker then.

        Raises:
            ChildError: the child was not found (``reason="not_found"``).
            TypeError: the child is not of this kind.
        """
        record = (self._record.children or {}).get(id)
        if record is None:
            known = ", ".join(self._record.children or ())
            remedy = f"choose one of: {known}" if known else "it has no children"
            raise ChildError(
                f"supervisor {self.name!r}: child {id!r} not found; {remedy}",
                actor=self.name,
                reason="not_found",
            )
        found = ref_to(record)
        if not isinstance(found, kind):
            raise TypeError(
                f"supervisor {self.name!r}: child {id!r} is not a supervisor, or has never been started; check the id, "
                "or wait until it has started"
            )
        return found

    @overload
    def find(self, path: str) -> ActorRef: ...
    @overload
    def find(self, path: str, kind: type[R]) -> R: ...
    def find(self, path: str, kind: type[ActorRef] = ActorRef) -> ActorRef:
        """Return the reference to an actor below this supervisor: ``find("heating/pump")``.

        Synchronous; no message is sent. An id that contains a ``/`` is found by `child` only.

        Args:
            path: the ids on the way to it, from a child of this supervisor on, separated by ``/``.
            kind: as for `child`.

        Raises:
            ChildError: an id on the way was not found (``reason="not_found"``).
            TypeError: an actor on the way is not a supervisor, or the last one is not of this kind.
        """
        *way, last = path.split("/")
        supervisor = self
        for id in way:
            supervisor = supervisor.child(id, SupervisorRef)
        return supervisor.child(last, kind)

    def tree(self) -> TreeNode:
        """Return this supervisor and all actors below it as they are now; ``print(supervisor.tree())`` draws them.

        Synchronous; no message is sent, so it also works while an actor is busy, hangs or has stopped.

        Raises:
            RuntimeError: as for `call`.
        """
        if not self._record.lives_here:
            raise elsewhere(self.name)
        return tree_of(self._record)

    async def start_child(self, spec: ChildSpec) -> ActorRef:
        """Add a child at the end of the table and start it.

        **Cancellation**: a change that has not begun is not made; one that has begun continues without its caller.

        Returns:
            The reference to the child, once it has started or, if the supervisor is not strict, its start was tried.

        Raises:
            ActorStartError: the child did not start and the supervisor is strict, so the child is not in the table; or
                the child was stopped while starting.
            ChildError: the id is taken (``already_started``, ``already_present``).
            ValueError: this is not a `ChildSpec`, or it does not fit the supervisor.
        """
        return await self.call(StartChild(spec))

    async def stop_child(self, id: str, *, keep_mailbox: bool = False) -> None:
        """Stop a child in any state. A start or back-off in progress ends at once. The child stays in the table.

        **Cancellation**: a change that has not begun is not made; one that has begun continues without its caller.

        Args:
            id: the child's id.
            keep_mailbox: True keeps its mailbox open, so that messages wait for a ``restart_child`` that follows.

        Raises:
            ChildError: the child was not found (``not_found``).
        """
        await self.call(StopChild(id, keep_mailbox))

    async def restart_child(self, id: str) -> ActorRef:
        """Start a child that is not running, with the same mailbox and a reset back-off.

        A parked child (state ``failed``) gets a new restart budget too.

        **Cancellation**: a change that has not begun is not made; one that has begun continues without its caller.

        Raises:
            ActorStartError: the child did not start and the supervisor is strict; its state is ``failed`` then. Or the
                child was stopped while starting.
            ChildError: the child was not found (``not_found``), or it is running (``running``, ``restarting``).
        """
        return await self.call(RestartChild(id))

    async def delete_child(self, id: str) -> None:
        """Remove a child that is not running from the table, with its mailbox.

        **Cancellation**: a change that has not begun is not made.

        Raises:
            ChildError: the child was not found (``not_found``), or it is running (``running``, ``restarting``).
        """
        await self.call(DeleteChild(id))

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """Return the child table, in order. **Cancellation**: has no effect on the supervisor."""
        return await self.call(WhichChildren())

    async def count_children(self) -> ChildrenCount:
        """Return the number of children by kind. **Cancellation**: has no effect on the supervisor."""
        return await self.call(CountChildren())

    def watch_events(self, *, size: int = EVENT_BUFFER) -> AbstractAsyncContextManager[EventStream]:
        """Subscribe to the events of the whole tree that this supervisor is in: ``async with`` yields the stream.

        The stream ends with the block or with the tree.

        Args:
            size: how many events may wait for the reader; one more drops the oldest (see `EventStream.missed`).

        Raises:
            RuntimeError: as for `call`.
        """
        self._check_run()
        return self._record.hub.subscribe(size=size)


def ref_to(record: Record) -> ActorRef:
    """Return an `ActorRef`, or a `SupervisorRef` for a supervisor."""
    return ActorRef(record) if record.children is None else SupervisorRef(record)
