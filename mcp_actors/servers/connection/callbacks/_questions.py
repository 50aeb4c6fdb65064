"""What a server asks (sampling, elicitation, roots), and the user's callbacks that answer it."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeVar

from mcp.types import (
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    ErrorData,
    ListRootsResult,
)

from ...._collapse import caused_by
from ...._errors import LimitExceeded, ServerError
from ....config import CallbackContext
from ...basics import current_trace
from ._tasks import TookTooLong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client.session import ClientRequestContext
    from mcp.types import CreateMessageRequestParams, ElicitRequestParams

    from ...record import ClientCallbacks, ServerRecord
    from ._tasks import CallbackTasks

__all__ = ["MAX_QUESTIONS", "Questions"]

T = TypeVar("T")

logger = logging.getLogger("mcp_actors.servers")

MAX_QUESTIONS: Final = 64
"""What one server may have asked at a time: as many as requests may be with it by default. More is no conversation."""


class Questions:
    """Has the callbacks of one server answer what it asks, over one connection.

    Args:
        record: the server's lasting part.
        tasks: where to run them.
        join_handler: has the running task count as one of the handler that is on (`Actor.join_handler`).
    """

    def __init__(self, record: ServerRecord, tasks: CallbackTasks, join_handler: Callable[[], None]) -> None:
        self._record = record
        self._server = record.config.name
        self._callbacks = record.callbacks
        self._tasks = tasks
        self._join_handler = join_handler
        self._questions = 0
        self._refused = 0

    def for_client(self) -> ClientCallbacks:
        """What to give to `mcp.Client`, which advertises a capability for all that is given, and for nothing else."""
        callbacks = self._callbacks
        given: ClientCallbacks = {}
        if callbacks.sampling is not None:
            given["sampling_callback"] = self._sampling
            given["sampling_capabilities"] = callbacks.sampling_capabilities
        if callbacks.elicitation is not None:
            given["elicitation_callback"] = self._elicitation
        if callbacks.roots is not None:
            given["list_roots_callback"] = self._roots
        return given

    async def _sampling(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        fn = self._callbacks.sampling
        assert fn is not None  # it was not given to the client otherwise
        answers = (CreateMessageResult, CreateMessageResultWithTools)
        return await self._answer("sampling", context, lambda asked: fn(asked, params), answers)

    async def _elicitation(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        fn = self._callbacks.elicitation
        assert fn is not None
        return await self._answer("elicitation", context, lambda asked: fn(asked, params), (ElicitResult,))

    async def _roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        fn = self._callbacks.roots
        assert fn is not None
        return await self._answer("roots", context, fn, (ListRootsResult,))

    async def _answer(
        self,
        kind: str,
        context: ClientRequestContext,
        ask: Callable[[CallbackContext], Awaitable[T | ErrorData]],
        answers: tuple[type[T], ...],
    ) -> T | ErrorData:
        """Have a callback answer what the server asks; if it does not, answer with an error.

        **Cancellation**: the server does not wait any more, or the connection ends. The callback is cancelled.
        """
        modern = context.session.discover_result is not None
        if self._questions >= MAX_QUESTIONS:
            return self._refuse(kind, modern=modern)
        self._join_handler()
        asked = CallbackContext(server=self._server, request_id=context.request_id, meta=context.meta)
        self._questions += 1
        try:
            with self._patience():
                answer = await self._tasks.call(kind, lambda: ask(asked))
        except TookTooLong:
            problem = f"took longer than its timeout of {self._callbacks.timeout:g} s"
            return self._failed(kind, problem, None, REQUEST_TIMEOUT, modern=modern)
        except Exception as exc:
            return self._failed(kind, f"raised {type(exc).__name__}", exc, INTERNAL_ERROR, modern=modern)
        finally:
            self._questions -= 1
        if isinstance(answer, (*answers, ErrorData)):
            return answer
        wanted = " or ".join(f"mcp.types.{each.__name__}" for each in answers)
        problem = f"returned {type(answer).__name__} and not {wanted}"
        return self._failed(kind, problem, None, INTERNAL_ERROR, modern=modern)

    def _patience(self) -> AbstractContextManager[None]:
        """While a callback runs nothing lacks progress. For a request that is known, `_input_required` sees to that."""
        return nullcontext() if current_trace().deadline is not None else self._record.deadlines.held()

    def _failed(self, kind: str, problem: str, cause: Exception | None, code: int, *, modern: bool) -> ErrorData:
        """A callback did not answer. What it said is not told to the server: it is none of its business."""
        logger.error("server %r: the %s callback %s", self._server, kind, problem, exc_info=cause)
        if modern:
            # No message of that era could tell the server. The request that needed the answer ends here, in its own
            # task, and the SDK will make an error of its own of it: this is what its caller is to get.
            trace = current_trace()
            operation = f"{trace.deadline.operation}: " if trace.deadline is not None else ""
            failure = ServerError(
                f"server {self._server!r}: {operation}it asked for {kind}, and the callback for that {problem}; mend "
                "that, and send the request again",
                server=self._server,
            )
            trace.failure = caused_by(failure, cause)
        return ErrorData(code=code, message=f"the client's callback for {kind} failed")

    def _refuse(self, kind: str, *, modern: bool) -> ErrorData:
        self._refused += 1
        level = logging.WARNING if self._refused == 1 else logging.DEBUG
        logger.log(
            level,
            "server %r: asks for more than %d things at a time; the others are refused",
            self._server,
            MAX_QUESTIONS,
        )
        trace = current_trace()
        if modern and trace.deadline is not None:  # as in `_failed`: nobody but the caller can be told
            trace.failure = LimitExceeded(
                f"server {self._server!r}: {trace.deadline.operation}: it asked for {kind} while {MAX_QUESTIONS} of "
                "its questions waited for an answer, which is all that it may ask at a time; send less requests of the "
                "kind at a time, or have the server mended",
                server=self._server,
            )
        return ErrorData(code=INTERNAL_ERROR, message=f"{MAX_QUESTIONS} questions wait for an answer already")
