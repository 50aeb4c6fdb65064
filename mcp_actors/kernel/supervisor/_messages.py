"""What can be asked of a supervisor, side by side with the typed functions that ask it.

All of these take the control lane: a supervisor has no other work than its children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from ..._errors import ChildError
from .._events import EVENT_BUFFER
from ..actor import ActorRef
from ..mailbox import Call
from ._table import ChildInfo, ChildrenCount

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from .._events import EventStream
    from ..actor import Record
    from ._restart import ChildSpec

__all__ = ["SupervisorRef"]


@frozen
class StartChild(Call[ActorRef]):
    """Add a child and start it."""

    control: ClassVar[bool] = True
    spec: ChildSpec


@frozen
class StopChild(Call[None]):
    """Stop a child; it stays in the table."""

    control: ClassVar[bool] = True
    id: str
    keep_mailbox: bool = False


@frozen
class RestartChild(Call[ActorRef]):
    """Start a child that does not run."""

    control: ClassVar[bool] = True
    id: str


@frozen
class DeleteChild(Call[None]):
    """Take a child that does not run out of the table."""

    control: ClassVar[bool] = True
    id: str


@frozen
class WhichChildren(Call[tuple[ChildInfo, ...]]):
    """List the table."""

    control: ClassVar[bool] = True


@frozen
class CountChildren(Call[ChildrenCount]):
    """Count the table."""

    control: ClassVar[bool] = True


ChildChange = StartChild | StopChild | RestartChild | DeleteChild


class SupervisorRef(ActorRef):
    """A reference to a supervisor: an `ActorRef` with a typed function for each question.

    Questions are answered at once. Changes are made one after the other, in the order in which they came; only the stop
    of a child that does not serve (it starts, ends, or waits for its next start) is made at once. With
    ``start_order="parallel"`` they begin in that order, and those of different children go on side by side.

    Both raise `ActorStopped` if the supervisor has stopped, or does so meanwhile.
    """

    __slots__ = ()

    def child(self, id: str) -> ActorRef:
        """The reference to a child, by its id. It stays valid across restarts.

        Synchronous; no message is sent. For a child that is a supervisor itself this is a `SupervisorRef`.

        Raises:
            ChildError: there is no such child (``reason="not_found"``).
        """
        record = (self._record.children or {}).get(id)
        if record is None:
            known = ", ".join(self._record.children or ()) or "none"
            raise ChildError(
                f"supervisor {self.name!r}: there is no child {id!r}; its children are: {known}",
                actor=self.name,
                reason="not_found",
            )
        return ref_to(record)

    async def start_child(self, spec: ChildSpec) -> ActorRef:
        """Add a child at the end of the table and start it.

        **Cancellation**: if the change has not begun, it is not made; otherwise it goes on without its caller.

        Returns:
            The reference to the child, once it has started (or, if the supervisor is not strict, was tried).

        Raises:
            ActorStartError: the supervisor is strict and the child did not start, and it is not in the table; or the
                child was stopped while it was starting.
            ChildError: its id is taken (``already_started``, ``already_present``).
            ValueError: this is no spec, or it does not fit the supervisor.
        """
        return await self.call(StartChild(spec))

    async def stop_child(self, id: str, *, keep_mailbox: bool = False) -> None:
        """Stop a child, whatever it does. A start or a back-off that is on ends at once. It stays in the table.

        **Cancellation**: if the change has not begun, it is not made; otherwise it goes on without its caller.

        Args:
            id: which.
            keep_mailbox: True keeps its mailbox open, so that messages wait for a ``restart_child`` that follows.

        Raises:
            ChildError: there is no such child (``not_found``).
        """
        await self.call(StopChild(id, keep_mailbox))

    async def restart_child(self, id: str) -> ActorRef:
        """Start a child that does not run, with the same mailbox and a back-off that begins anew.

        One that its supervisor has parked (state ``failed``) gets a fresh budget too.

        **Cancellation**: if the change has not begun, it is not made; otherwise it goes on without its caller.

        Raises:
            ActorStartError: the supervisor is strict and the child did not start, and its state is ``failed`` then; or
                the child was stopped while it was starting.
            ChildError: there is no such child (``not_found``), or it runs (``running``, ``restarting``).
        """
        return await self.call(RestartChild(id))

    async def delete_child(self, id: str) -> None:
        """Take a child that does not run out of the table, and its mailbox with it.

        **Cancellation**: if the change has not begun, it is not made.

        Raises:
            ChildError: there is no such child (``not_found``), or it runs (``running``, ``restarting``).
        """
        await self.call(DeleteChild(id))

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """The child table, in order. **Cancellation**: changes nothing."""
        return await self.call(WhichChildren())

    async def count_children(self) -> ChildrenCount:
        """How many children there are, by kind. **Cancellation**: changes nothing."""
        return await self.call(CountChildren())

    def watch_events(self, *, size: int = EVENT_BUFFER) -> AbstractAsyncContextManager[EventStream]:
        """Subscribe to the events of the whole tree that this supervisor is in: ``async with`` yields the stream.

        The stream ends with the block, or with the tree.

        Args:
            size: how many events may wait for the reader; one more drops the oldest (see `EventStream.missed`).

        Raises:
            RuntimeError: as for `call`.
        """
        self._check_run()
        return self._record.hub.subscribe(size=size)


def ref_to(record: Record) -> ActorRef:
    """A reference of the kind that fits the actor."""
    return ActorRef(record) if record.children is None else SupervisorRef(record)
