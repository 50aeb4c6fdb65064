"""A request of somebody who is no task of Trio's. Nearly all such requests take no task at all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._caller import Caller
    from ._deadlines import Deadline
    from ._request import Request

__all__ = ["PendingRequest"]

T = TypeVar("T")


class PendingRequest(Generic[T]):
    """A request whose result is told to somebody, instead of being waited for; see `ServerRef.send_tool_call`.

    Its first attempt is a message and takes no task, which saves a tenth of a small request. If there is more to be
    done than that, it takes one: for `finish`. So `send` it, once; it is over when its result has been told, when
    `finish` has ended, or with `withdraw`.
    """

    __slots__ = ("_caller", "_deadline", "_failure", "_request")

    def __init__(self, caller: Caller, request: Request[T], deadline: Deadline) -> None:
        self._caller = caller
        self._request = request
        self._deadline = deadline
        self._failure: Exception | None = None

    def send(self, on_answer: Callable[[outcome.Value[T] | None], object]) -> None:
        """Send it, in the current context, and have a function called once: with the result, or with None.

        None says that `finish` has to be awaited for what becomes of it. The function must not raise; it may be called
        at once.
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
            self._caller.succeeded(self._deadline)
            self._deadline.end()
            on_answer(answer)
        else:
            assert isinstance(answer.error, Exception)
            self._failure = answer.error
            on_answer(None)

    def withdraw(self) -> None:
        """Want the result no more, as a task that is cancelled while it waits: the function is not called any more."""
        if self._deadline.call is not None:
            self._deadline.call.withdraw()
        self._deadline.end()

    async def finish(self) -> T:
        """Do what there is to do about it, and wait for its result.

        **Cancellation**: leaves at once, and nothing is tried again.

        Raises:
            Exception: as for the request itself.
        """
        with self._deadline:
            failure, self._failure = self._failure, None
            if failure is not None:
                # Not before: what the failure means is known once everything has heard of what led to it.
                failure = self._caller.in_terms_of_servers(failure, self._request)
            try:
                return await self._caller.ask(self._request, self._deadline, failure)
            finally:
                del failure  # whose traceback refers to this frame
