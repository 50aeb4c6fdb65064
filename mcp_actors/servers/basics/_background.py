"""Tasks that live beside a block and serve it until its clean-up is over.

A plain nursery would end them too early (a cancellation that reaches the block reaches them at the same moment, while
the clean-up still needs its pipes read) and would wrap every exception of the block in a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple

import trio

__all__ = ["Background", "open_background"]

Args = TypeVarTuple("Args")


class Background:
    """Starts tasks that no cancellation from outside reaches; they end when the block that opened this has ended.

    Nor does a Ctrl-C, which the main task gets instead; code of users that is called in them is open to it again.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: list[trio.CancelScope] = []

    def start_soon(self, fn: Callable[[*Args], Awaitable[None]], *args: *Args, name: str) -> None:
        """Start a task beside the block; an exception out of it cancels the block and leaves in its place."""
        scope = trio.CancelScope(shield=True)
        self._scopes.append(scope)
        self._nursery.start_soon(self._run, scope, fn, args, name=name)

    def cancel(self, reason: str) -> None:
        """Cancel every task started so far."""
        for scope in self._scopes:
            scope.cancel(reason)

    @trio.lowlevel.enable_ki_protection  # what serves a connection must not stop in the middle of that
    async def _run(self, scope: trio.CancelScope, fn: Callable[[*Args], Awaitable[None]], args: tuple[*Args]) -> None:
        try:
            with scope:
                await fn(*args)
        finally:
            self._scopes.remove(scope)


@asynccontextmanager
async def open_background() -> AsyncIterator[Background]:
    """Open a place for tasks beside a block.

    The shields are bounded: whatever way the block ends, its tasks are cancelled then. An exception of the block
    leaves as itself, and so does one of a task if it is the only one.
    """
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            background = Background(nursery)
            try:
                yield background
            except Exception as exc:
                # Past the nursery, which would wrap it, and would rebuild it if it is a group itself.
                error = exc
            finally:
                background.cancel("the block they served has ended")
    except BaseExceptionGroup as group:
        if error is not None:
            raise BaseExceptionGroup("the block and a task beside it failed", [error, *group.exceptions]) from None
        if len(group.exceptions) > 1:
            raise
        error = group.exceptions[0]
    if error is not None:
        # Outside the handler, so that the group does not become the context of what it held.
        raise error
