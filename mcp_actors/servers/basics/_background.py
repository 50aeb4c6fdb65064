"""Background tasks that serve a block until its clean-up is over.

A plain nursery would cancel them too early: a cancellation reaches the block and the tasks at the same moment, while
the clean-up still needs its pipes read. It would also wrap every exception of the block in a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple

import trio

Args = TypeVarTuple("Args")


def _ignore(exc: Exception) -> None:
    """Leave an exception to the block."""


class Background:
    """Starts tasks that are shielded from cancellation, and cancelled when their block has ended.

    Ctrl-C does not interrupt them either: the main task gets it instead. Users' functions that they call drop that
    protection again.
    """

    def __init__(self, nursery: trio.Nursery, on_failure: Callable[[Exception], object]) -> None:
        self._nursery = nursery
        self._on_failure = on_failure
        self._scopes: list[trio.CancelScope] = []
        self._ended = False

    def start_soon(self, fn: Callable[[*Args], Awaitable[None]], *args: *Args, name: str) -> None:
        """Start a task, unless the block has ended. An exception of the task cancels the block and is raised there."""
        if self._ended:
            return  # a caller whose connection was lost outlives the block, and must not fail here
        scope = trio.CancelScope(shield=True)
        self._scopes.append(scope)
        self._nursery.start_soon(self._run, scope, fn, args, name=name)

    def cancel(self, reason: str) -> None:
        """Cancel every task started so far."""
        for scope in self._scopes:
            scope.cancel(reason)

    def end(self, reason: str) -> None:
        """Cancel every task, and start no more."""
        self._ended = True
        self.cancel(reason)

    @trio.lowlevel.enable_ki_protection  # a KeyboardInterrupt here would tear a message or a table in two
    async def _run(self, scope: trio.CancelScope, fn: Callable[[*Args], Awaitable[None]], args: tuple[*Args]) -> None:
        try:
            with scope:
                await fn(*args)
        except Exception as exc:
            self._on_failure(exc)
            raise
        finally:
            self._scopes.remove(scope)


@asynccontextmanager
async def open_background(on_failure: Callable[[Exception], object] = _ignore) -> AsyncIterator[Background]:
    """Open a place for background tasks around a block.

    The shields are bounded: however the block ends, its tasks are cancelled then. An exception of the block leaves as
    itself, and so does the single exception of a task.

    Args:
        on_failure: called with the exception of a task before the block is cancelled.
    """
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            background = Background(nursery, on_failure)
            try:
                yield background
            except Exception as exc:
                # Carried past the nursery, which would wrap it in a group, or rebuild it if it is a group itself.
                error = exc
            finally:
                background.end("the block they served has ended")
    except BaseExceptionGroup as group:
        if error is not None:
            raise BaseExceptionGroup("the block and a background task failed", [error, *group.exceptions]) from None
        if len(group.exceptions) > 1:
            raise
        error = group.exceptions[0]
    if error is not None:
        # Raised outside the handler, so that the group does not become the context of its own member.
        raise error
