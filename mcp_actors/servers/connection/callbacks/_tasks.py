"""Call a callback in a task of its own, with a timeout."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import outcome
import trio
from attrs import define, field, frozen

from ...._collapse import caused_by, collapse
from ...._foreign import Log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

    from ...._tasks import Background

T = TypeVar("T")

logger = Log("mcp_actors.servers")


class TookTooLong(Exception):
    """A callback timed out."""


@frozen(eq=False)
class CallbackTasks:
    """Runs callbacks.

    Attributes:
        server: the name of the server.
        timeout: seconds for one call.
        background: starts their tasks, and cancels them when it is closed.
    """

    server: str
    timeout: float
    background: Background

    async def call(self, kind: str, fn: Callable[[], Awaitable[T]], context: Context | None = None) -> T:
        """Call a callback in a task of its own; wait for it and return its result.

        **Cancellation**: cancels the callback too, without waiting until it has unwound.

        Args:
            kind: the kind of the callback, for messages.
            fn: calls the callback.
            context: the context variables for it; None for those of the calling task.

        Raises:
            TookTooLong: it timed out. It is cancelled, and not waited for.
            Exception: the exception that it raised, without a group around it.
        """
        call = _Call(fn, self.server, kind)
        start = partial(self.background.start_soon, call.run, name=f"{self.server}:{kind}")
        start() if context is None else context.run(start)
        try:
            with trio.move_on_after(self.timeout):
                await call.done.wait()
        finally:
            call.scope.cancel("its caller has stopped waiting")
        if call.result is None:
            raise TookTooLong
        return call.result.unwrap()


@define(eq=False)
class _Call(Generic[T]):
    """One call. `done` is set when it has returned or raised, or was cancelled.

    A `KeyboardInterrupt` or `SystemExit` passes through and ends the program, which also cancels the waiting task.
    """

    fn: Callable[[], Awaitable[T]]
    server: str
    kind: str
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    done: trio.Event = field(factory=trio.Event)
    result: outcome.Value[T] | outcome.Error | None = None

    @trio.lowlevel.disable_ki_protection  # so that Ctrl-C can interrupt a callback that computes for long
    async def run(self) -> None:
        """Run the callback."""
        try:
            with self.scope:
                self.result = outcome.Value(await self.fn())
        except Exception as exc:
            self._raised(exc)
        except trio.Cancelled as exc:
            # Without a cancellation of this task, the exception comes from another task, through code that passes on
            # its outcome. Raising it here would end everything around, as if this task had been cancelled.
            if trio.current_effective_deadline() == -math.inf:
                raise
            self._raised(caused_by(RuntimeError("raised the trio.Cancelled of another task"), exc))
        self.done.set()

    def _raised(self, exc: Exception) -> None:
        failure = collapse(exc)
        if self.scope.cancel_called:
            logger.warning("server %r: the %s callback raised when cancelled", self.server, self.kind, exc_info=exc)
        elif isinstance(failure, Exception):
            self.result = outcome.Error(failure)
