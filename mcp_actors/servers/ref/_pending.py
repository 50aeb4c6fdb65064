"""A request sent from outside any Trio task (the asyncio bridge)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..policy import Deadline
    from ..requests import Request
    from ._caller import Caller

T = TypeVar("T")


class PendingRequest(Generic[T]):
    """A request whose result goes to a function instead of a waiting task; see `ServerRef.send_tool_call`.

    The first attempt is a message and needs no task, which saves a tenth of the cost of a small request. Retries,
    middleware and errors do need one, which runs `finish`. So call `send` once; the request is over when its function
    got a result, when `finish` has ended, or after `withdraw`.
    """

    __slots__ = ("_caller", "_deadline", "_failure", "_request")

    def __init__(self, caller: Caller, request: Request[T], deadline: Deadline) -> None:
        self._caller = caller
        self._request = request
        self._deadline = deadline
        self._failure: Exception | None = None

    def send(self, on_answer: Callable[[outcome.Value[T] | None], object]) -> None:
        """Send the request in the current context; `on_answer` is called once, with the result or None.

        None means that `finish` must be awaited for the outcome. The function must not raise, and may be called before
        `send` returns.
        """
        if self._caller.guarded:
            on_answer(None)
            return
        try:
            call = self._caller.send(self._request, self._deadline)
        except Exception as exc:
            self._failure = exc
            on_answer(None)
        else:
            call.on_answer(partial(self._take, on_answer))

    def _take(
        self, on_answer: Callable[[outcome.Value[T] | None], object], answer: outcome.Value[T] | outcome.Error
    ) -> None:
        if isinstance(answer, outcome.Value):
            self._caller.succeeded(self._request, self._deadline, answer.value)
            self._deadline.end()
            on_answer(answer)
        else:
            assert isinstance(answer.error, Exception)
            self._failure = answer.error
            on_answer(None)

    def withdraw(self) -> None:
        """Cancel the request, as if a task that waits for it were cancelled; `on_answer` is not called any more."""
        if self._deadline.call is not None:
            self._deadline.call.withdraw()
        self._deadline.end()

    async def finish(self) -> T:
        """Retry or translate the failure of the first attempt, and return the result.

        **Cancellation**: leaves at once and ends the retries.

        Raises:
            Exception: as for the request itself.
        """
        with self._deadline:
            failure, self._failure = self._failure, None
            if failure is not None:
                # Translate here, not in `_take`: only after that step do the records know why the connection was lost.
                failure = self._caller.translate(failure, self._request)
            try:
                return await self._caller.ask(self._request, self._deadline, failure)
            finally:
                del failure  # whose traceback refers to this frame
