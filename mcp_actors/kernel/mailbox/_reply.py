"""A one-shot slot through which one task answers another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import outcome
import trio
from attrs import define, field

from ..._foreign import Log, shown

T = TypeVar("T")

_log: Final = Log("mcp_actors.kernel")


@define(eq=False, repr=False)
class Reply(Generic[T]):
    """A slot that any task may settle, at most once, and exactly one task awaits.

    A `trio.Event` and a field would do the same. Waking the waiting task directly with its result saves an object and a
    hop, and gives a cancelled waiter a hook (`abandoned`) that runs before it leaves.

    Attributes:
        open: True until there is an answer or the waiting task has left.
    """

    open: bool = field(default=True, init=False)
    _waiter: trio.lowlevel.Task | Callable[[Any], object] | None = field(default=None, init=False)
    _answer: outcome.Value[T] | outcome.Error = field(init=False)

    @property
    def awaited(self) -> bool:
        """True once a task waits, or has waited, for the answer, or `on_answer` was called."""
        return self._waiter is not None

    def settle(self, answer: outcome.Value[T] | outcome.Error) -> bool:
        """Give the answer. Return False, and do nothing, if there is one already or the waiter has left."""
        if not self.open:
            return False
        self.open = False
        waiter = self._waiter
        if waiter is None:
            self._answer = answer
        elif isinstance(waiter, trio.lowlevel.Task):
            trio.lowlevel.reschedule(waiter, answer)
        else:
            _call(waiter, answer)
        return True

    def on_answer(self, fn: Callable[[outcome.Value[T] | outcome.Error], object]) -> None:
        """Call a function with the answer, in the step in which it is given, instead of waiting for it.

        The function must not raise: what it raises is only logged. It is called at once if there is an answer.

        Raises:
            RuntimeError: a task waits, or has waited, for the answer already.
        """
        if self._waiter is not None:
            raise _awaited_already()
        if self.open:
            self._waiter = fn
        else:
            _call(fn, self._taken())

    @trio.lowlevel.enable_ki_protection  # half of it would leave a handler running for a caller that has left
    def withdraw(self) -> None:
        """Leave without the answer; the slot accepts none from now on."""
        if self.open:
            self.open = False
            self.abandoned()

    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> T:
        """Wait for the answer.

        **Cancellation**: the waiter leaves at once, and the slot accepts no answer from then on.

        Raises:
            RuntimeError: a task waits, or has waited, for the answer already.
        """
        if self._waiter is not None:
            raise _awaited_already()
        if not self.open:
            answer = self._taken()
            await trio.lowlevel.cancel_shielded_checkpoint()
            try:
                return answer.unwrap()
            finally:
                del answer  # whose exception has this frame in its traceback
        self._waiter = trio.lowlevel.current_task()
        result: T = await trio.lowlevel.wait_task_rescheduled(self._abort)
        return result

    def _taken(self) -> outcome.Value[T] | outcome.Error:
        """Return the answer that was given before a task has waited for it."""
        self._waiter = _nothing  # it is given once
        answer: outcome.Value[T] | outcome.Error | None = getattr(self, "_answer", None)
        if answer is None:
            raise RuntimeError("this request was withdrawn and has no answer; send it again")
        del self._answer
        return answer

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self.withdraw()
        return trio.lowlevel.Abort.SUCCEEDED

    def abandoned(self) -> None:
        """React to the waiter having left. A hook for subclasses.

        It runs inside the canceller's own step, so it may only leave a mark and wake a task. Cancelling another scope
        from here would recurse through chains of waiting actors.
        """


def _nothing(_: object) -> None:
    """Do nothing: the answer was taken."""


def _awaited_already() -> RuntimeError:
    return RuntimeError("this answer is awaited already, and only one task gets it; send a request for each task")


def _call(fn: Callable[[Any], object], answer: object) -> None:
    """Call a function of a user in the step of an actor that answers, which must be completed."""
    try:
        fn(answer)
    except BaseException:
        with suppress(BaseException):  # there is no tree here that an exit out of a log handler could leave
            _log.exception("the function %s that on_answer() got raised; the actor is not affected", shown(fn))
