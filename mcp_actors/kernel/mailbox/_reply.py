"""The one-shot slot through which one task answers another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import outcome
import trio

T = TypeVar("T")


class Reply(Generic[T]):
    """A slot that is settled at most once, by anybody, and awaited by exactly one task.

    A `trio.Event` and a field would do the same work; waking the waiting task directly with its result costs one
    object and one hop less, and gives a cancelled waiter a hook (`abandoned`) that runs before it leaves.

    Attributes:
        open: True while an answer would be taken: there was none, and the waiting task has not left without one.
    """

    __slots__ = ("_answer", "_waiter", "open")

    open: bool
    _answer: outcome.Value[T] | outcome.Error

    def __init__(self) -> None:
        self.open = True
        self._waiter: trio.lowlevel.Task | Callable[[Any], object] | None = None

    @property
    def awaited(self) -> bool:
        """True once somebody waits, or has waited, for the answer, or wants to be told it."""
        return self._waiter is not None

    def settle(self, answer: outcome.Value[T] | outcome.Error) -> bool:
        """Give the answer. Returns False, and does nothing, if there was one before or the waiter has left."""
        if not self.open:
            return False
        self.open = False
        waiter = self._waiter
        if waiter is None:
            self._answer = answer
        elif isinstance(waiter, trio.lowlevel.Task):
            trio.lowlevel.reschedule(waiter, answer)
        else:
            waiter(answer)
        return True

    def on_answer(self, fn: Callable[[outcome.Value[T] | outcome.Error], object]) -> None:
        """Have a function called with the answer, in the step in which it is given, instead of waiting for it.

        It must not raise. If there is an answer already, it is called at once.
        """
        if self.open:
            self._waiter = fn
        else:
            fn(self._answer)

    def withdraw(self) -> None:
        """Whoever wanted the answer has left; the slot takes none any more."""
        if self.open:
            self.open = False
            self.abandoned()

    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> T:
        """Wait for the answer.

        **Cancellation**: the waiter leaves at once, and the slot takes no answer any more.
        """
        if not self.open:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return self._answer.unwrap()
        self._waiter = trio.lowlevel.current_task()
        return cast("T", await trio.lowlevel.wait_task_rescheduled(self._abort))

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self.withdraw()
        return trio.lowlevel.Abort.SUCCEEDED

    def abandoned(self) -> None:
        """The waiter has just left. A hook for subclasses.

        It runs inside the canceller's own step: it may leave a mark and wake somebody, and nothing more. Cancelling
        another scope from here would recurse through chains of waiting actors.
        """


def value(result: Any) -> outcome.Value[Any]:
    """An answer that is a result."""
    return outcome.Value(result)


def error(exc: BaseException) -> outcome.Error:
    """An answer that is an exception; each waiter needs an exception object of its own."""
    return outcome.Error(exc)
