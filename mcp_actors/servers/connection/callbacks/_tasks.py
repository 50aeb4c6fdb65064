"""Calls of the user's callbacks: each in a task of its own, within its own time."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Generic, TypeVar

import outcome
import trio
from attrs import define, field, frozen

from ...._collapse import caused_by, collapse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

    from ...basics import Background

__all__ = ["CallbackTasks", "TookTooLong"]

T = TypeVar("T")

logger = logging.getLogger("mcp_actors.servers")


class TookTooLong(Exception):
    """A callback did not return in its time."""


@frozen
class CallbackTasks:
    """Where callbacks run.

    Attributes:
        server: for whom.
        timeout: seconds for one call.
        background: where their tasks are started; whoever opened it cancels what is left.
    """

    server: str
    timeout: float
    background: Background

    async def call(self, kind: str, fn: Callable[[], Awaitable[T]], context: Context | None = None) -> T:
        """Call a callback in a task of its own, and wait for what it returns.

        **Cancellation**: the callback is cancelled too, and how long it takes to unwind is not waited for.

        Args:
            kind: which callback it is, for messages.
            fn: calls it.
            context: the context variables that it gets; None: those of the calling task.

        Raises:
            TookTooLong: its time is over. It is cancelled, and not waited for.
            Exception: what it raised, without any group around it.
        """
        call = _Call(fn, self.server, kind)
        name = f"{self.server}:{kind}"
        if context is None:
            self.background.start_soon(call.run, name=name)
        else:
            context.run(lambda: self.background.start_soon(call.run, name=name))
        try:
            with trio.move_on_after(self.timeout):
                await call.done.wait()
        finally:
            call.scope.cancel("nobody waits for what it returns any more")
        if call.result is None:
            raise TookTooLong
        return call.result.unwrap()


@define(eq=False)
class _Call(Generic[T]):
    """One call. It is `done` when it has returned, raised, or nobody wanted it any more.

    What ends the whole program (`KeyboardInterrupt`, `SystemExit`) is no failure of it. That leaves, and whoever waits
    here is cancelled by the end that it brings.
    """

    fn: Callable[[], Awaitable[T]]
    server: str
    kind: str
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    done: trio.Event = field(factory=trio.Event)
    result: outcome.Value[T] | outcome.Error | None = None

    @trio.lowlevel.disable_ki_protection  # a callback may compute for ever
    async def run(self) -> None:
        """The task."""
        try:
            with self.scope:
                self.result = outcome.Value(await self.fn())
        except Exception as exc:
            self._raised(exc)
        except trio.Cancelled as exc:
            # One that came out of somebody else's task, if this one was not cancelled: to let it go on would end
            # everything around, as if that had been wanted.
            if trio.current_effective_deadline() == -math.inf:
                raise
            self._raised(caused_by(RuntimeError("it passed on the cancellation of another task"), exc))
        self.done.set()

    def _raised(self, exc: Exception) -> None:
        failure = collapse(exc)
        if self.scope.cancel_called:
            logger.warning("server %r: the %s callback raised on being cancelled", self.server, self.kind, exc_info=exc)
        elif isinstance(failure, Exception):
            self.result = outcome.Error(failure)
