"""A supervisor that has nothing to run yet."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from ..actor import Actor, IgnoreStart
from ._table import record_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ._restart import ChildSpec


class DormantSupervisor(Actor):
    """A supervisor that starts nothing, and is not started itself: its children only get their refs.

    Return it from the factory of a `ChildSpec` as long as no child is needed. Messages to the children wait. To wake
    it, let the factory return a `Supervisor` of the same children, and call ``restart_child``. Until then it costs
    no task. Messages to the supervisor itself, such as changes of its children, wait too.

    Args:
        specs: the children.
    """

    kind: Literal["worker", "supervisor"] = "supervisor"
    _accepts = None

    def __init__(self, *specs: ChildSpec) -> None:
        self._specs = specs

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make the records of the children, which their supervisor takes over, and have nothing to run."""
        own = self._current.record
        known = own.children or {}
        own.children = {spec.id: record_of(spec, own, known) for spec in self._specs}
        for record in own.children.values():
            record.become("stopped")
        for id in known.keys() - own.children.keys():
            known[id].forget(f"{own.name!r} was started again without it")
        raise IgnoreStart(keep_mailbox=True)
        yield  # type: ignore[unreachable]  # makes this a generator, which a context manager is made of
